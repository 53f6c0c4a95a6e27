"""Commands of the documents as a reader types them, by a shell of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def shell_environment(**more: str) -> dict[str, str]:
    """Return this environment with our code and this Python's programs first."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


def run_shell(lines: str, folder: Path) -> str:
    """Run lines in a folder until one fails; return what they print."""
    done = subprocess.run(
        ["bash", "-ec", lines], cwd=folder, env=shell_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{lines}\n{done.stderr}"
    return done.stdout
