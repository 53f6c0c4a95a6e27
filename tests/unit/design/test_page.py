"""The commands and the Python of `docs/design.md`, as they stand, with the bundled model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from Bio.Seq import Seq

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "design.md").read_text()


def run(words, folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example(tmp_path):
    block = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    run(["bash", "-ec", block.replace("--calls 200", "--calls 60")], tmp_path)
    _, header, *lines = (tmp_path / "designs.tsv").read_text().splitlines()
    shown = re.search(r"^\| name \| .* \|$", PAGE, flags=re.MULTILINE).group()
    assert set(shown.strip("| ").split(" | ")) < set(header.split("\t"))
    for bases in (line.split("\t")[-1] for line in lines):
        assert str(Seq(bases).translate()) == "MSKGEELFTGVVPILVELDGDVNGHK"


def test_the_example_of_tuning(tmp_path):
    block = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)[1]
    drawn = run(["bash", "-ec", block.replace("--steps 200", "--steps 2")], tmp_path)
    assert len(re.findall("^>", drawn, flags=re.MULTILINE)) == 10
    files = {path.name for path in (tmp_path / "gc_run").iterdir()}
    section = PAGE.partition("## RL fine-tuning")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([\w.]+)/?` \|", section, flags=re.MULTILINE)
    assert files == set(told)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
def test_the_python(tmp_path, block):
    printed = run([sys.executable, "-c", block.replace("calls=200", "calls=40")], tmp_path)
    assert re.search(r"[ACGT]{60}$", printed)
