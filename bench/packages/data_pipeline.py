"""Building a corpus compared with a simple loop, and with reading alone."""

import os
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from curation import build_words, loop_words
from measure import Measure, cpu_seconds, in_own_process


def measures(quick: bool) -> list[Measure]:
    data = Path(os.environ.get("CARBON_DATA", ""))
    found: list[Measure] = []
    for name, (genome, annotation) in _GENOMES.items():
        files = (str(data / genome), str(data / annotation))
        if not Path(files[0]).is_file():
            raise SystemExit(f"{files[0]}: no such file; CARBON_DATA names the folder of genomes")
        with tempfile.TemporaryDirectory() as folder:
            _, peak = in_own_process(f"build_corpus({files!r}, {folder!r} + '/c')")
            _, loop_peak = in_own_process(f"biopython_corpus(*{files!r}, Path({folder!r}))")
        ours, near, loop, reading, nothing = _medians(files, rounds=3 if quick else 7)
        size_mbp, ratio = _MBP[name], loop / ours
        found += [
            Measure(f"{name}_build", size_mbp / ours, "Mbp/s"),
            Measure(f"{name}_build_with_near_duplicates", size_mbp / near, "Mbp/s"),
            Measure(f"{name}_build_against_biopython", ratio, "times", 1.5, ratio >= 1.5),
            Measure(f"{name}_build_against_reading", ours / reading, "times"),
            Measure(f"{name}_seconds_of_build", ours, "s"),
            Measure(f"{name}_seconds_of_biopython", loop, "s"),
            Measure(f"{name}_seconds_of_start_and_imports", nothing, "s"),
            Measure(f"{name}_peak", peak / 2**20, "MiB"),
            Measure(f"{name}_peak_of_biopython", loop_peak / 2**20, "MiB"),
        ]
    size_bp = 100_000_000 if quick else 1_000_000_000
    with tempfile.TemporaryDirectory() as folder:
        files = _one_long_contig(Path(folder), size_bp)
        took, peak = in_own_process(f"build_corpus({files!r}, {folder!r} + '/c')")
    holds = peak < 2 * 2**30
    found += [
        Measure(f"contig_of_{size_bp // 10**6}_Mbp_peak", peak / 2**20, "MiB", 2048, holds),
        Measure(f"contig_of_{size_bp // 10**6}_Mbp", size_bp / 1e6 / took, "Mbp/s"),
    ]
    return found


def _medians(files: tuple[str, str], rounds: int) -> list[float]:
    """Return CPU seconds: build, with near-duplicates, the loop, reading, imports alone.

    Each round runs whole processes in turn, so that all experience the same state of the machine.
    """
    reading = f"import sys; sys.path[:0] = ['bench']; import curation; curation.read_all({files!r})"
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            commands = (
                build_words(files, f"{folder}/c", 1.0),
                build_words(files, f"{folder}/n", 0.9),
                loop_words(files, folder),
                ["-c", reading],
                ["-c", "import data_pipeline.__main__, data_pipeline.build"],
            )
            times.append([cpu_seconds(words) for words in commands])
    return [median(column) for column in zip(*times, strict=True)]


_GENOMES = {
    "yeast": (
        "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
        "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
    ),
    "ecoli": (
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz",
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gff.gz",
    ),
}
_MBP = {"yeast": 12.157105, "ecoli": 4.641652}


def _one_long_contig(folder: Path, size_bp: int) -> tuple[str, str]:
    """Write a FASTA of one contig, and an annotation with a gene of 3,000 bases every 100 kbp."""
    genome, annotation = folder / "genome.fa", folder / "genes.gff3"
    generator = np.random.default_rng(0)
    with genome.open("wb") as sink:
        sink.write(b">c\n")
        for _ in range(size_bp // 10_000_000):
            letters = generator.choice(np.frombuffer(b"ACGT", dtype=np.uint8), (100_000, 100))
            lines = np.full((100_000, 101), ord("\n"), dtype=np.uint8)
            lines[:, :100] = letters
            sink.write(lines.tobytes())
    with annotation.open("w", encoding="utf-8") as sink:
        for i, at in enumerate(range(50_000, size_bp, 100_000)):
            sink.write(f"c\tx\tgene\t{at}\t{at + 2999}\t.\t+\t.\tID=g{i}\n")
            sink.write(f"c\tx\tCDS\t{at}\t{at + 2999}\t.\t+\t0\tID=p{i};Parent=g{i}\n")
    return str(genome), str(annotation)
