"""Commands that write a folder refuse one that another run writes to, before any work."""

import os
from pathlib import Path

import pytest

from carbon.cli import main as carbon
from carbon.io.locks import locked_folder, locked_output
from data_pipeline.__main__ import main as data_pipeline
from tests.helpers.finetune import base_folder

FINETUNE = """
model = "{model}"
output = "{output}"
[data]
path = "data.csv"
[task]
type = "binary"
"""


@pytest.fixture
def commands(tmp_path, network):
    """Of each command that writes a folder: its lock, its main function and its words."""
    model, output = tmp_path / "base", tmp_path / "out"
    base_folder(tmp_path, network)
    (tmp_path / "finetune.toml").write_text(FINETUNE.format(model=model, output=output))
    (tmp_path / "accessions.txt").write_text("GCF_000005845.2\n")
    tune = ("--model", model, "--function", "python:math:sqrt", "--length", "30")
    return {
        "finetune": (locked_output, carbon, "finetune", "--config", tmp_path / "finetune.toml"),
        "rl": (locked_output, carbon, "rl", *tune, "--output", output),
        "rl again": (locked_output, carbon, "rl", *tune, "--output", output, "--resume"),
        "download": (
            *(locked_folder, data_pipeline, "download", tmp_path / "accessions.txt"),
            *("--output", output, "--server", "http://127.0.0.1:9"),
        ),
    }


@pytest.mark.parametrize("name", ["finetune", "rl", "rl again", "download"])
def test_a_folder_in_use_is_refused(commands, tmp_path, capsys, name):
    locked, main, *words = commands[name]
    before = files_below(tmp_path)
    with locked(tmp_path / "out"):
        assert main([str(word) for word in words]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {tmp_path}/out: in use by process {os.getpid()} on ")
    assert files_below(tmp_path) == before


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
