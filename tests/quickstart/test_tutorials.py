"""The tutorials as they stand: their commands run in order, and print what the pages show."""

import math
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.warm import warm_environment, warm_python

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)```", re.DOTALL)
LONG = pytest.mark.skipif(
    os.environ.get("CARBON_TUTORIALS") != "all", reason="minutes long: scripts/test_tutorials"
)
NUMBER = re.compile(r"^-?\d+(?:\.\d+)?$")


@pytest.mark.parametrize(
    "page",
    [
        "score-a-vcf",
        "adapt-to-a-task",
        "scan-a-gene",
        pytest.param("read-an-evaluation", marks=LONG),
    ],
)
def test_it_runs_and_prints_what_it_shows(page, tmp_path):
    """A block with a title is a file; `text` is what the commands before it have printed."""
    printed, shown = "", 0
    for language, title, block in BLOCK.findall((TUTORIALS / f"{page}.md").read_text("utf-8")):
        if title:
            (tmp_path / title).write_text(block, encoding="utf-8")
        elif language == "bash":
            done = subprocess.run(
                ["bash", "-ec", block], cwd=tmp_path, env=warm_environment(),
                capture_output=True,
                text=True,
            )  # fmt: skip
            assert done.returncode == 0, f"{block}\n{done.stderr}"
            printed = done.stdout
        elif language == "text":
            assert_alike(block, printed)
            shown += 1
    assert shown > 1


def assert_alike(told: str, printed: str) -> None:
    """Hold what a page shows against what was printed; last digits of numbers may differ."""
    told_words, words = (re.findall(r'[^\s{}()\[\],:"]+', text) for text in (told, printed))
    assert len(told_words) == len(words), f"{told}\n{printed}"
    for expected, found in zip(told_words, words, strict=True):
        if NUMBER.match(expected) and NUMBER.match(found):
            assert math.isclose(float(expected), float(found), rel_tol=0.02, abs_tol=0.02)
        else:
            assert expected == found, f"{told}\n{printed}"


def test_a_wrong_number_or_word_is_seen():
    assert_alike("delta -3.32 stop", "delta -3.33 stop")
    for wrong in ("delta -3.5 stop", "delta -3.32 start", "delta -3.32"):
        with pytest.raises(AssertionError):
            assert_alike("delta -3.32 stop", wrong)


@LONG
def test_training_on_a_genome(tmp_path):
    """The commands of the page with the least of a training, so that they take a minute."""
    page = (TUTORIALS / "train-on-your-genome.md").read_text(encoding="utf-8")
    commands = [block for language, _, block in BLOCK.findall(page) if language == "bash"]
    less = "--minutes 0.1 --variants 40 --sites 20 --set stages.0.context_tokens=128 "
    less += "--set stages.1.context_tokens=128"
    for block in commands:
        run = block.replace("--minutes 3", less).replace(
            "bash scripts/quickstart", f"{warm_python()} {ROOT}/scripts/quickstart.py"
        )
        done = subprocess.run(
            ["bash", "-ec", run], cwd=tmp_path, capture_output=True, text=True,
            env=warm_environment(),
        )  # fmt: skip
        assert done.returncode == 0, f"{run}\n{done.stderr}"
    assert (tmp_path / "viii" / "report.html").exists()
