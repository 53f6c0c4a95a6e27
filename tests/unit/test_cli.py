import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pysam
import pytest

from carbon.cli import main
from carbon.console import TimeLeft, progress
from carbon.errors import UserError
from carbon.files import atomic_file, atomic_folder
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("cli")
    save_model(network, folder / "model")
    write_fasta(folder / "s.fa.gz", {"one": random_bases(100), "two": "NNNN", "three": "acgta"})
    return folder


def test_score(folder, capsys):
    assert main(["score", "--model", str(folder / "model"), str(folder / "s.fa.gz")]) == 0
    settings, *lines = capsys.readouterr().out.splitlines()
    assert json.loads(settings[2:])["by"] == "chain"
    lines = [line.split("\t") for line in lines]
    assert lines[0] == ["name", "bases", "known_bases", "log_likelihood", "nats_per_base"]
    assert [line[:3] for line in lines[1:]] == [
        ["one", "100", "100"], ["two", "4", "0"], ["three", "5", "5"]
    ]  # fmt: skip
    assert float(lines[1][4]) == pytest.approx(-float(lines[1][3]) / 100, abs=1e-6)


def test_scores_of_bases_in_files(folder, tmp_path, model):
    arguments = ["score", "--model", str(folder / "model"), str(folder / "s.fa.gz"), "--per-base"]
    arguments += ["--by", "marginals", "--strands", "both"]
    for name in ("o.tsv", "o.json", "o.parquet"):
        assert main([*arguments, "--output", str(tmp_path / name)]) == 0
    table = pq.read_table(tmp_path / "o.parquet")
    assert json.loads(table.schema.metadata[b"carbon"])["strands"] == "both"
    rows = table.to_pylist()
    assert json.loads((tmp_path / "o.json").read_text())["rows"] == rows
    texts = [line.split("\t") for line in (tmp_path / "o.tsv").read_text().splitlines()[2:]]
    assert [(t[0], int(t[1]), t[2]) for t in texts] == [
        (r["name"], r["position"], r["base"]) for r in rows
    ]
    (expected,) = model.score([random_bases(100)], by="marginals", strands="both")
    found = [row["log_likelihood"] for row in rows if row["name"] == "one"]
    np.testing.assert_array_equal(np.float32(found), expected.bases)
    assert [r["log_likelihood"] for r in rows if r["name"] == "two"] == [None] * 4


def test_score_reads_fastq_and_standard_input(folder, tmp_path, capsys, monkeypatch):
    model = str(folder / "model")
    assert main(["score", "--model", model, str(folder / "s.fa.gz")]) == 0
    expected = capsys.readouterr().out
    with gzip.open(folder / "s.fa.gz", "rt") as source:
        records = source.read().split(">")[1:]
    sequences = {r.split()[0]: "".join(r.split()[1:]) for r in records}
    reads = "".join(f"@{n} x\n{s}\n+\n{'I' * len(s)}\n" for n, s in sequences.items())
    (tmp_path / "r.fq").write_text(reads)
    assert main(["score", "--model", model, str(tmp_path / "r.fq")]) == 0
    assert capsys.readouterr().out == expected
    piped = subprocess.run(
        [sys.executable, "-m", "carbon.cli", "score", "--model", model, "-"],
        input=reads, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert piped.stdout == expected
    (tmp_path / "cut.fq").write_text(reads[:-3])
    assert main(["score", "--model", model, str(tmp_path / "cut.fq")]) == 2
    assert "cut.fq line 12: record 'three' has no quality" in capsys.readouterr().err
    (tmp_path / "cut2.fq").write_text("@r1\nACGT\n+\nIIII\n@r2\nACGT\n")
    assert main(["score", "--model", model, str(tmp_path / "cut2.fq")]) == 2
    assert "cut2.fq line 6: record 'r2' has no quality" in capsys.readouterr().err
    (tmp_path / "protein.fq").write_text("@p\nMKLV\n+\nIIII\n")
    assert main(["score", "--model", model, str(tmp_path / "protein.fq")]) == 2
    assert "protein.fq line 2: 'L' is not a DNA letter" in capsys.readouterr().err


def _packed(text, cut=0):
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "s.fa"
        path.write_text(text)
        pysam.tabix_compress(str(path), f"{path}.gz")
        return Path(f"{path}.gz").read_bytes()[: -cut or None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\nACGT\n>b\nACGT\n", "line 1: expected a header"),
        (b">a\rACGT\r", "line 1: lines end in a lone CR"),
        (b">a\rACGT\r>b\nACGT\n", "line 1: lines end in a lone CR"),
        (b">a\nAC\rGT\n", "line 2: lines end in a lone CR"),
        (b">a\nACGT\n> \nACGT\n", "line 3: a record without a name"),
        (b"@a\nACGT\n+\nII\nII\n@b\nACGT\n+\nIIIII\n", "line 9: record 'b' has no quality"),
        (b"@a\nACGT\n+\nIIII\nACGT\n", "line 5: expected a header"),
        (b"\n\n", "has no sequence"),
        (_packed(">a\nACGT\n"), None),
        (_packed(">a\nACGT\n", cut=28), "line 2: is broken behind this (the end of its bgzip"),
        (gzip.compress(b">a\nACGT\n", mtime=0)[:-4], "is broken behind this"),
    ],
    ids=str,
)
def test_standard_input_is_looked_at_as_closely_as_a_file(
    folder, capsys, monkeypatch, content, message
):
    buffer = io.BufferedReader(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))
    status = main(["score", "--model", str(folder / "model"), "-"])
    captured = capsys.readouterr()
    if message is None:
        assert status == 0 and captured.out.splitlines()[-1].startswith("a\t4\t4\t")
    else:
        assert status == 2
        (line,) = [x for x in captured.err.splitlines() if x.startswith("error")]
        assert line.startswith("error: standard input") and message in line


def test_generate(folder, capsys):
    arguments = ["generate", "--model", str(folder / "model"), "--length", "70", "--seed", "3"]
    assert main([*arguments, "--prompt", "ACGTA", "-n", "2"]) == 0
    first = capsys.readouterr().out
    assert main([*arguments, "--prompt", "ACGTA", "-n", "2"]) == 0
    assert capsys.readouterr().out == first
    lines = first.splitlines()
    assert lines[0].startswith(">generated_0 sample=0 prompt_bp=5 model=")
    assert [len(line) for line in lines[1:3]] == [60, 10]
    assert main([*arguments, "--prompts", str(folder / "s.fa.gz"), "--mode", "base"]) == 0
    assert capsys.readouterr().out.count(">") == 3


def test_info_and_doctor(folder, capsys):
    assert main(["info", str(folder / "model")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["vocabulary"], facts["context_bp"]) == ("native", 282)
    assert main(["doctor"]) == 0
    assert json.loads(capsys.readouterr().out)["self_test"] == "ok"


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "no/such/folder"],
        ["score", "--model", "{m}", "absent.fa"],
        ["score", "--model", "{m}", "{f}/empty.fa"],
        ["score", "--model", "{m}", "--tag", "<dragon>", "{f}/s.fa.gz"],
        ["score", "--model", "{m}", "--device", "abacus", "{f}/s.fa.gz"],
        ["generate", "--model", "{m}", "--length", "0"],
        ["generate", "--model", "{m}", "--length", "5", "--temperature", "-1"],
        ["generate", "--model", "{m}", "--length", "5", "--prompt", "HELLO"],
    ],
)
def test_mistakes_are_one_line_and_exit_2(folder, capsys, arguments):
    (folder / "empty.fa").write_text("")
    words = [word.format(m=folder / "model", f=folder) for word in arguments]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")


def test_a_file_is_whole_or_absent(tmp_path):
    target = tmp_path / "a.txt"
    with pytest.raises(RuntimeError), atomic_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    with atomic_file(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new" and len(list(tmp_path.iterdir())) == 1


def test_an_output_that_is_no_file_is_known_before_the_work(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "target").write_text("old")
    begun = []
    for path, message in [
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is a device or a pipe"),
        ("/dev/null", "is a device or a pipe"),
        (tmp_path / "no" / "x", "the folder .* does not exist"),
    ]:
        with pytest.raises(UserError, match=message), atomic_file(path):
            begun.append(path)
    assert begun == [] and (tmp_path / "pipe").is_fifo()
    with atomic_file(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_an_output_may_be_a_link_to_an_empty_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link") as temporary:
        (temporary / "x").write_text("whole")
    assert (tmp_path / "real" / "x").read_text() == "whole"


def test_time_left_is_told_when_it_is_known(monkeypatch, capsys):
    """Not by the first three calls, of which one compiles; an earlier start says nothing."""
    now = [0.0]
    monkeypatch.setattr("carbon.console.time.monotonic", lambda: now[0])
    with progress("job", 1000, done=900) as advance:
        for seconds in (300, 12, 12, 20, 20):
            now[0] += seconds
            advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "job: 910/1000",
        "job: 920/1000",
        "job: 930/1000",
        "job: 940/1000, 0:02:00 left",
        "job: 950/1000, 0:01:40 left",
    ]


def test_time_left_needs_seconds_too(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("carbon.console.time.monotonic", lambda: now[0])
    left = TimeLeft(1_000_000)
    for _ in range(50):
        now[0] += 0.1
        left.advance(1)
        assert (str(left) == "") == (now[0] < 2.3 - 1e-6), now
    left.advance(1_000_000)
    assert str(left) == ", 0:00:00 left"
    assert str(TimeLeft(None)) == ""


def test_a_folder_is_whole_or_absent_and_never_overwritten(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "d") as temporary:
        (temporary / "x").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(tmp_path / "d") as temporary:
        (temporary / "x").write_text("whole")
    with pytest.raises(UserError, match="exists already"), atomic_folder(tmp_path / "d"):
        pass
    assert (tmp_path / "d" / "x").read_text() == "whole"
