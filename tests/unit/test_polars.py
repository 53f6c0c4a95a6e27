"""polars reads every table that Carbon writes, and every result."""

import json

import numpy as np
import pytest

import carbon
from carbon.genome import Interval
from carbon.inference.scan.formats import write_dataset
from carbon.inference.scan.score import ScanChunk
from carbon.io.rows import Table
from carbon.io.tables import FORMATS, chosen_by_ending
from carbon.io.vectors import write_parquet

polars = pytest.importorskip("polars")
COLUMNS = {"name": str, "number": int, "value": float, "is_known": bool}
ROWS = [
    {"name": "a", "number": 1, "value": 0.1 + 0.2, "is_known": True},
    {"name": "é#", "number": None, "value": None, "is_known": None},
    {"name": None, "number": -7, "value": -1e-300, "is_known": False},
]


@pytest.mark.parametrize("ending", FORMATS["table"])
def test_tables(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    with chosen_by_ending(path, "table")(path, COLUMNS, {"model": "m"}) as write:
        for row in ROWS:
            write(list(row.values()))
    if ending == ".tsv":
        read = polars.read_csv(path, separator="\t", comment_prefix="# ", null_values=".")
        assert read["value"].to_list() == [0.3, None, -1e-300]  # nine digits
        assert read.drop("value").to_dicts() == [
            {key: cell for key, cell in row.items() if key != "value"} for row in ROWS
        ]
        return
    read = (
        polars.read_parquet(path)
        if ending == ".parquet"
        else polars.DataFrame(json.loads(path.read_text())["rows"])
    )
    assert read.to_dicts() == ROWS


def test_embeddings(tmp_path):
    vectors = np.arange(8, dtype=np.float32).reshape(2, 4)
    rows = [("a", 9, vectors[0]), ("b", 7, vectors[1])]
    write_parquet(tmp_path / "v.parquet", rows, 4, {})
    assert np.array_equal(polars.read_parquet(tmp_path / "v.parquet")["embedding"], vectors)


def test_a_scan_of_a_genome(tmp_path):
    folder = tmp_path / "g.parquet"
    folder.mkdir()
    with write_dataset(folder, {"c": 3, "d": 3}, {}) as write:
        for contig in "cd":
            values = np.log(np.full((3, 4), 0.25, np.float32))
            write(ScanChunk(Interval(contig, 0, 3), "ACG", values, 0))
    read = polars.scan_parquet(folder, hive_partitioning=True).collect()
    assert read["contig"].to_list() == [*"cccddd"] and read["position"].to_list() == [1, 2, 3] * 2


def test_results(tmp_path):
    path = tmp_path / "t.parquet"
    with chosen_by_ending(path, "table")(path, COLUMNS, {}) as write:
        for row in ROWS:
            write(list(row.values()))
    assert polars.DataFrame(Table(path)).to_dicts() == ROWS
    assert isinstance(Table(path), carbon.Table)
