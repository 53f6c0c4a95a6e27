"""Two worker processes against one, and what the driver can feed. Used by `bench/run.py inference`.

Each command has one thread. Seconds of one record, which are those of the start, are subtracted.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import Engine, InProcess
from carbon.parallel.local import LocalProcesses

COMMANDS = ("variants", "score", "embed", "generate")
_WINDOW_BP, _SEQUENCE_BP, _DRAWN_BP = 240, 300, 60
_BLOCK = 128  # records, as of a VCF


def prepared(folder: Path, records: int) -> None:
    """Write a model, and the inputs of all commands with so many records, and with one."""
    from inference import random_model  # what drives empty blocks needs no torch

    from carbon.model import save_model

    save_model(random_model("tiny").model.network, folder / "model")
    draw = np.random.default_rng(0)
    bases = draw.choice(np.frombuffer(b"ACGT", np.uint8), 20 * records + 2000).tobytes().decode()
    (folder / "ref.fa").write_text(f">c\n{bases}\n", encoding="utf-8")
    for name, number in (("many", records), ("one", 1)):
        places = range(1000, 1000 + 20 * number, 20)
        lines = ["##fileformat=VCFv4.2", f"##contig=<ID=c,length={len(bases)}>"]
        lines += ["#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"]
        for at in places:
            alt = "ACGT"["ACGT".index(bases[at]) - 1]
            lines.append(f"c\t{at + 1}\t.\t{bases[at]}\t{alt}\t.\t.\t.")
        (folder / f"{name}.vcf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        records_of = [f">s{at}\n{bases[at : at + _SEQUENCE_BP]}\n" for at in places]
        (folder / f"{name}.fa").write_text("".join(records_of), encoding="utf-8")


def seconds(folder: Path, command: str, name: str, processes: int) -> float:
    """Return the seconds of a command on the inputs of a name."""
    sequences = str(folder / f"{name}.fa")
    words = {
        "variants": ["--reference", f"{folder}/ref.fa", "--vcf", f"{folder}/{name}.vcf"],
        "score": [sequences],
        "embed": [sequences],
        "generate": ["--prompts", sequences, "--length", str(_DRAWN_BP)],
    }[command]
    words += ["--window", str(_WINDOW_BP)] if command == "variants" else []
    ending = {"embed": "parquet", "generate": "fa"}.get(command, "tsv")
    output = folder / f"{command}.{ending}"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "carbon", command, "--model", folder / "model", *words, "--output",
         output, "--processes", str(processes)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - start


def speedup(folder: Path, command: str) -> dict[str, float]:
    """Return how many times faster two processes are than one, and the seconds of the start."""
    starts = [seconds(folder, command, "one", number) for number in (1, 2)]
    whole = [seconds(folder, command, "many", number) for number in (1, 2)]
    ratio = (whole[0] - starts[0]) / (whole[1] - starts[1])
    return {"times": ratio, "start_seconds": starts[1]}


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

    def some() -> Iterator[range]:
        return (range(n * _BLOCK, (n + 1) * _BLOCK) for n in range(blocks))

    engine: Engine = LocalProcesses(Empty, [{}] * processes) if processes else InProcess(Empty)
    job = Job(
        description="empty blocks",
        output=folder / "empty",
        settings={},
        check=lambda: blocks * _BLOCK,
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
