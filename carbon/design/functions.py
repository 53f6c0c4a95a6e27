"""What a Python function answers, or how it fails: in this process, or in one of its own."""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.errors import UserError
from carbon.parallel.engines import Answer, Death
from carbon.parallel.local import LocalProcesses

if TYPE_CHECKING:
    from carbon.finetune.tasks import LabelTask

Function = Callable[[list[str]], Iterable[float]]


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
    return [_plain_number(value) for value in values]


def _plain_number(value: Any) -> float | str:
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, Real) else repr(value)


def told(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class Oracle:
    """Something that gives a number for a sequence.

    Attributes:
        name: of the column of its values.
        spec: as it was asked for.
    """

    def __init__(self, name: str, spec: str) -> None:
        """Take names; nothing is started."""
        self.name, self.spec = name, spec

    def values(self, names: Sequence[str], sequences: Sequence[str]) -> list[float]:
        """Return a finite number for each sequence.

        Args:
            names: of the sequences, for messages.
            sequences: DNA.

        Raises:
            UserError: the oracle fails, takes too long, or gives anything but such numbers.
        """
        found = list(self._answer(names, sequences))
        if len(found) != len(sequences):
            raise self._wrong(
                f"gave {len(found)} numbers for {len(sequences)} sequences", batch(names)
            )
        for name, value in zip(names, found, strict=True):
            if isinstance(value, str):
                raise self._wrong(f"gave {value[:60]!r}, which is no number", name)
            if not isinstance(value, Real):
                raise self._wrong(f"gave {value!r}, which is no number", name)
            if not math.isfinite(value):
                raise self._wrong(f"gave {value}, which is not finite", name)
        return [float(value) for value in found]

    def close(self) -> None:
        """End its process, if it has one."""

    def _answer(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        """Return numbers, or text where there are none."""
        raise NotImplementedError

    def _raised(self, error: str, number: int | None, names: Sequence[str]) -> UserError:
        """Name the sequence that the oracle does not take, or the batch."""
        return self._wrong(f"raised {error}", batch(names) if number is None else names[number])

    def _wrong(self, what: str, of: str) -> UserError:
        return UserError(f"oracle '{self.name}': {of}: it {what}; mend the oracle")


def batch(names: Sequence[str]) -> str:
    """Name a batch.

    >>> batch(["design_3", "design_4"])
    'design_3 to design_4'
    """
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


class InProcess(Oracle):
    """A callable of this process: it has no time limit."""

    def __init__(self, function: Function) -> None:
        """Take what is to be called with a list of sequences."""
        name = _name_of_callable(function)
        super().__init__(name, f"callable:{name}")
        self._function = function

    def _answer(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        try:
            return plain(self._function(list(sequences)))
        except Exception as error:
            bad = number_of_bad(self._function, sequences)
            raise self._raised(told(error), bad, names) from error


def _name_of_callable(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__).strip("<>")


def _python(what: str) -> Function:
    """Return `MODULE:FUNCTION`, of the working folder or an installed package."""
    sys.path.insert(0, os.getcwd())
    module, _, name = what.partition(":")
    found: Function = getattr(import_module(module), name)
    return found


def _finetuned(what: str) -> Function:
    # By name: `Model.design` uses this module, and the loading of fine-tuned models uses `Model`.
    loading = import_module("carbon.finetune.load")
    finetuned = loading.load_finetuned(folder_and_label(what)[0])
    column = column_of(what, finetuned.task)
    return lambda sequences: [each[column] for each in finetuned.predict(sequences)]


FUNCTIONS: dict[str, Callable[[str], Function]] = {"python": _python, "finetuned": _finetuned}


class ScoringWorker:
    """A worker: sequences in; their `values` out, or the `error` and the `number` it is of.

    Attributes:
        about: `error` if the function cannot be imported or the model cannot be loaded.
    """

    about: dict[str, Any]

    def __init__(self, kind: str, what: str) -> None:
        """Import a function or load a model."""
        self.about = {"values": []}
        try:
            self._function = FUNCTIONS[kind](what)
        except Exception as error:
            self.about = {"error": told(error)}

    def __call__(self, payload: list[str]) -> dict[str, Any]:
        """Return the value of each sequence."""
        try:
            return {"values": plain(self._function(payload))}
        except Exception as error:
            return {"error": told(error), "number": number_of_bad(self._function, payload)}


class ProcessOracle(Oracle):
    """A Python function or a fine-tuned model, in a process of its own that lasts."""

    def __init__(self, name: str, kind: str, what: str, timeout_seconds: float) -> None:
        """Start the process, and wait until the function is imported or the model is loaded."""
        super().__init__(name, f"{kind}:{what}")
        self._timeout_seconds = timeout_seconds
        self._process = LocalProcesses(partial(ScoringWorker, kind, what), [{}], "spawn")
        self._process.submit(0, None, None)
        self._values(["the start"])

    def _answer(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        self._process.submit(0, 0, list(sequences))
        return self._values(names)

    def _values(self, names: Sequence[str]) -> list[Any]:
        answer = self._event(names)
        if isinstance(answer, Death):
            raise self._wrong(f"has ended ({answer.reason})", batch(names))
        if "error" in answer.value:
            raise self._raised(answer.value["error"], answer.value.get("number"), names)
        values: list[Any] = answer.value["values"]
        return values

    def _event(self, names: Sequence[str]) -> Answer | Death:
        """Wait for what the process answers, or for its end."""
        end = time.monotonic() + self._timeout_seconds
        while (left := end - time.monotonic()) > 0:
            for event in self._process.results(left):
                return event
        self.close()
        raise self._wrong(late(self._timeout_seconds), batch(names))

    def close(self) -> None:
        """End the process and all that it has started."""
        self._process.close()


class CommandOracle(Oracle):
    """A command that reads FASTA and prints a number a line; it is started for every batch."""

    def __init__(self, name: str, what: str, timeout_seconds: float) -> None:
        """Take the command; no shell reads it."""
        super().__init__(name, f"command:{what}")
        self._words = shlex.split(what)
        self._timeout_seconds = timeout_seconds

    def _answer(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        fasta = "".join(f">{n}\n{s}\n" for n, s in zip(names, sequences, strict=True))
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise self._wrong(f"cannot be started ({error.strerror})", batch(names)) from None
        try:
            printed, said = process.communicate(fasta, self._timeout_seconds)
        except subprocess.TimeoutExpired:
            raise self._wrong(late(self._timeout_seconds), batch(names)) from None
        finally:
            end_group(process)
        if process.returncode:
            last = said.strip().rpartition("\n")[2]
            raise self._wrong(f"has ended ({last or _how(process.returncode)})", batch(names))
        return [_number(line.strip()) for line in printed.splitlines() if line.strip()]


def late(seconds: float) -> str:
    """Say that an answer has not come."""
    return f"did not answer in {seconds:g} seconds (--timeout)"


def end_group(process: "subprocess.Popen[Any]") -> None:
    """End a process with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def folder_and_label(what: str) -> tuple[str, str | None]:
    """Part `FOLDER:LABEL`; a folder that is there may have a colon in its name."""
    folder, colon, label = what.rpartition(":")
    return (what, None) if not colon or Path(what).is_dir() else (folder, label)


def column_of(what: str, task: "LabelTask") -> int:
    """Return which output of a fine-tuned model `FOLDER:LABEL` means.

    Raises:
        UserError: it is not one number of a sequence.
    """
    folder, label = folder_and_label(what)
    names = task.output_names
    if task.per_base:
        raise UserError(f"{folder}: predicts every base; an oracle needs one number a sequence")
    if label is None and len(names) == 1:
        return 0
    if label not in names:
        raise UserError(
            f"{folder}: predicts {', '.join(names)}; say which: finetuned:{folder}:LABEL"
        )
    return names.index(label)


class OracleKind(NamedTuple):
    """A kind of oracle that can be named in text.

    Attributes:
        form: of what stands behind the colon.
        name: from that to a name.
        check: raises UserError where it cannot be.
        start: from name, what stands there, and seconds for a batch.
    """

    form: str
    name: Callable[[str], str]
    check: Callable[[str], object]
    start: Callable[[str, str, float], Oracle]


def _check_function(what: str) -> None:
    if not all(part and " " not in part for part in what.split(":")) or what.count(":") != 1:
        raise UserError(f"oracle python:{what}: give python:MODULE:FUNCTION")


def _check_folder(what: str) -> None:
    from carbon.finetune.folder import read_manifest

    column_of(what, read_manifest(folder_and_label(what)[0]).task)


def _check_command(what: str) -> None:
    try:
        words = shlex.split(what)
    except ValueError as error:
        raise UserError(f"oracle command:{what}: {str(error).lower()}") from None
    if not words:
        raise UserError("oracle command: give a command behind the colon")


def _name_of_folder(what: str) -> str:
    folder, label = folder_and_label(what)
    return label or Path(folder).name


ORACLES: dict[str, OracleKind] = {
    "finetuned": OracleKind(
        "FOLDER[:LABEL]",
        _name_of_folder,
        _check_folder,
        lambda name, what, seconds: ProcessOracle(name, "finetuned", what, seconds),
    ),
    "python": OracleKind(
        "MODULE:FUNCTION",
        lambda what: what.partition(":")[2],
        _check_function,
        lambda name, what, seconds: ProcessOracle(name, "python", what, seconds),
    ),
    "command": OracleKind(
        "COMMAND", lambda what: Path(shlex.split(what)[0]).stem, _check_command, CommandOracle
    ),
}


class Named(NamedTuple):
    """An oracle that text names: `NAME=KIND:WHAT`, or `KIND:WHAT`; or a callable, by its name."""

    name: str
    kind: str
    what: str


def named_oracle(oracle: str | Function) -> Named:
    """Read an oracle, and look whether it can be.

    Raises:
        UserError: there is no such kind, folder or form.
    """
    if not isinstance(oracle, str):
        name = _name_of_callable(oracle)
        return Named(name, "callable", name)
    return _read(oracle)


def _read(text: str) -> Named:
    head, colon, what = text.partition(":")
    name, _, kind = head.rpartition("=")
    if not colon or kind not in ORACLES:
        forms = ", ".join(f"{kind}:{known.form}" for kind, known in ORACLES.items())
        raise UserError(f"oracle '{text}': give one of {forms}")
    ORACLES[kind].check(what)
    name = name or ORACLES[kind].name(what)
    if not re.fullmatch(r"[\w.-]+", name):
        raise UserError(
            f"oracle '{text}': its name '{name}' is no word of letters, digits, '_', '.' and '-'; "
            "write NAME=KIND:..."
        )
    return Named(name, kind, what)


def started(
    oracles: Sequence[str | Function], timeout_seconds: float, taken: Sequence[str] = ()
) -> list[Oracle]:
    """Return oracles ready to be asked.

    Args:
        oracles: as `named_oracle` reads them, or callables.
        timeout_seconds: for a batch, and for the start of a process.
        taken: names that none may have.

    Raises:
        UserError: one cannot be, two have one name, or one does not start.
    """
    named = [named_oracle(each) for each in oracles]
    names = [each.name for each in named]
    if not named:
        raise UserError("no oracle: give at least one")
    if twice := [name for name in names if [*names, *taken].count(name) > 1]:
        raise UserError(f"two columns would be called '{twice[0]}'; name it: NAME=KIND:...")
    ready: list[Oracle] = []
    try:
        for oracle, each in zip(oracles, named, strict=True):
            ready.append(
                ORACLES[each.kind].start(each.name, each.what, timeout_seconds)
                if isinstance(oracle, str)
                else InProcess(oracle)
            )
    except BaseException:
        for begun in ready:
            begun.close()
        raise
    return ready


def finetuned_contents(oracles: Sequence[str | Function]) -> dict[str, list[str]]:
    """Return the SHA-256 of the files of each fine-tuned model among oracles, by the oracle's name.

    Functions and commands are left out: one that failed may be corrected before a run goes on.
    """
    from carbon.finetune.folder import content_of

    named = [named_oracle(each) for each in oracles]
    return {
        each.name: content_of(Path(folder_and_label(each.what)[0]))
        for each in named
        if each.kind == "finetuned"
    }
