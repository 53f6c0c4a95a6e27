"""Two worker processes compared with one; the rate of the driver. For `bench/run.py inference`.

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

import numpy as np

from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import Engine, InProcess
from carbon.parallel.local import LocalProcesses

COMMANDS = ("variants", "score", "embed", "generate")
_WINDOW_BP, _DRAWN_BP = "240", "120"
# Each command computes for about ten seconds, several times as long as its start takes.
_SEQUENCE_BP = {"variants": 0, "score": 1200, "embed": 1200, "generate": 60}
_BLOCK = {"variants": 128, "score": 64, "embed": 64, "generate": 64}  # records


def prepared(folder: Path, records: int) -> None:
    """Write a model, and the inputs of all commands.

    `many` has this number of records, `few` a block for each of two workers.
    """
    from inference import random_model  # the driver of empty blocks needs no torch

    from carbon.model import save_model

    save_model(random_model("tiny").model.network, folder / "model")
    draw = np.random.default_rng(0)
    bases = draw.choice(np.frombuffer(b"ACGT", np.uint8), 20 * records + 4000).tobytes().decode()
    (folder / "ref.fa").write_text(f">c\n{bases}\n", encoding="utf-8")
    for command, length_bp in _SEQUENCE_BP.items():
        for name, number in (("many", records), ("few", 2 * _BLOCK[command])):
            places = range(1000, 1000 + 20 * number, 20)
            if command == "variants":
                _write_vcf(folder / f"{command}.{name}", bases, places)
                continue
            lines = [f">s{at}\n{bases[at : at + length_bp]}\n" for at in places]
            (folder / f"{command}.{name}").write_text("".join(lines), encoding="utf-8")


def _write_vcf(path: Path, bases: str, places: range) -> None:
    lines = ["##fileformat=VCFv4.2", f"##contig=<ID=c,length={len(bases)}>"]
    lines += ["#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"]
    for at in places:
        alt = "ACGT"["ACGT".index(bases[at]) - 1]
        lines.append(f"c\t{at + 1}\t.\t{bases[at]}\t{alt}\t.\t.\t.")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


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
        "score": [source],
        "embed": [source],
        "generate": ["--prompts", source, "--length", _DRAWN_BP],
    }[command]
    ending = {"embed": "parquet", "generate": "fa"}.get(command, "tsv")
    output = folder / f"{command}.{ending}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "carbon", command, "--model", folder / "model", *words, "--output",
         output, "--processes", str(processes)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    _wait_for_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, used)


def _wait_for_orphans() -> None:
    """Wait for the workers of a command that has ended, so that their CPU seconds count."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def speedups(folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Compare two worker processes with one process, for each command.

    The difference of `many` and `few` is compared: in both, all workers start and compute a block.
    Runs take turns, and the least of all repeats counts.
    """
    _adopt_orphans()
    return {command: _speedup(folder, command, repeats) for command in COMMANDS}


def _speedup(folder: Path, command: str, repeats: int) -> dict[str, float]:
    runs = list(product(range(repeats), ("few", "many"), (0, 2)))
    costs = [(name, number, cost(folder, command, name, number)) for _, name, number in runs]
    one, two = (
        Cost(*(_least(costs, "many", n, i) - _least(costs, "few", n, i) for i in range(2)))
        for n in (0, 2)
    )
    return {
        "times": one.seconds / two.seconds,
        "cpu": two.cpu_seconds / one.cpu_seconds,
        "start_seconds": _least(costs, "few", 2, 0),
    }


def _least(costs: list[tuple[str, int, Cost]], name: str, processes: int, field: int) -> float:
    return min(c[field] for n, number, c in costs if (n, number) == (name, processes))


def _adopt_orphans() -> None:
    """Become the parent of processes whose parent ends (Linux)."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


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

    def some() -> Iterator[range]:
        return (range(n * size, (n + 1) * size) for n in range(blocks))

    engine: Engine = LocalProcesses(Empty, [{}] * processes) if processes else InProcess(Empty)
    job = Job(
        description="empty blocks",
        output=folder / "empty",
        settings={},
        check=lambda: blocks * size,
        blocks=some,
        payload=list,
    )
    with Workers(engine) as workers:
        workers.about()
        start = time.perf_counter()
        run_job(job, workers, lambda results: sum(len(block) for block, _ in results))
        return blocks / (time.perf_counter() - start)


def driven_here(blocks: int) -> None:
    """Drive that number of empty blocks in this process, for its memory."""
    with tempfile.TemporaryDirectory() as name:
        driven(Path(name), blocks, 0)
