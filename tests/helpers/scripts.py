"""Scripts of `runs/` whose commands are answered by the test: nothing is started but the shell."""

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.helpers.shell import ROOT

_SHELL = """
call() { local code; printf '%s\\0' "$@" > "$WORDS"; read -r code < "$CODES"; return "$code"; }
carbon() { call carbon "$@"; }
python() { call python "$@"; }
export -f call carbon python
bash "$@"
code=$?
call end > /dev/null
exit $code
"""


class Ended(NamedTuple):
    code: int
    commands: list[list[str]]
    err: str


def run_script(
    script: str,
    *words: str,
    answer: Callable[[list[str]], int],
    folder: Path,
    pipes: Path,
    **environment: str,
) -> Ended:
    """Run a script in a folder; `answer` returns the exit code of each command that it calls."""
    fifos = {name: pipes / name.lower() for name in ("WORDS", "CODES")}
    for path in fifos.values():
        if not path.exists():
            os.mkfifo(path)
    commands: list[list[str]] = []
    process = subprocess.Popen(
        ["bash", "-c", _SHELL, "bash", str(ROOT / "runs" / script), *words], cwd=folder,
        env=os.environ | {name: str(path) for name, path in fifos.items()} | environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.communicate()), daemon=True)
    reader.start()
    while True:
        command = fifos["WORDS"].read_text().split("\0")[:-1]
        if command == ["end"]:
            fifos["CODES"].write_text("0\n")
            break
        commands.append(command)
        fifos["CODES"].write_text(f"{answer(command)}\n")
    reader.join()
    return Ended(process.returncode, commands, said[1])
