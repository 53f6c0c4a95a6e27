"""Deduplication of simulated records: seconds and memory of each step, by number of workers.

    python bench/dedup.py OUT --records 1000000 --workers 1 2

Lengths are log-normal around 400 bases; three records in ten are copies of others with 2, 5, 8 or
12 % of their bases drawn anew. Half of all are read from the other strand, and a tenth are held
out. The records are written once, to shards in OUT, and kept (2.6 GB a million). Each number of
workers must give the same answer. CPU seconds are those of the tasks alone, and the peak is that of
the largest worker. Prints a JSON line for each number of workers.
"""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from carbon.console import natural
from carbon.genome import reverse_complement
from carbon.io.files import atomic_folder
from data_pipeline.dedup import dedup_steps
from data_pipeline.dedup.rows import Rows, index_rows
from data_pipeline.dedup.sketch import sketch_of
from data_pipeline.executors import ExecutorConfig, Step, run_steps
from data_pipeline.records import ShardWriter, digest_of

RECORDS_A_SHARD = 50_000
IDENTITY = 0.9
DIVERGENCES = (0.02, 0.05, 0.08, 0.12)
LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
SERIAL = ("index", "components")
TASKS = "tasks"


def main() -> None:
    """Make the records and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=natural, default=100_000)
    parser.add_argument("--workers", type=natural, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    shards = -(-arguments.records // RECORDS_A_SHARD)
    make = Step("make", partial(make_shard, arguments.out, arguments.records), shards)
    run_steps(ExecutorConfig(workers=2), [make], arguments.out)
    for workers in arguments.workers:
        print(json.dumps({"records": arguments.records} | measured(arguments.out, workers)))


def make_shard(out: Path, records: int, number: int) -> None:
    """Write a shard that does not exist yet."""
    shard = out / "shards" / f"{number:05d}"
    shard.parent.mkdir(parents=True, exist_ok=True)
    if shard.exists():
        return
    with atomic_folder(shard) as folder:
        writer = ShardWriter(folder)
        for sequence, held_out in sequences(number, min(RECORDS_A_SHARD, records)):
            writer.add(row_of(sequence, held_out))
        writer.close()
        summary = {"near_duplicates": ["mrna"]}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


def sequences(number: int, count: int) -> Iterator[tuple[str, bool]]:
    """Yield the records of a shard and whether they are held out."""
    rng = np.random.default_rng([0, number])
    originals: list[np.ndarray[Any, Any]] = []
    lengths_bp = np.exp(rng.normal(np.log(400), 0.6, count)).clip(80, 20_000).astype(int)
    for length_bp, draw in zip(lengths_bp, rng.random((count, 4)), strict=True):
        if originals and draw[0] < 0.3:
            bases = originals[int(draw[1] * len(originals))].copy()
            changed = rng.random(len(bases)) < rng.choice(DIVERGENCES)
            bases[changed] = LETTERS[rng.integers(4, size=int(changed.sum()))]
        else:
            bases = LETTERS[rng.integers(4, size=length_bp)]
            originals.append(bases)
        text = bases.tobytes().decode()
        yield reverse_complement(text) if draw[2] < 0.5 else text, bool(draw[3] < 0.1)


def row_of(sequence: str, held_out: bool) -> dict[str, Any]:
    """Return a record as the step before deduplication writes it."""
    empty = ("record_id", "strand", "gene_type", "species_type", "organism", "assembly", "name")
    return dict.fromkeys(empty, "") | {
        "sequence": sequence,
        "source": "mrna",
        "start": 0,
        "end": len(sequence),
        "segments": [],
        "split": "test" if held_out else "train",
        "digest": digest_of(sequence),
        "sketch": sketch_of(sequence),
    }


def measured(out: Path, workers: int) -> dict[str, Any]:
    """Deduplicate with a number of workers; return seconds, memory and the answer's digest."""
    for folder in ("dedup", TASKS):
        shutil.rmtree(out / folder, ignore_errors=True)
    (out / TASKS).mkdir()
    index = Step("index", partial(run_index, out), 1)
    steps = [index, *dedup_steps(out, IDENTITY)]
    timed = [step._replace(run=partial(timed_task, out, step.name, step.run)) for step in steps]
    start = time.monotonic()
    run_steps(ExecutorConfig(workers=workers), timed, out)
    clock = time.monotonic() - start
    seconds: dict[str, float] = {}
    longest: dict[str, float] = {}
    peak = 0
    for path in (out / TASKS).iterdir():
        name = path.name.partition(".")[0]
        spent, peak_of_worker = json.loads(path.read_text(encoding="utf-8"))
        seconds[name] = seconds.get(name, 0) + spent
        longest[name] = max(longest.get(name, 0), spent)
        peak = max(peak, peak_of_worker)
    gone = [list(Rows(out).gone(column)) for column in Rows(out).columns]
    total = sum(seconds.values())
    return {
        "workers": workers,
        "clock_seconds": round(clock, 1),
        "cpu_seconds": round(total, 1),
        "by_step": {step.name: round(seconds[step.name], 1) for step in steps},
        "longest_task": {step.name: round(longest[step.name], 1) for step in steps},
        "serial_share": round(sum(seconds[name] for name in SERIAL) / total, 4),
        "peak_mib": peak // 1024,
        "gone": sum(map(len, gone)),
        "answer": hashlib.sha256(json.dumps(gone).encode()).hexdigest()[:12],
    }


def run_index(out: Path, rank: int) -> None:
    """Number all rows."""
    del rank
    index_rows(out)


def timed_task(out: Path, name: str, run: Callable[[int], None], rank: int) -> None:
    """Run a task; write its CPU seconds and this process's peak memory in KiB."""
    start = time.process_time()
    run(rank)
    seconds = time.process_time() - start
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    place = out / TASKS / f"{name}.{rank}"
    place.write_text(json.dumps([seconds, peak]), encoding="utf-8")


if __name__ == "__main__":
    main()
