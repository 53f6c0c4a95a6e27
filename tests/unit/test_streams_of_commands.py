"""What a command does where a stream or a path is not what it should be: one line, and its code."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carbon.cli import main as carbon
from carbon.console import run_command
from carbon.io.files import MACHINE, atomic_file, atomic_folder, scratch_folder
from carbon.model import save_model
from data_pipeline.__main__ import main as data_pipeline
from eval.__main__ import main as evaluate
from tests.helpers.files import random_bases, write_fasta, write_vcf
from train.__main__ import main as train

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("streams")
    save_model(network, folder / "model")
    write_fasta(folder / "g.fa", {"caf\u00e9": random_bases(3000)})
    write_fasta(folder / "long.fa", {"long": random_bases(100_000)})  # more than a pipe holds
    write_vcf(folder / "v.vcf", [])
    return folder


def command(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run words of a shell, in which `carbon` is ours, and fail where any part of a pipe does."""
    shortcuts = {"carbon": "-m carbon.cli", "python": ""}
    line = "set -o pipefail; "
    for name, words in shortcuts.items():
        line += f"{name}() {{ '{sys.executable}' {words} \"$@\"; }}; "
    line += shell
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": ""} | environment,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, marks=pytest.mark.nightly),
        {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_names_in_a_locale_of_ascii(folder, more):
    shutil.copyfile(folder / "g.fa", folder / "\u00fc.fa")
    shell = f"carbon tokenize '{folder}/\u00fc.fa' | carbon tokenize --decode -"
    done = command(shell, LC_ALL="C", **more)
    assert (done.returncode, done.stdout.split()[0]) == (0, ">caf\u00e9"), done.stderr


def test_a_message_does_not_dump_a_whole_text(folder, capsys):
    for name in ("x" * 5000, "a b " * 5000, "x\n" * 2):
        assert carbon(["score", "--model", str(folder / "model"), name]) == 2
        assert len(capsys.readouterr().err) < 2500


@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ("carbon tokenize --piece-tokens 2 {folder}/long.fa | head -n 1", 1),
        ("carbon tokenize {folder}/g.fa > /dev/full", 1),
        ("carbon tokenize - <&-", 2),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)
            for row in (
                ("carbon tokenize {folder}/g.fa >&-", 1),
                ("carbon tokenize {folder}/absent.fa 2> /dev/full", 2),
                ("python -m train --help > /dev/full", 1),
            )
        ),
    ],
)
def test_streams_that_are_closed_or_full(folder, shell, code):
    done = command(shell.format(folder=folder))
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if "2>" not in shell:
        assert done.stderr.count("\n") == (0 if "head" in shell else 1)


def odd_paths(folder: Path) -> dict[str, Path]:
    made = {kind: folder / kind for kind in ("loop", "folder", "socket")}
    made["loop"].symlink_to("loop")
    made["folder"].mkdir()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(made["socket"]))
    return made | {"inside a loop": made["loop"] / "x", "long": folder / ("x" * 300)}


def commands(good: Path, odd: Path, kind: str) -> list[tuple]:
    """Return entry points and words, each with one path that is odd."""
    model, fasta, vcf = good / "model", good / "g.fa", good / "v.vcf"
    scored = ("variants", "--model", model, "--reference")
    found = [
        (carbon, "tokenize", odd),
        (carbon, "score", "--model", odd, fasta),
        (carbon, "score", "--model", model, odd),
        (carbon, "score", "--model", model, fasta, "--output", odd),
        (carbon, *scored, odd, "--vcf", vcf, "--output", good / "o.tsv"),
        (carbon, *scored, fasta, "--vcf", odd, "--output", good / "o.tsv"),
        (carbon, "generate", "--model", model, "--length", "9", "--prompts", odd),
        (carbon, "embed", "--model", model, odd, "--output", good / "o.npz"),
        (data_pipeline, "build", "--set", f'assemblies=[{{genome="{odd}"}}]', "--set",
         f'output="{good}/corpus"'),
        (data_pipeline, "download", odd, "--output", good / "downloaded"),
        (data_pipeline, "inspect", odd),
        (train, "--config", odd),
        (data_pipeline, "build", "--config", odd),
        (evaluate, "build", "genome_recovery", "--corpus", odd, "--output", good / "x.parquet"),
        (evaluate, "build", "labelled_variants", "--reference", fasta, "--vcf", odd,
         "--output", good / "x.parquet"),
    ]  # fmt: skip
    if kind != "folder":  # which may be an output
        found += [
            (carbon, "convert", model, odd),
            (data_pipeline, "simulate", "--output", odd),
        ]
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "loop",
        "folder",
        *(pytest.param(k, marks=pytest.mark.nightly) for k in ("socket", "inside a loop", "long")),
    ],
)
def test_odd_paths_are_one_line(folder, tmp_path, capsys, kind):
    odd = odd_paths(tmp_path)[kind]
    for main, *words in commands(folder, odd, kind):
        try:
            code = main(list(map(str, words)))
        except SystemExit as wrong:  # of the arguments: the test itself would be wrong
            raise AssertionError(words) from wrong
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        assert (code, len(lines)) == (2, 1), (words, error)


def test_a_full_disk_is_one_line_with_the_name_of_the_file(tmp_path, capsys):
    def fill():
        with atomic_file(tmp_path / "out.tsv") as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    assert run_command(fill) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/out.tsv: no space left on device\n"
    assert list(tmp_path.iterdir()) == []

    def fill_a_stream():
        raise OSError(28, "No space left on device")

    assert run_command(fill_a_stream) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: a file or standard output: no space left on device; check its")


HOLD = """
import sys, time
from pathlib import Path
from carbon.io.files import atomic_file, atomic_folder, scratch_folder
with atomic_file("{0}/a.txt"), atomic_folder("{0}/b") as b, scratch_folder("test") as c:
    (b / "x").write_text("half")
    (c / "x").write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


def write_all(folder: Path) -> None:
    with atomic_file(folder / "a.txt"), atomic_folder(folder / "b"), scratch_folder("test"):
        pass


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere, token = f"{int(MACHINE, 16) ^ 1:08x}", "0123abcd"
    for other in (
        *(f".12-{MACHINE}-{token}.b.txt", f".12-{MACHINE}-{token}.a.txt.bak", ".a.txt"),
        *(f".x-{MACHINE}-{token}.a.txt", f".12-{MACHINE}.a.txt", ".12.a.txt"),
        *(f".12-{elsewhere}-{token}.a.txt", f"carbon-test-{elsewhere}-x", "carbon-of-mine"),
    ):
        (tmp_path / other).write_text("of somebody else")
        os.utime(tmp_path / other, (1, 1))
    there = sorted(tmp_path.iterdir())
    running = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert running.stdout is not None and running.stdout.readline() == b"ready\n"
    left = sorted(set(tmp_path.iterdir()) - set(there))
    assert len(left) == 3
    for path in left:
        os.utime(path, (time.time() - 9,) * 2)
    write_all(tmp_path)
    assert set(left) < set(tmp_path.iterdir())  # it is alive
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    (tmp_path / "a.txt").unlink()
    (tmp_path / "b").rmdir()
    write_all(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*there, tmp_path / "a.txt", tmp_path / "b"])
