"""Help as two columns of plain text."""

from collections.abc import Iterator
from typing import Any

from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

_LEFT_COLUMNS = 29


class HelpFormatter:
    """Formats the help of `carbon` and of its commands, for cyclopts."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a group of options or commands."""
        table = Table.grid(padding=(0, 2))
        table.add_column(width=_LEFT_COLUMNS)
        table.add_column()
        for entry in panel.entries:
            text = [*_paragraphs(console, entry.description), *_notes(entry)]
            table.add_row(Text(f"  {_names(entry)}"), Text(" ".join(text)))
        if panel.entries:
            console.print(Text(f"{panel.title}:"), table, "", sep="\n")

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line."""
        console.print(Text(f"Usage: {str(usage).strip()}\n"))

    def render_description(self, console: Console, options: ConsoleOptions, text: Any) -> None:
        """Print the description of a command."""
        for paragraph in _paragraphs(console, text):
            console.print(Text(f"{paragraph}\n"))


def _paragraphs(console: Console, text: Any) -> Iterator[str]:
    """Yield each paragraph of a docstring as one line."""
    with console.capture() as printed:
        console.print(text or "", soft_wrap=True)
    for paragraph in printed.get().split("\n\n"):
        if words := paragraph.split():
            yield " ".join(words)


def _names(entry: HelpEntry) -> str:
    if entry.positional_label:
        return entry.positional_label
    return " ".join(filter(None, [", ".join(entry.display_labels), entry.metavar]))


def _notes(entry: HelpEntry) -> Iterator[str]:
    """Yield choices, default and requirement of an option, in brackets."""
    if entry.choices:
        yield f"[one of {', '.join(entry.choices)}]"
    if entry.default:
        yield f"[default: {entry.default}]"
    if entry.required:
        yield "[required]"
