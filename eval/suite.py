"""A run: its tasks, models and baselines, and their state in memory."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from carbon.errors import UserError
from eval.contract import Example, Model, Options, Task
from eval.data import find_data, identity_of, places_of
from eval.entrants import Baselines, Entrant, Make
from eval.records import Json, as_json, check_folder, file_stem

T = TypeVar("T")

Load = Callable[[Entrant], Model]


@dataclass(frozen=True)
class Suite:
    """The tasks, models and options of a run.

    Attributes:
        tasks: in the order in which they are run.
        models: to measure.
        baselines: of every task.
        load: makes a model; called when the first of its tasks is not done yet.
        output: folder of the records.
        datasets: task to path or Hub id, "" for a folder of datasets.
        references: task to FASTA, "" for all tasks.
        options: of the examples; reference and sizes are filled in for each task.
        sizes: task to its sizes.
        resume: continue an earlier run in the folder.
    """

    tasks: Sequence[Task]
    models: Sequence[Entrant]
    baselines: Baselines
    load: Load
    output: Path
    datasets: Mapping[str, str]
    references: Mapping[str, str]
    options: Options
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resume: bool = False


class Part(NamedTuple):
    """The task and the entrant of a record."""

    task: Task
    entrant: Entrant
    make: Make


@dataclass(frozen=True)
class Prepared:
    """A task with its questions."""

    task: Task
    examples: list[Example]
    data: Json
    options: Json


def parts_of(suite: Suite) -> list[Part]:
    """Return a part for each record: the baselines of all tasks, then model by model."""
    baselines = [
        Part(task, entrant, make)
        for task in suite.tasks
        for entrant, make in suite.baselines.of(task).items()
    ]
    return baselines + [
        Part(task, entrant, partial(_loaded, suite, entrant))
        for entrant in suite.models
        for task in suite.tasks
    ]


def _loaded(suite: Suite, entrant: Entrant) -> Model:
    suite.baselines.forget()
    return suite.load(entrant)


def record_path(suite: Suite, part: Part) -> Path:
    """Return where a record is written."""
    return suite.output / part.task.name / f"{file_stem(part.entrant.shown_as)}.json"


def check_suite(suite: Suite) -> None:
    """Raise UserError where a dataset is missing, or two records would be one file."""
    for task in suite.tasks:
        if find_data(task, suite.datasets) is None:
            looked = " nor ".join(places_of(task, suite.datasets)) or "nothing is published"
            raise UserError(f"{task.name}: no dataset: {looked}; build it, or give --data")
        _check_names(task, suite)


def _check_names(task: Task, suite: Suite) -> None:
    entrants = [*suite.baselines.of(task), *suite.models]
    stems = Counter(file_stem(entrant.shown_as) for entrant in entrants)
    for model in suite.models:
        if stems[file_stem(model.shown_as)] > 1:
            raise UserError(
                f"--model {model.source}: '{model.shown_as}' is the name of another; "
                "write NAME=MODEL"
            )


def check_output(suite: Suite) -> None:
    """Raise UserError where there are records and the run is not a resumed one."""
    check_folder(suite.output)
    if suite.resume or not suite.output.exists():
        return
    there = [path for task in suite.tasks for path in suite.output.glob(f"{task.name}/*.json*")]
    if there:
        raise UserError(
            f"{there[0]}: is there already; continue with --resume, or name another folder"
        )


class _Last(Generic[T]):
    """The last value made; it is released before another is made, which may need its memory."""

    def __init__(self) -> None:
        self._made: tuple[Any, T] | None = None

    def of(self, key: object, make: Callable[[], T]) -> T:
        if self._made is None or self._made[0] != key:
            self._made = None
            self._made = key, make()
        return self._made[1]


class Memory:
    """The questions of one task and the model of one entrant, in memory."""

    def __init__(self, suite: Suite) -> None:
        """Begin with nothing."""
        self._suite = suite
        self._prepared: _Last[Prepared] = _Last()
        self._model: _Last[Model] = _Last()

    def prepared(self, task: Task) -> Prepared:
        """Return a task with its questions.

        Raises:
            UserError: the dataset is of another task.
        """
        return self._prepared.of(task.name, partial(_prepared, task, self._suite))

    def model(self, part: Part) -> Model:
        """Return the model or baseline of a part."""
        return self._model.of(part.entrant, part.make)


def _prepared(task: Task, suite: Suite) -> Prepared:
    source = find_data(task, suite.datasets)
    assert source is not None  # looked for before
    with saying(task.name):
        table = task.read(source)
    reference = suite.references.get(task.name) or suite.references.get("")
    options = replace(
        suite.options,
        reference=Path(reference) if reference else None,
        sizes=suite.sizes.get(task.name, {}),
    )
    data = {
        "source": source,
        "identity": identity_of(source),
        "rows": table.num_rows,
        "reference": identity_of(reference) if reference else None,
    }
    with saying(f"{task.name} ({source})"):
        examples = task.examples(table, options)
    assert len({example.id for example in examples}) == len(examples), task.name
    return Prepared(task, examples, data, as_json(options))


@contextmanager
def saying(where: str) -> Iterator[None]:
    """Prefix the message of a UserError with its place."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{where}: {error}") from None
