"""What a variant does to the labels of the bases around it."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam
from numpy.typing import NDArray

from carbon.errors import GenomeError, UserError
from carbon.finetune.folder import Manifest
from carbon.finetune.places import alleles_of, fits_window, window_of
from carbon.finetune.tasks import Question
from carbon.genome import Reference, Variant, VcfReader, VcfRow, contig_names, read_sequences
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.normalize import normalize_variant
from carbon.inference.options import Strands
from carbon.inference.variants.files import Agreement, index_paths, write_index
from carbon.io.tables import Columns, chosen_by_ending, text_of
from carbon.progress import say

Floats32 = NDArray[np.float32]


def largest_changes(ref: Floats32, alt: Floats32, variant: Variant, before_bp: int) -> Floats32:
    """Return of each class its largest change, and where it is: (classes, 4).

    Bases before the variant are compared one by one, bases behind it likewise, and of the alleles
    as many from the left as the shorter has. What only one allele has is of no class with the
    other: 0 stands there, as in the delta scores of SpliceAI (Jaganathan et al. 2019).

    Args:
        ref: (bases, classes), probabilities in the window with REF.
        alt: (bases, classes), likewise with ALT; NaN where nothing is known.
        variant: the two.
        before_bp: bases of the window before the variant.

    Returns:
        Probability with ALT, with REF, ALT - REF, and the offset of the base from POS, negative to
        the left; of an inserted base that of the last base before it. NaN of no prediction.
    """
    ref_bp, alt_bp = len(variant.ref), len(variant.alt)
    longer = max(ref_bp, alt_bp)
    behind = min(len(ref) - ref_bp, len(alt) - alt_bp) - before_bp

    def laid_out(found: Floats32, allele_bp: int) -> Floats32:
        gap = np.zeros((longer - allele_bp, found.shape[1]), dtype=found.dtype)
        end = before_bp + allele_bp
        return np.concatenate([found[:end], gap, found[end : end + behind]])

    with_ref, with_alt = laid_out(ref, ref_bp), laid_out(alt, alt_bp)
    offsets = np.arange(-before_bp, longer + behind)
    offsets[before_bp : before_bp + longer] = np.minimum(np.arange(longer), ref_bp - 1)
    offsets[before_bp + longer :] = np.arange(ref_bp, ref_bp + behind)
    change = with_alt - with_ref
    at = np.abs(np.nan_to_num(change)).argmax(axis=0), np.arange(change.shape[1])
    found = np.stack([with_alt[at], with_ref[at], change[at], offsets[at[0]]], axis=1)
    found[np.isnan(found).any(axis=1)] = np.nan
    return found.astype(np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictJob:
    """What to predict and how.

    Attributes:
        model: folder of the fine-tuned model.
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
    """What is known of a fine-tuned model without loading it, but for its context.

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

    def __init__(self, finetuned: Described, job: PredictJob) -> None:
        """Choose the writer by the output's ending."""
        self.writer = chosen_by_ending(job.output, "table")
        self.finetuned, self.job = finetuned, job

    def row(self, item: Item, base: int | None) -> tuple[Any, ...]:
        """Return where an item, or a base of it, stands: a value for each of `place`."""
        raise NotImplementedError

    def written(self, path: Path, settings: dict[str, Any]) -> Any:
        """Write float columns `predicted_NAME`; None where there is no prediction."""
        per_base = self.finetuned.question.per_base
        outputs = {f"predicted_{name}": float for name in self.finetuned.output_names}

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

    def __init__(self, finetuned: Described, job: PredictJob) -> None:
        """Name the columns."""
        super().__init__(finetuned, job)
        of_base = {"position": int, "base": str}
        self.place = {"name": str, **(of_base if finetuned.question.per_base else {"bases": int})}

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

    def __init__(self, finetuned: Described, job: PredictJob) -> None:
        """Open the reference."""
        super().__init__(finetuned, job)
        assert job.reference is not None
        self.reference = Reference(job.reference)
        self.names = contig_names(job.contigs, self.reference.contig_lengths_bp)
        self.place = {"contig": str, "start": int, "end": int, "name": str, "strand": str}
        if finetuned.question.per_base:
            self.place |= {"base_number": int, "base": str}
        self.window_bp = finetuned.manifest.window_bp if job.window_bp is None else job.window_bp

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


_PLACE = {"contig": str, "position": int, "id": str, "ref": str, "alt": str}
_NO_KEY = re.compile(r"[^A-Z0-9_]+")
_TYPES = {float: "Float", int: "Integer"}


class Side(NamedTuple):
    """What is written of an output."""

    says: str
    type: type = float


_SIDES = {
    "": Side("with ALT"),
    "_REF": Side("with REF"),
    "_DELTA": Side("with ALT - with REF"),
}
_SIDES_OF_BASES = {
    "": Side("with ALT, at the base of the largest change"),
    "_REF": Side("with REF, there"),
    "_DELTA": Side("with ALT - with REF, there"),
    "_OFFSET": Side("bases from POS to there", int),
}


class VariantSource(Source):
    """A VCF and its reference. The window begins half of it before a variant, as in learning."""

    def __init__(self, finetuned: Described, job: PredictJob) -> None:
        """Open reference and VCF.

        Raises:
            UserError: no window is known, or it does not fit.
        """
        self.writer = chosen_by_ending(job.output, "predicted variants")
        self.finetuned, self.job = finetuned, job
        self.sides = _SIDES_OF_BASES if finetuned.question.per_base else _SIDES
        given = finetuned.manifest.window_bp if job.window_bp is None else job.window_bp
        if not 2 <= given <= finetuned.room_bp:
            raise UserError(
                f"{job.source}: a window of {given} bp: give --window, 2 to {finetuned.room_bp} bp"
            )
        self.window_bp = given
        assert job.reference is not None
        self.reference = Reference(job.reference)
        names = contig_names(job.contigs, self.reference.contig_lengths_bp)
        self.vcf = VcfReader(job.source, self.reference, contig_names=names)

    def check(self) -> int:
        """Hold all records against the reference; return their number.

        Raises:
            GenomeError: they disagree with it, or have predictions already.
        """
        if any(line.startswith("##INFO=<ID=PREDICTED_") for line in self.vcf.header):
            raise GenomeError(f"{self.vcf.path}: has predictions already; give the original")
        agreement = Agreement(self.vcf.path, self.reference)
        for row in self.vcf:
            agreement.add(row)
        if agreement.has_contradictions:
            raise GenomeError(agreement.summary())
        return agreement.num_records

    def items(self) -> Iterator[Item]:
        """Yield records; of each ALT that has a sequence REF and ALT are to be predicted."""
        for row in self.vcf:
            sequences: list[str] = []
            names: list[str] = []
            reasons = [self.why_none(row, variant) for variant in row.variants]
            for variant, reason in zip(row.variants, reasons, strict=True):
                if reason is None:
                    sequences += alleles_of(self.reference, variant, self.window_bp)
                    names += [f"{self.vcf.path}: {variant.to_text()}"] * 2
            yield Item((row, reasons), tuple(names), tuple(sequences))

    def why_none(self, row: VcfRow, variant: Variant) -> str | None:
        """Say why an ALT has no prediction, or None."""
        if row.disagreement:
            return row.disagreement.reason
        if reason := variant.why_unscorable():
            return reason
        if not fits_window(self.reference, variant, self.window_bp):
            return "allele_longer_than_half_window"
        return None

    def values(self, variant: Variant, ref: Floats32, alt: Floats32) -> list[float | int | None]:
        """Return a value for each side of each output; None where there is no prediction."""
        if self.finetuned.question.per_base:
            plain = normalize_variant(self.reference, variant)
            before_bp = min(plain.position, self.window_bp // 2)
            changes = largest_changes(ref, alt, plain, before_bp)
            changes[:, -1] += plain.position - variant.position  # offsets count from the VCF's POS
            found = changes.ravel()
        else:
            found = np.stack([alt, ref, alt - ref], axis=1).ravel()
        types = [side.type for _ in self.finetuned.output_names for side in self.sides.values()]
        return [None if np.isnan(x) else of(x) for x, of in zip(found, types, strict=True)]

    def written(self, path: Path, settings: dict[str, Any]) -> Any:
        """Open the output."""
        return self.writer(path, self, settings)

    def finish(self) -> None:
        """Write the index of a bgzip VCF."""
        for stale in index_paths(self.job.output):
            stale.unlink(missing_ok=True)
        if self.job.output.name.endswith(".vcf.gz"):
            write_index(self.job.output, max(self.reference.contig_lengths_bp.values()))


def keys_of(names: Sequence[str]) -> list[str]:
    """Return the key of each output in INFO; where two names give one, they are numbered."""
    found = ["PREDICTED_" + _NO_KEY.sub("_", name.upper()).strip("_") for name in names]
    if len(set(found)) < len(found):
        found = [f"{key}_{number}" for number, key in enumerate(found, start=1)]
    return found


def _rows(
    source: VariantSource, item: Item, predictions: Sequence[Floats32]
) -> Iterator[list[float | int | None]]:
    """Yield the values of each ALT."""
    row, reasons = item.record
    found = iter(predictions)
    num_values = len(source.sides) * len(source.finetuned.output_names)
    nothing: list[float | int | None] = [None] * num_values
    for variant, reason in zip(row.variants, reasons, strict=True):
        yield nothing if reason else source.values(variant, next(found), next(found))


@contextmanager
def write_table(
    path: Path, source: VariantSource, settings: dict[str, Any]
) -> Iterator[Callable[[Item, Sequence[Floats32]], None]]:
    """Write a row an allele: its place, and each prediction."""
    names = source.finetuned.output_names
    columns = {
        f"predicted_{name}{suffix.lower()}": side.type
        for name in names
        for suffix, side in source.sides.items()
    }
    writer = chosen_by_ending(path, "table")
    with writer(path, {**_PLACE, **columns, "reason": str}, settings) as write_row:

        def write_rows(item: Item, predictions: Sequence[Floats32]) -> None:
            row, reasons = item.record
            values = _rows(source, item, predictions)
            for variant, reason, cells in zip(row.variants, reasons, values, strict=True):
                place = (row.columns[0], variant.position + 1, row.columns[2])
                write_row((*place, variant.ref, variant.alt, *cells, reason))

        yield write_rows


@contextmanager
def write_vcf(path: Path, source: VariantSource, settings: dict[str, Any]) -> Iterator[Any]:
    """Write the VCF as it was, with fields of INFO, one value for each ALT."""
    names = source.finetuned.output_names
    keys = [key + suffix for key in keys_of(names) for suffix in source.sides]
    opened = pysam.BGZFile(str(path), "w", index=None) if path.suffix == ".gz" else path.open("wb")
    with opened as sink:
        header = _header(source, settings)
        sink.write("".join(f"{line}\n" for line in header).encode())

        def write(item: Item, predictions: Sequence[Floats32]) -> None:
            row, reasons = item.record
            rows = list(_rows(source, item, predictions))
            added = [
                f"{key}={','.join(text_of(cells[n]) for cells in rows)}"
                for n, key in enumerate(keys)
                if any(cells[n] is not None for cells in rows)
            ]
            if any(reasons):
                added.append(f"PREDICTED_REASON={','.join(map(text_of, reasons))}")
            sink.write(row.with_info(";".join(added)).encode())

        yield write


def _header(source: VariantSource, settings: dict[str, Any]) -> list[str]:
    *lines, columns = source.vcf.header
    names = source.finetuned.output_names
    added = [
        f"##INFO=<ID={key}{suffix},Number=A,Type={_TYPES[side.type]},"
        f'Description="{_plain(name)}, {side.says}">'
        for key, name in zip(keys_of(names), names, strict=True)
        for suffix, side in source.sides.items()
    ]
    why = '##INFO=<ID=PREDICTED_REASON,Number=A,Type=String,Description="Why there is none">'
    return [*lines, *added, why, f"##carbon_predict={json.dumps(settings)}", columns]


def _plain(text: str) -> str:
    return text.replace('"', "'").replace("\\", "/")
