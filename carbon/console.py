"""How every command speaks: results on stdout, progress and errors on stderr, exit 0, 1 or 2."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TypeVar

from carbon.errors import UserError

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


Cell = str | int | float
TableRow = tuple[Cell, ...]


def natural(text: str) -> int:
    """Read a command line's whole number of 0 or more, for `argparse`."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def say(message: str) -> None:
    """Print one line of progress or log to stderr."""
    print(message, file=sys.stderr, flush=True)


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command's body and turn what it raises into a line on stderr and an exit code.

    A `UserError` and a missing or unreadable file exit with 2, an interrupt with 130, a full disk,
    a diverged run or another failure of the system with 1. Everything else is a defect and keeps
    its traceback.
    """
    try:
        return main() or 0
    except UserError as error:
        say(f"error: {error}")
        return 2
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        say(f"error: {error.filename}: {(error.strerror or 'cannot be opened').lower()}")
        return 2
    except BrokenPipeError:  # the reader of a pipe, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"error: {error.filename or 'the system'}: {(error.strerror or str(error)).lower()}")
        return 1
    except FloatingPointError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


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
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda n: bar.advance(task, n)


def _line_writer(description: str, total: int | None, done: int) -> Callable[[int], None]:
    start = last = time.monotonic()
    done_before = done

    def advance(n: int) -> None:
        nonlocal done, last
        done += n
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES and done != total:
            return
        last = now
        if total:
            left = (now - start) / max(done - done_before, 1) * (total - done)
            say(f"{description}: {done}/{total}, {_clock(left)} left")
        else:
            say(f"{description}: {done}")

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
