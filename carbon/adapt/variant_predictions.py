"""Predictions of variants: with ALT, with REF, and their difference, of each output.

Of a label of every base they are those where the difference is largest.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

from carbon.adapt.allele_tracks import Floats32, largest_changes
from carbon.adapt.data.windows import alleles_of, fits_window
from carbon.adapt.prediction_sources import Described, Item, PredictJob, Source
from carbon.errors import GenomeError, UserError
from carbon.genome import Reference, Variant, VcfReader, VcfRow, contig_names
from carbon.genome.normalize import normalize_variant
from carbon.inference.variants.agreement import Agreement
from carbon.inference.variants.files import index_paths, write_index
from carbon.io.tables import chosen_by_ending, text_of

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

    def __init__(self, adapted: Described, job: PredictJob) -> None:
        """Open reference and VCF.

        Raises:
            UserError: no window is known, or it does not fit.
        """
        self.writer = chosen_by_ending(job.output, "predicted variants")
        self.adapted, self.job = adapted, job
        self.sides = _SIDES_OF_BASES if adapted.question.per_base else _SIDES
        given = adapted.manifest.window_bp if job.window_bp is None else job.window_bp
        if not 2 <= given <= adapted.room_bp:
            raise UserError(
                f"{job.source}: a window of {given} bp: give --window, 2 to {adapted.room_bp} bp"
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
            raise GenomeError(agreement.told())
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
        if self.adapted.question.per_base:
            plain = normalize_variant(self.reference, variant)
            before_bp = min(plain.position, self.window_bp // 2)
            changes = largest_changes(ref, alt, plain, before_bp)
            changes[:, -1] += plain.position - variant.position  # offsets count from the VCF's POS
            found = changes.ravel()
        else:
            found = np.stack([alt, ref, alt - ref], axis=1).ravel()
        types = [side.type for _ in self.adapted.output_names for side in self.sides.values()]
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
    num_values = len(source.sides) * len(source.adapted.output_names)
    nothing: list[float | int | None] = [None] * num_values
    for variant, reason in zip(row.variants, reasons, strict=True):
        yield nothing if reason else source.values(variant, next(found), next(found))


@contextmanager
def write_table(
    path: Path, source: VariantSource, settings: dict[str, Any]
) -> Iterator[Callable[[Item, Sequence[Floats32]], None]]:
    """Write a row an allele: its place, and each prediction."""
    names = source.adapted.output_names
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
    names = source.adapted.output_names
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
    names = source.adapted.output_names
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
