"""The process that an oracle has of its own: `python -m carbon.design.asked KIND WHAT`.

It reads a line of JSON for a batch, a list of sequences, and answers with a line: `values`, or the
`error` and which of the sequences it is of. What the oracle prints goes to standard error.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TextIO

from carbon.design.answers import Function, number_of_bad, plain, told


def _python(what: str) -> Function:
    module, _, name = what.partition(":")
    found: Function = getattr(import_module(module), name)
    return found


def _adapted(what: str) -> Function:
    from carbon.adapt.loading import load_adapted
    from carbon.design.oracles import column_of, folder_and_label

    adapted = load_adapted(folder_and_label(what)[0])
    column = column_of(what, adapted.question)
    return lambda sequences: [each[column] for each in adapted.predict(sequences)]


KINDS: dict[str, Callable[[str], Function]] = {"python": _python, "adapted": _adapted}


def main() -> None:
    """Answer until there is nothing more to read."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    kind, what = sys.argv[1:]
    try:
        function = KINDS[kind](what)
    except Exception as error:
        _say(answers, {"error": told(error)})
        return
    _say(answers, {"values": []})
    for line in sys.stdin:
        _say(answers, _answer(function, json.loads(line)))


def _answer(function: Function, sequences: list[str]) -> dict[str, Any]:
    try:
        return {"values": plain(function(sequences))}
    except Exception as error:
        return {"error": told(error), "number": number_of_bad(function, sequences)}


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
