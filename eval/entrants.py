"""Who takes part: the models that are named, and the baselines that stand beside them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.io.files import content_sha256
from carbon.io.structured import open_parquet
from carbon.pretrained import local_folder
from eval.baselines import (
    MAX_ORDER,
    CpgModel,
    GcModel,
    MarkovModel,
    TransitionModel,
    UniformModel,
    WordCounts,
    word_tables,
)
from eval.contract import Example, Model, Result, Task
from eval.data import readable


class Contender(NamedTuple):
    """An entrant that is ready: how it answers the questions of a task, and the model if any."""

    answer: Callable[[Task, Sequence[Example]], Iterator[Result]]
    model: Model | None


Make = Callable[[], Contender]


def contender_of(model: Model) -> Contender:
    """Return a model that answers as the task says."""
    return Contender(lambda task, examples: task.run(model, examples), model)


@dataclass(frozen=True)
class Entrant:
    """Who is measured.

    Attributes:
        name: of the model, without its dtype.
        kind: `model` or `baseline`.
        source: where it comes from.
        identity: what tells its weights, as they are stretched, or its training sequences from
            others.
        dtype: of the weights; `none` for baselines.
    """

    name: str
    kind: Literal["model", "baseline"]
    source: str
    identity: str
    dtype: Literal["float32", "bfloat16", "none"] = "none"

    @property
    def shown_as(self) -> str:
        """The name, with the dtype where it is not float32."""
        return f"{self.name} {self.dtype}" if self.dtype == "bfloat16" else self.name


def entrants_of(
    models: Sequence[str], dtypes: Sequence[str], yarn: float | None = None
) -> list[Entrant]:
    """Return the models that `[NAME=]SOURCE` names, each in every dtype.

    Args:
        models: as they are named.
        dtypes: `float32`, `bfloat16` or both.
        yarn: by which the context of all of them is stretched, if it is.

    Raises:
        UserError: two have one name, or one is not there.
    """
    stretched = "" if yarn is None else f" yarn {yarn:g}"
    found: dict[str, str] = {}
    for text in models:
        name, equals, source = text.partition("=")
        if not equals:
            name, source = _name_of(text), text
        if name in found:
            raise UserError(f"--model {text}: '{name}' is taken; write NAME={source}")
        if not source or not (local_folder(source) or _may_be_on_hub(source)):
            raise UserError(f"--model {source or text}: no such model folder")
        found[name] = source
    return [
        Entrant(name, "model", source, _identity(source) + stretched, dtype)  # type: ignore[arg-type]
        for name, source in found.items()
        for dtype in dtypes
    ]


def _may_be_on_hub(source: str) -> bool:
    return source.count("/") == 1 and not source.startswith((".", "/", "~"))


def _name_of(source: str) -> str:
    """Return a folder's name; an `export` is called by the run that it is of."""
    parts = [part for part in Path(source).parts if part not in (".", "/")]
    return next((part for part in reversed(parts) if part != "export"), source)


def _identity(source: str) -> str:
    """Return a digest of names and contents of weights and JSON, or the name on the Hub."""
    folder = local_folder(source)
    if folder is None:
        return source
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        digest.update(f"{path.name} {content_sha256(path)}\n".encode())
    return digest.hexdigest()


class Baselines:
    """The baselines of a run; Markov models are fitted when the first of them is asked for."""

    def __init__(
        self, train: Sequence[Path], orders: Sequence[int], columns: Sequence[str]
    ) -> None:
        """Say on what and of which orders Markov models are.

        Args:
            train: FASTA, FASTQ or Parquet with a column `sequence`.
            orders: of the Markov models.
            columns: of the datasets of variants; the higher, the more damaging.

        Raises:
            UserError: an order is not possible, or there are no training sequences.
        """
        if not train:
            raise UserError(
                "give --train FASTA or PARQUET: sequences that Markov models are fitted on, which "
                "stand beside every model; they must not be those of the datasets"
            )
        if wrong := [order for order in orders if not 1 <= order <= MAX_ORDER]:
            raise UserError(f"--orders {wrong[0]}: give 1 to {MAX_ORDER}")
        self._train, self._orders, self._columns = train, sorted(set(orders)), columns
        self._tables: list[WordCounts] = []
        self._source = ", ".join(map(str, train))
        self._identity = _identity_of_files(train)

    def of(self, task: Task) -> dict[Entrant, Make]:
        """Return who stands beside the models in a task, and how to make them."""
        made: dict[str, Callable[[], Model]] = {
            UniformModel.name: UniformModel,
            GcModel.name: lambda: GcModel(self._fitted()),
        }
        for order in self._orders:
            made[f"Markov {order}"] = partial(self._markov, order)
        if task.axis == "variants":
            made |= {TransitionModel.name: TransitionModel, CpgModel.name: CpgModel}
        makes: dict[Entrant, Make] = {
            self._entrant(name): partial(_made, make) for name, make in made.items()
        }
        if task.axis == "variants":
            makes |= {self._entrant(f"column {c}"): partial(_column, c) for c in self._columns}
        return makes

    def forget(self) -> None:
        """Give the memory of the Markov models back."""
        self._tables = []

    def _entrant(self, name: str) -> Entrant:
        fitted = name == GcModel.name or name.startswith("Markov")
        source, identity = (self._source, self._identity) if fitted else ("", "")
        return Entrant(name, "baseline", source, identity)

    def _markov(self, order: int) -> Model:
        return MarkovModel(order, self._fitted())

    def _fitted(self) -> list[WordCounts]:
        if not self._tables:
            self._tables = word_tables(max([1, *self._orders]), _sequences(self._train))
        return self._tables


def _made(make: Callable[[], Model]) -> Contender:
    return contender_of(make())


def _column(name: str) -> Contender:
    return Contender(partial(column_results, name=name), None)


def column_results(task: Task, examples: Sequence[Example], name: str) -> Iterator[Result]:
    """Take the value of a column as the score of each variant: the higher, the more damaging.

    Raises:
        UserError: the dataset has no such column, or it is not of numbers.
    """
    for example in examples:
        row = example.data["row"]
        if name not in row:
            raise UserError(f"the dataset has no column '{name}'; see --columns")
        value = row[name]
        found = {"id": example.id, "group": example.group, "chrom": example.data["chrom"]}
        if example.data["skip"] is not None:
            yield {**found, "skipped": example.data["skip"]}
        elif value is None:
            yield {**found, "skipped": "the column has no value"}
        elif not isinstance(value, int | float):
            raise UserError(f"column '{name}' has {value!r}, which is no number")
        else:
            yield {**found, "label": example.data["label"], "score": float(value)}


def _sequences(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        if path.suffix != ".parquet":
            yield from (bases for _, bases in read_sequences(path))
            continue
        with readable(path):
            table = open_parquet(path, {})
            if "sequence" not in table.schema_arrow.names:
                raise UserError(f"{path}: has no column 'sequence' to fit Markov models on")
            for batch in table.iter_batches(batch_size=256, columns=["sequence"]):
                yield from _texts(batch["sequence"], path)


def _texts(column: pa.Array, path: Path) -> list[str]:
    texts: list[str] = column.to_pylist()
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{path}: column 'sequence' has rows that are no text; leave them out")
    return texts


def _identity_of_files(paths: Sequence[Path]) -> str:
    for path in paths:
        if not path.is_file():
            raise UserError(f"--train {path}: no such file; give a FASTA, FASTQ or Parquet file")
    contents = [content_sha256(path) for path in paths]
    return hashlib.sha256(" ".join(contents).encode()).hexdigest()
