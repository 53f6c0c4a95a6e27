"""JSON, TOML and Parquet from disk: whatever a file holds, one line names it, and nothing hangs."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typing_extensions import TypedDict

from carbon.errors import ConfigError, ModelError, UserError
from carbon.io import structured
from carbon.io.config import Recipe, with_overrides
from carbon.io.structured import (
    JSON_OBJECT,
    open_parquet,
    parse_toml_value,
    read_bytes,
    read_json,
    read_json_lines,
    read_toml,
)
from carbon.progress import bounded


class State(TypedDict):
    step: int
    losses: list[float]


DEEP = 100_000
WRONG_JSON = {
    "torn": (b'{"step": 1, "los', "Invalid JSON"),
    "not UTF-8": (b'{"step": 1, "losses": ["\xff"]}', "Invalid JSON|valid unicode"),
    "null": (b"null", "dictionary|object"),
    "empty": (b"", "Invalid JSON"),
    "a wrong type": (b'{"step": "1", "losses": []}', "step: Input should be a valid integer"),
    "a null inside": (b'{"step": 1, "losses": [null]}', r"losses\.0: Input should be"),
    "deep": (b"[" * DEEP + b"]" * DEEP, "recursion limit"),
    "5,000 digits": (b'{"step": ' + b"1" * 5000 + b', "losses": []}', "number out of range"),
    "Infinity": (b'{"step": 1, "losses": [], "more": -Infinity}', "NaN and Infinity are not JSON"),
}


@pytest.mark.parametrize("name", WRONG_JSON)
def test_wrong_json_is_one_line_with_file_key_and_remedy(tmp_path, name):
    content, problem = WRONG_JSON[name]
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=problem) as caught:
        read_json(path, State, error=ModelError, remedy="copy it again")
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and message.endswith("; copy it again")
    assert "\n" not in message and len(message) < 400


def test_right_json_is_what_it_says(tmp_path):
    path = tmp_path / "state.json"
    path.write_text('{"step": 3, "losses": [1, 0.5], "more": {"a": [1]}}', encoding="utf-8")
    assert read_json(path, State)["losses"] == [1.0, 0.5]
    assert read_json(path, JSON_OBJECT) == {"step": 3, "losses": [1, 0.5], "more": {"a": [1]}}


WRONG_TOML = {
    "torn": b"[a",
    "not UTF-8": b'a = "\xff"',
    "deep": b"a = " + b"[" * DEEP + b"]" * DEEP,
    "deep by a header": b"[a" + b".a" * 200 + b"]",
    "5,000 hexadecimal digits": b"a = [[0x" + b"f" * 5000 + b"]]",
}


@pytest.mark.parametrize("name", WRONG_TOML)
def test_wrong_toml_is_one_line(tmp_path, name):
    path = tmp_path / "r.toml"
    path.write_bytes(WRONG_TOML[name])
    with pytest.raises(ConfigError, match=r"r\.toml: not valid TOML: .+"):
        read_toml(path, ConfigError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("a/b.fa", "a/b.fa"),
        ("1\nb = 2", "1\nb = 2"),
        ("1" * 5000, "1" * 5000),
        ("[" * DEEP + "]" * DEEP, "--set x: nested too deeply"),
        ("{a" + ".a" * 200 + " = 1}", "--set x: nested too deeply"),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_toml_value_is_bounded_and_other_text_stays_text(text, value):
    if str(value).startswith("--set"):
        with pytest.raises(ConfigError, match=value):
            parse_toml_value(text, "--set x", ConfigError)
    else:
        assert parse_toml_value(text, "--set x", ConfigError) == value


@pytest.mark.parametrize("override", ["a" + ".a" * DEEP + "=1", "x" * 5000, "a=" + "[" * DEEP])
def test_an_override_is_bounded_and_shown_in_short(override):
    with pytest.raises(ConfigError, match="--set ") as caught:
        Recipe.from_table(with_overrides({}, [override]), "--set")
    assert len(bounded(str(caught.value))) < 400


READERS = {
    "bytes": read_bytes,
    "JSON": lambda path: read_json(path, JSON_OBJECT),
    "lines": lambda path: list(read_json_lines(path, JSON_OBJECT)),
    "TOML": read_toml,
    "Parquet": lambda path: open_parquet(path, {}),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_at_once_and_a_folder_is_an_error(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: is not a regular file"):
        READERS[reader](tmp_path / "pipe")
    with pytest.raises(OSError, match="directory"):
        READERS[reader](tmp_path)
    with pytest.raises(FileNotFoundError):
        READERS[reader](tmp_path / "absent")


def test_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(structured, "MAX_BYTES", 1000)
    sparse = tmp_path / "sparse.json"
    with sparse.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(UserError, match=r"larger than 1,000 bytes"):
        read_bytes(sparse, 1000)
    with pytest.raises(UserError, match=r"line 1: is longer than 1,000 bytes"):
        list(read_json_lines(sparse, JSON_OBJECT))


@pytest.mark.parametrize("cut", [1, 4, 5, 6])
def test_a_torn_last_line_is_left_out_with_a_warning(tmp_path, capsys, cut):
    path = tmp_path / "metrics.jsonl"
    whole = '{"step": 1}\n{"step": 2, "name": "ä"}\n'.encode()
    path.write_bytes(whole[:-cut])
    assert list(read_json_lines(path, JSON_OBJECT)) == [(1, {"step": 1})]
    assert "metrics.jsonl line 2: is torn and left out" in capsys.readouterr().err
    path.write_bytes(b'{"step": 1\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl line 1: Invalid JSON"):
        list(read_json_lines(path, JSON_OBJECT))


def test_parquet_has_its_columns_with_their_types(tmp_path):
    path = tmp_path / "shard.parquet"
    pq.write_table(pa.table({"seq": ["ACGT"], "score": [1]}), path)
    assert open_parquet(path, {"seq": pa.string()}).metadata.num_rows == 1
    with pytest.raises(UserError, match="column 'score' is int64, expected double"):
        open_parquet(path, {"score": pa.float64()})
    with pytest.raises(UserError, match="has no column 'strand'"):
        open_parquet(path, {"strand": pa.string()})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="is not a whole Parquet file"):
        open_parquet(path, {})
