"""Runs a command of the quickstart: what it says goes to the screen, or to the log alone."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from carbon.progress import say

ROOT = Path(__file__).resolve().parents[1]
_SECONDS_TO_HEAR = 0.05
"""Ctrl-C comes to us and to the command at once; what it says of that is to come after ours."""
_SECONDS_TO_END = 5.0
_SHOW_CURSOR = b"\x1b[?25h"

Process = subprocess.Popen[bytes]


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: its exit code.
        said: what it has said, where that went to the log.
    """

    code: int
    said: str = ""

    @property
    def reason(self) -> str:
        """What stands behind `error: `, or all that it has said."""
        errors = [line for line in self.said.splitlines() if line.startswith("error: ")]
        return errors[-1].removeprefix("error: ") if errors else self.said.strip()


def run_python(
    words: Sequence[str],
    log: Path,
    *,
    results: Path | None = None,
    on_the_side: bool = False,
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[Process], None] = lambda _: None,
) -> Ended:
    """Run `python WORDS` from the checkout and wait; Ctrl-C waits for its end and goes on up.

    Args:
        words: of the command, which the log gets in full and the screen as far as one line goes.
        log: gets what the command prints, at its end.
        results: gets that instead.
        on_the_side: whether the log gets what it says on stderr as well, and the screen nothing.
        environment: variables that are set for it.
        meanwhile: is called once it has started.
    """
    command = shlex.join(["python", *words])
    say(on_one_line(f"  $ {command}"))
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"$ {command}\n")
        sink.flush()
        begins = sink.tell()
        with (
            results.open("w", encoding="utf-8") if results else nullcontext(sink) as printed,
            Screen() as screen,
        ):
            process = subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, env=os.environ | dict(environment or {}),
                stdout=printed, stderr=sink if on_the_side else screen.writer,
            )  # fmt: skip
            try:
                meanwhile(process)
                _wait(process)
                code = process.wait()
            except KeyboardInterrupt:
                screen.hide()
                process.wait()  # it has heard it too, and saves
                raise
    said = log.read_bytes()[begins:].decode("utf-8", "replace") if on_the_side else ""
    return Ended(code, said)


def _wait(process: Process) -> None:
    """Wait for the end; Ctrl-C is heard at once, which `Popen.wait` keeps back for a moment."""
    with suppress(ChildProcessError):  # its end has been seen already
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def on_one_line(text: str) -> str:
    """Return a text as far as a line of the terminal goes."""
    width = shutil.get_terminal_size().columns
    return text if len(text) <= width else text[: width - 4] + " ..."


class Screen:
    """Passes on what a command says, until Ctrl-C: then one line of ours is enough.

    Attributes:
        writer: for the stderr of the command; a terminal where ours is one, so that bars are drawn.
    """

    def __init__(self) -> None:
        """Open both ends."""
        self._reader, self.writer = os.openpty() if sys.stderr.isatty() else os.pipe()
        self._is_hidden = self._is_within_a_line = False
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)

    def __enter__(self) -> "Screen":
        """Begin to pass on."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Pass on what is left."""
        os.close(self.writer)
        self._thread.join(_SECONDS_TO_END)

    def hide(self) -> None:
        """Pass nothing on any more; the command can go on talking.

        The line that was begun is ended, and the cursor is there again, which a bar hides.
        """
        is_terminal = sys.stderr.isatty()
        with self._turn:
            self._is_hidden = True
            ended = b"\n" if self._is_within_a_line or is_terminal else b""
            self._write((_SHOW_CURSOR if is_terminal else b"") + ended)

    def _write(self, said: bytes) -> None:
        with suppress(OSError, ValueError):  # nobody may be there to read
            sys.stderr.buffer.write(said)
            sys.stderr.flush()

    def _pass_on(self) -> None:
        with suppress(OSError):  # how a terminal tells that nobody writes any more
            while said := os.read(self._reader, 1 << 16):
                time.sleep(_SECONDS_TO_HEAR)
                with self._turn:
                    if not self._is_hidden:
                        self._write(said)
                        self._is_within_a_line = not said.endswith(b"\n")
        os.close(self._reader)
