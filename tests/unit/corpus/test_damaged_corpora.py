"""A damaged corpus is refused by every reader before it works, in a line that names the file."""

import json
import os
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.corpus import check_corpus, read_manifest, read_source
from carbon.errors import CorpusError
from data_pipeline.__main__ import main as data_pipeline
from tests.helpers.inspect import state_files
from tests.helpers.runs import make_config, small_corpus, words_for
from train.__main__ import main as train

SHARD = "train-00000.parquet"
COMMANDS = {
    "summary": ("inspect", []),
    "report": ("inspect", ["--report", "r.html"]),
    "row": ("inspect", ["--source", "mrna", "--row", "0"]),
    "mixture": ("mixture", []),
}


def remove(path):
    path.unlink()


def tear(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    """Change one base of a sequence, which leaves the file whole Parquet."""
    table = pq.read_table(path)
    pq.write_table(table, path, compression="none", use_dictionary=False)
    state_files(path.parents[1])
    content, place = path.read_bytes(), path.read_bytes().index(b"ACGT")
    path.write_bytes(content[:place] + b"T" + content[place + 1 :])


def lose_records(path):
    """Another whole file of fewer records, and a manifest with its checksum and the old counts."""
    manifest = path.parents[1] / "manifest.json"
    sources = json.loads(manifest.read_text())["sources"]
    pq.write_table(pq.read_table(path).slice(1), path)
    state_files(path.parents[1])
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"sources": sources}))


def change_column(name, values):
    """Return a damage that replaces a column, or removes it, in a file that the manifest states."""

    def change(path):
        table = pq.read_table(path)
        at = table.schema.get_field_index(name)
        column = pa.array((values * table.num_rows)[: table.num_rows]) if values else None
        table = table.drop([name]) if column is None else table.set_column(at, name, column)
        pq.write_table(table, path)
        state_files(path.parents[1])

    return change


ALL = (*COMMANDS, "train")
TORN = "is not (a )?whole Parquet"
MISSING = "a value of column '{}' is missing"
NO_END = [{"start": 1, "end": None, "strand": "+"}]
DAMAGES = {
    "a lost shard": (remove, "cannot be opened: no such file or directory", ("summary", "train")),
    "a torn shard": (tear, TORN, ALL),
    "an empty shard": (empty, TORN, ("summary", "train")),
    "a flipped base": (flip, "is not the file that the manifest names", ("summary", "train")),
    "lost records": (lose_records, r"its train files have \d+ records, manifest.json states", ALL),
    "sequences of numbers": (
        change_column("sequence", [1]), r"column 'sequence' is int64|cannot be read \(", ALL,
    ),
    "a null sequence": (
        change_column("sequence", ["ACGT", None]),
        MISSING.format("sequence") + "|a record has no sequence", ALL,
    ),
    "a null name": (
        change_column("name", ["a", None]), MISSING.format("name"), ("summary", "mixture"),
    ),
    "segments without an end": (
        change_column("segments", [NO_END]),
        "column 'segments' is|" + MISSING.format("segments"), ("summary", "mixture"),
    ),
}  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    return shutil.copytree(small_corpus(), tmp_path / "corpus", ignore=lambda *_: ["prepared"])


def refusal(run, capsys):
    """Return the one line of a command that ends with exit code 2."""
    capsys.readouterr()
    assert run() == 2
    printed, error = capsys.readouterr()
    (line,) = (line for line in error.splitlines() if line.startswith("error: "))
    assert "Traceback" not in error and "mixture =" not in printed
    return line


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_before_any_work(corpus, tmp_path, monkeypatch, capsys, damage):
    monkeypatch.chdir(tmp_path)
    change, problem, finders = DAMAGES[damage]
    change(corpus / "mrna" / SHARD)
    config = make_config(corpus, tmp_path / "run")
    runs = {
        name: lambda command=command, words=words: data_pipeline([command, str(corpus), *words])
        for name, (command, words) in COMMANDS.items()
    } | {"train": lambda: train(words_for(config))}
    for name in finders:
        line = refusal(runs[name], capsys)
        assert re.search(problem, line), (name, line)
        assert SHARD in line or "/mrna: its train files" in line
    assert not (tmp_path / "r.html").exists() and not list(tmp_path.glob("run/metrics*"))


def test_the_held_out_split_is_checked_before_the_first_step(corpus, tmp_path, capsys):
    flip(corpus / "mrna" / "test-00000.parquet")
    config = make_config(corpus, tmp_path / "run", "probe.every_steps=2", "probe.source=mrna")
    line = refusal(lambda: train(words_for(config)), capsys)
    assert "test-00000.parquet" in line and not list(tmp_path.glob("run/metrics*"))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"sources": {"mrna": 5}}, "sources.mrna: Input should be"),
        (
            {"sources": {"mrna": {"train": {"records": -1, "bases": 1}}}},
            "sources.mrna.train.records",
        ),
        ({"outputs": {"mrna/x": 1}}, "outputs.mrna/x: Input should be"),
        ({"left_out": [{}]}, "left_out.0.error: Field required"),
    ],
)
def test_a_manifest_of_wrong_types_is_named_by_its_key(corpus, wrong, problem):
    path = corpus / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(CorpusError, match=f"{path}: {problem}"):
        check_corpus(corpus)


@pytest.mark.parametrize("name", ["manifest.json", f"mrna/{SHARD}"])
@pytest.mark.parametrize("program", ["inspect", "mixture", "train"])
def test_a_pipe_in_a_corpus_is_refused_at_once(corpus, tmp_path, capsys, name, program):
    config = make_config(corpus, tmp_path / "run")
    (corpus / name).unlink()
    os.mkfifo(corpus / name)
    run = train if program == "train" else data_pipeline
    words = words_for(config) if program == "train" else [program, str(corpus)]
    assert f"{name}: is not a regular file" in refusal(lambda: run(words), capsys)


def test_a_manifest_of_a_terabyte_is_refused_before_it_is_read(corpus):
    with (corpus / "manifest.json").open("wb") as sink:
        sink.truncate(10**12)
    with pytest.raises(CorpusError, match=r"manifest\.json: is larger than"):
        read_manifest(corpus)


def test_keys_that_a_manifest_lacks_are_empty(corpus):
    path = corpus / "manifest.json"
    kept = ("held_out", "outputs", "sources")
    path.write_text(json.dumps({key: json.loads(path.read_text())[key] for key in kept}))
    assert read_manifest(corpus)["inputs"] == [] and read_source(corpus, "mrna", "test").num_rows
    assert data_pipeline(["inspect", str(corpus)]) == 0


def test_a_list_of_dropped_records_that_is_not_the_one_of_the_build(corpus, capsys):
    with (corpus / "dropped.tsv").open("a") as sink:
        sink.write("torn")
    line = refusal(
        lambda: data_pipeline(["inspect", str(corpus), "--dropped", "--name", "x"]), capsys
    )
    assert "dropped.tsv: is not the file that the manifest names" in line
