"""Scoring functions: Python functions, fine-tuned models, commands and callables.

Each returns a finite number for each sequence, or raises a UserError that names the sequence.
"""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
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
"""From sequences to a number for each."""


class ScoringFunction:
    """Computes a number for each sequence.

    Attributes:
        name: of the column of its values.
        spec: kind and argument, such as `python:MODULE:FUNCTION`.
    """

    def __init__(self, name: str, spec: str) -> None:
        self.name, self.spec = name, spec

    def values(self, names: Sequence[str], sequences: Sequence[str]) -> list[float]:
        """Return a finite number for each sequence.

        Args:
            names: of the sequences, for messages.
            sequences: DNA.

        Raises:
            UserError: the function fails, exceeds its time limit, or returns anything else.
        """
        values = list(self._compute(names, sequences))
        if len(values) != len(sequences):
            raise self._error(
                f"gave {len(values)} numbers for {len(sequences)} sequences", batch_name(names)
            )
        for name, value in zip(names, values, strict=True):
            if isinstance(value, str):
                raise self._error(f"gave {value[:60]!r}, which is not a number", name)
            if not isinstance(value, Real):
                raise self._error(f"gave {value!r}, which is not a number", name)
            if not math.isfinite(value):
                raise self._error(f"gave {value}, which is not finite", name)
        return [float(value) for value in values]

    def close(self) -> None:
        """End the worker process, if there is one."""

    def _compute(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        """Return a number for each sequence, or text in place of a missing number."""
        raise NotImplementedError

    def _exception(self, error: str, number: int | None, names: Sequence[str]) -> UserError:
        """Return an error that names the failing sequence, or the batch if unknown."""
        return self._error(
            f"raised {error}", batch_name(names) if number is None else names[number]
        )

    def _error(self, problem: str, subject: str) -> UserError:
        return UserError(f"scoring function '{self.name}': {subject}: it {problem}; correct it")


def batch_name(names: Sequence[str]) -> str:
    """Return a name for a batch.

    >>> batch_name(["design_3", "design_4"])
    'design_3 to design_4'
    """
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _failing_index(function: Function, sequences: Sequence[str]) -> int | None:
    """Return the first sequence that fails alone; None if none does."""
    for number, sequence in enumerate(sequences):
        try:
            function([sequence])
        except Exception:
            return number
    return None


def _json_values(values: Any) -> list[Any]:
    """Return floats, and the `repr` of values that are not numbers."""
    return [_json_value(value) for value in values]


def _json_value(value: Any) -> float | str:
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, Real) else repr(value)


def _describe(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class CallableFunction(ScoringFunction):
    """A callable that runs in this process, without a time limit."""

    def __init__(self, function: Function) -> None:
        name = _callable_name(function)
        super().__init__(name, f"callable:{name}")
        self._function = function

    def _compute(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        try:
            return _json_values(self._function(list(sequences)))
        except Exception as error:
            failing = _failing_index(self._function, sequences)
            raise self._exception(_describe(error), failing, names) from error


def _callable_name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__).strip("<>")


def _load_python(argument: str) -> Function:
    """Import `MODULE:FUNCTION`, from the working folder or an installed package."""
    sys.path.insert(0, os.getcwd())
    module, _, name = argument.partition(":")
    function: Function = getattr(import_module(module), name)
    return function


def _load_finetuned(argument: str) -> Function:
    # Imported by name: fine-tuned models are loaded with `Model`, whose layer is below this one.
    load = import_module("carbon.finetune.predict")
    finetuned = load.load_finetuned(split_label(argument)[0])
    column = column_of(argument, finetuned.task)
    return lambda sequences: [outputs[column] for outputs in finetuned.predict(sequences)]


LOADERS: dict[str, Callable[[str], Function]] = {
    "python": _load_python,
    "finetuned": _load_finetuned,
}


class ScoringWorker:
    """A worker process: takes sequences; returns `values`, or `error` and the failing `number`.

    Attributes:
        about: has an `error` if the function cannot be imported or the model cannot be loaded.
    """

    about: dict[str, Any]

    def __init__(self, kind: str, argument: str) -> None:
        """Import the function or load the model."""
        self.about = {"values": []}
        try:
            self._function = LOADERS[kind](argument)
        except Exception as error:
            self.about = {"error": _describe(error)}

    def __call__(self, payload: list[str]) -> dict[str, Any]:
        """Return the value of each sequence."""
        try:
            return {"values": _json_values(self._function(payload))}
        except Exception as error:
            number = _failing_index(self._function, payload)
            return {"error": _describe(error), "number": number}


class ProcessFunction(ScoringFunction):
    """A Python function or a fine-tuned model in a persistent worker process."""

    def __init__(self, name: str, argument: str, timeout_seconds: float, *, kind: str) -> None:
        """Start the process, and wait until the function is imported or the model is loaded."""
        super().__init__(name, f"{kind}:{argument}")
        self._timeout_seconds = timeout_seconds
        self._process = LocalProcesses(partial(ScoringWorker, kind, argument), [{}], "spawn")
        self._process.submit(0, None, None)
        self._wait_for_values(["the start"])

    def _compute(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
        self._process.submit(0, 0, list(sequences))
        return self._wait_for_values(names)

    def _wait_for_values(self, names: Sequence[str]) -> list[Any]:
        answer = self._wait_for_event(names)
        if isinstance(answer, Death):
            raise self._error(f"ended ({answer.reason})", batch_name(names))
        if "error" in answer.value:
            raise self._exception(answer.value["error"], answer.value.get("number"), names)
        values: list[Any] = answer.value["values"]
        return values

    def _wait_for_event(self, names: Sequence[str]) -> Answer | Death:
        """Wait until the process answers or ends, or the time limit is exceeded."""
        end = time.monotonic() + self._timeout_seconds
        while (left := end - time.monotonic()) > 0:
            for event in self._process.results(left):
                return event
        self.close()
        raise self._error(_late(self._timeout_seconds), batch_name(names))

    def close(self) -> None:
        """End the process and its children."""
        self._process.close()


class CommandFunction(ScoringFunction):
    """A command that reads FASTA and prints one number per line; it is started for every batch."""

    def __init__(self, name: str, argument: str, timeout_seconds: float) -> None:
        """Split the command into words; no shell interprets it."""
        super().__init__(name, f"command:{argument}")
        self._words = shlex.split(argument)
        self._timeout_seconds = timeout_seconds

    def _compute(self, names: Sequence[str], sequences: Sequence[str]) -> Iterable[Any]:
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
            raise self._error(f"cannot be started ({error.strerror})", batch_name(names)) from None
        try:
            stdout, stderr = process.communicate(fasta, self._timeout_seconds)
        except subprocess.TimeoutExpired:
            raise self._error(_late(self._timeout_seconds), batch_name(names)) from None
        finally:
            _end_group(process)
        if process.returncode:
            last = stderr.strip().rpartition("\n")[2]
            raise self._error(f"ended ({last or _exit(process.returncode)})", batch_name(names))
        return [_number_or_text(line.strip()) for line in stdout.splitlines() if line.strip()]


def _late(seconds: float) -> str:
    return f"did not answer in {seconds:g} seconds (--timeout)"


def _end_group(process: "subprocess.Popen[Any]") -> None:
    """End a process and its children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def split_label(argument: str) -> tuple[str, str | None]:
    """Split `FOLDER:LABEL`; an existing folder may have a colon in its name."""
    folder, colon, label = argument.rpartition(":")
    return (argument, None) if not colon or Path(argument).is_dir() else (folder, label)


def column_of(argument: str, task: "LabelTask") -> int:
    """Return the index of the output of a fine-tuned model that `FOLDER:LABEL` names.

    Raises:
        UserError: the argument does not select one number per sequence.
    """
    folder, label = split_label(argument)
    names = task.output_names
    if task.per_base:
        raise UserError(
            f"{folder}: predicts every base; a scoring function needs one number per sequence"
        )
    if label is None and len(names) == 1:
        return 0
    if label not in names:
        raise UserError(f"{folder}: predicts {', '.join(names)}; give finetuned:{folder}:LABEL")
    return names.index(label)


class FunctionType(NamedTuple):
    """A type of scoring function that text can name.

    Attributes:
        form: syntax of the argument after the colon.
        name: from the argument to a default name.
        check: raises UserError if the argument is invalid.
        start: from name, argument, and seconds for a batch.
    """

    form: str
    name: Callable[[str], str]
    check: Callable[[str], object]
    start: Callable[[str, str, float], ScoringFunction]


def _check_python(argument: str) -> None:
    parts = argument.split(":")
    if len(parts) != 2 or not all(part and " " not in part for part in parts):
        raise UserError(f"scoring function python:{argument}: give python:MODULE:FUNCTION")


def _check_folder(argument: str) -> None:
    from carbon.finetune.folder import read_manifest

    column_of(argument, read_manifest(split_label(argument)[0]).task)


def _check_command(argument: str) -> None:
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise UserError(f"scoring function command:{argument}: {str(error).lower()}") from None
    if not words:
        raise UserError("scoring function command: give a command after the colon")


def _folder_name(argument: str) -> str:
    folder, label = split_label(argument)
    return label or Path(folder).name


FUNCTION_TYPES: dict[str, FunctionType] = {
    "finetuned": FunctionType(
        "FOLDER[:LABEL]", _folder_name, _check_folder, partial(ProcessFunction, kind="finetuned")
    ),
    "python": FunctionType(
        "MODULE:FUNCTION",
        lambda argument: argument.partition(":")[2],
        _check_python,
        partial(ProcessFunction, kind="python"),
    ),
    "command": FunctionType(
        "COMMAND",
        lambda argument: Path(shlex.split(argument)[0]).stem,
        _check_command,
        CommandFunction,
    ),
}


class FunctionSpec(NamedTuple):
    """A parsed scoring function: `[NAME=]KIND:ARGUMENT`, or a callable with its name."""

    name: str
    kind: str
    argument: str


def parse_function(function: str | Function) -> FunctionSpec:
    """Parse and check a scoring function.

    Raises:
        UserError: the kind, the folder or the syntax is invalid.
    """
    if not isinstance(function, str):
        name = _callable_name(function)
        return FunctionSpec(name, "callable", name)
    head, colon, argument = function.partition(":")
    name, _, kind = head.rpartition("=")
    if not colon or kind not in FUNCTION_TYPES:
        forms = ", ".join(f"{kind}:{known.form}" for kind, known in FUNCTION_TYPES.items())
        raise UserError(f"scoring function '{function}': give one of {forms}")
    FUNCTION_TYPES[kind].check(argument)
    name = name or FUNCTION_TYPES[kind].name(argument)
    if not re.fullmatch(r"[\w.-]+", name):
        raise UserError(
            f"scoring function '{function}': its name '{name}' has other characters than letters, "
            "digits, '_', '.' and '-'; write NAME=KIND:..."
        )
    return FunctionSpec(name, kind, argument)


def start_functions(
    functions: Sequence[str | Function], timeout_seconds: float, reserved: Sequence[str] = ()
) -> list[ScoringFunction]:
    """Start scoring functions; the caller closes them.

    Args:
        functions: text for `parse_function`, or callables.
        timeout_seconds: for a batch, and for the start of a process.
        reserved: column names that no function may have.

    Raises:
        UserError: a function is invalid or does not start, or two have the same name.
    """
    specs = [parse_function(function) for function in functions]
    names = [spec.name for spec in specs]
    if not specs:
        raise UserError("no scoring function: give at least one")
    if twice := [name for name in names if [*names, *reserved].count(name) > 1]:
        raise UserError(f"two columns would be called '{twice[0]}'; name it: NAME=KIND:...")
    with ExitStack() as stack:
        started = [
            stack.enter_context(closing(_start(function, spec, timeout_seconds)))
            for function, spec in zip(functions, specs, strict=True)
        ]
        stack.pop_all()
    return started


def _start(function: str | Function, spec: FunctionSpec, timeout_seconds: float) -> ScoringFunction:
    if not isinstance(function, str):
        return CallableFunction(function)
    return FUNCTION_TYPES[spec.kind].start(spec.name, spec.argument, timeout_seconds)


@contextmanager
def running_functions(
    functions: Sequence[str | Function], timeout_seconds: float, reserved: Sequence[str] = ()
) -> Iterator[list[ScoringFunction]]:
    """Start scoring functions as `start_functions` does, and close them at the end."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(function))
            for function in start_functions(functions, timeout_seconds, reserved)
        ]


def finetuned_digests(functions: Sequence[str | Function]) -> dict[str, list[str]]:
    """Return the SHA-256 of the files of each fine-tuned model, by the function's name.

    Python functions and commands are left out: users may correct them before they resume a run.
    """
    from carbon.finetune.folder import content_of

    specs = [parse_function(function) for function in functions]
    return {
        spec.name: content_of(Path(split_label(spec.argument)[0]))
        for spec in specs
        if spec.kind == "finetuned"
    }
