"""Two worker processes compared with one, and the rate and memory of the driver.

Each process has one thread. CPU seconds do not depend on what else the machine computes.
"""

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from measure import Measure, at_least, at_most, in_own_process

from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import Engine, InProcess
from carbon.parallel.local import LocalProcesses

_WINDOW_BP, _DRAWN_BP = "240", "120"
# Each command computes for about ten seconds, several times as long as its start takes.
_SEQUENCE_BP = {"variants": 0, "score": 1200, "embed": 1200, "generate": 60}
_BLOCK = {"variants": 128, "score": 64, "embed": 64, "generate": 64}  # records
_SET_CHILD_SUBREAPER = 36


def measures(quick: bool) -> list[Measure]:
    found: list[Measure] = []
    # Become the parent of processes whose parent ends (Linux).
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as name:
        folder, records = Path(name), 300 if quick else 1500
        prepare(folder, records)
        for command in _SEQUENCE_BP:
            found += of_two(folder, command, records, 1 if quick else 3)
        speed = driven(folder, 500 if quick else 4000, 2)
    num_blocks = 1000 if quick else 7813  # of 128 records: 10^6
    few, many = (
        in_own_process("packages.workers", f"drive_here({n})").peak_bytes for n in (100, num_blocks)
    )
    return [
        *found,
        at_least("driver:empty_blocks", speed, "/s", 200),
        Measure(f"driver:{num_blocks}_blocks:memory", many / 2**20, "MiB"),
        at_most("driver:memory_against_100_blocks", many / few, "times", 1.1),
    ]


def prepare(folder: Path, records: int) -> None:
    """Write a model, and the inputs of all commands.

    `many` has this number of records, `few` a block for each of two workers.
    """
    from inputs import random_bases, random_model  # the driver of empty blocks needs no torch

    from carbon.model import save_model

    save_model(random_model("tiny").model.network, folder / "model")
    bases = random_bases(20 * records + 4000)
    (folder / "ref.fa").write_text(f">c\n{bases}\n", encoding="utf-8")
    header = f"##fileformat=VCFv4.2\n##contig=<ID=c,length={len(bases)}>\n"
    header += "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    for command, length_bp in _SEQUENCE_BP.items():
        for name, number in (("many", records), ("few", 2 * _BLOCK[command])):
            places = range(1000, 1000 + 20 * number, 20)
            lines = [f">s{at}\n{bases[at : at + length_bp]}\n" for at in places]
            if command == "variants":
                alts = {ref: "ACGT"["ACGT".index(ref) - 1] for ref in "ACGT"}
                lines = [f"c\t{p + 1}\t.\t{bases[p]}\t{alts[bases[p]]}\t.\t.\t.\n" for p in places]
                lines.insert(0, header)
            (folder / f"{command}.{name}").write_text("".join(lines), encoding="utf-8")


class Cost(NamedTuple):
    """Seconds of a command, and CPU seconds of its driver and all its workers."""

    seconds: float
    cpu_seconds: float


def cost(folder: Path, command: str, name: str, processes: int) -> Cost:
    """Return the cost of a command on the input of a name."""
    source = str(folder / f"{command}.{name}")
    words = {
        "variants": [
            *("--reference", f"{folder}/ref.fa", "--vcf", source),
            *("--protocol", "centered", "--window", _WINDOW_BP),
        ],
        "generate": ["--prompts", source, "--length", _DRAWN_BP],
    }.get(command, [source])
    ending = {"embed": "parquet", "generate": "fa"}.get(command, "tsv")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "carbon", command, "--model", folder / "model", *words, "--output",
         folder / f"{command}.{ending}", "--processes", str(processes)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    with suppress(ChildProcessError):  # wait for its workers, so that their CPU seconds count
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def of_two(folder: Path, command: str, records: int, repeats: int) -> Iterator[Measure]:
    """Measure two worker processes of a command compared with one process.

    The difference of `many` and `few` is compared: in both, all workers start and compute a block.
    Runs take turns, and the least of all repeats counts.
    """
    least: dict[tuple[str, int], Cost] = {}
    for _, name, processes in product(range(repeats), ("few", "many"), (0, 2)):
        found = cost(folder, command, name, processes)
        least[name, processes] = Cost(*map(min, found, least.get((name, processes), found)))
    one, two = (
        Cost(*(many - few for many, few in zip(least["many", n], least["few", n], strict=True)))
        for n in (0, 2)
    )
    name, more = f"two_processes:{command}", records - 2 * _BLOCK[command]
    yield Measure(f"one_process:{command}", more / one.seconds, "/s")
    yield at_least(name, one.seconds / two.seconds, "times", 1.8)
    yield at_most(f"{name}:cpu", two.cpu_seconds / one.cpu_seconds, "times", 1.1)
    yield Measure(f"{name}:start", least["few", 2].seconds, "s")


class Empty:
    """A worker that computes nothing."""

    about: dict[str, Any]

    def __init__(self) -> None:
        """Take nothing."""
        self.about = {}

    def __call__(self, payload: list[int]) -> list[float]:
        """Return a number for each record."""
        return [0.5] * len(payload)


def driven(folder: Path, blocks: int, processes: int) -> float:
    """Return the blocks a second of a driver whose workers compute nothing."""
    size = _BLOCK["variants"]
    engine: Engine = LocalProcesses(Empty, [{}] * processes) if processes else InProcess(Empty)
    job = Job(
        description="empty blocks",
        output=folder / "empty",
        settings={},
        check=lambda: blocks * size,
        blocks=lambda: (range(n * size, (n + 1) * size) for n in range(blocks)),
        payload=list,
    )
    with Workers(engine) as workers:
        workers.about()
        start = time.perf_counter()
        run_job(job, workers, lambda results: sum(len(block) for block, _ in results))
        return blocks / (time.perf_counter() - start)


def drive_here(blocks: int) -> None:
    """Drive that number of empty blocks in this process, for its memory."""
    with tempfile.TemporaryDirectory() as name:
        driven(Path(name), blocks, 0)
