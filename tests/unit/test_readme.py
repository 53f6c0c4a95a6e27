"""The README's commands as they stand, in an empty folder, with the bundled model."""

import csv
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gradio_client import Client

from carbon.cli import main
from tests.helpers.server import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def code_blocks(language: str) -> str:
    return "".join(re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL))


def test_the_commands_and_the_python(tmp_path, monkeypatch, capsys, loaded_once):
    commands = [
        line.removeprefix(".venv/bin/carbon ")
        for line in code_blocks("bash").replace("\\\n", " ").splitlines()
        if line.startswith(".venv/bin/carbon") and "carbon demo" not in line  # which serves
    ]
    assert len(commands) == 6
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert main(shlex.split(command)) == 0, f"{command}\n{capsys.readouterr().err}"
    for name in ("eno2.png", "eno2_scan.tsv", "new_vectors.parquet"):
        assert Path(name).stat().st_size > 1000
    told_and_made(Path("eno2.tsv"))
    capsys.readouterr()
    exec(code_blocks("python"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines[1:4]] == [
        ["451984", "frameshift_variant"], ["452009", "stop_gained"],
        ["452184", "synonymous_variant"],
    ]  # fmt: skip
    assert lines[4].startswith("12 ") and lines[5].startswith("6 ")
    assert len(lines[6].strip("[]'")) == 60


def told_and_made(scored: Path) -> None:
    """Hold the README's table of five variants against what its command has written."""
    with scored.open() as lines:
        rows = list(csv.DictReader((line for line in lines if line[0] != "#"), delimiter="\t"))
    told = re.findall(r"^\| (\d{6}) \|.*?\| (-?[\d.]+) \| ([\d.]+) \|", README, flags=re.MULTILINE)
    assert len(told) == len(rows) == 5
    for (position, delta, percentile), row in zip(told, rows, strict=True):
        assert row["position"] == position
        assert abs(float(row["delta"]) - float(delta)) < 0.01
        assert abs(float(row["percentile"]) - float(percentile)) < 0.6


@pytest.mark.nightly
def test_the_demo(tmp_path):
    """Started as it stands, it shows a gene of the bundled chromosome, and Ctrl-C ends it."""
    (line,) = re.findall(r"^\.venv/bin/(carbon demo.*?) +#", README, re.M)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", *line.split(), "--port", str(port)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
        # What a shell starts in the background is deaf to Ctrl-C, and so is what that starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        told = next(line for line in process.stderr if line.startswith(("open", "error")))
        assert told == f"open http://127.0.0.1:{port}/ (stop with Ctrl-C)\n"
        inside = Client(f"http://127.0.0.1:{port}", verbose=False).predict(api_name="/inside")
        assert inside["sequence"].startswith("ATGGCTGTCTCTAAAGTTTACGCT")  # of ENO2
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
