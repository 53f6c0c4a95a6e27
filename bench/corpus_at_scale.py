"""Build a corpus of many genomes from start to end, left alone and killed.

    python bench/corpus_at_scale.py OUTPUT --data DATA --gbp 5 --kills 10

The genomes of DATA are copied until so many bases are reached; each copy differs
from its genome in a share of its bases, in turn none, 2, 5, 10 and 20 %, changed at random (seed),
so that the annotation still fits. One build is left alone: seconds by step, peak of memory of all
its processes together, peak of disk. Another is killed (SIGKILL, the whole command) at random times
and given again until it ends. The two are to have the same bytes.

Prints one line of JSON; exit 1 if a file differs or a kill came too late.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

from carbon.console import natural, run_command
from carbon.genome import read_sequences
from carbon.io.files import sha256_of_file
from carbon.progress import say

DIVERGENCES = (0.0, 0.02, 0.05, 0.1, 0.2)
LOOK_SECONDS = 1.0
ROOT = Path(__file__).parents[1]
RECIPE, CORPUS = "recipe.toml", "corpus"


class Genome(NamedTuple):
    """An assembly of the data; `settings` are of the recipe."""

    fasta: str
    annotation: str | None
    settings: dict[str, Any]


_MAMMAL = {"species_type": "mam", "holdout": [], "incomplete_cds": "drop"}
_VIRUS: dict[str, Any] = {"holdout": []}
GENOMES = (
    Genome(
        "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
        "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
        {"species_type": "fng"},
    ),
    Genome(
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz",
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gff.gz",
        {"species_type": "pro", "sources": ["prokaryote", "mrna"]},
    ),
    Genome(
        "invertebrates_and_cress/C.elegans.fa.gz",
        "invertebrates_and_cress/C.elegans.gff.gz",
        {"species_type": "inv", "incomplete_cds": "drop"},
    ),
    Genome(
        "invertebrates_and_cress/D.melanogaster.fa.gz",
        "invertebrates_and_cress/D.melanogaster.gff.gz",
        {"species_type": "inv", "incomplete_cds": "drop"},
    ),
    Genome(
        "invertebrates_and_cress/A.thaliana.fa.gz",
        "invertebrates_and_cress/A.thaliana.gff.gz",
        {"species_type": "pln", "incomplete_cds": "drop"},
    ),
    Genome(
        "human_chr9/GRCh38.chr9_1_1000000.fa.gz",
        "human_chr9/GRCh38.91.chr9_1_1000000.gtf.gz",
        _MAMMAL,
    ),
    Genome(
        "human_chr21/GRCh38.chr21_24985581_26000306.fa.gz",
        "human_chr21/ensembl.gff3.gz",
        _MAMMAL
        | {
            "contig_names": {"21": "21:24985581-26000306"},
            "annotation_offset_bp": 24_985_580,
        },
    ),
    Genome("variants_chr20/GRCh37.chr20_1M_2M.fa.gz", None, _MAMMAL),
    Genome(
        "small_genomes/sars_cov_2/EMN908947.fa",
        "small_genomes/sars_cov_2/simple.gff",
        _VIRUS,
    ),
    Genome("small_genomes/lambda_virus.fa", None, _VIRUS),
    Genome("small_genomes/NC_001422_1.fna", None, _VIRUS),
    Genome("small_genomes/NC_005816.fna", None, {"species_type": "pro", "holdout": []}),
    Genome("small_genomes/MT-human.fa", None, _MAMMAL),
    Genome("small_genomes/MT-orang.fa", None, _MAMMAL),
)


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gbp", type=float, default=5.0)
    parser.add_argument("--workers", type=natural, default=2)
    parser.add_argument("--kills", type=natural, default=10)
    parser.add_argument("--seed", type=natural, default=0)
    arguments = parser.parse_args()
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    arguments.output.mkdir(parents=True)
    started = time.monotonic()
    assemblies, num_bases = _copies(arguments)
    found: dict[str, Any] = {"assemblies": len(assemblies), "bases": num_bases}
    found["seconds_to_copy"] = time.monotonic() - started
    say(f"{len(assemblies):,} assemblies, {num_bases:,} bases")
    alone, killed = (arguments.output / name for name in ("alone", "killed"))
    for folder in (alone, killed):
        folder.mkdir()
        (folder / RECIPE).write_text(_toml(assemblies, arguments.workers), encoding="utf-8")
    found |= _watched(alone, len(assemblies))
    say(json.dumps(found))
    if arguments.kills:
        seconds = sum(found["seconds"].values())
        found["kills"] = _killed(killed, arguments, seconds, len(assemblies))
        found["equal"] = _digests(alone / CORPUS) == _digests(killed / CORPUS)
    print(json.dumps(found))
    return 0 if found.get("equal", True) and found.get("kills", 0) == arguments.kills else 1


def _copies(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Write copies of all genomes in turn until there are enough; return them for a recipe."""
    folder = arguments.output / "genomes"
    folder.mkdir()
    assemblies: list[dict[str, Any]] = []
    num_bases, number = 0, 0
    rounds = cycle(DIVERGENCES)
    while num_bases < arguments.gbp * 1e9:
        divergence = next(rounds)
        for genome in GENOMES:
            path = folder / f"{number:05d}.fa.gz"
            source = arguments.data / genome.fasta
            num_bases += _write_copy(source, path, divergence, (arguments.seed, number))
            named = {
                "genome": str(path.resolve()),
                "name": f"{path.name.split('.')[0]} {Path(genome.fasta).name} {divergence:g}",
            }
            if genome.annotation:
                named["annotation"] = str((arguments.data / genome.annotation).resolve())
            assemblies.append(named | genome.settings)
            number += 1
    return assemblies, num_bases


def _write_copy(source: Path, output: Path, divergence: float, seed: tuple[int, int]) -> int:
    """Write a genome with a share of its known bases replaced by others; return its length."""
    draw = np.random.default_rng(seed)
    num_bases = 0
    with pysam.BGZFile(str(output), "wb", None) as sink:
        for name, bases in read_sequences(source):
            letters = np.frombuffer(bases.upper().encode(), dtype=np.uint8).copy()
            codes = _CODES[letters]
            changed = (draw.random(len(letters), dtype=np.float32) < divergence) & (codes < 4)
            others = (codes[changed] + draw.integers(1, 4, changed.sum())) % 4
            letters[changed] = _LETTERS[others]
            sink.write(f">{name}\n".encode() + letters.tobytes() + b"\n")
            num_bases += len(letters)
    return num_bases


_LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
_CODES = np.full(256, 4, dtype=np.uint8)
_CODES[_LETTERS] = np.arange(4)


def _toml(assemblies: list[dict[str, Any]], workers: int) -> str:
    lines = [f'output = "{CORPUS}"']
    for assembly in assemblies:
        lines.append("[[assemblies]]")
        for key, value in assembly.items():
            is_table = isinstance(value, dict)
            told = ", ".join(f'"{k}" = "{v}"' for k, v in value.items()) if is_table else ""
            lines.append(f"{key} = {{ {told} }}" if is_table else f"{key} = {json.dumps(value)}")
    return "\n".join([*lines, "[executor]", f"workers = {workers}"]) + "\n"


def _start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "carbon", "corpus", "build", "--config", RECIPE]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    log = (folder / "log").open("ab")
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _watched(folder: Path, num_inputs: int) -> dict[str, Any]:
    """Build; return seconds by step, and the peaks of memory and of disk."""
    seconds = dict.fromkeys(("extract", "select", "write and publish"), 0.0)
    peak_bytes, peak_disk_bytes, looks = 0, 0, 0
    process, before = _start(folder), time.monotonic()
    while process.poll() is None:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        seconds[_step(folder, num_inputs)] += now - before
        before = now
        peak_bytes = max(peak_bytes, sum(map(_resident_bytes, _group(process.pid))))
        looks += 1
        if looks % 30 == 0:
            peak_disk_bytes = max(peak_disk_bytes, _disk_bytes(folder))
    _check_ended(process, folder)
    sizes = {"peak_bytes": peak_bytes, "peak_disk_bytes": peak_disk_bytes}
    return {"seconds": seconds, **sizes, "corpus_bytes": _disk_bytes(folder / CORPUS)}


def _check_ended(process: subprocess.Popen[bytes], folder: Path) -> None:
    assert process.returncode == 0, (folder / "log").read_text(encoding="utf-8")[-2000:]


def _step(folder: Path, num_inputs: int) -> str:
    work = folder / f"{CORPUS}.work"
    if (work / "selected" / "done").exists() or (folder / CORPUS).exists():
        return "write and publish"
    shards = sum(1 for _ in (work / "shards").glob("[0-9]*"))
    return "select" if shards >= num_inputs else "extract"


def _group(leader: int) -> Iterator[int]:
    """Yield the processes of a session, but for those that end meanwhile."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == leader:
                yield int(path.name)
        except ProcessLookupError:
            continue


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process that no file holds as well."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon")), "0 0")
    return 1024 * int(line.split()[1])


def _disk_bytes(folder: Path) -> int:
    """Return the size of all files, but for those that go meanwhile, as folders do."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total


def _killed(
    folder: Path, arguments: argparse.Namespace, seconds_alone: float, num_inputs: int
) -> int:
    """Kill the command at random times, and give it again until it ends; return the kills.

    All come before the seconds that a build left alone took, so none comes too late.
    """
    draw = random.Random(arguments.seed)
    moments = sorted(draw.uniform(0, seconds_alone) for _ in range(arguments.kills))
    num_kills = 0
    process = _start(folder)
    for before, moment in pairwise([0.0, *moments]):
        try:
            process.wait(moment - before)
            break  # it was done before
        except subprocess.TimeoutExpired:
            for pid in _group(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()
            num_kills += 1
            say(f"kill {num_kills}: {_step(folder, num_inputs)}")
            process = _start(folder)
    process.wait()
    _check_ended(process, folder)
    return num_kills


def _digests(corpus: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its name."""
    files = sorted(path for path in corpus.rglob("*") if path.is_file())
    return {str(path.relative_to(corpus)): sha256_of_file(path) for path in files}


if __name__ == "__main__":
    sys.exit(main())
