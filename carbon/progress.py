"""Progress bars, log lines and text tables of long jobs, on standard error."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0
_FIRST_UNTIMED = 3
"""Number of first calls that are not timed: they compile, fill caches and start workers."""
_LEAST_SECONDS = 2.0
"""Seconds of timed work before the remaining time is estimated."""


_NOTEBOOK_COLUMNS = 100
_NOTEBOOK_REFRESHES, _TERMINAL_REFRESHES = 2, 10
"""Redraws of a bar in a second; a notebook stores each."""

_LINE_LETTERS = 2000
_LONG_WORD = re.compile(r"\S{301,}")
_LONG_LINE = re.compile(rf".{{{_LINE_LETTERS + 1},}}")

Cell = str | int | float
TableRow = tuple[Cell, ...]


def say(message: str) -> None:
    """Print one line to stderr in a single write, so that lines of processes do not mix.

    Long words and lines are cut, because a message may quote a file.
    """
    sys.stderr.write(f"{bounded(message)}\n")
    sys.stderr.flush()


def bounded(message: str) -> str:
    """Return a message with the beginnings of words over 300 characters and lines over 2,000.

    >>> len(bounded("GATTACA" * 1000))
    203
    """
    words_cut = _LONG_WORD.sub(lambda word: f"{word[0][:200]}...", message)
    return _LONG_LINE.sub(lambda line: f"{line[0][:_LINE_LETTERS]}...", words_cut)


class TimeLeft:
    """Estimate of the remaining time of a job, from its speed after the first calls.

    Attributes:
        total: number of items; None if unknown.
    """

    def __init__(self, total: int | None, done: int = 0) -> None:
        """Start with `done` of `total` items."""
        self.total, self._done, self._calls = total, done, 0
        self._since, self._done_since = time.monotonic(), done

    def advance(self, count: int) -> None:
        """Count further items as done."""
        self._done += count
        self._calls += 1
        if self._calls <= _FIRST_UNTIMED:
            self._since, self._done_since = time.monotonic(), self._done

    @property
    def seconds(self) -> float | None:
        """Expected seconds; None while they are unknown."""
        if self.total is not None and self._done >= self.total:
            return 0.0
        elapsed, timed = time.monotonic() - self._since, self._done - self._done_since
        if self.total is None or not timed or elapsed < _LEAST_SECONDS:
            return None
        return elapsed / timed * (self.total - self._done)

    def __str__(self) -> str:
        """Return the end of a log line, such as `, 0:12:30 left`; empty while unknown."""
        return "" if self.seconds is None else f", {_clock(self.seconds)} left"


_has_lines = ContextVar("_has_lines", default=True)


@contextmanager
def bars_only() -> Iterator[None]:
    """Show progress as bars alone, and not as lines where there is no terminal."""
    token = _has_lines.set(False)
    try:
        yield
    finally:
        _has_lines.reset(token)


@contextmanager
def progress(description: str, total: int | None, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show progress and remaining time of a long job; yields `advance(n)`.

    Terminals and notebooks show a bar; logs and pipes get one line every ten seconds, unless
    `bars_only`. `done` counts items from an earlier start, which do not affect the estimated speed.
    """
    if sys.stderr.isatty() or _is_notebook():
        with _bar(description, total, done) as advance:
            yield advance
    elif _has_lines.get():
        yield _line_writer(description, total, done)
    else:
        yield lambda count: None


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield `items` and show the progress."""
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

    # In a notebook, rich needs ipywidgets, unless it writes as to a terminal of one line.
    is_notebook = _is_notebook()
    console = Console(
        stderr=True,
        force_jupyter=False if is_notebook else None,
        force_terminal=True if is_notebook else None,
        width=_NOTEBOOK_COLUMNS if is_notebook else None,
    )
    rate = _NOTEBOOK_REFRESHES if is_notebook else _TERMINAL_REFRESHES
    with Progress(*columns, console=console, refresh_per_second=rate) as bar:
        task = bar.add_task(description, total=total, completed=done, left="")
        yield advance


def _line_writer(description: str, total: int | None, done: int) -> Callable[[int], None]:
    last = time.monotonic()
    left = TimeLeft(total, done)
    of = f"/{total}" if total else ""

    def advance(n: int) -> None:
        nonlocal done, last
        if not n:  # the last step may have no items
            return
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
    """Return the text of a table cell: `-` for an empty one, two decimal places for floats.

    >>> shown(1234), shown(38.311), shown("")
    ('1,234', '38.31', '-')
    """
    if isinstance(cell, str):
        return cell or "-"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}"


def text_table(rows: Sequence[TableRow]) -> str:
    """Return rows in aligned columns, two blanks apart; numbers are aligned on the right."""
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
