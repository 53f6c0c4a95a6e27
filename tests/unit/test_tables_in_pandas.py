"""The code of docs/variants.md that reads our tables with pandas, as it stands."""

import re
from pathlib import Path

from carbon.io.tables import chosen_by_ending

PAGE = Path(__file__).parents[2] / "docs" / "variants.md"
COLUMNS = {"contig": str, "name": str, "position": int, "delta": float, "reason": str}
ROWS = [
    ("1", "NA", 7, -0.25, None),
    ("02", "nan", 8, None, "ref_mismatch"),
    ("X", "é", 9, 1e-9, None),
]
SETTINGS = {"model": "a # b", "window_bp": 600}


def test_pandas_gives_what_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my_scores.tsv", "my_scan.parquet"):
        path = tmp_path / name
        with chosen_by_ending(path, "table")(path, COLUMNS, SETTINGS) as write:
            for row in ROWS:
                write(row)
    section = PAGE.read_text(encoding="utf-8").partition("## Tables in pandas")[2]
    scores, metadata = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    names: dict = {}
    exec(scores, names)
    read = [tuple(row) for row in names["scores"].astype(object).itertuples(index=False)]
    expected = [tuple(float("nan") if x is None else x for x in row) for row in ROWS]
    assert repr(read) == repr(expected)
    assert names["scores"].dtypes[["position", "delta"]].tolist() == ["int64", "float64"]
    # Of the two ways to read the settings, the first is of a TSV, the second of Parquet.
    from_tsv, parquet, rest = metadata.partition("settings = json.loads(pq")
    for code in (from_tsv, from_tsv.partition("with open")[0] + parquet + rest):
        names = {}
        exec(code, names)
        assert names["settings"] == SETTINGS
