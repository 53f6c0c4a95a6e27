"""What one would write first: Biopython for sequences and features, a loop for records.

Makes the same genic regions and spliced transcripts as `data_pipeline build` of the default recipe
without near-duplicates, from FASTA and GTF or GFF3. Used by `bench/run.py data_pipeline`.
"""

import gzip
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

# Biopython is partly untyped.
# mypy: disable-error-code="no-untyped-call"
import pyarrow as pa
import pyarrow.parquet as pq

FLANK_BP, LEAST_BP, MOST_BP = 200, 60, 100_000


def biopython_records(genome: str, annotation: str) -> dict[str, list[str]]:
    """Return the sequences of regions and transcripts, before anything is dropped as equal."""
    from Bio import SeqIO
    from Bio.SeqFeature import CompoundLocation, SeqFeature, SimpleLocation

    with gzip.open(genome, "rt", encoding="utf-8") as handle:
        contigs = SeqIO.to_dict(SeqIO.parse(handle, "fasta"))
    genes: dict[tuple[str, str, str], list[int]] = {}
    exons: dict[tuple[str, str, str], set[tuple[int, int]]] = defaultdict(set)
    coding: set[tuple[str, str, str]] = set()
    with gzip.open(annotation, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            contig, _, kind, first, last, _, strand, _, text = line.rstrip("\n").split("\t")
            told = dict(re.findall(r'(\w+)[ =]"?([^";]+)"?', text))
            start, end = int(first) - 1, int(last)
            if kind in ("gene", "pseudogene"):
                gene = told.get("gene_id") or told["ID"]
                genes[contig, strand, gene] = [start, end]
            elif kind in ("exon", "CDS"):
                transcript = told.get("transcript_id") or told["Parent"]
                exons[contig, strand, transcript].add((start, end))
                if kind == "CDS":
                    coding.add((contig, strand, transcript))
    regions = []
    by_strand = defaultdict(list)
    for (contig, strand, _), (start, end) in genes.items():
        length = len(contigs[contig])
        by_strand[contig, strand].append((max(0, start - FLANK_BP), min(length, end + FLANK_BP)))
    for (contig, strand), spans in by_strand.items():
        joined: list[list[int]] = []
        for start, end in sorted(spans):
            if joined and start <= joined[-1][1]:
                joined[-1][1] = max(end, joined[-1][1])
            else:
                joined.append([start, end])
        for start, end in joined:
            for at in range(start, end, MOST_BP):
                region = SimpleLocation(at, min(at + MOST_BP, end), 1 if strand == "+" else -1)
                regions.append(str(SeqFeature(region).extract(contigs[contig]).seq))
    transcripts = []
    for contig, strand, transcript in sorted(coding):
        way = 1 if strand == "+" else -1
        parts = [SimpleLocation(a, b, way) for a, b in sorted(exons[contig, strand, transcript])]
        place: Any = CompoundLocation(parts[::way]) if len(parts) > 1 else parts[0]
        transcripts.append(str(SeqFeature(place).extract(contigs[contig]).seq))
    return {"eukaryote": regions, "mrna": transcripts}


def biopython_corpus(genome: str, annotation: str, output: Path) -> None:
    """Write the records as Parquet, each sequence once."""
    from Bio.Seq import reverse_complement
    from Bio.SeqUtils.CheckSum import seguid

    for source, sequences in biopython_records(genome, annotation).items():
        seen: set[Any] = set()
        kept = []
        for sequence in sequences:
            if len(sequence) < LEAST_BP or set(sequence.upper()) <= {"N"}:
                continue
            key = min(seguid(sequence), seguid(reverse_complement(sequence)))
            if key not in seen:
                seen.add(key)
                kept.append(sequence)
        pq.write_table(pa.table({"sequence": kept}), output / f"{source}.parquet")


def loop_words(files: tuple[str, str], output: str) -> list[str]:
    """Return what Python is called with to run the loop."""
    script = (
        "import sys; from pathlib import Path; sys.path[:0] = ['bench']; import curation\n"
        f"curation.biopython_corpus(*{files!r}, Path({output!r}))"
    )
    return ["-c", script]


def build_words(files: tuple[str, str], output: str, near_identity: float) -> list[str]:
    """Return what Python is called with to build as `build_corpus` does."""
    settings = (
        f"output={output}",
        f"assemblies.0.genome={files[0]}",
        f"assemblies.0.annotation={files[1]}",
        "assemblies.0.holdout=[]",
        f"keep.near_identity={near_identity}",
    )
    return ["-m", "carbon", "corpus", "build", *(w for each in settings for w in ("--set", each))]


def build_corpus(files: tuple[str, str], output: str, near_identity: float = 1.0) -> None:
    """Build with the default recipe, on one core."""
    from data_pipeline.build import build
    from data_pipeline.limits import KeepConfig
    from data_pipeline.recipe import AssemblyConfig, BuildConfig

    assembly = AssemblyConfig(genome=files[0], annotation=files[1], holdout=())
    keep = KeepConfig(near_identity=near_identity)
    build(BuildConfig(output=output, assemblies=(assembly,), keep=keep))


def read_all(files: tuple[str, ...]) -> int:
    """Read and decompress, and do nothing with it: the floor."""
    total = 0
    for path in files:
        with gzip.open(path, "rb") as source:
            while block := source.read(1 << 20):
                total += len(block)
    return total
