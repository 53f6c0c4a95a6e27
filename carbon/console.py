"""How every command speaks: results on stdout, progress and errors on stderr, exit 0, 1 or 2."""

import argparse
import errno
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn, TextIO, TypeVar

from carbon.errors import UserError

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0
_FIRST_UNTIMED = 3
"""Calls that count for no speed: the first ones compile, fill caches, start readers."""
_LEAST_SECONDS = 2.0
"""Of work, before it says how fast the rest will go."""


Cell = str | int | float
TableRow = tuple[Cell, ...]


def natural(text: str) -> int:
    """Read a command line's whole number of 0 or more, for `argparse`."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def port_number(text: str) -> int:
    """Read a command line's TCP port, 0 (any free one) to 65,535, for `argparse`."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port; give 0 to 65535")
    return int(text)


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and names a misspelt option first of all."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; before an option that is missing, one that does not exist is told."""
        given = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            self._check_options(takewhile(lambda word: word != "--", given))
        return super().parse_known_args(given, namespace)

    def _check_options(self, words: Iterable[str]) -> None:
        known = self._option_string_actions
        for name in (word.partition("=")[0] for word in words if word.startswith("--")):
            if not any(option.startswith(name) for option in known):
                near = "".join(
                    f"; did you mean {option}?" for option in get_close_matches(name, known, 1)
                )
                self.error(f"there is no option {name}{near}")

    def error(self, message: str) -> NoReturn:
        """End with one line and exit code 2."""
        self.exit(2, f"error: {message} (`{self.prog} --help` lists all)\n")


def say(message: str) -> None:
    """Print one line of progress or log to stderr, whole where other processes print there too."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command, from its arguments on, and turn what it raises into a line and an exit code.

    What the user got wrong exits with 2: a `UserError`, and a file that cannot be opened, such as
    one that is missing, a folder, or a link to itself. A full disk, a diverged run or another
    failure of the system exits with 1, an interrupt with 130. If the reader of a pipe has enough,
    as `head` has, the command ends quietly with 1 (Python's signal module, "Note on SIGPIPE").
    Everything else is a defect and keeps its traceback.
    """
    _shorten_spinning()
    open_streams()
    try:
        return _flushed(main)
    except BrokenPipeError:
        _is_written(sys.stdout)
        _is_written(sys.stderr)
        return 1
    except UserError as error:
        return _complain(str(error), 2)
    except OSError as error:
        return _complain(_told(error), 2 if error.errno in _USERS_MISTAKES else 1)
    except UnicodeEncodeError as error:
        return _complain(
            f"{error.object!a}: cannot be written in this locale ({error.encoding}); set "
            "LC_ALL=C.UTF-8",
            2,
        )
    except FloatingPointError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def _shorten_spinning() -> None:
    """Let threads of OpenMP that wait for others give up their core soon.

    PyTorch's Linux builds let them spin far longer than the work of a small model takes, which
    costs a turn of the scheduler where another program uses a core. The variable is read when torch
    is imported, so it is set before that; a value of the user's is kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


# Of opening a file that the user has named.
_USERS_MISTAKES = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTEMPTY, errno.ENXIO, errno.ENODEV, errno.EROFS,
}  # fmt: skip


def open_streams() -> None:
    """Make standard output and error UTF-8 whatever the locale, and have both where one is closed.

    Results for an output that is closed are an error; there is nobody to tell of the rest.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # Names of files that are not of the locale go out as the bytes that came in.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _flushed(main: Callable[[], int | None]) -> int:
    """Run `main` and have its results written; `--help` ends by `SystemExit`."""
    try:
        code = main() or 0
    except SystemExit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _is_written(stream: TextIO) -> bool:
    """Tell whether a stream takes what waits for it; if not, let go of that."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):  # Python flushes once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True


def _complain(message: str, code: int) -> int:
    with suppress(OSError):
        say(f"error: {message}")
    _is_written(sys.stderr)
    return code


def _told(error: OSError) -> str:
    file = error.filename
    if not _is_written(sys.stdout):
        file = file or "standard output"
    reason = (error.strerror or str(error) or type(error).__name__).splitlines()[0]
    return f"{file or 'the system'}: {reason.lower()}"


class TimeLeft:
    """How long a job will go on, by its speed behind the first calls; unknown until that is.

    Attributes:
        total: of what is counted, None where that is not known.
    """

    def __init__(self, total: int | None, done: int = 0) -> None:
        """Begin with so much done of so much in all, if that is known."""
        self.total, self._done, self._calls = total, done, 0
        self._since, self._done_since = time.monotonic(), done

    def advance(self, count: int) -> None:
        """Say that so much more is done."""
        self._done += count
        self._calls += 1
        if self._calls <= _FIRST_UNTIMED:
            self._since, self._done_since = time.monotonic(), self._done

    @property
    def seconds(self) -> float | None:
        """Expected seconds, None while they are not known."""
        if self.total is not None and self._done >= self.total:
            return 0.0
        elapsed, timed = time.monotonic() - self._since, self._done - self._done_since
        if self.total is None or not timed or elapsed < _LEAST_SECONDS:
            return None
        return elapsed / timed * (self.total - self._done)

    def __str__(self) -> str:
        """Return it as the end of a line, `, 0:12:30 left`; nothing while it is not known."""
        return "" if self.seconds is None else f", {_clock(self.seconds)} left"


@contextmanager
def progress(description: str, total: int | None, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show how far a long job is and how long it will take; yields `advance(n)`.

    On a terminal it is a bar; elsewhere (a log, a pipe) one line every ten seconds. `done` is what
    an earlier start has done already, which tells nothing about the speed of this one.
    """
    if sys.stderr.isatty():
        with _bar(description, total, done) as advance:
            yield advance
    else:
        yield _line_writer(description, total, done)


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield `items` while `progress` counts them."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(description, total) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def _bar(description: str, total: int | None, done: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    left = TimeLeft(total, done)

    def advance(n: int) -> None:
        left.advance(n)
        bar.update(task, advance=n, left=str(left).removeprefix(", "))

    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total, completed=done, left="")
        yield advance


def _line_writer(description: str, total: int | None, done: int) -> Callable[[int], None]:
    last = time.monotonic()
    left = TimeLeft(total, done)
    of = f"/{total}" if total else ""

    def advance(n: int) -> None:
        nonlocal done, last
        done += n
        left.advance(n)
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES and done != total:
            return
        last = now
        say(f"{description}: {done}{of}{left}")

    return advance


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


def shown(cell: Cell) -> str:
    """Write a cell of a table: `-` for an empty one, two places for what is not whole.

    >>> shown(1234), shown(38.311), shown("")
    ('1,234', '38.31', '-')
    """
    if isinstance(cell, str):
        return cell or "-"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}"


def text_table(rows: Sequence[TableRow]) -> str:
    """Lay rows out in columns, two blanks apart; columns of numbers are set on the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(len(shown(cell)) for cell in column) for column in columns]
    right = [not isinstance(column[-1], str) for column in columns]
    lines = []
    for row in rows:
        cells = [
            shown(c).rjust(w) if r else shown(c).ljust(w)
            for c, w, r in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
