"""Predict a file of sequences, intervals or variants into another, resumably."""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pysam
from numpy.typing import NDArray

from carbon.__version__ import __version__
from carbon.batching import in_blocks
from carbon.errors import GenomeError, UserError
from carbon.finetune.config import FORMATS
from carbon.finetune.folder import Manifest, content_of, read_manifest
from carbon.finetune.readers import alleles_of, fits_window, pair_of, window_of
from carbon.finetune.split import Input, input_bp
from carbon.genome import Reference, Variant, VcfReader, VcfRow, contig_names, read_sequences
from carbon.genome.bed import bed_lines, bed_place, is_bed
from carbon.genome.contig_names import names_table
from carbon.genome.normalize import normalize_variant
from carbon.genome.vcf import holds_variants
from carbon.inference.options import Dtype, Strands
from carbon.inference.variants.files import Agreement, index_paths, write_index
from carbon.io.files import atomic_file, check_no_input, content_sha256, output_path, why_no_file
from carbon.io.tables import Columns, chosen_by_ending, text_of
from carbon.parallel.driver import Job, Workers, run_job
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.finetune.predict import FinetunedModel

Floats32 = NDArray[np.float32]


ABSENT_CLASS, ABSENT_NUMBER = 0.0, float("nan")
"""Value of a base that the other allele lacks.

A class has probability 0, as in the delta scores of SpliceAI (Jaganathan et al. 2019). A number
has no such value, so the base is not compared.
"""


def largest_changes(
    ref: Floats32, alt: Floats32, variant: Variant, before_bp: int, absent: float = ABSENT_CLASS
) -> Floats32:
    """Return the largest change of each output, and its position: (outputs, 4).

    Bases before and after the variant are compared one by one; of the alleles, as many from the
    left as the shorter one has.

    Args:
        ref: (bases, outputs), predictions in the window with REF.
        alt: (bases, outputs), likewise with ALT; NaN where unknown.
        variant: the variant.
        before_bp: bases of the window before the variant.
        absent: `ABSENT_CLASS` or `ABSENT_NUMBER`.

    Returns:
        Prediction with ALT, with REF, ALT - REF, and the offset of the base from POS, negative to
        the left; for an inserted base, the offset of the last base before it. NaN without a
        prediction.
    """
    ref_bp, alt_bp = len(variant.ref), len(variant.alt)
    longer = max(ref_bp, alt_bp)
    after_bp = min(len(ref) - ref_bp, len(alt) - alt_bp) - before_bp

    def aligned(window: Floats32, allele_bp: int) -> Floats32:
        gap = np.full((longer - allele_bp, window.shape[1]), absent, dtype=window.dtype)
        end = before_bp + allele_bp
        return np.concatenate([window[:end], gap, window[end : end + after_bp]])

    with_ref, with_alt = aligned(ref, ref_bp), aligned(alt, alt_bp)
    offsets = np.arange(-before_bp, longer + after_bp)
    offsets[before_bp : before_bp + longer] = np.minimum(np.arange(longer), ref_bp - 1)
    offsets[before_bp + longer :] = np.arange(ref_bp, ref_bp + after_bp)
    change = with_alt - with_ref
    size = np.where(np.isnan(change), -1, np.abs(change))
    at = size.argmax(axis=0), np.arange(change.shape[1])
    rows = np.stack([with_alt[at], with_ref[at], change[at], offsets[at[0]]], axis=1)
    rows[np.isnan(rows).any(axis=1)] = np.nan
    return rows.astype(np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictJob:
    """Input, output and options of a prediction; None takes a recipe's setting.

    Attributes:
        model: folder of the fine-tuned model.
        source: FASTA, FASTQ, BED, VCF or BCF; see `form_of`.
        output: a table; for a VCF also a VCF.
        reference: FASTA that a BED or VCF refers to.
        contigs: `chr`, or a table, if the source names contigs differently from the reference.
        window_bp: bases around the middle of an interval, or a variant.
        strands: strands to read.
        too_long: key of `TOO_LONG`.
    """

    model: Path
    source: Path
    output: Path
    reference: Path | None = None
    contigs: str | None = None
    window_bp: int | None = None
    strands: Strands | None = None
    too_long: str | None = None


class SourceRecord(NamedTuple):
    """A record of the source.

    Attributes:
        record: fields that the source's writer needs.
        names: names of its sequences, for messages.
        sequences: sequences to predict, or pairs of alleles.
    """

    record: Any
    names: tuple[str, ...]
    sequences: tuple[Input, ...]


class Source:
    """A file that is read record by record, and the format of its predictions."""

    def read(self) -> Iterator[Any]:
        """Yield the records as they are in the file."""
        raise NotImplementedError

    def check_window(self, room_bp: int) -> None:
        """Raise UserError if a window is longer than the model reads."""

    def check(self) -> int:
        """Read the whole file, so that errors surface early; return the number of records."""
        raise NotImplementedError

    def records(self) -> Iterator[SourceRecord]:
        """Yield the records to predict."""
        raise NotImplementedError

    def written(
        self, path: Path, settings: dict[str, Any]
    ) -> AbstractContextManager[Callable[[SourceRecord, Sequence[Floats32]], None]]:
        """Open an output, and yield a function that writes a record and its predictions."""
        raise NotImplementedError

    def finish(self) -> None:
        """Run final steps after the output is complete."""


class _Table(Source):
    """A source written as a table: a row for each record, or for each predicted base."""

    place: Columns

    def __init__(self, manifest: Manifest, job: PredictJob) -> None:
        """Choose the writer by the output's ending."""
        self.writer = chosen_by_ending(job.output, "table")
        self.task, self.job = manifest.task, job
        self.has_sd = has_sd(manifest, job)

    def row(self, record: SourceRecord, base: int | None) -> tuple[Any, ...]:
        """Return the values of `place` for a record, or for one of its bases."""
        raise NotImplementedError

    def rows(self, record: SourceRecord, prediction: Floats32) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a record; None without a prediction."""
        if not self.task.per_base:
            yield (*self.row(record, None), *self.cells(prediction))
            return
        for base, values in enumerate(prediction):
            yield (*self.row(record, base), *self.cells(values))

    def cells(self, values: Floats32) -> list[Any]:
        """Return the predicted class, if the task has classes, the predictions and any SDs."""
        predictions = values[None, : self.task.num_outputs]
        classes = self.task.classes_of(predictions) if self.task.task_type.one_column else []
        return [*classes, *table_cells(values)]

    @contextmanager
    def written(self, path: Path, settings: dict[str, Any]) -> Iterator[Any]:
        """Write `predicted`, the name of a class, and float columns `predicted_NAME`.

        Columns `sd_NAME` of an ensemble follow.
        """
        columns: dict[str, Any] = {"predicted": str} if self.task.task_type.one_column else {}
        columns |= {f"predicted_{name}": float for name in self.task.output_names}
        if self.has_sd:
            columns |= {f"sd_{name}": float for name in self.task.output_names}
        with self.writer(path, {**self.place, **columns}, settings) as write_row:

            def write(record: SourceRecord, predictions: Sequence[Floats32]) -> None:
                for row in self.rows(record, *predictions):
                    write_row(row)

            yield write


def table_cells(values: Floats32) -> list[float | None]:
    """Return numbers as table cells: None for NaN."""
    return [None if np.isnan(value) else float(value) for value in values]


class SequenceSource(_Table):
    """FASTA or FASTQ."""

    def __init__(self, manifest: Manifest, job: PredictJob) -> None:
        """Define the columns."""
        super().__init__(manifest, job)
        of_base = {"position": int, "base": str}
        self.place = {"name": str, **(of_base if manifest.task.per_base else {"bases": int})}

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield names and bases."""
        return read_sequences(self.job.source)

    def check(self) -> int:
        """Count the records."""
        return sum(1 for _ in self.read())

    def records(self) -> Iterator[SourceRecord]:
        """Yield the records."""
        for name, bases in self.read():
            yield SourceRecord(name, (f"{self.job.source}: record '{name}'",), (bases,))

    def row(self, record: SourceRecord, base: int | None) -> tuple[Any, ...]:
        """Return name and length, or the position from 1 and the base."""
        (bases,) = record.sequences
        if base is None:
            return record.record, len(bases)
        return record.record, base + 1, bases[base]


class BedSource(_Table):
    """A BED and its reference; intervals on the reverse strand are read as reverse complements."""

    def __init__(self, manifest: Manifest, job: PredictJob) -> None:
        """Open the reference."""
        super().__init__(manifest, job)
        assert job.reference is not None
        self.reference = Reference(job.reference)
        self.names = contig_names(job.contigs, self.reference.contig_lengths_bp)
        self.place = {"contig": str, "start": int, "end": int, "name": str, "strand": str}
        if manifest.task.per_base:
            self.place |= {"base_number": int, "base": str}
        self.window_bp = manifest.window_bp if job.window_bp is None else job.window_bp
        self.num_wider = self.num_narrower = self.num_places = 0

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the place of each line, and its columns."""
        return bed_lines(self.job.source)

    def check(self) -> int:
        """Read all records."""
        return sum(1 for _ in self.records())

    def records(self) -> Iterator[SourceRecord]:
        """Yield the intervals, with their 0-based, half-open coordinates."""
        for where, columns in self.read():
            contig, start, end = bed_place(columns, where)
            name = columns[3] if len(columns) > 3 else f"{contig}:{start + 1}-{end}"
            strand = "-" if columns[5:6] == ["-"] else "+"
            in_reference = self.names.get(contig, contig)
            try:
                bases = window_of(self.reference, in_reference, start, end, strand, self.window_bp)  # type: ignore[arg-type]
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
            yield SourceRecord(
                (contig, start, end, name, strand), (f"{where} ('{name}')",), (bases,)
            )

    def rows(self, record: SourceRecord, prediction: Floats32) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of an interval, and count intervals whose window differs from them."""
        _, start, end, *_ = record.record
        read_bp = len(record.sequences[0])
        self.num_places += 1
        self.num_wider += read_bp > end - start
        self.num_narrower += read_bp < end - start
        return super().rows(record, prediction)

    def finish(self) -> None:
        """Report intervals that are shorter or longer than the window read."""
        counts = {"longer": self.num_wider, "shorter": self.num_narrower}
        if any(counts.values()):
            shown = " and ".join(f"{word} in {n:,}" for word, n in counts.items() if n)
            say(
                f"{self.job.source}: windows of {self.window_bp} bp around the middle were read, "
                f"{shown} of {self.num_places:,} places than the interval; --window 0 reads "
                "the intervals"
            )

    def row(self, record: SourceRecord, base: int | None) -> tuple[Any, ...]:
        """Return the interval; for a base also its number from 1 along the strand, and the base."""
        if base is None:
            return tuple(record.record)
        return (*record.record, base + 1, record.sequences[0][base])


_PLACE = {"contig": str, "position": int, "id": str, "ref": str, "alt": str}
_NO_KEY = re.compile(r"[^A-Z0-9_]+")
_TYPES = {float: "Float", int: "Integer"}


class AlleleField(NamedTuple):
    """A column that is written for each output."""

    description: str
    type: type = float


_SIDES = {
    "": AlleleField("with ALT"),
    "_REF": AlleleField("with REF"),
    "_DELTA": AlleleField("with ALT - with REF"),
}
_OF_BOTH = {"": AlleleField("from REF and ALT")}
_SIDES_OF_BASES = {
    "": AlleleField("with ALT, at the base of the largest change"),
    "_REF": AlleleField("with REF, there"),
    "_DELTA": AlleleField("with ALT - with REF, there"),
    "_OFFSET": AlleleField("bases from POS to there", int),
}


class VariantSource(Source):
    """A VCF and its reference. Windows start half a window before a variant, as in training."""

    def __init__(self, manifest: Manifest, job: PredictJob) -> None:
        """Open reference and VCF."""
        self.writer = chosen_by_ending(job.output, "predicted variants")
        self.task, self.job, self.k = manifest.task, job, manifest.k
        self.reads_pairs = manifest.variant_input != "alt"
        self.sides = _SIDES_OF_BASES if manifest.task.per_base else _SIDES
        if self.reads_pairs:
            self.sides = _OF_BOTH
        self.window_bp = manifest.window_bp if job.window_bp is None else job.window_bp
        assert job.reference is not None
        self.reference = Reference(job.reference)
        names = contig_names(job.contigs, self.reference.contig_lengths_bp)
        self.vcf = VcfReader(job.source, self.reference, contig_names=names)

    def read(self) -> Iterator[VcfRow]:
        """Yield the records."""
        return iter(self.vcf)

    def check_window(self, room_bp: int) -> None:
        """Raise UserError if the window is unknown, or does not fit the context."""
        if not 2 <= self.window_bp <= room_bp:
            raise UserError(
                f"{self.job.source}: a window of {self.window_bp} bp: give --window, 2 to "
                f"{room_bp} bp"
            )

    def check(self) -> int:
        """Compare all records with the reference; return their number.

        Raises:
            GenomeError: records disagree with it, or have predictions already.
        """
        if any(line.startswith("##INFO=<ID=PREDICTED_") for line in self.vcf.header):
            raise GenomeError(f"{self.vcf.path}: has predictions already; give the original")
        agreement = Agreement(self.vcf.path, self.reference)
        for row in self.read():
            agreement.add(row)
        if agreement.has_contradictions:
            raise GenomeError(agreement.summary())
        return agreement.num_records

    def records(self) -> Iterator[SourceRecord]:
        """Yield records, with a REF and an ALT sequence, or both as one input, for each ALT that
        can be predicted.
        """
        for row in self.read():
            sequences: list[Input] = []
            names: list[str] = []
            reasons = [self.why_none(row, variant) for variant in row.variants]
            for variant, reason in zip(row.variants, reasons, strict=True):
                if reason is None:
                    inputs: tuple[Input, ...] = (
                        (pair_of(self.reference, variant, self.window_bp, self.k),)
                        if self.reads_pairs
                        else alleles_of(self.reference, variant, self.window_bp)
                    )
                    sequences += inputs
                    names += [f"{self.vcf.path}: {variant.to_text()}"] * len(inputs)
            yield SourceRecord((row, reasons), tuple(names), tuple(sequences))

    def why_none(self, row: VcfRow, variant: Variant) -> str | None:
        """Return the reason why an ALT has no prediction, or None."""
        if row.disagreement:
            return row.disagreement.reason
        if reason := variant.why_unscorable():
            return reason
        if not fits_window(self.reference, variant, self.window_bp):
            return "allele_longer_than_half_window"
        return None

    @property
    def num_predictions(self) -> int:
        """Predictions of a variant: one from both alleles, or one with each."""
        return 1 if self.reads_pairs else 2

    def values(self, variant: Variant, predictions: list[Floats32]) -> list[float | int | None]:
        """Return a value for each column of each output; None without a prediction."""
        if self.reads_pairs:
            return list(table_cells(predictions[0]))
        ref, alt = predictions
        if self.task.per_base:
            plain = normalize_variant(self.reference, variant)
            before_bp = min(plain.position, self.window_bp // 2)
            absent = ABSENT_NUMBER if self.task.task_type.is_number else ABSENT_CLASS
            changes = largest_changes(ref, alt, plain, before_bp, absent)
            changes[:, -1] += plain.position - variant.position  # offsets count from the VCF's POS
            flat = changes.ravel()
        else:
            flat = np.stack([alt, ref, alt - ref], axis=1).ravel()
        types = [side.type for _ in self.task.output_names for side in self.sides.values()]
        return [None if np.isnan(x) else of(x) for x, of in zip(flat, types, strict=True)]

    def written(self, path: Path, settings: dict[str, Any]) -> Any:
        """Open the output."""
        return self.writer(path, self, settings)

    def finish(self) -> None:
        """Write the index of a bgzip VCF."""
        for stale in index_paths(self.job.output):
            stale.unlink(missing_ok=True)
        if self.job.output.name.endswith(".vcf.gz"):
            write_index(self.job.output, max(self.reference.contig_lengths_bp.values()))


_REASON = "PREDICTED_REASON"


def keys_of(names: Sequence[str], sides: Iterable[str]) -> list[str]:
    """Return the INFO key of each output, before the suffixes of its sides."""
    keys = ["PREDICTED_" + _NO_KEY.sub("_", name.upper()).strip("_") for name in names]
    return _numbered_if_equal(keys, list(sides), _REASON)


def columns_of(names: Sequence[str], sides: Iterable[str]) -> list[str]:
    """Return the table column of each output, before the suffixes of its sides."""
    columns = [f"predicted_{name}" for name in names]
    return _numbered_if_equal(columns, [suffix.lower() for suffix in sides])


def _numbered_if_equal(keys: list[str], suffixes: list[str], *others: str) -> list[str]:
    """Return keys, all with their numbers if two are equal with suffixes: `x_ref` and `x`."""
    whole = [*others, *(key + suffix for key in keys for suffix in suffixes)]
    if len(set(whole)) < len(whole):
        return [f"{key}_{number}" for number, key in enumerate(keys, start=1)]
    return keys


def _rows(
    source: VariantSource, record: SourceRecord, predictions: Sequence[Floats32]
) -> Iterator[list[float | int | None]]:
    """Yield the values of each ALT."""
    row, reasons = record.record
    remaining = iter(predictions)
    num_values = len(source.sides) * len(source.task.output_names)
    empty: list[float | int | None] = [None] * num_values
    for variant, reason in zip(row.variants, reasons, strict=True):
        of_variant = [] if reason else list(islice(remaining, source.num_predictions))
        yield empty if reason else source.values(variant, of_variant)


@contextmanager
def write_table(
    path: Path, source: VariantSource, settings: dict[str, Any]
) -> Iterator[Callable[[SourceRecord, Sequence[Floats32]], None]]:
    """Write a row for each allele: its position, and each prediction."""
    names = source.task.output_names
    columns = {
        column + suffix.lower(): side.type
        for column in columns_of(names, source.sides)
        for suffix, side in source.sides.items()
    }
    writer = chosen_by_ending(path, "table")
    with writer(path, {**_PLACE, **columns, "reason": str}, settings) as write_row:

        def write_rows(record: SourceRecord, predictions: Sequence[Floats32]) -> None:
            row, reasons = record.record
            values = _rows(source, record, predictions)
            for variant, reason, cells in zip(row.variants, reasons, values, strict=True):
                place = (row.columns[0], variant.position + 1, row.columns[2])
                write_row((*place, variant.ref, variant.alt, *cells, reason))

        yield write_rows


@contextmanager
def write_vcf(path: Path, source: VariantSource, settings: dict[str, Any]) -> Iterator[Any]:
    """Write the VCF with INFO fields added, one value for each ALT."""
    names = source.task.output_names
    keys = [key + suffix for key in keys_of(names, source.sides) for suffix in source.sides]
    opened = pysam.BGZFile(str(path), "w", index=None) if path.suffix == ".gz" else path.open("wb")
    with opened as sink:
        header = _vcf_header(source, settings)
        sink.write("".join(f"{line}\n" for line in header).encode())

        def write(record: SourceRecord, predictions: Sequence[Floats32]) -> None:
            row, reasons = record.record
            rows = list(_rows(source, record, predictions))
            added = [
                f"{key}={','.join(text_of(cells[n]) for cells in rows)}"
                for n, key in enumerate(keys)
                if any(cells[n] is not None for cells in rows)
            ]
            if any(reasons):
                added.append(f"{_REASON}={','.join(map(text_of, reasons))}")
            sink.write(row.with_info(";".join(added)).encode())

        yield write


def _vcf_header(source: VariantSource, settings: dict[str, Any]) -> list[str]:
    *lines, columns = source.vcf.header
    names = source.task.output_names
    added = [
        f"##INFO=<ID={key}{suffix},Number=A,Type={_TYPES[side.type]},"
        f'Description="{_info_text(name)}, {side.description}">'
        for key, name in zip(keys_of(names, source.sides), names, strict=True)
        for suffix, side in source.sides.items()
    ]
    why = f'##INFO=<ID={_REASON},Number=A,Type=String,Description="Why there is none">'
    return [*lines, *added, why, f"##carbon_predict={json.dumps(settings)}", columns]


def _info_text(text: str) -> str:
    return text.replace('"', "'").replace("\\", "/")


_BLOCK_RECORDS, _BLOCK_BP = 256, 1_000_000  # maximum size of a block

SOURCES: dict[str, Callable[[Manifest, PredictJob], Source]] = {
    "sequences": SequenceSource,
    "bed": BedSource,
    "vcf": VariantSource,
}


def form_of(path: Path) -> str:
    """Return the type of a source, a key of `SOURCES`: VCF or BCF by content, BED by name.

    A file with the name of a VCF but other content counts as a VCF, which its reader refuses.
    """
    if holds_variants(path) or path.name.lower().endswith(FORMATS["vcf"].endings):
        return "vcf"
    return "bed" if is_bed(path) else "sequences"


def has_sd(manifest: Manifest, job: PredictJob) -> bool:
    """Return whether predictions have an SD over members: of an ensemble, in a table of sequences.

    The SDs of both alleles of a variant do not give the SD of their difference.
    """
    return len(manifest.members) > 1 and form_of(job.source) != "vcf"


def check_job(job: PredictJob) -> str:
    """Return the type of the source after checks that need no model.

    Raises:
        UserError: a file is absent, or `reference` is missing, or an option of places superfluous.
    """
    form = form_of(job.source)
    if str(job.source) == "-" or not job.source.is_file():
        why = (
            "the input is read more than once"
            if str(job.source) == "-"
            else why_no_file(job.source)
        )
        raise UserError(f"{job.source}: {why}; give a FASTA, FASTQ, BED or VCF file")
    if form != "sequences" and job.reference is None:
        raise UserError(f"{job.source}: has intervals but no sequences; give --reference")
    of_places = {
        "--reference": job.reference,
        "--contigs": job.contigs,
        "--window": job.window_bp,
    }
    if form == "sequences" and (wrong := [n for n, x in of_places.items() if x is not None]):
        raise UserError(f"{job.source}: has its own sequences; remove {' and '.join(wrong)}")
    output_path(job.output)
    check_no_input(job.output, job.source, job.reference, names_table(job.contigs))
    return form


class PredictWorker:
    """A worker that maps named sequences to predictions.

    Attributes:
        about: everything but the source that predictions depend on, and `room_bp`: bases of the
            longest sequence that the model reads whole.
    """

    def __init__(self, finetuned: "FinetunedModel", job: PredictJob, dtype: str) -> None:
        """Store a loaded model."""
        self._finetuned = finetuned
        self._strands = job.strands or finetuned.manifest.strands
        self._too_long = job.too_long or finetuned.manifest.too_long
        self._with_sd = has_sd(finetuned.manifest, job)
        self.about = {
            "carbon": __version__,
            "fine-tuned model": content_of(job.model),
            "dtype": dtype,
            "room_bp": finetuned.room_bp,
        }

    @classmethod
    def load(cls, job: PredictJob, dtype: Dtype, loading: dict[str, Any]) -> "PredictWorker":
        """Return a worker with the model of a job; `loading` are keywords of `load_finetuned`."""
        from carbon.finetune.predict import load_finetuned

        return cls(load_finetuned(job.model, dtype=dtype, **loading), job, dtype)

    def __call__(self, payload: tuple[list[str], list[Input]]) -> list[str]:
        """Return the prediction of every sequence, base64-encoded."""
        names, sequences = payload
        arrays = self._finetuned.predict_block(
            sequences, names, self._strands, self._too_long, with_sd=self._with_sd
        )
        return [base64.b64encode(each.tobytes()).decode() for each in arrays]


def run_predict_job(job: PredictJob, dtype: str, workers: Workers) -> dict[str, Any]:
    """Predict a file into another, which appears when it is complete; return the summary.

    Args:
        job: input, output and options.
        dtype: of the model, for the record.
        workers: each a `PredictWorker` of this job.

    Raises:
        UserError: source or output are invalid; the message names file and record.
    """
    form = check_job(job)
    manifest = read_manifest(job.model)
    if form != "vcf" and manifest.variant_input != "alt":
        raise UserError(
            f"{job.source}: {job.model} reads both alleles of variants (variant_input = "
            f"'{manifest.variant_input}'); give a VCF"
        )
    if manifest.variant_input != "alt" and job.too_long not in (None, "refuse"):
        raise UserError(
            f"--too-long {job.too_long}: {job.model} reads both alleles of variants whole; take it "
            "out, and give a shorter --window if necessary"
        )
    source = SOURCES[form](manifest, job)
    about = workers.about(in_blocks(source.read(), _BLOCK_RECORDS))  # or more: blocks end earlier
    source.check_window(about["room_bp"])
    window_bp = manifest.window_bp if job.window_bp is None else job.window_bp
    settings = {
        "model": str(job.model),
        "task": manifest.task.type,
        "outputs": list(manifest.task.output_names),
        "strands": job.strands or manifest.strands,
        "too_long": job.too_long or manifest.too_long,
        "variant_input": manifest.variant_input,
        "window_bp": None if form == "sequences" else window_bp,
        "dtype": dtype,
    }
    work = Job(
        description="predicting, records",
        output=job.output,
        settings=settings | about | _fingerprints(job),
        check=source.check,
        blocks=lambda: in_blocks(
            source.records(),
            _BLOCK_RECORDS,
            _BLOCK_BP,
            lambda record: sum(map(input_bp, record.sequences)),
        ),
        payload=_payload,
        source=str(job.source),
    )
    counts = run_job(
        work, workers, lambda results: _write(manifest, source, job, settings, results)
    )
    if counts["without"]:
        say(f"warning: {counts['without']} sequences have no known base, and no prediction")
    if counts.get("bases_without"):
        say(
            f"warning: {counts['bases_without']} bases of other sequences have no prediction: they "
            "are cut off, or lie in windows without a known base"
        )
    return {"output": str(job.output), **counts, **settings}


def _payload(block: list[SourceRecord]) -> tuple[list[str], list[Input]]:
    """Return the names and the sequences of a block."""
    names = [name for record in block for name in record.names]
    return names, [sequence for record in block for sequence in record.sequences]


def _write(
    manifest: Manifest,
    source: Source,
    job: PredictJob,
    settings: dict[str, Any],
    results: Iterator[tuple[list[SourceRecord], list[str]]],
) -> dict[str, int]:
    """Write the output and return its counts."""
    counts = {"records": 0, "predictions": 0, "without": 0}
    task = manifest.task
    width = task.num_outputs * (1 + has_sd(manifest, job))
    if task.per_base:
        counts["bases_without"] = 0
    with atomic_file(job.output) as temporary, source.written(temporary, settings) as write:
        for block, texts in results:
            rows = (_decoded(text, width) for text in texts)
            arrays = (each if task.per_base else each[0] for each in rows)
            for record in block:
                predictions = [next(arrays) for _ in record.sequences]
                write(record, predictions)
                counts["records"] += 1
                counts["predictions"] += len(predictions)
                _count_without(counts, predictions)
    source.finish()
    return counts


def _count_without(counts: dict[str, int], predictions: list[Floats32]) -> None:
    """Count sequences without a prediction, and bases without one in the others."""
    for each in predictions:
        is_without = np.isnan(each)
        counts["without"] += bool(is_without.all())
        if "bases_without" in counts and not is_without.all():
            counts["bases_without"] += int(is_without[:, 0].sum())


def _fingerprints(job: PredictJob) -> dict[str, Any]:
    """Return hashes that distinguish the inputs from files with the same names."""
    table = names_table(job.contigs)
    return {
        "carbon": __version__,
        "source": content_sha256(job.source),
        "fine-tuned model": content_of(job.model),
        "reference": content_sha256(job.reference) if job.reference else None,
        "contigs": content_sha256(table) if table and table.is_file() else job.contigs,
    }


def _decoded(text: str, width: int) -> Floats32:
    """Return the predictions of a sequence or of its bases, (rows, width)."""
    return np.frombuffer(base64.b64decode(text), np.float32).reshape(-1, width)
