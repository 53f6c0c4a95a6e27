"""From one annotated genome to a corpus of two sources: genic regions and spliced transcripts.

What is held out (a chromosome, mostly) becomes the `test` split of each source; nothing that is
trained on overlaps it or equals one of its records.
"""

import csv
import hashlib
import json
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from carbon import __version__
from carbon.config import check
from carbon.console import say, track
from carbon.corpus import GENE_TAG_OF, SCHEMA, SPECIES_TAG_OF
from carbon.errors import GenomeError
from carbon.files import atomic_folder, sha256_of_file
from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    Transcript,
    from_region,
    read_annotation,
    reverse_complement,
    spliced,
)

SOURCES = ("eukaryote", "mrna")
# An automatic hold-out, of the contigs that carry genes: the shortest with this share of the
# genome, or the longest where none is so large; of one that is most of the genome, its last tenth.
HELD_OUT_SHARE = 0.04
HELD_OUT_TAIL = 0.1
_ROWS_A_GROUP = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """The recipe of a corpus."""

    genome: str
    """FASTA: plain, bgzip or gzip."""
    annotation: str
    """GFF3 or GTF of the same assembly: plain or gzip."""
    output: str
    """Folder to make; it must not exist or be empty."""
    holdout: tuple[str, ...] = ("auto",)
    """Contigs or regions (`chr:first-last`) to hold out, or `auto`, or nothing."""
    flank_bp: int = 200
    """Bases to keep on either side of a gene."""
    min_record_bp: int = 60
    """Shorter records are dropped."""
    max_record_bp: int = 100_000
    """Longer regions are cut into consecutive records, as in the released corpus."""
    incomplete_cds: Literal["error", "drop"] = "error"
    """What to do with a CDS that is not a multiple of three and that the annotation does not mark
    as partial, pseudo or exceptional."""
    organism: str = ""
    assembly: str = ""
    species_type: str = ""
    """One of mam, vrt, inv, pln, fng, prt, pro, or empty for no species tag."""

    def __post_init__(self) -> None:
        known = ", ".join(SPECIES_TAG_OF)
        check(self.flank_bp >= 0, f"flank_bp = {self.flank_bp}: give 0 or more")
        check(
            1 <= self.min_record_bp <= self.max_record_bp,
            f"need 1 <= min_record_bp <= max_record_bp, got {self.min_record_bp} and "
            f"{self.max_record_bp}",
        )
        check(
            self.species_type in ("", *SPECIES_TAG_OF),
            f"species_type = '{self.species_type}': give one of {known}, or nothing",
        )


@dataclass(slots=True)
class Record:
    """A row of the corpus, in the order of its columns."""

    sequence: str
    source: str
    record_id: str
    start: int
    end: int
    strand: str
    gene_type: str
    name: str
    split: str

    @property
    def digest(self) -> bytes:
        """A hash that a sequence and its reverse complement share."""
        forward = self.sequence.upper()
        return hashlib.sha256(min(forward, reverse_complement(forward)).encode()).digest()


@dataclass(slots=True)
class Dropped:
    """What did not become a record, and why."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, source: str, name: str, reason: str) -> None:
        """Note one."""
        self.rows.append((source, name, reason))


def build(config: BuildConfig) -> dict[str, Any]:
    """Make the corpus and return its manifest; the output appears when all of it is written."""
    with Reference(config.genome) as reference, atomic_folder(config.output) as output:
        annotation = read_annotation(config.annotation, reference)
        _check_cds(annotation, config)
        held_out = held_out_regions(config.holdout, reference, annotation)
        say(f"held out: {', '.join(region.to_region() for region in held_out) or 'nothing'}")
        dropped = Dropped([("annotation", name, reason) for name, reason in annotation.dropped])
        records = {
            "eukaryote": list(_regions(reference, annotation, held_out, config, dropped)),
            "mrna": list(_transcripts(reference, annotation, held_out, config, dropped)),
        }
        test_digests = {r.digest for rs in records.values() for r in rs if r.split == "test"}
        counts = {
            source: _write_source(output, source, rows, test_digests, config, dropped)
            for source, rows in records.items()
        }
        _write_dropped(output / "dropped.tsv", dropped)
        manifest = _manifest(config, held_out, counts, dropped, output)
        (output / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def held_out_regions(
    holdout: tuple[str, ...], reference: Reference, annotation: Annotation
) -> list[Interval]:
    """Return the intervals that a `holdout` setting names; `auto` chooses one."""
    lengths_bp = reference.contig_lengths_bp
    if holdout != ("auto",):
        return [from_region(text, lengths_bp) for text in holdout]
    with_genes = {gene.interval.contig for gene in annotation.genes}
    by_length = sorted((lengths_bp[contig], contig) for contig in with_genes)
    genome_bp = sum(lengths_bp.values())
    large = (each for each in by_length if each[0] >= HELD_OUT_SHARE * genome_bp)
    length_bp, contig = next(large, by_length[-1])
    most_of_genome = length_bp > genome_bp / 2
    start = round((1 - HELD_OUT_TAIL) * length_bp) if most_of_genome else 0
    return [Interval(contig, start, length_bp)]


def _check_cds(annotation: Annotation, config: BuildConfig) -> None:
    """Raise at the first CDS that is out of frame for no stated reason."""
    if config.incomplete_cds == "drop":
        return
    for transcript in (t for gene in annotation.genes for t in gene.transcripts):
        if transcript.cds_length_bp % 3 and not transcript.incomplete:
            raise GenomeError(
                f"{transcript.where}: the CDS of '{transcript.transcript_id}' has "
                f"{transcript.cds_length_bp} bases, not a multiple of three; mend it, or leave "
                "such transcripts out with --set incomplete_cds=drop"
            )


def _split_of(interval: Interval, held_out: list[Interval]) -> str | None:
    """Return train, test, or None where an interval is partly held out."""
    if not any(interval.overlaps(region) for region in held_out):
        return "train"
    inside = any(
        region.contig == interval.contig
        and region.start <= interval.start
        and interval.end <= region.end
        for region in held_out
    )
    return "test" if inside else None


def _regions(
    reference: Reference,
    annotation: Annotation,
    held_out: list[Interval],
    config: BuildConfig,
    dropped: Dropped,
) -> Iterator[Record]:
    """Yield genes with their flanks along their strand; those that touch are one region."""
    for genes, interval in track(_joined(reference, annotation, config), "genic regions"):
        name = ",".join(gene.name for gene in genes)
        split = _split_of(interval, held_out)
        if split is None:
            dropped.add("eukaryote", name, "partly_held_out")
            continue
        strand = genes[0].strand
        bases = reference.fetch(interval)
        for start in range(0, len(bases), config.max_record_bp):
            part = bases[start : start + config.max_record_bp]
            yield Record(
                sequence=part if strand == "+" else reverse_complement(part),
                source="eukaryote",
                record_id=interval.contig,
                start=interval.start + start,
                end=interval.start + start + len(part),
                strand=strand,
                gene_type=_gene_type(genes),
                name=name,
                split=split,
            )


def _joined(
    reference: Reference, annotation: Annotation, config: BuildConfig
) -> list[tuple[list[Gene], Interval]]:
    """Group genes of one strand whose flanked intervals touch."""
    result: list[tuple[list[Gene], Interval]] = []
    last: dict[tuple[str, str], int] = {}
    for gene in annotation.genes:
        contig_bp = reference.contig_lengths_bp[gene.interval.contig]
        interval = gene.interval.widened(config.flank_bp, contig_bp)
        key = (interval.contig, gene.strand)
        at = last.get(key)
        if at is not None and interval.start <= result[at][1].end:
            genes, before = result[at]
            end = max(before.end, interval.end)
            result[at] = ([*genes, gene], replace(before, end=end))
        else:
            last[key] = len(result)
            result.append(([gene], interval))
    return result


def _transcripts(
    reference: Reference,
    annotation: Annotation,
    held_out: list[Interval],
    config: BuildConfig,
    dropped: Dropped,
) -> Iterator[Record]:
    """Yield the spliced transcripts of coding genes, each sequence once a split."""
    seen: set[tuple[str | None, str]] = set()
    pairs = [(g, t) for g in annotation.genes for t in g.transcripts if t.cds]
    for gene, transcript in track(pairs, "spliced transcripts"):
        split = _split_of(gene.interval, held_out)
        if reason := _why_no_transcript(transcript, split):
            dropped.add("mrna", transcript.transcript_id, reason)
            continue
        bases = spliced(reference, transcript.contig, transcript.exons, transcript.strand)
        if (split, bases.upper()) in seen:
            dropped.add("mrna", transcript.transcript_id, "duplicate_sequence")
            continue
        seen.add((split, bases.upper()))
        yield Record(
            sequence=bases,
            source="mrna",
            record_id=transcript.contig,
            start=transcript.exons[0][0],
            end=transcript.exons[-1][1],
            strand=transcript.strand,
            gene_type="cds",
            name=transcript.transcript_id,
            split=str(split),
        )


def _why_no_transcript(transcript: Transcript, split: str | None) -> str | None:
    if split is None:
        return "partly_held_out"
    if transcript.incomplete:
        return "cds_marked_incomplete"
    return "cds_not_multiple_of_three" if transcript.cds_length_bp % 3 else None


# From the biotypes of Ensembl, GENCODE and NCBI to the gene types of the released corpus.
_EXACT_TYPES = {"protein_coding": "cds", "misc_RNA": "misc_RNA", "tmRNA": "tmRNA"}
_TYPE_ENDINGS = (("pseudogene", "pseudo"), ("tRNA", "tRNA"), ("rRNA", "rRNA"), ("RNA", "ncRNA"))


def gene_type_of(biotype: str) -> str:
    """Return the corpus's gene type of an annotation's biotype, or an empty string."""
    if biotype in GENE_TAG_OF:
        return biotype
    endings = (kind for ending, kind in _TYPE_ENDINGS if biotype.endswith(ending))
    return _EXACT_TYPES.get(biotype) or next(endings, "")


def _gene_type(genes: list[Gene]) -> str:
    """Return the type of a region: coding if any gene is, else that of its first gene."""
    types = [gene_type_of(gene.biotype) for gene in genes]
    return "cds" if "cds" in types else types[0]


def _write_source(
    output: Path,
    source: str,
    records: list[Record],
    test_digests: set[bytes],
    config: BuildConfig,
    dropped: Dropped,
) -> dict[str, dict[str, int]]:
    """Write both splits of a source and return their counts."""
    (output / source).mkdir()
    kept: dict[str, list[Record]] = {"train": [], "test": []}
    for record in records:
        if reason := _why_no_record(record, test_digests, config):
            dropped.add(source, record.name, reason)
        else:
            kept[record.split].append(record)
    counts = {}
    for split, rows in kept.items():
        path = output / source / f"{split}-00000.parquet"
        pq.write_table(_table(rows, config), path, row_group_size=_ROWS_A_GROUP)
        counts[split] = {"records": len(rows), "bases": sum(len(r.sequence) for r in rows)}
    return counts


def _why_no_record(record: Record, test_digests: set[bytes], config: BuildConfig) -> str | None:
    if len(record.sequence) < config.min_record_bp:
        return "shorter_than_min_record_bp"
    if not set(record.sequence.upper()) & set("ACGT"):
        return "no_known_base"
    if record.split == "train" and record.digest in test_digests:
        return "equals_held_out_record"
    return None


def _table(records: list[Record], config: BuildConfig) -> pa.Table:
    constant = {
        "species_type": config.species_type,
        "organism": config.organism,
        "assembly": config.assembly,
    }
    column: Callable[[str], Iterable[Any]] = lambda name: (  # noqa: E731
        [constant[name]] * len(records)
        if name in constant
        else [getattr(record, name) for record in records]
    )
    return pa.table({name: column(name) for name in SCHEMA.names}, schema=SCHEMA)


def _write_dropped(path: Path, dropped: Dropped) -> None:
    with path.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink, delimiter="\t", lineterminator="\n")
        writer.writerow(("source", "name", "reason"))
        writer.writerows(dropped.rows)


def _manifest(
    config: BuildConfig,
    held_out: list[Interval],
    counts: dict[str, dict[str, dict[str, int]]],
    dropped: Dropped,
    output: Path,
) -> dict[str, Any]:
    reasons = Counter((source, reason) for source, _, reason in dropped.rows)
    return {
        "recipe": asdict(config),
        "inputs": {
            name: {"path": path, "bytes": Path(path).stat().st_size, "sha256": sha256_of_file(path)}
            for name, path in (("genome", config.genome), ("annotation", config.annotation))
        },
        "held_out": [region.to_region() for region in held_out],
        "sources": counts,
        "dropped": {f"{source}:{reason}": n for (source, reason), n in sorted(reasons.items())},
        "outputs": {
            str(path.relative_to(output)): sha256_of_file(path)
            for path in sorted(output.rglob("*"))
            if path.is_file()
        },
        "versions": {
            "carbon": __version__,
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "pysam": version("pysam"),
        },
    }
