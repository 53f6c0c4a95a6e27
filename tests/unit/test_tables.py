"""Output tables: every format has a writer, helps and checks; pandas and polars read them."""

import json
import re
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.errors import UserError
from carbon.io.rows import Table
from carbon.io.tables import FORMATS, any_of, check_ending, chosen_by_ending

PAGE = Path(__file__).parents[2] / "docs" / "variants.md"
OF_COMMAND = {
    "score": "table",
    "next": "table",
    "compare": "table",
    "predict": "table",
    "variants": "variants",
    "design": "designs",
    "embed": "embeddings",
    "background": "background",
    "join": "joined parts",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_ending_has_a_writer_and_others_are_refused(kind):
    for ending in FORMATS[kind]:
        assert check_ending(f"a{ending}", kind) == ending
        assert callable(chosen_by_ending(f"a{ending}", kind))
    with pytest.raises(UserError, match=r"^a\.txt: end the output with one of \.") as refused:
        check_ending("a.txt", kind)
    assert all(ending in str(refused.value) for ending in FORMATS[kind])


@pytest.mark.parametrize("command", OF_COMMAND)
def test_help_lists_the_endings(command, capsys):
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert any_of(FORMATS[OF_COMMAND[command]]) in text


def test_the_name_of_a_track_chooses_it():
    assert check_ending("x.entropy_nats.bw", "scan") == ".entropy_nats.bw"
    for plain in ("x.bw", "x.yeast.bw", "VIII.v2.bw"):
        assert check_ending(plain, "scan") == ".bw"
    for misspelt in ("x.log_p.bw", "x.entropy.bw", "x.mean.bw", "x.worst.bw", "x.log_p_reff.bw"):
        with pytest.raises(UserError, match="names no track; did you mean"):
            check_ending(misspelt, "scan")
    assert check_ending("x.log_p.bw", "dependency map") == ".bw"


COLUMNS = {"name": str, "number": int, "value": float, "is_known": bool}
ROWS = [
    {"name": "a", "number": 1, "value": 0.1 + 0.2, "is_known": True},
    {"name": "é#", "number": None, "value": None, "is_known": None},
    {"name": None, "number": -7, "value": -1e-300, "is_known": False},
]


@pytest.mark.parametrize("ending", FORMATS["table"])
def test_polars_gives_what_was_written(tmp_path, ending):
    polars = pytest.importorskip("polars")
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
    if ending == ".parquet":
        assert polars.read_parquet(path).to_dicts() == ROWS
        assert polars.DataFrame(Table(path)).to_dicts() == ROWS
        return
    assert json.loads(path.read_text())["rows"] == ROWS


SCORED = {"contig": str, "name": str, "position": int, "delta": float, "reason": str}
SCORES = [
    ("1", "NA", 7, -0.25, None),
    ("02", "nan", 8, None, "ref_mismatch"),
    ("X", "é", 9, 1e-9, None),
]
SETTINGS = {"model": "a # b", "window_bp": 600}


def test_pandas_gives_what_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my_scores.tsv", "my_scan.parquet"):
        path = tmp_path / name
        with chosen_by_ending(path, "table")(path, SCORED, SETTINGS) as write:
            for row in SCORES:
                write(row)
    section = PAGE.read_text(encoding="utf-8").partition("## Tables in pandas")[2]
    scores, metadata = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    names: dict = {}
    exec(scores, names)
    read = [tuple(row) for row in names["scores"].astype(object).itertuples(index=False)]
    expected = [tuple(float("nan") if x is None else x for x in row) for row in SCORES]
    assert repr(read) == repr(expected)
    assert names["scores"].dtypes[["position", "delta"]].tolist() == ["int64", "float64"]
    # Of the two ways to read the settings, the first is of a TSV, the second of Parquet.
    from_tsv, parquet, rest = metadata.partition("settings = json.loads(pq")
    for code in (from_tsv, from_tsv.partition("with open")[0] + parquet + rest):
        names = {}
        exec(code, names)
        assert names["settings"] == SETTINGS
