"""Scoring functions: Python functions, fine-tuned models, codon tables, commands and callables.

Each returns a finite number for each sequence, or raises a UserError that names the sequence. A
callable is called in this process; the others have a worker process of their own, so that a time
limit holds for them.
"""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import fasta_text
from carbon.io.files import content_sha256
from carbon.parallel.engines import Death, Engine, Failure, InProcess
from carbon.parallel.local import LocalProcesses

if TYPE_CHECKING:
    from carbon.finetune.tasks import LabelTask

Function = Callable[[list[str]], Iterable[float]]
"""From sequences to a number for each."""

Compute = Callable[[Sequence[str], list[str]], Iterable[Any]]
"""From names and sequences to a number for each, or text in place of a missing number."""


class ScoringFunction:
    """A running scoring function.

    Attributes:
        name: of the column of its values.
        spec: kind and argument, such as `python:MODULE:FUNCTION`.
    """

    def __init__(self, name: str, spec: str, engine: Engine, timeout_seconds: float) -> None:
        """Start the worker, and wait until it is ready.

        Args:
            name: see above.
            spec: see above.
            engine: of one `ScoringWorker`.
            timeout_seconds: for the start and for each batch; a callable has no limit.
        """
        self.name, self.spec = name, spec
        self._engine, self._timeout_seconds = engine, timeout_seconds
        self._answer(None, None, "the start")

    def values(self, names: Sequence[str], sequences: Sequence[str]) -> list[float]:
        """Return a finite number for each sequence.

        Args:
            names: of the sequences, for messages.
            sequences: DNA.

        Raises:
            UserError: the function fails, exceeds its time limit, or returns anything else.
        """
        values: list[float] = self._answer(0, (names, sequences), batch_name(names))
        return values

    def close(self) -> None:
        """End the worker process and its children, if there is one."""
        self._engine.close()

    def _answer(self, number: int | None, payload: Any, subject: str) -> Any:
        """Return the worker's answer, and end the worker if it is late or fails to start."""
        self._engine.submit(0, number, payload)
        end = time.monotonic() + self._timeout_seconds
        while (left := end - time.monotonic()) > 0:
            for event in self._engine.results(left):
                if isinstance(event, Death):
                    raise _error(self.name, subject, f"ended ({event.reason})")
                if isinstance(event.value, Failure):
                    raise event.value.kind(*event.value.arguments)
                return event.value
        self.close()
        late = f"did not answer in {self._timeout_seconds:g} seconds (--timeout)"
        raise _error(self.name, subject, late)


def batch_name(names: Sequence[str]) -> str:
    """Return a name for a batch.

    >>> batch_name(["design_3", "design_4"])
    'design_3 to design_4'
    """
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _error(function: str, subject: str, problem: str) -> UserError:
    return UserError(f"scoring function '{function}': {subject}: it {problem}; correct it")


class ScoringWorker:
    """Computes and checks the values of batches, each a pair of names and sequences."""

    about: dict[str, Any]

    def __init__(self, name: str, load: Callable[[], Compute]) -> None:
        """Load the function, such as by an import.

        Args:
            name: of the scoring function, for messages.
            load: returns the function.
        """
        self.about, self._name = {}, name
        try:
            self._compute = load()
        except Exception as error:
            raise _error(name, "the start", f"raised {_describe(error)}") from error

    def __call__(self, payload: tuple[Sequence[str], Sequence[str]]) -> list[float]:
        """Return a finite number for each sequence.

        Raises:
            UserError: the function fails or returns anything else.
        """
        names, sequences = payload
        try:
            values = [_plain(value) for value in self._compute(names, list(sequences))]
        except _CommandError as error:
            raise _error(self._name, batch_name(names), str(error)) from None
        except Exception as error:
            subject = self._first_failing(names, sequences)
            raise _error(self._name, subject, f"raised {_describe(error)}") from error
        if len(values) != len(sequences):
            problem = f"gave {len(values)} numbers for {len(sequences)} sequences"
            raise _error(self._name, batch_name(names), problem)
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, Real):
                raise _error(self._name, name, f"gave {value!r:.60}, which is not a number")
            if not math.isfinite(value):
                raise _error(self._name, name, f"gave {value}, which is not finite")
        return [float(value) for value in values]

    def _first_failing(self, names: Sequence[str], sequences: Sequence[str]) -> str:
        """Return the name of the first sequence that fails alone, or of the batch."""
        for name, sequence in zip(names, sequences, strict=True):
            try:
                self._compute([name], [sequence])
            except Exception:
                return name
        return batch_name(names)


def _plain(value: Any) -> Any:
    """Return the number in a scalar of NumPy or torch."""
    return value.item() if hasattr(value, "item") else value


def _describe(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _computing(function: Function) -> Compute:
    return lambda names, sequences: function(sequences)


def _load_python(argument: str) -> Compute:
    """Import `MODULE:FUNCTION`, from the working folder or an installed package."""
    sys.path.insert(0, os.getcwd())
    module, _, name = argument.partition(":")
    return _computing(getattr(import_module(module), name))


def _load_finetuned(argument: str) -> Compute:
    # Imported by name: fine-tuned models are loaded with `Model`, whose layer is below this one.
    load = import_module("carbon.finetune.predict")
    finetuned = load.load_finetuned(split_label(argument)[0])
    column = column_of(argument, finetuned.task)
    return _computing(
        lambda sequences: [outputs[column] for outputs in finetuned.predict(sequences)]
    )


def _load_codons(argument: str) -> Compute:
    """Return the codon adaptation index for the codon usage of a host."""
    from carbon.design.benchmark_functions import codon_adaptation

    return _computing(codon_adaptation(_usage_of(argument)))


def _usage_of(argument: str) -> Mapping[str, float]:
    """Read a table of codon usage, or count the codons in the genes of `FASTA:ANNOTATION`."""
    from carbon.genome.codon_usage import codon_usage, read_codon_usage
    from carbon.genome.genome import Genome

    fasta, annotation = _host_files(argument)
    if annotation is None:
        return read_codon_usage(fasta)
    counts = codon_usage(Genome.open(fasta, annotation))
    if not counts:
        raise UserError(f"{annotation}: has no CDS of known codons; give genes of the host")
    return counts


def _host_files(argument: str) -> tuple[Path, Path | None]:
    """Split `TABLE` or `FASTA:ANNOTATION`; an existing file may have a colon in its name."""
    fasta, colon, annotation = argument.rpartition(":")
    is_table = not colon or Path(argument).is_file()
    return (Path(argument), None) if is_table else (Path(fasta), Path(annotation))


class _CommandError(Exception):
    """A command cannot be started or fails; the text is the problem."""


def _load_command(argument: str) -> Compute:
    """Return a function that starts a command for each batch; no shell interprets it."""
    return partial(_run_command, shlex.split(argument))


def _run_command(words: list[str], names: Sequence[str], sequences: list[str]) -> list[Any]:
    """Send sequences as FASTA to a command, and return the number in each printed line."""
    fasta = fasta_text(zip(names, sequences, strict=True))
    try:
        done = subprocess.run(
            words, input=fasta, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise _CommandError(f"cannot be started ({error.strerror})") from None
    if code := done.returncode:
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise _CommandError(f"ended ({done.stderr.strip().rpartition(chr(10))[2] or ended})")
    return [_number_or_text(line.strip()) for line in done.stdout.splitlines() if line.strip()]


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


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
        load: from the argument to the function, in the worker process.
        digests: from the argument to the SHA-256 of the files that the values depend on.
    """

    form: str
    name: Callable[[str], str]
    check: Callable[[str], object]
    load: Callable[[str], Compute]
    digests: Callable[[str], list[str]]


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


def _check_codons(argument: str) -> None:
    for path in filter(None, _host_files(argument)):
        if not path.is_file():
            raise UserError(
                f"scoring function codons:{argument}: {path}: no such file; give a table of codon "
                "usage, or FASTA:ANNOTATION of the host"
            )
    if _host_files(argument)[1] is None:
        _usage_of(argument)


def _folder_digests(argument: str) -> list[str]:
    from carbon.finetune.folder import content_of

    return content_of(Path(split_label(argument)[0]))


def _host_digests(argument: str) -> list[str]:
    return [content_sha256(path) for path in _host_files(argument) if path]


def _no_digests(argument: str) -> list[str]:
    """Return no digest of a program: users may correct it before they resume a run."""
    return []


def _codons_name(argument: str) -> str:
    return "codons"


def _folder_name(argument: str) -> str:
    folder, label = split_label(argument)
    return label or Path(folder).name


def _function_name(argument: str) -> str:
    return argument.partition(":")[2]


def _command_name(argument: str) -> str:
    return Path(shlex.split(argument)[0]).stem


FUNCTION_TYPES: dict[str, FunctionType] = {
    "finetuned": FunctionType(
        "FOLDER[:LABEL]", _folder_name, _check_folder, _load_finetuned, _folder_digests
    ),
    "python": FunctionType(
        "MODULE:FUNCTION", _function_name, _check_python, _load_python, _no_digests
    ),
    "codons": FunctionType(
        "TABLE|FASTA:ANNOTATION", _codons_name, _check_codons, _load_codons, _host_digests
    ),
    "command": FunctionType("COMMAND", _command_name, _check_command, _load_command, _no_digests),
}


class FunctionSpec(NamedTuple):
    """A parsed scoring function: `[NAME=]KIND:ARGUMENT`, or a callable with its name."""

    name: str
    kind: str
    argument: str

    @property
    def text(self) -> str:
        """Return kind and argument, for the settings of a run."""
        return f"{self.kind}:{self.argument}"


def parse_function(function: str | Function) -> FunctionSpec:
    """Parse and check a scoring function.

    Raises:
        UserError: the kind, the folder or the syntax is invalid.
    """
    if not isinstance(function, str):
        name = getattr(function, "__name__", type(function).__name__).strip("<>")
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


def functions_text(functions: Sequence[str | Function]) -> str:
    """Return scoring functions as text, for the settings of a run."""
    return ",".join(f"{spec.name}={spec.text}" for spec in map(parse_function, functions))


@contextmanager
def running_functions(
    functions: Sequence[str | Function], timeout_seconds: float, reserved: Sequence[str] = ()
) -> Iterator[list[ScoringFunction]]:
    """Start scoring functions, and close them at the end.

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
        running = []
        for function, spec in zip(functions, specs, strict=True):
            engine = stack.enter_context(closing(_engine_of(function, spec)))
            running.append(ScoringFunction(spec.name, spec.text, engine, timeout_seconds))
        yield running


def _engine_of(function: str | Function, spec: FunctionSpec) -> Engine:
    """Return the engine of a scoring function: this process for a callable, else a new one."""
    if not isinstance(function, str):
        return InProcess(partial(ScoringWorker, spec.name, partial(_computing, function)))
    load = partial(FUNCTION_TYPES[spec.kind].load, spec.argument)
    return LocalProcesses(partial(ScoringWorker, spec.name, load), [{}], "spawn")


def file_digests(functions: Sequence[str | Function]) -> dict[str, list[str]]:
    """Return the SHA-256 of the files that scoring functions read, by the function's name.

    They are the files of fine-tuned models and hosts. Other functions have no entry.
    """
    named = [spec for spec in map(parse_function, functions) if spec.kind in FUNCTION_TYPES]
    digests = {spec.name: FUNCTION_TYPES[spec.kind].digests(spec.argument) for spec in named}
    return {name: each for name, each in digests.items() if each}
