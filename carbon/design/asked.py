"""The process that an oracle has of its own: `python -m carbon.design.asked KIND WHAT`.

It reads a line of JSON for a batch, a list of sequences, and answers with a line: `values`, or the
`error` and which of the sequences it is of. What the oracle prints goes to standard error.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from numbers import Real
from typing import Any, TextIO

Function = Callable[[list[str]], Iterable[float]]


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


def number_of_bad(function: Function, sequences: Sequence[str]) -> int | None:
    """Return which sequence the function does not take, even alone; None if it takes each alone."""
    for number, sequence in enumerate(sequences):
        try:
            function([sequence])
        except Exception:
            return number
    return None


def plain(values: Any) -> list[Any]:
    """Return numbers as JSON has them, and what is none as text."""
    return [_number(value) for value in values]


def _number(value: Any) -> float | str:
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, Real) else repr(value)


def told(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
