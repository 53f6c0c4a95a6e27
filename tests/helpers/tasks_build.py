"""What the tests of tasks_build share."""

from pathlib import Path

import pyarrow.parquet as pq

EXONS = [(6900, 7021), (7500, 7619)]


CODING_BP = sum(end - start for start, end in EXONS)


def rows_of(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()
