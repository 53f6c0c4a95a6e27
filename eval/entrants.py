"""The participants of a run: the models of the command line, and their baselines."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.io.files import content_sha256
from carbon.io.structured import open_parquet
from carbon.pretrained import local_folder
from eval.baselines import CodonPeriodicModel, ColumnModel, GcModel, MarkovModel, UniformModel
from eval.contract import Model, Task
from eval.data import readable
from eval.markov import MAX_ORDER, Training, pieces_of, unlabelled
from eval.tasks.common.held_out import CodingGenome

Make = Callable[[], Model]
"""Makes the model or baseline of an entrant."""


@dataclass(frozen=True)
class Entrant:
    """A model or baseline to measure.

    Attributes:
        name: of the model, without its dtype.
        kind: `model` or `baseline`.
        source: folder, Hub id or training files.
        identity: digest of its weights, with the stretch of the context, or of its training
            sequences.
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
    """Return the models of `[NAME=]SOURCE` arguments, each in every dtype.

    Args:
        models: the arguments.
        dtypes: `float32`, `bfloat16` or both.
        yarn: factor by which the context of all models is stretched, if any.

    Raises:
        UserError: two have one name, or one does not exist.
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
    """Return a folder's name; an `export` has the name of its run."""
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
    """The baselines of a run; Markov models are fitted when one is first needed."""

    def __init__(
        self,
        train: Sequence[Path],
        orders: Sequence[int],
        columns: Sequence[str] = (),
        genome: CodingGenome | None = None,
    ) -> None:
        """Check the training data of Markov models.

        Args:
            train: FASTA, FASTQ, Parquet with a column `sequence`, or source folders of a corpus.
            orders: of the Markov models.
            columns: of the datasets of variants; the higher, the more damaging.
            genome: that the codon-periodic model is fitted on; without it there is none.

        Raises:
            UserError: an order is not possible, or training sequences are missing.
        """
        if not train:
            raise UserError(
                "give --train FASTA, PARQUET or CORPUS/SOURCE: sequences that Markov models, the "
                "baselines of every model, are fitted on; they must not be those of the datasets"
            )
        if wrong := [order for order in orders if not 0 <= order <= MAX_ORDER]:
            raise UserError(f"--orders {wrong[0]}: give 0 to {MAX_ORDER}")
        self._train = [file for path in train for file in _training_files(path)]
        self._orders, self._columns, self._genome = sorted(set(orders)), columns, genome
        self._training: Training | None = None
        self._source = ", ".join(map(str, train))
        self._identity = _identity_of_files(self._train)

    def of(self, task: Task) -> dict[Entrant, Make]:
        """Return the baselines of a task, and functions that make them."""
        made: dict[str, Make] = dict(task.baselines)
        if task.markov:
            general: dict[str, Make] = {
                UniformModel.name: UniformModel,
                GcModel.name: lambda: GcModel(self._fitted()),
            }
            for order in self._orders:
                general[f"Markov {order}"] = partial(self._markov, order)
            if self._genome:
                general[CodonPeriodicModel.name] = self._codon_periodic
            made = general | made
        if {"chrom", "pos", "ref", "alt"} <= task.columns.keys():
            made |= {f"column {c}": partial(ColumnModel, c) for c in self._columns}
        return {self._entrant(name): make for name, make in made.items()}

    def forget(self) -> None:
        """Release the memory of the Markov models."""
        self._training = None

    def _entrant(self, name: str) -> Entrant:
        if name == CodonPeriodicModel.name and self._genome:
            return Entrant(name, "baseline", self._genome.source, self._genome.identity())
        fitted = name == GcModel.name or name.startswith("Markov")
        source, identity = (self._source, self._identity) if fitted else ("", "")
        return Entrant(name, "baseline", source, identity)

    def _markov(self, order: int) -> Model:
        return MarkovModel(order, self._fitted())

    def _codon_periodic(self) -> Model:
        assert self._genome is not None
        return CodonPeriodicModel(MAX_ORDER, self._genome.training())

    def _fitted(self) -> Training:
        if self._training is None:
            total_bp = sum(len(sequence) for sequence in _sequences(self._train))
            pieces = pieces_of(unlabelled(_sequences(self._train)), total_bp)
            self._training = Training(max([0, *self._orders]), pieces)
        return self._training


def _training_files(path: Path) -> list[Path]:
    """Return a file, or the files of a corpus's train split in a source folder.

    Raises:
        UserError: the file does not exist, or the folder has no training record.
    """
    found = sorted(path.glob("train-*.parquet")) if path.is_dir() else [path]
    if not found:
        raise UserError(f"--train {path}: has no train-*.parquet; give a source folder of a corpus")
    return found


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
        raise UserError(f"{path}: column 'sequence' has rows that are not text; leave them out")
    return texts


def _identity_of_files(paths: Sequence[Path]) -> str:
    for path in paths:
        if not path.is_file():
            raise UserError(f"--train {path}: no such file; give a FASTA, FASTQ or Parquet file")
    contents = [content_sha256(path) for path in paths]
    return hashlib.sha256(" ".join(contents).encode()).hexdigest()
