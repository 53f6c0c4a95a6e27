"""What goes into a corpus: assemblies with their annotation, and files of finished records."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.errors import GenomeError, UserError
from carbon.genome import (
    Annotation,
    Interval,
    Reference,
    is_genbank,
    read_annotation,
    read_sequences,
    unpack_genbank,
)
from carbon.genome.streams import BROKEN_GZIP, open_text
from data_pipeline.recipe import (
    AssemblyConfig,
    EvaluationConfig,
    FilesConfig,
    assembly_name,
    species_type_of,
)


@dataclass(frozen=True, slots=True)
class Assembly:
    """An assembly, opened."""

    reference: Reference
    annotation: Annotation
    name: str
    organism: str
    species_type: str
    sources: tuple[str, ...]


@contextmanager
def opened(config: AssemblyConfig) -> Iterator[Assembly]:
    """Open an assembly from FASTA and annotation, or from GenBank.

    Raises:
        GenomeError: a file is absent or malformed, or the two do not fit.
    """
    organism, taxonomy = config.organism, tuple(t.strip() for t in config.taxonomy.split(";"))
    with tempfile.TemporaryDirectory(prefix="carbon-genbank-") as scratch:
        genome, from_genbank = config.genome, None
        if Path(genome).is_file() and is_genbank(genome):
            if config.annotation:
                raise GenomeError(f"{genome}: GenBank has its own annotation; leave the other out")
            genome = f"{scratch}/genome.fa"
            found = unpack_genbank(config.genome, Path(genome))
            organism = organism or found.organism
            taxonomy = taxonomy if config.taxonomy else found.taxonomy
            from_genbank = found.annotation
        with Reference(genome) as reference:
            species_type = config.species_type or species_type_of(taxonomy)
            yield Assembly(
                reference,
                from_genbank or _annotation(config, reference),
                assembly_name(config),
                organism,
                species_type,
                config.sources or _usual_sources(species_type),
            )


def _usual_sources(species_type: str) -> tuple[str, ...]:
    return ("prokaryote",) if species_type == "pro" else ("eukaryote", "mrna")


def _annotation(config: AssemblyConfig, reference: Reference) -> Annotation:
    if not config.annotation:
        sources = config.sources or _usual_sources(config.species_type)
        if set(sources) != {"prokaryote"}:
            raise GenomeError(
                f"{config.genome}: needs an annotation for {', '.join(sources)}; without one, "
                "only the source 'prokaryote' can be cut"
            )
        return Annotation(Path(config.genome), (), ())
    return read_annotation(
        config.annotation,
        reference,
        contig_names=config.contig_names,
        offset_bp=config.annotation_offset_bp,
    )


def file_rows(path: Path, config: FilesConfig) -> Iterator[dict[str, Any]]:
    """Yield the records of a file as rows of the corpus, from what each format tells.

    Raises:
        UserError: the file is absent, or of none of the formats.
    """
    constant = {
        "source": config.source,
        "gene_type": config.gene_type,
        "species_type": config.species_type,
        "organism": config.organism,
        "assembly": config.assembly,
    }
    if path.suffix == ".parquet":
        rows = _released_rows(path)
    elif _begins_with(path, ">"):
        rows = ({"name": name, "sequence": bases} for name, bases in read_sequences(path))
    else:
        rows = _line_rows(path)
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            told = {key: value for key, value in constant.items() if value or key not in row}
            yield _completed(row | told, f"{path} record {number}")
    except BROKEN_GZIP as error:
        reason = f"broken after record {number} ({error}); fetch it again"
        raise UserError(f"{path}: {reason}") from None


def _completed(row: dict[str, Any], where: str) -> dict[str, Any]:
    sequence = row["sequence"]
    if not isinstance(sequence, str) or not sequence:
        raise UserError(f"{where}: has no sequence; take it out")
    strand = row.get("strand") or "+"
    start = int(row.get("start") or 0)
    end = int(row.get("end") or start + len(sequence))
    name = row.get("name") or row.get("record_id") or where
    return row | {
        "record_id": row.get("record_id") or name,
        "name": name,
        "start": start,
        "end": end,
        "strand": strand,
        "segments": [{"start": start, "end": end, "strand": strand}],
    }


def _begins_with(path: Path, letter: str) -> bool:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give FASTA, sequences by line, or Parquet")
    try:
        with open_text(path, errors="replace") as lines:
            return lines.read(1) == letter
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: broken from its beginning ({error}); fetch it again") from None


def _line_rows(path: Path) -> Iterator[dict[str, Any]]:
    with open_text(path, errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            bases = line.strip()
            if wrong := set(bases.upper()) - set("ACGTNRYSWKMBDHV-"):
                raise UserError(
                    f"{path} line {number}: {sorted(wrong)[0]!r} is not a DNA letter; give FASTA, "
                    "or one sequence a line"
                )
            if bases:
                yield {"sequence": bases, "name": f"{path.name}:{number}"}


# Columns of the released corpus, whose codes stand in brackets, and what they are here.
_RELEASED = ("sequence", "record_id", "start", "end", "strand", "gene_type", "species_type")
_TEXT = ("sequence", "text")


def _released_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        parquet = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read as Parquet ({reason}); fetch it again") from None
    text = next((name for name in _TEXT if name in parquet.schema_arrow.names), None)
    if text is None:
        raise UserError(
            f"{path}: has no column 'sequence' or 'text', only "
            f"{', '.join(parquet.schema_arrow.names)}; is it a corpus?"
        )
    columns = [text, *(c for c in _RELEASED[1:] if c in parquet.schema_arrow.names)]
    for batch in parquet.iter_batches(batch_size=1024, columns=columns):
        for row in batch.to_pylist():
            row["sequence"] = row.pop(text)
            yield {key: _bare(value) for key, value in row.items() if value is not None}


def _bare(value: Any) -> Any:
    """Take a code out of its brackets: `<fng>`, `<+>`."""
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return value[1:-1]
    return value


def evaluation_places(config: EvaluationConfig) -> list[Interval]:
    """Return the places of a BED or VCF, widened by its margin.

    Raises:
        UserError: a line is neither.
    """
    is_vcf = config.path.removesuffix(".gz").endswith(".vcf")
    result = []
    with open_text(Path(config.path), errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith(("#", "track", "browser")):
                continue
            columns = line.rstrip("\r\n").split("\t")
            try:
                # BED is 0-based and half-open; a VCF's POS is 1-based and its REF tells the end.
                start = int(columns[1]) - is_vcf
                end = start + len(columns[3]) if is_vcf else int(columns[2])
                place = Interval(columns[0], start, end)
            except (IndexError, ValueError, GenomeError):
                raise UserError(
                    f"{config.path} line {number}: is no line of {'VCF' if is_vcf else 'BED'}"
                ) from None
            start, margin_bp = max(0, place.start - config.margin_bp), config.margin_bp
            result.append(Interval(place.contig, start, place.end + margin_bp))
    return result
