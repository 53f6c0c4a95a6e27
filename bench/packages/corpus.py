"""The data order, the loader, and a corpus of 10^9 records."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure import Measure, at_least, at_most, in_own_process, seconds

from carbon.corpus import (
    SampleOrder,
    SpanRows,
    TokenRows,
    open_packed,
    open_store,
    ordered_rows,
    pack,
)
from carbon.corpus.packing import FORMAT as PACKING_FORMAT
from carbon.corpus.store import FORMAT as STORE_FORMAT
from carbon.corpus.store import mapped_store

ROW_TOKENS = 8192
_MIXTURE = {"dna": 0.8, "mrna": 0.2}
_BLOCK = 65_536


def measures(quick: bool) -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(Path(folder))
        loaded = loaded_tokens_per_second(rows, 50 if quick else 400)
        wasted = 100 * wasted_share(rows)
    records = 10**7 if quick else 10**9
    with tempfile.TemporaryDirectory(dir=os.environ.get("CARBON_BENCH_FOLDER")) as folder:
        write_large_source(Path(folder), records)
        start = in_own_process("packages.corpus", f"read_large_source({folder!r}, 1)")
        batch = in_own_process("packages.corpus", f"read_large_source({folder!r}, 256)")
    return [
        *of_lookups(),
        at_least("loader", loaded, "tok/s", 5e6),
        at_most("wasted_tokens", wasted, "%", 2),
        at_most(f"{records:.0e}_records:start", start.seconds, "s", 5),
        Measure(f"{records:.0e}_records:256_rows", batch.seconds, "s"),
        at_most(f"{records:.0e}_records:memory", batch.peak_bytes / 2**20, "MiB", 500),
    ]


def of_lookups() -> list[Measure]:
    """Measure look-ups per second, and the cost of a distant row relative to a near row."""
    sizes = {("a", ROW_TOKENS): 10**9, ("b", ROW_TOKENS): 33_333, ("c", ROW_TOKENS): 77}
    span = SpanRows(2 * 10**9, {"a": 0.7, "b": 0.2, "c": 0.1}, ROW_TOKENS)
    order = SampleOrder(0, [span], sizes)
    numbers = np.random.default_rng(0).integers(0, 2 * 10**9, 1_000_000)
    near = seconds(lambda: order.lookup(np.arange(1000)), 20)
    far = seconds(lambda: order.lookup(np.arange(10**9, 10**9 + 1000)), 20)
    return [
        at_least("lookups", 1e6 / seconds(lambda: order.lookup(numbers), 3), "1/s", 1e6),
        at_most("row_10^9_against_row_0", far / near, "times", 1.5),
    ]


def rows_of(folder: Path) -> TokenRows:
    """Return rows of two sources with the same records, with the lengths of transcripts and genes.

    One of the sources is read from both strands.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = str(folder / "records.parquet")
    generator = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    lengths_bp = generator.lognormal(7.5, 0.8, 12_000).astype(int)
    texts = [generator.choice(letters, size).tobytes().decode() for size in lengths_bp]
    pq.write_table(pa.table({"sequence": texts}), path, row_group_size=1024)
    sources = {
        name: open_packed(open_store({path: None}, str(folder), name), [ROW_TOKENS], name == "dna")
        for name in _MIXTURE
    }
    return ordered_rows(0, [SpanRows(10_000, _MIXTURE, ROW_TOKENS)], sources)


def loaded_tokens_per_second(rows: TokenRows, count: int) -> float:
    """Return tokens per second of a `DataLoader` in this process, in collated batches of 4 rows."""
    from torch.utils.data import DataLoader

    from train.data import collate

    sampler = range(count)
    loader: DataLoader[Any] = DataLoader(rows, 4, sampler=sampler, collate_fn=collate)  # type: ignore[arg-type]
    return count * ROW_TOKENS / seconds(lambda: [None for _ in loader], 2)


def wasted_share(rows: TokenRows) -> float:
    """Return the largest share of a source's row tokens that are not tokens of a bare sample."""
    return 1 - min(
        packing.num_tokens / (packing.num_rows * row_tokens)
        for source in rows.sources.values()
        for row_tokens, packing in source.packings.items()
    )


def write_large_source(folder: Path, num_records: int) -> None:
    """Write a prepared source of many records: one block's lengths repeated, without letters.

    The letters are a hole in the file, which reads as zeros; everything else has its real size.
    """
    lengths_bp = np.random.default_rng(0).lognormal(7.5, 0.8, _BLOCK).astype(np.int64)
    blocks = -(-num_records // _BLOCK)
    store = folder / "large-0123456789abcdef"
    packed = store / f"rows-{ROW_TOKENS}"
    packed.mkdir(parents=True)
    block = pack(lengths_bp, ROW_TOKENS)
    bases = int(lengths_bp.sum())
    np.zeros(1, dtype=np.int64).tofile(packed / "row_start.bin")
    ends = np.cumsum(lengths_bp)
    for i in range(blocks):
        columns: dict[Path, Any] = {
            store / "ends.bin": ends + i * bases,
            store / "species.bin": np.zeros(_BLOCK, dtype=np.int8),
            store / "genes.bin": np.zeros(_BLOCK, dtype=np.int8),
            packed / "record.bin": block.record + i * _BLOCK,
            packed / "start.bin": block.start,
            packed / "num_kmers.bin": block.num_kmers,
            packed / "row_start.bin": block.row_start[1:] + i * len(block.record),
        }
        for path, values in columns.items():
            with path.open("ab") as sink:
                values.tofile(sink)
    with (store / "bases.bin").open("wb") as sink:
        sink.truncate(bases * blocks)
    info: dict[str, Any] = {
        "format": STORE_FORMAT,
        "records": blocks * _BLOCK,
        "bases": bases * blocks,
    }
    (store / "store.json").write_text(json.dumps(info | {"files": []}), encoding="utf-8")
    info = {
        "format": PACKING_FORMAT,  # without it the packing would be made again
        "pieces": len(block.record) * blocks,
        "rows": block.num_rows * blocks,
        "tokens": block.num_tokens * blocks,
    }
    (packed / "packing.json").write_text(json.dumps(info), encoding="utf-8")
    for path in store.rglob("*.bin"):  # drop it from the system's page cache
        with path.open("rb+") as sink:
            os.fsync(sink.fileno())
            os.posix_fadvise(sink.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_large_source(folder: str, num_rows: int) -> None:
    """Open the source as a run does, and read rows that are drawn from all of it."""
    source = open_packed(mapped_store(Path(folder) / "large-0123456789abcdef"), [ROW_TOKENS], True)
    rows = ordered_rows(0, [SpanRows(10**9, {"large": 1.0}, ROW_TOKENS)], {"large": source})
    tokens = sum(int((rows[i].position_ids > 0).sum()) for i in range(num_rows))
    assert tokens > num_rows * ROW_TOKENS * 0.9
