"""Building a corpus compared with a Biopython loop, and memory on a long contig.

The loop is what one would write first. It makes the same genic regions and spliced transcripts as
the default recipe without near-duplicates, from FASTA and GTF or GFF3.
"""

import gzip
import os
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

# Biopython is partly untyped.
# mypy: disable-error-code="no-untyped-call"
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Measure, at_least, at_most, cpu_seconds, in_own_process

_GENOMES = {  # FASTA, annotation and Mbp
    "yeast": (
        "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
        "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
        12.157105,
    ),
    "ecoli": (
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz",
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gff.gz",
        4.641652,
    ),
}
FLANK_BP, LEAST_BP, MOST_BP = 200, 60, 100_000


def measures(quick: bool) -> list[Measure]:
    data = Path(os.environ.get("CARBON_DATA", ""))
    found: list[Measure] = []
    for name, (genome, annotation, size_mbp) in _GENOMES.items():
        files = (str(data / genome), str(data / annotation))
        if not Path(files[0]).is_file():
            raise SystemExit(f"{files[0]}: no such file; CARBON_DATA names the folder of genomes")
        ours, loop = _medians(files, rounds=3 if quick else 7)
        found += [
            Measure(f"{name}_build", size_mbp / ours, "Mbp/s"),
            at_least(f"{name}_build_against_biopython", loop / ours, "times", 1.5),
        ]
    size_bp = 100_000_000 if quick else 1_000_000_000
    name = f"contig_of_{size_bp // 10**6}_Mbp"
    with tempfile.TemporaryDirectory() as folder:
        files = _one_long_contig(Path(folder), size_bp)
        cost = in_own_process("packages.data_pipeline", f"build_corpus({files!r}, {folder!r})")
    return [
        *found,
        at_most(f"{name}_peak", cost.peak_bytes / 2**20, "MiB", 2048),
        Measure(name, size_bp / 1e6 / cost.seconds, "Mbp/s"),
    ]


def _medians(files: tuple[str, str], rounds: int) -> list[float]:
    """Return CPU seconds of `carbon corpus build` without near-duplicates, and of the loop.

    Each round runs whole processes in turn, so that all experience the same state of the machine.
    """
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            settings = (
                f"output={folder}/corpus",
                f"assemblies.0.genome={files[0]}",
                f"assemblies.0.annotation={files[1]}",
                "assemblies.0.holdout=[]",
                "keep.near_identity=1.0",
            )
            words = (word for each in settings for word in ("--set", each))
            build = ["-m", "carbon", "corpus", "build", *words]
            loop = (
                "import sys; sys.path[:0] = ['bench', '.']\n"
                "from packages.data_pipeline import *\n"
                f"biopython_corpus(*{files!r}, Path({folder!r}))"
            )
            times.append([cpu_seconds(build), cpu_seconds(["-c", loop])])
    return [median(column) for column in zip(*times, strict=True)]


def build_corpus(files: tuple[str, str], folder: str) -> None:
    """Build with the default recipe, without near-duplicates, on one core."""
    from data_pipeline.build import build
    from data_pipeline.limits import KeepConfig
    from data_pipeline.recipe import AssemblyConfig, BuildConfig

    assembly = AssemblyConfig(genome=files[0], annotation=files[1], holdout=())
    keep = KeepConfig(near_identity=1.0)
    build(BuildConfig(output=f"{folder}/corpus", assemblies=(assembly,), keep=keep))


def _one_long_contig(folder: Path, size_bp: int) -> tuple[str, str]:
    """Write a FASTA of one contig, and an annotation with a gene of 3,000 bases every 100 kbp."""
    genome, annotation = folder / "genome.fa", folder / "genes.gff3"
    generator = np.random.default_rng(0)
    with genome.open("wb") as sink:
        sink.write(b">c\n")
        for _ in range(size_bp // 10_000_000):
            lines = np.full((100_000, 101), ord("\n"), dtype=np.uint8)
            lines[:, :100] = generator.choice(np.frombuffer(b"ACGT", np.uint8), (100_000, 100))
            sink.write(lines.tobytes())
    with annotation.open("w", encoding="utf-8") as sink:
        for i, at in enumerate(range(50_000, size_bp, 100_000)):
            sink.write(f"c\tx\tgene\t{at}\t{at + 2999}\t.\t+\t.\tID=g{i}\n")
            sink.write(f"c\tx\tCDS\t{at}\t{at + 2999}\t.\t+\t0\tID=p{i};Parent=g{i}\n")
    return str(genome), str(annotation)


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
