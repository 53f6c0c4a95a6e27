"""The step that seeks near-duplicates, on records that are made up: time by phase, peak memory.

    python bench/near_duplicates.py OUT --records 1000000
    python bench/near_duplicates.py OUT --records 100000 --in-memory

Lengths are log-normal around `--median-bp`; `--copies` of the records are copies of others with 2,
5, 8 or 12 % of their bases drawn anew. Half of all are read from the other strand, and a tenth are
held out. The records are written once, to shards in OUT, and kept: a second run measures alone.
Beside the pipeline's way stands the one before it (`--in-memory`): all sketches in datasketch's
index, in one process. Each run is a process of its own, so that its peak is its own (ru_maxrss).
`--records 10000000` needs 30 GB of disk.
"""

import argparse
import hashlib
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from carbon.genome import reverse_complement
from carbon.io.files import atomic_folder
from data_pipeline.dedup import bands
from data_pipeline.dedup import select as selection
from data_pipeline.dedup.sketch import sketch_of
from data_pipeline.records import ShardWriter, digest_of, shard_columns

RECORDS_A_SHARD = 50_000
DIVERGENCES = (0.02, 0.05, 0.08, 0.12)
LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--median-bp", type=int, default=400)
    parser.add_argument("--copies", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-memory", action="store_true", help="measure the way before")
    arguments = parser.parse_args()
    started = time.process_time()
    make_shards(arguments)
    made = time.process_time() - started
    measured = measure_in_memory if arguments.in_memory else measure
    report = {"records": arguments.records, "made_seconds": round(made, 1)}
    report |= measured(arguments.out)
    report["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(report))


def make_shards(arguments: argparse.Namespace) -> None:
    """Write the shards that are not there."""
    for number, first in enumerate(range(0, arguments.records, RECORDS_A_SHARD)):
        shard = arguments.out / "shards" / f"{number:05d}"
        shard.parent.mkdir(parents=True, exist_ok=True)
        if shard.exists():
            continue
        count = min(RECORDS_A_SHARD, arguments.records - first)
        with atomic_folder(shard) as folder:
            writer = ShardWriter(folder)
            for i, (sequence, held_out) in enumerate(sequences(arguments, number, count), first):
                writer.add(row_of(i, sequence, held_out))
            writer.close()
            told = {"near_duplicates": ["mrna"]}
            (folder / "summary.json").write_text(json.dumps(told), encoding="utf-8")


def sequences(arguments: argparse.Namespace, number: int, count: int) -> Iterator[tuple[str, bool]]:
    """Yield the records of a shard; a copy is of a record before it in the same shard."""
    rng = np.random.default_rng([arguments.seed, number])
    made: list[np.ndarray[Any, Any]] = []
    lengths_bp = np.exp(rng.normal(np.log(arguments.median_bp), 0.6, count)).clip(80, 20_000)
    for length_bp, draw in zip(lengths_bp.astype(int), rng.random((count, 3)), strict=True):
        if made and draw[0] < arguments.copies:
            bases = made[int(draw[1] * len(made))].copy()
            changed = rng.random(len(bases)) < rng.choice(DIVERGENCES)
            bases[changed] = LETTERS[rng.integers(4, size=int(changed.sum()))]
        else:
            bases = LETTERS[rng.integers(4, size=length_bp)]
            made.append(bases)
        text = bases.tobytes().decode()
        yield reverse_complement(text) if draw[1] * 1e6 % 1 < 0.5 else text, bool(draw[2] < 0.1)


def row_of(i: int, sequence: str, held_out: bool) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "source": "mrna",
        "record_id": str(i),
        "start": 0,
        "end": len(sequence),
        "strand": "+",
        "gene_type": "cds",
        "species_type": "",
        "organism": "",
        "assembly": "",
        "name": f"record{i}",
        "segments": [],
        "split": "test" if held_out else "train",
        "digest": digest_of(sequence),
        "sketch": sketch_of(sequence),
    }


def measure(out: Path) -> dict[str, Any]:
    """Run the pipeline's own step, and tell the processor seconds of its phases."""
    (out / "selected").mkdir(exist_ok=True)
    (out / "selected" / "done").unlink(missing_ok=True)
    seconds: dict[str, float] = {}

    def timed(owner: Any, name: str, phase: str) -> None:
        function = getattr(owner, name)

        def run(*words: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*words, **named)
            finally:
                spent = time.process_time() - started
                seconds[phase] = round(seconds.get(phase, 0) + spent, 1)

        setattr(owner, name, run)

    timed(bands.Bands, "fill", "bands")
    timed(bands.Groups, "__init__", "groups")
    timed(bands.Groups, "replay", "replay")
    started, clock = time.process_time(), time.monotonic()
    selection.select(out, 0.9)
    seconds["all"] = round(time.process_time() - started, 1)
    selected = sorted((out / "selected").glob("*.mrna.jsonl"))
    found = [path.read_text(encoding="utf-8") for path in selected]
    return {
        "way": "on disk",
        "cpu_seconds": seconds,
        "wall_seconds": round(time.monotonic() - clock, 1),
        "gone": sum(text.count("\n") for text in found),
        "answer": hashlib.sha256("".join(found).encode()).hexdigest()[:12],
    }


def measure_in_memory(out: Path) -> dict[str, Any]:
    """Run the way before it, with the test's own reference, on the same shards."""
    from tests.helpers.near_duplicates import found_in_memory

    texts, held_out, sketches = [], [], []
    columns = ("sequence", "split", "sketch")
    for shard in selection.shards_of(out):
        for batch in shard_columns(shard / "mrna.arrow", columns):
            texts += batch.column("sequence").to_pylist()
            held_out += [split == "test" for split in batch.column("split").to_pylist()]
            sketches += batch.column("sketch").to_pylist()
    started, clock = time.process_time(), time.monotonic()
    found = found_in_memory(texts, held_out, 0.9, sketches=sketches)  # type: ignore[no-untyped-call]
    return {
        "way": "in memory",
        "cpu_seconds": {"all": round(time.process_time() - started, 1)},
        "wall_seconds": round(time.monotonic() - clock, 1),
        "gone": len(found),
    }


if __name__ == "__main__":
    main()
