"""The code of docs/scoring.md that reads our tables with pandas, as it stands."""

import json
import re
from pathlib import Path

import pytest

from carbon.tables import TABLE_WRITERS

PAGE = Path(__file__).parents[2] / "docs" / "scoring.md"
COLUMNS = {"contig": str, "name": str, "position": int, "delta": float, "reason": str}
ROWS = [
    ("1", "NA", 7, -0.25, None),
    ("02", "nan", 8, None, "ref_mismatch"),
    ("X", "é", 9, 1e-9, None),
]
SETTINGS = {"model": "a # b", "window_bp": 600}


@pytest.fixture
def section() -> list[str]:
    text = (
        PAGE.read_text(encoding="utf-8").partition("## Tables in pandas")[2].partition("\n## ")[0]
    )
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def tables(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("my_scores.tsv", "my_scan.parquet"):
        path = tmp_path / name
        with TABLE_WRITERS[path.suffix](path, COLUMNS, SETTINGS) as write:
            for row in ROWS:
                write(row)
    return tmp_path


def test_a_tsv_gives_what_was_written(section, tables):
    names: dict = {}
    exec(section[0], names)
    read = [tuple(row) for row in names["scores"].astype(object).itertuples(index=False)]
    expected = [tuple(float("nan") if x is None else x for x in row) for row in ROWS]
    assert repr(read) == repr(expected)
    assert names["scores"].dtypes[["position", "delta"]].tolist() == ["int64", "float64"]


@pytest.mark.parametrize("cut", ["tsv", "parquet"])
def test_the_settings_come_back(section, tables, cut):
    imports, _, both = section[1].partition("with open")
    tsv, _, parquet = ("with open" + both).partition("settings = json.loads(pq")
    names: dict = {}
    exec(imports + (tsv if cut == "tsv" else "settings = json.loads(pq" + parquet), names)
    assert names["settings"] == json.loads(json.dumps(SETTINGS))
