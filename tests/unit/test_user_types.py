"""Type stubs under mypy and pyright, on a user's script."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "golden" / "user_script.py"


@pytest.fixture
def script(tmp_path):
    return shutil.copy(SCRIPT, tmp_path / "script.py")


def test_mypy(script, tmp_path):
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", script.name], cwd=tmp_path, text=True,
        env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_pyright(script, tmp_path):
    """Pyright is a program of Node, which its package may have to fetch."""
    pytest.importorskip("pyright")
    settings = {
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "include": [script.name],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = ["-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        pytest.skip(f"pyright cannot start: {done.stderr[-200:]}")
    messages = [f"{each['range']['start']['line'] + 1}: {each['message']}"
                for each in found["generalDiagnostics"] if each["severity"] == "error"]  # fmt: skip
    assert not messages and found["summary"]["filesAnalyzed"] == 1
