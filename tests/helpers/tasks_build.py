"""What the tests of tasks_build share."""

from pathlib import Path

import pyarrow.parquet as pq

EXONS = [(6900, 7021), (7500, 7619)]


CODING_BP = sum(end - start for start, end in EXONS)


def write_listing(path: Path, rows: list[dict], separator: str = "\t") -> Path:
    """Write variants as a table with a header."""
    lines = [separator.join(rows[0]), *(separator.join(map(str, r.values())) for r in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()
