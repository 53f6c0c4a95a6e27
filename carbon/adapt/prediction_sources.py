"""FASTA, FASTQ and BED as sources of sequences to predict, and how predictions are written."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.data.windows import window_of
from carbon.adapt.folder import Manifest
from carbon.adapt.question import Question
from carbon.console import say
from carbon.errors import UserError
from carbon.genome import Reference, contig_names, read_sequences
from carbon.genome.bed import bed_lines, bed_place
from carbon.io.tables import Columns, chosen_by_ending
from carbon.options import Strands

Floats32 = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictJob:
    """What to predict and how.

    Attributes:
        model: folder of the adapted model.
        source: FASTA, FASTQ, BED, VCF or BCF; see `form_of`.
        output: a table; of a VCF a VCF too.
        reference: FASTA, for BED and VCF.
        contigs: `chr`, or a table, where the source names contigs otherwise than the reference.
        window_bp: around the middle of a place, or a variant; as learned if None.
        strands: that are read; as learned if None.
        too_long: key of `TOO_LONG`; as learned if None.
        resume: go on with what an earlier run left.
    """

    model: Path
    source: Path
    output: Path
    reference: Path | None = None
    contigs: str | None = None
    window_bp: int | None = None
    strands: Strands | None = None
    too_long: str | None = None
    resume: bool = False


class Described(NamedTuple):
    """What is known of an adapted model without loading it, but for its context.

    Attributes:
        manifest: what its folder says.
        room_bp: bases of the longest sequence that it reads whole.
    """

    manifest: Manifest
    room_bp: int

    @property
    def question(self) -> Question:
        """What is asked."""
        return self.manifest.question

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the predictions are of."""
        return self.question.output_names


class Item(NamedTuple):
    """A record of the source.

    Attributes:
        record: whatever its source writes it by.
        names: of its sequences, for messages.
        sequences: to predict.
    """

    record: Any
    names: tuple[str, ...]
    sequences: tuple[str, ...]


class Source:
    """A file that is read item by item, and what its predictions are written as."""

    def check(self) -> int:
        """Read all of it once, so that a bad end is known first; return the number of items."""
        raise NotImplementedError

    def items(self) -> Iterator[Item]:
        """Yield what is to be predicted."""
        raise NotImplementedError

    def written(
        self, path: Path, settings: dict[str, Any]
    ) -> AbstractContextManager[Callable[[Item, Sequence[Floats32]], None]]:
        """Open an output, and yield what writes an item and its predictions."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do what is to be done when the output is whole."""


class _Table(Source):
    """What is written as a table: a row an item, or, of a label of every base, a row a base."""

    place: Columns

    def __init__(self, adapted: Described, job: PredictJob) -> None:
        """Choose the writer by the output's ending."""
        self.writer = chosen_by_ending(job.output, "table")
        self.adapted, self.job = adapted, job

    def row(self, item: Item, base: int | None) -> tuple[Any, ...]:
        """Return where an item, or a base of it, stands: a value for each of `place`."""
        raise NotImplementedError

    def written(self, path: Path, settings: dict[str, Any]) -> Any:
        """Write float columns `predicted_NAME`; None where there is no prediction."""
        per_base = self.adapted.question.per_base
        outputs = {f"predicted_{name}": float for name in self.adapted.output_names}

        @contextmanager
        def opened() -> Iterator[Any]:
            with self.writer(path, {**self.place, **outputs}, settings) as write_row:

                def write(item: Item, predictions: Sequence[Floats32]) -> None:
                    (found,) = predictions
                    if not per_base:
                        write_row((*self.row(item, None), *cells(found)))
                    else:
                        for base, values in enumerate(found):
                            write_row((*self.row(item, base), *cells(values)))

                yield write

        return opened()


def cells(values: Floats32) -> list[float | None]:
    """Return numbers as tables hold them: None for NaN."""
    return [None if np.isnan(value) else float(value) for value in values]


class SequenceSource(_Table):
    """FASTA or FASTQ."""

    def __init__(self, adapted: Described, job: PredictJob) -> None:
        """Name the columns."""
        super().__init__(adapted, job)
        of_base = {"position": int, "base": str}
        self.place = {"name": str, **(of_base if adapted.question.per_base else {"bases": int})}

    def check(self) -> int:
        """Count the records."""
        return sum(1 for _ in read_sequences(self.job.source))

    def items(self) -> Iterator[Item]:
        """Yield the records."""
        for name, bases in read_sequences(self.job.source):
            yield Item(name, (f"{self.job.source}: record '{name}'",), (bases,))

    def row(self, item: Item, base: int | None) -> tuple[Any, ...]:
        """Return name and length, or the position from 1 and the base."""
        (bases,) = item.sequences
        if base is None:
            return item.record, len(bases)
        return item.record, base + 1, bases[base]


class BedSource(_Table):
    """A BED and the reference; a place of the reverse strand is read as its reverse complement."""

    def __init__(self, adapted: Described, job: PredictJob) -> None:
        """Open the reference."""
        super().__init__(adapted, job)
        assert job.reference is not None
        self.reference = Reference(job.reference)
        self.names = contig_names(job.contigs, self.reference.contig_lengths_bp)
        self.place = {"contig": str, "start": int, "end": int, "name": str, "strand": str}
        if adapted.question.per_base:
            self.place |= {"base_number": int, "base": str}
        self.window_bp = adapted.manifest.window_bp if job.window_bp is None else job.window_bp

    def check(self) -> int:
        """Read all of it."""
        return sum(1 for _ in self.items())

    def items(self) -> Iterator[Item]:
        """Yield the places, with their coordinates as they stand: 0-based and half-open."""
        for where, columns in bed_lines(self.job.source):
            contig, start, end = bed_place(columns, where)
            name = columns[3] if len(columns) > 3 else f"{contig}:{start + 1}-{end}"
            strand = "-" if columns[5:6] == ["-"] else "+"
            there = self.names.get(contig, contig)
            try:
                bases = window_of(self.reference, there, start, end, strand, self.window_bp)  # type: ignore[arg-type]
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
            yield Item((contig, start, end, name, strand), (f"{where} ('{name}')",), (bases,))

    def written(self, path: Path, settings: dict[str, Any]) -> Any:
        """Write the table, and count places that are not read as they are."""
        self.num_wider = self.num_narrower = self.num_places = 0

        @contextmanager
        def opened() -> Iterator[Any]:
            with super(BedSource, self).written(path, settings) as write:

                def counted(item: Item, predictions: Sequence[Floats32]) -> None:
                    _, start, end, *_ = item.record
                    read_bp = len(item.sequences[0])
                    self.num_places += 1
                    self.num_wider += read_bp > end - start
                    self.num_narrower += read_bp < end - start
                    write(item, predictions)

                yield counted

        return opened()

    def finish(self) -> None:
        """Report places of which the model read more or less than the interval."""
        apart = {"more": self.num_wider, "less": self.num_narrower}
        if any(apart.values()):
            told = " and ".join(f"{word} of {n:,}" for word, n in apart.items() if n)
            say(
                f"{self.job.source}: windows of {self.window_bp} bp around the middle were read, "
                f"{told} of {self.num_places:,} places than the interval itself; --window 0 reads "
                "the intervals as they are"
            )

    def row(self, item: Item, base: int | None) -> tuple[Any, ...]:
        """Return the place; of a base its number from 1 along the strand, and the base."""
        if base is None:
            return tuple(item.record)
        return (*item.record, base + 1, item.sequences[0][base])
