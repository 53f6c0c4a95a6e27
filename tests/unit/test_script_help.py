"""`--help` of the shell scripts prints the comment at their head and does nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    *("check", "docs", "install", "release"),
    *("test", "test_float8", "test_servers", "test_tutorials"),
]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_all_that_is_done(tmp_path, name, word):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "dist").mkdir()  # which `release` would remove
    script = shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    done = subprocess.run(["bash", script, word], capture_output=True, text=True, cwd=tmp_path)
    head = [line[2:] for line in Path(script).read_text().split("\nset ")[0].splitlines()[1:]]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, head, "")
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["dist", "scripts", name])
