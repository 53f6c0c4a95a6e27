"""Data order, loader, and a corpus larger than memory. Used by `bench/run.py corpus`."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from timing import seconds

from carbon.corpus import (
    SampleOrder,
    SpanRows,
    TokenRows,
    open_packed,
    open_store,
    ordered_rows,
    pack,
)
from carbon.corpus.store import mapped_store

ROW_TOKENS = 8192
_MIXTURE = {"dna": 0.8, "mrna": 0.2}
_BLOCK = 65_536
_LARGE_MIXTURE = {"large": 1.0}


def lookups() -> tuple[float, float]:
    """Return look-ups per second, and the cost of a distant row relative to a near row."""
    sizes = {("a", ROW_TOKENS): 10**9, ("b", ROW_TOKENS): 33_333, ("c", ROW_TOKENS): 77}
    span = SpanRows(2 * 10**9, {"a": 0.7, "b": 0.2, "c": 0.1}, ROW_TOKENS)
    order = SampleOrder(0, [span], sizes)
    numbers = np.random.default_rng(0).integers(0, 2 * 10**9, 1_000_000)
    near = seconds(lambda: order.lookup(np.arange(1000)), 20)
    far = seconds(lambda: order.lookup(np.arange(10**9, 10**9 + 1000)), 20)
    return 1_000_000 / seconds(lambda: order.lookup(numbers), 3), far / near


def write_records(path: Path) -> str:
    """Write records with the lengths of transcripts and genes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    lengths = generator.lognormal(7.5, 0.8, 12_000).astype(int)
    texts = [generator.choice(letters, size).tobytes().decode() for size in lengths]
    pq.write_table(pa.table({"sequence": texts}), path, row_group_size=1024)
    return str(path)


def rows_of(path: str, cache: str) -> TokenRows:
    """Return rows of 8,192 tokens from two sources with the same records, one of them flipped."""
    sources = {
        name: open_packed(open_store({path: None}, cache, name), [ROW_TOKENS], name == "dna")
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


def datasets_tokens_per_second(path: str, count: int) -> float:
    """Return tokens per second of `datasets`: interleaving, buffered shuffling and tokenizing."""
    import datasets

    from carbon.tokenizer import encode

    streams = [
        datasets.load_dataset("parquet", data_files=path, split="train", streaming=True)
        for _ in _MIXTURE
    ]
    mixed = datasets.interleave_datasets(streams, list(_MIXTURE.values()), seed=0)
    mixed = mixed.shuffle(seed=0, buffer_size=1000).map(
        lambda row: {"input_ids": encode(row["sequence"]).ids}
    )

    def read() -> None:
        waiting = 0
        for row in mixed:
            waiting += len(row["input_ids"])
            if waiting >= count * ROW_TOKENS:
                return

    return count * ROW_TOKENS / seconds(read, 2)


def wasted_share(rows: TokenRows) -> float:
    """Return the largest share of a source's row tokens that are not tokens of a bare sample."""
    used = []
    for source in rows.sources.values():
        for row_tokens, packing in source.packings.items():
            used.append(packing.num_tokens / (packing.num_rows * row_tokens))
    return 1 - min(used)


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
        _append(store / "ends.bin", ends + i * bases)
        for name in ("species.bin", "genes.bin"):
            _append(store / name, np.zeros(_BLOCK, dtype=np.int8))
        _append(packed / "record.bin", block.record + i * _BLOCK)
        _append(packed / "start.bin", block.start)
        _append(packed / "num_kmers.bin", block.num_kmers)
        _append(packed / "row_start.bin", block.row_start[1:] + i * len(block.record))
    with (store / "bases.bin").open("wb") as sink:
        sink.truncate(bases * blocks)
    info = {"format": 1, "records": blocks * _BLOCK, "bases": bases * blocks, "files": []}
    (store / "store.json").write_text(json.dumps(info), encoding="utf-8")
    for path in store.rglob("*.bin"):
        _forget(path)
    info = {"pieces": len(block.record) * blocks, "rows": block.num_rows * blocks}
    info["tokens"] = block.num_tokens * blocks
    (packed / "packing.json").write_text(json.dumps(info), encoding="utf-8")


def open_large_source(folder: str) -> None:
    """Open the source as a run does, up to its first row."""
    _large_rows(folder)[0]


def read_large_batch(folder: str) -> None:
    """Read a batch of 256 rows, drawn from the whole source."""
    rows = _large_rows(folder)
    tokens = sum(int((rows[i].position_ids > 0).sum()) for i in range(256))
    assert tokens > 256 * ROW_TOKENS * 0.9


def _large_rows(folder: str) -> TokenRows:
    source = open_packed(mapped_store(Path(folder) / "large-0123456789abcdef"), [ROW_TOKENS], True)
    return ordered_rows(0, [SpanRows(10**9, _LARGE_MIXTURE, ROW_TOKENS)], {"large": source})


def _forget(path: Path) -> None:
    """Drop a file from the system's page cache."""
    with path.open("rb+") as sink:
        os.fsync(sink.fileno())
        os.posix_fadvise(sink.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _append(path: Path, values: Any) -> None:
    with path.open("ab") as sink:
        values.tofile(sink)
