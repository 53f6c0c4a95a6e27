"""Commands by name: what they read and write, and files that are whole or absent."""

import io
import json
import os
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from carbon.cli import COMMAND_GROUPS, COMMANDS, main
from carbon.commands import packages
from carbon.console import print_summary
from carbon.errors import UserError
from carbon.io.files import atomic_file, atomic_folder
from carbon.model import save_model
from carbon.progress import progress
from tests.helpers.files import random_bases, write_fasta

SEQUENCES = {"one": random_bases(100), "two": "NNNN", "three": "acgta"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("cli")
    save_model(network, folder / "model")
    write_fasta(folder / "s.fa.gz", SEQUENCES)
    return folder


@pytest.fixture
def score(folder, capsys, monkeypatch):
    """Return a function that scores a file, or bytes as standard input: code, stdout, stderr."""

    def scored(given):
        if isinstance(given, bytes):
            stream = io.BufferedReader(io.BytesIO(given))
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        words = ["score", "--model", str(folder / "model")]
        code = main([*words, "-" if isinstance(given, bytes) else str(given)])
        return code, *capsys.readouterr()

    return scored


def test_score(folder, score):
    code, out, _ = score(folder / "s.fa.gz")
    assert code == 0
    settings, *lines = out.splitlines()
    assert json.loads(settings[2:])["by"] == "chain"
    lines = [line.split("\t") for line in lines]
    assert lines[0] == ["name", "bases", "known_bases", "log_likelihood", "nats_per_base"]
    assert [line[:3] for line in lines[1:]] == [
        ["one", "100", "100"], ["two", "4", "0"], ["three", "5", "5"]
    ]  # fmt: skip
    assert float(lines[1][4]) == pytest.approx(-float(lines[1][3]) / 100, abs=1e-6)
    reads = "".join(f"@{n} x\n{s}\n+\n{'I' * len(s)}\n" for n, s in SEQUENCES.items())
    (folder / "r.fq").write_text(reads)
    assert score(folder / "r.fq")[:2] == score(reads.encode())[:2] == (0, out)


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


def test_standard_input_is_looked_at_as_closely_as_a_file(score):
    code, _, error = score(b"@a\nACGT\n+\nII\nII\n@b\nACGT\n+\nIIIII\n")
    assert code == 2
    assert "error: standard input line 9: record 'b'" in error


def test_info_and_doctor(folder, capsys):
    assert main(["info", str(folder / "model")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["vocabulary"], facts["context_bp"]) == ("native", 282)
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["self_test"] == "ok"
    assert main(["doctor"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["self-test", "ok"] in rows and ["torch", facts["packages"]["torch"]] in rows
    assert {row[0] for row in rows if row} >= facts["extras"].keys()


def test_a_summary_is_one_line_and_on_a_terminal_a_line_for_each_key(capsys, monkeypatch):
    summary = {"output": "a.tsv", "reasons": {"telomere": 1}}
    print_summary(summary)
    line = capsys.readouterr().out
    assert json.loads(line) == summary and line.count("\n") == 1
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_summary(summary)
    text = capsys.readouterr().out
    assert json.loads(text) == summary and text.count("\n") == 4


def test_a_shell_completes_commands_and_options(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "\ncomplete -o default -F _carbon carbon" in script
    assert "--least-context" in script and "token_start" in script


def test_help_lists_every_command_and_what_it_does(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{title}:\n") for title in (*COMMAND_GROUPS, "Options")]
    assert places == sorted(places)
    rows = [line.split(maxsplit=1) for line in text.splitlines()]
    assert dict(row for row in rows if len(row) == 2)["embed"].startswith(
        "Compute a vector for each"
    )
    assert set(COMMANDS) <= {row[0] for row in rows if len(row) == 2}


@pytest.mark.parametrize("command", packages.PACKAGES)
def test_a_package_of_a_checkout_is_a_command(command, monkeypatch, capsys):
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: carbon {command} ")
    assert main([command, "--no-such-option"]) == 2
    assert f"`carbon {command} --help` lists all" in capsys.readouterr().err
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    assert main([command]) == 2
    message = f"error: carbon {command}: this installation lacks the package"
    assert capsys.readouterr().err.startswith(message)


def test_a_folder_is_never_overwritten(tmp_path):
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "d") as temporary:
        (temporary / "x").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(tmp_path / "d") as temporary:
        (temporary / "x").write_text("whole")
    with pytest.raises(UserError, match="exists already"), atomic_folder(tmp_path / "d"):
        pass
    assert (tmp_path / "d" / "x").read_text() == "whole"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link") as temporary:
        (temporary / "x").write_text("behind a link")
    assert (tmp_path / "real" / "x").read_text() == "behind a link"


def test_an_output_that_is_no_file_is_known_before_the_work(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "target").write_text("old")
    begun = []
    for path, message in [
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is a device or a pipe"),
        ("/dev/null", "is a device or a pipe"),
        (tmp_path / "no" / "x", "does not exist"),
    ]:
        with pytest.raises(UserError, match=message), atomic_file(path):
            begun.append(path)
    assert begun == [] and (tmp_path / "pipe").is_fifo()
    with atomic_file(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_time_left_is_shown_when_it_is_known(monkeypatch, capsys):
    """Not by the first three calls, of which one compiles; an earlier start says nothing."""
    now = [0.0]
    monkeypatch.setattr("carbon.progress.time.monotonic", lambda: now[0])
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


def test_the_last_line_is_written_once(capsys):
    """A step without items, such as the k-mer that is only predicted, ends a dependency map."""
    with progress("job", 20) as advance:
        for count in (10, 10, 0):
            advance(count)
    assert capsys.readouterr().err.splitlines() == ["job: 20/20, 0:00:00 left"]
