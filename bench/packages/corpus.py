"""The data order, the loader compared with `datasets`, and a corpus of 10^9 records."""

import os
import tempfile
from pathlib import Path

import order as trials
from measure import Measure, in_own_process


def measures(quick: bool) -> list[Measure]:
    count = 50 if quick else 400
    lookups, far = trials.lookups()
    with tempfile.TemporaryDirectory() as folder:
        path = trials.write_records(Path(folder) / "records.parquet")
        rows = trials.rows_of(path, folder)
        ours = trials.loaded_tokens_per_second(rows, count)
        usual = trials.datasets_tokens_per_second(path, count)
        wasted = 100 * trials.wasted_share(rows)
    records = 10**7 if quick else 10**9
    with tempfile.TemporaryDirectory(dir=os.environ.get("CARBON_BENCH_FOLDER")) as folder:
        trials.write_large_source(Path(folder), records)
        took, _ = in_own_process(f"open_large_source({folder!r})", "order")
        batch, peak = in_own_process(f"read_large_batch({folder!r})", "order")
    return [
        Measure("lookups", lookups, "1/s", 1e6, lookups >= 1e6),
        Measure("row_10^9_against_row_0", far, "times", 1.5, far <= 1.5),
        Measure("loader", ours, "tok/s", 5e6, ours >= 5e6),
        Measure("datasets", usual, "tok/s"),
        Measure("loader_against_datasets", ours / usual, "times"),
        Measure("wasted_tokens", wasted, "%", 2, wasted <= 2),
        Measure(f"{records:.0e}_records:start", took, "s", 5, took <= 5),
        Measure(f"{records:.0e}_records:256_rows", batch, "s"),
        Measure(f"{records:.0e}_records:memory", peak / 2**20, "MiB", 500, peak <= 500 * 2**20),
    ]
