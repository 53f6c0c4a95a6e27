"""A VCF in; a scored VCF, TSV or Parquet out, record by record in flat memory."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pysam

from carbon.console import progress
from carbon.errors import GenomeError, UserError
from carbon.files import atomic_file
from carbon.genome import Reference, VcfReader, VcfRow
from carbon.inference.engine import Carbon
from carbon.inference.scoring import Strands
from carbon.inference.variants import VariantScore

_ROWS_AT_ONCE = 512
_COLUMNS = ("contig", "position", "id", "ref", "alt", "delta", "reason")

Scored = tuple[VcfRow, list[VariantScore]]


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantJob:
    """What to score and how; `window_bp` None takes the model's default."""

    reference: Path
    vcf: Path
    output: Path
    window_bp: int | None
    strands: Strands
    tags: tuple[str, ...]


def run_variant_job(model: Carbon, job: VariantJob, dtype: str) -> dict[str, Any]:
    """Score a VCF into a file, which appears when it is whole; return what was done.

    Raises:
        GenomeError: the VCF is malformed, unsorted or of another reference.
        UserError: the output's ending or the window is not possible.
    """
    writer = writer_for(job.output)
    window_bp = model.variant_method(window_bp=job.window_bp, tags=job.tags).window_bp
    for given in (job.vcf, job.reference):
        if job.output.resolve() == given.resolve():
            raise UserError(f"{job.output}: is an input too; name another output")
    settings = {
        "protocol": "centered",
        "window_bp": window_bp,
        "strands": job.strands,
        "frame": "window start",
        "tags": list(job.tags),
        "dtype": dtype,
        "delta": "log-likelihood(ALT) - log-likelihood(REF), nats",
    }
    counts = {"records": 0, "scored": 0, "not_scored": 0}
    is_bgzip = job.output.name.endswith(".vcf.gz")
    with Reference(job.reference) as reference, atomic_file(job.output) as temporary:
        vcf = VcfReader(job.vcf, reference)
        header = _scored_header(vcf, settings)
        # Read all of it once first: a bad last record costs seconds then, and not hours.
        num_records = sum(1 for _ in vcf)
        with (
            writer(temporary, header, settings) as write,
            progress("scoring variants", num_records) as advance,
        ):
            for row, scores in _scored(model, reference, vcf, job, window_bp):
                write((row, scores))
                counts["records"] += 1
                counts["scored"] += sum(score.delta is not None for score in scores)
                counts["not_scored"] += sum(score.delta is None for score in scores)
                advance(1)
        if is_bgzip:
            pysam.tabix_index(str(temporary), preset="vcf", force=True)
            os.replace(f"{temporary}.tbi", f"{job.output}.tbi")
    return {"output": str(job.output), **counts, **settings}


def _scored(
    model: Carbon, reference: Reference, vcf: VcfReader, job: VariantJob, window_bp: int
) -> Iterator[Scored]:
    """Score records in blocks, so that alleles share batches, and hand them back in order."""
    block: list[VcfRow] = []

    def flush() -> Iterator[Scored]:
        variants = [variant for row in block for variant in row.variants]
        scores = model.score_variants(
            reference, variants, window_bp=window_bp, strands=job.strands, tags=job.tags
        )
        for row in block:
            yield row, [next(scores) for _ in row.variants]
        block.clear()

    for row in vcf:
        block.append(row)
        if len(block) == _ROWS_AT_ONCE:
            yield from flush()
    yield from flush()


def _scored_header(vcf: VcfReader, settings: dict[str, Any]) -> list[str]:
    """Return the header with what was added: our fields, and how the scores were made."""
    *lines, columns = vcf.header
    if any(line.startswith("##INFO=<ID=CARBON_") for line in lines):
        raise GenomeError(f"{vcf.path}: has CARBON_DELTA already: is it scored? give the original")
    text = "; ".join(f"{name} {value}" for name, value in settings.items() if name != "delta")
    return [
        *lines,
        f'##INFO=<ID=CARBON_DELTA,Number=A,Type=Float,Description="{settings["delta"]} ({text})">',
        '##INFO=<ID=CARBON_REASON,Number=A,Type=String,Description="Why there is no CARBON_DELTA">',
        f"##carbon_variants={json.dumps(settings)}",
        columns,
    ]


@contextmanager
def _vcf_writer(
    path: Path, header: list[str], settings: dict[str, Any]
) -> Iterator[Callable[[Scored], None]]:
    with (
        pysam.BGZFile(str(path), "w", index=None)
        if path.suffix == ".gz"
        else path.open("wb") as sink
    ):
        sink.write("".join(f"{line}\n" for line in header).encode())

        def write(scored: Scored) -> None:
            sink.write(_vcf_line(scored).encode())

        yield write


def _vcf_line(scored: Scored) -> str:
    row, scores = scored
    added = []
    if any(score.delta is not None for score in scores):
        added.append("CARBON_DELTA=" + ",".join(_number(score.delta) for score in scores))
    if any(score.reason is not None for score in scores):
        added.append("CARBON_REASON=" + ",".join(score.reason or "." for score in scores))
    return row.with_info(";".join(added))


def _number(value: float | None) -> str:
    return "." if value is None else f"{value:.6g}"


def _table_rows(scored: Scored) -> Iterator[tuple[Any, ...]]:
    row, scores = scored
    for variant, delta, reason, _, _ in scores:
        place = (variant.contig, variant.position + 1, row.columns[2])
        yield (*place, variant.ref, variant.alt, delta, reason)


@contextmanager
def _tsv_writer(
    path: Path, header: list[str], settings: dict[str, Any]
) -> Iterator[Callable[[Scored], None]]:
    with path.open("w", encoding="utf-8") as sink:
        sink.write(f"# {json.dumps(settings)}\n" + "\t".join(_COLUMNS) + "\n")

        def write(scored: Scored) -> None:
            for values in _table_rows(scored):
                texts = (
                    "." if v is None else f"{v:.6g}" if type(v) is float else v for v in values
                )
                sink.write("\t".join(map(str, texts)) + "\n")

        yield write


@contextmanager
def _parquet_writer(
    path: Path, header: list[str], settings: dict[str, Any]
) -> Iterator[Callable[[Scored], None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = (pa.string(), pa.int64(), pa.string(), pa.string(), pa.string(), pa.float64())
    fields = list(zip(_COLUMNS, (*kinds, pa.string()), strict=True))
    schema = pa.schema(fields, metadata={"carbon_variants": json.dumps(settings)})
    rows: list[tuple[Any, ...]] = []
    with pq.ParquetWriter(path, schema) as sink:

        def flush() -> None:
            columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
            sink.write_table(pa.table(list(map(list, columns)), schema=schema))
            rows.clear()

        def write(scored: Scored) -> None:
            rows.extend(_table_rows(scored))
            if len(rows) >= 65_536:
                flush()

        yield write
        flush()


_WRITERS = {
    ".vcf.gz": _vcf_writer,
    ".vcf": _vcf_writer,
    ".tsv": _tsv_writer,
    ".parquet": _parquet_writer,
}


def writer_for(output: str | Path) -> Any:
    """Return the writer that an output's ending asks for.

    Raises:
        GenomeError: the ending is none of .vcf, .vcf.gz, .tsv and .parquet.
    """
    for ending, writer in _WRITERS.items():
        if str(output).endswith(ending):
            return writer
    raise GenomeError(f"{output}: end the output with one of {', '.join(_WRITERS)}")
