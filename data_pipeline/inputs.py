"""What goes into a corpus: assemblies with their annotation, and files of finished records."""

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.errors import GenomeError, UserError
from carbon.files import scratch_folder
from carbon.genome import (
    Annotation,
    Interval,
    Reference,
    contig_names,
    is_genbank,
    read_annotation,
    read_sequences,
    unpack_genbank,
)
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.sequence_lines import SequenceLines
from carbon.genome.streams import BROKEN_GZIP, open_text
from carbon.tokenizer import GENE_TAG_OF, SPECIES_TAG_OF
from data_pipeline.organisms import Said, disagreement, other_organism
from data_pipeline.reads import is_fastq, read_rows, sample_of
from data_pipeline.recipe import (
    AssemblyConfig,
    EvaluationConfig,
    FilesConfig,
    assembly_name,
    species_type_of,
)
from data_pipeline.sources import SOURCES, need_annotation, usual_sources
from data_pipeline.taxonomy import Taxon, Taxonomy, opened_taxonomy


@dataclass(frozen=True, slots=True)
class Assembly:
    """An assembly, opened."""

    reference: Reference
    annotation: Annotation
    name: str
    organism: str
    species_type: str
    taxonomy: tuple[str, ...]
    clade: str
    sources: tuple[str, ...]
    warning: str | None


@contextmanager
def opened(config: AssemblyConfig, taxdump: str = "", divide_by: str = "") -> Iterator[Assembly]:
    """Open an assembly from FASTA and annotation, or from GenBank.

    Args:
        config: what the recipe says of it.
        taxdump: folder to take the lineage from, if any.
        divide_by: the rank of which `clade` is.

    Raises:
        UserError: a file is absent or malformed, or they do not fit.
    """
    organism, taxonomy = config.organism, tuple(t.strip() for t in config.taxonomy.split(";"))
    with scratch_folder("genbank") as scratch:
        genome, fasta, from_genbank = config.genome, config.genome, None
        if Path(genome).is_file() and is_genbank(genome):
            if config.annotation:
                raise GenomeError(f"{genome}: GenBank has its own annotation; leave the other out")
            fasta = f"{scratch}/genome.fa"
            found = unpack_genbank(genome, Path(fasta))
            warning = disagreement(organism, Said(found.organism, genome))
            organism = organism or found.organism
            taxonomy = taxonomy if config.taxonomy else found.taxonomy
            from_genbank = found.annotation
        else:
            warning = other_organism(organism, genome, config.annotation)
        lineage: tuple[Taxon, ...] = ()
        if taxdump:
            lineage = _lineage(opened_taxonomy(taxdump), config, organism)
            taxonomy = tuple(taxon.name for taxon in lineage)
        with Reference(fasta) as reference:
            species_type = config.species_type or species_type_of(taxonomy)
            annotated = bool(config.annotation or from_genbank)
            usual = () if config.regions else usual_sources(species_type, annotated=annotated)
            sources = config.sources or usual
            yield Assembly(
                reference,
                from_genbank or _annotation(config, reference, sources),
                assembly_name(config),
                organism,
                species_type,
                tuple(filter(None, taxonomy)),
                next((taxon.name for taxon in lineage if taxon.rank == divide_by), ""),
                sources,
                warning,
            )


def _lineage(taxonomy: Taxonomy, config: AssemblyConfig, organism: str) -> tuple[Taxon, ...]:
    if not (config.taxid or organism):
        raise UserError(f"assembly '{assembly_name(config)}': give its organism, or its taxid")
    return taxonomy.lineage(config.taxid or taxonomy.taxid_of(organism))


def _annotation(
    config: AssemblyConfig, reference: Reference, sources: tuple[str, ...]
) -> Annotation:
    if not config.annotation:
        if need_annotation(sources):
            without = [f"'{name}'" for name in SOURCES if not need_annotation([name])]
            raise GenomeError(
                f"{config.genome}: needs an annotation for {', '.join(sources)}; without one, "
                f"only the source {' or '.join(without)} can be cut"
            )
        return Annotation(Path(config.genome), (), ())
    return read_annotation(
        config.annotation,
        reference,
        contig_names=names_of(config, reference.contig_lengths_bp),
        offset_bp=config.annotation_offset_bp,
    )


def names_of(config: AssemblyConfig, contigs: Collection[str]) -> dict[str, str]:
    """Return what the annotation of an assembly calls a contig = what its sequence does.

    Raises:
        GenomeError: the recipe's table of them is absent or broken.
    """
    return config.contig_names or contig_names(config.contigs, contigs)


def file_rows(
    path: Path, config: FilesConfig, mates: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the records of a file as rows of the corpus, from what each format tells.

    Raises:
        UserError: the file is absent, or of none of the formats; or it does not fit its mates.
    """
    constant = {
        "source": config.source,
        "gene_type": config.gene_type,
        "species_type": config.species_type,
        "organism": config.organism,
        "assembly": config.assembly,
    }
    if is_fastq(path):
        constant["assembly"] = config.sample or sample_of(path, paired=bool(config.mates))
        rows = read_rows(path, mates)
    elif path.suffix == ".parquet":
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
    except (*BROKEN_GZIP, pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path}: broken after record {number} ({reason}); fetch it again"
        ) from None
    if not number:
        raise UserError(f"{path}: has no record; give FASTA, sequences by line, or Parquet")


def _completed(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Check a record and tell where its bases come from, as far as the file does."""
    sequence = row.get("sequence")
    if not isinstance(sequence, str) or not sequence:
        raise UserError(f"{where}: has no sequence; take it out")
    if wrong := sequence.translate(_NO_DNA):
        raise UserError(f"{where}: {wrong[0]!r} is not a DNA letter; is it text or a protein?")
    for name, codes in (("species_type", SPECIES_TAG_OF), ("gene_type", GENE_TAG_OF)):
        if row.get(name) and row[name] not in codes:
            raise UserError(f"{where}: {name} '{row[name]}' is none of {', '.join(codes)}")
    try:
        start, end = int(row.get("start") or 0), int(row.get("end") or 0)
    except ValueError:
        raise UserError(f"{where}: start and end must be whole numbers") from None
    strand = str(row.get("strand") or "+")
    end = end or start + len(sequence)
    if not 0 <= start < end:
        raise UserError(f"{where}: need 0 <= start < end, got {start} and {end}")
    segments = row.get("segments") or [{"start": start, "end": end, "strand": strand}]
    if sum(each["end"] - each["start"] for each in segments) != len(sequence):
        segments = []  # what the file says of its place is not of these bases: it stays untold
    if strand not in ("+", "-", "."):
        raise UserError(f"{where}: strand '{strand}': must be + or -")
    name = str(row.get("name") or row.get("record_id") or where)
    place = {"start": start, "end": end, "strand": strand, "segments": segments}
    return row | place | {"record_id": str(row.get("record_id") or name), "name": name}


_NO_DNA = dict.fromkeys(map(ord, "ACGTUNRYSWKMBDHVacgtunryswkmbdhv-"))


def _begins_with(path: Path, letter: str) -> bool:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give FASTA, sequences by line, or Parquet")
    try:
        with open_text(path, errors="replace") as lines:
            return next(lines, "")[:1] == letter
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: broken from its beginning ({error}); fetch it again") from None


_LINE_LETTERS = b"ACGTNRYSWKMBDHV-"


def _line_rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(SequenceLines(path).lines(), start=1):
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        bases = line.decode(encoding, "replace").strip()
        if wrong := bases.upper().encode().translate(None, _LINE_LETTERS):
            raise UserError(
                f"{path} line {number}: {min(wrong.decode())!r} is not a DNA letter; give FASTA, "
                "or one sequence a line"
            )
        if bases:
            yield {"sequence": bases, "name": f"{path.name}:{number}"}


# Columns of the released corpus, whose codes stand in brackets, and what they are here.
_RELEASED = ("record_id", "start", "end", "strand", "gene_type", "species_type")
_OURS = ("name", "segments", "organism", "assembly")
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
    columns = [text, *(c for c in _RELEASED + _OURS if c in parquet.schema_arrow.names)]
    # A corpus of ours that is read again keeps what it holds out.
    split = {"split": "test"} if path.name.startswith("test-") else {}
    for batch in parquet.iter_batches(batch_size=1024, columns=columns):
        for row in batch.to_pylist():
            row["sequence"] = row.pop(text)
            yield split | {key: _bare(value) for key, value in row.items() if value is not None}


def _bare(value: Any) -> Any:
    """Take a code out of its brackets: `<fng>`, `<+>`."""
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return value[1:-1]
    return value if isinstance(value, list) else str(value)


class EvaluationPlaces:
    """Places on contigs, to be asked whether anything overlaps one."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        """Join them, so that two ends tell."""
        self._starts: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        for place in sorted(intervals):
            starts = self._starts.setdefault(place.contig, [])
            ends = self._ends.setdefault(place.contig, [])
            if ends and place.start <= ends[-1]:
                ends[-1] = max(ends[-1], place.end)
            else:
                starts.append(place.start)
                ends.append(place.end)

    def overlap(self, interval: Interval) -> bool:
        """Tell whether an interval shares a base with a place."""
        ends = self._ends.get(interval.contig, [])
        at = bisect.bisect_right(ends, interval.start)
        return at < len(ends) and self._starts[interval.contig][at] < interval.end


def evaluation_places(
    config: EvaluationConfig, assembly: AssemblyConfig, contig_lengths_bp: Mapping[str, int]
) -> list[Interval]:
    """Return the places of a BED or VCF on an assembly, widened by its margin.

    They are in the coordinates of the annotation: names and offset of the assembly apply.

    Raises:
        UserError: a line is neither, or no place is on the assembly.
    """
    path = Path(config.path)
    is_vcf = path.name.removesuffix(".gz").endswith(".vcf")
    names = names_of(assembly, contig_lengths_bp)
    result = []
    for place in _vcf_places(path) if is_vcf else _bed_places(path):
        contig = names.get(place.contig, place.contig)
        start = place.start - assembly.annotation_offset_bp - config.margin_bp
        end = place.end - assembly.annotation_offset_bp + config.margin_bp
        if end > 0 and start < contig_lengths_bp.get(contig, 0):
            result.append(Interval(contig, max(0, start), end))
    if not result:
        raise UserError(
            f"{path}: no place lies on assembly '{config.assembly}', whose contigs are "
            f"{', '.join(list(contig_lengths_bp)[:3])} ...; are they named alike?"
        )
    return result


def _bed_places(path: Path) -> Iterator[Interval]:
    return (Interval(*bed_place(columns, where)) for where, columns in bed_lines(path))


def _vcf_places(path: Path) -> Iterator[Interval]:
    number = 0
    try:
        with open_text(path, errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not line.startswith("#"):
                    yield _vcf_place(line, f"{path} line {number}")
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: broken after line {number} ({error}); fetch it again") from None


def _vcf_place(line: str, where: str) -> Interval:
    columns = line.rstrip("\r\n").split("\t")
    try:
        start = int(columns[1]) - 1  # POS is 1-based, and REF tells the end
        return Interval(columns[0], start, start + len(columns[3]))
    except (IndexError, ValueError, GenomeError):
        raise UserError(f"{where}: is no line of VCF") from None
