"""Run a command line: standard streams, errors as one line, and exit codes."""

import argparse
import errno
import inspect
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, NoReturn, TextIO

from carbon.errors import UserError, did_you_mean
from carbon.progress import bounded, say


def natural(text: str) -> int:
    """Parse a whole number of 0 or more, for `argparse`."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def natural_numbers(text: str) -> tuple[int, ...]:
    """Parse whole numbers with commas between them, for `argparse`."""
    return tuple(natural(part) for part in text.split(","))


def port_number(text: str) -> int:
    """Parse a TCP port, 0 (any free one) to 65,535, for `argparse`."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port; give 0 to 65535")
    return int(text)


def option_help(options: Any, heading: str = "Attributes") -> dict[str, str]:
    """Return the help of each option: a section of the docstring of a dataclass or function."""
    section = (inspect.getdoc(options) or "").partition(f"{heading}:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+(?:, \w+)*): ((?:.|\n {8})*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print a JSON object: a line, or on a terminal a line for each key."""
    if not sys.stdout.isatty():
        print(json.dumps(summary))
        return
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in summary.items())
    print("{\n" + ",\n".join(lines) + "\n}")


def epilogue(page: str, *examples: str) -> str:
    """Return the end of a help: examples, and the guide that describes the command."""
    lines = [f"  {line}" for example in examples for line in _folded(example)]
    return "\n".join(["Examples:", *lines, "", f"Guide: {page}"])


def _folded(command: str) -> list[str]:
    """Return a command line as lines that a shell reads as one."""
    lines = textwrap.wrap(command, 72, break_long_words=False, break_on_hyphens=False)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help with the default of each option, as the other commands show it."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.required and action.option_strings:
            return f"{text} [required]"
        default = action.default
        hides = default is None or default is False or default in ("", [], (), argparse.SUPPRESS)
        return text if hides else f"{text} [default: %(default)s]"


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors that reports misspelt options first."""

    def __init__(self, *, default_command: str = "", **options: Any) -> None:
        """Make a parser.

        Args:
            default_command: subcommand of a line that names none.
            options: of `argparse.ArgumentParser`.
        """
        super().__init__(**{"formatter_class": HelpFormatter} | options)
        self.default_command = default_command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; an unknown option is reported before a missing one."""
        words = list(sys.argv[1:] if args is None else args)
        if self.default_command and (not words or words[0].startswith("-")):
            words.insert(0, self.default_command)
        takes_rest = any(action.nargs == argparse.REMAINDER for action in self._actions)
        if self._subparsers is None and not takes_rest:
            self._check_options(takewhile(lambda word: word != "--", words))
        return super().parse_known_args(words, namespace)

    def _check_options(self, words: Iterable[str]) -> None:
        known = self._option_string_actions
        for name in (word.partition("=")[0] for word in words if word.startswith("--")):
            if not any(option.startswith(name) for option in known):
                self.error(f"there is no option {name}{did_you_mean(name, known)}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help to stdout; argparse would ignore that a disk is full."""
        if file is sys.stdout:
            file.write(message)
            file.flush()
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Exit with one line and code 2."""
        self.exit(2, f"error: {bounded(message)} (`{self.prog} --help` lists all)\n")


def add_command(
    commands: Any, name: str, sentence: str, page: str, *examples: str, **options: Any
) -> Parser:
    """Add a subcommand with a description, examples and a guide; return its parser.

    Args:
        commands: result of `add_subparsers`.
        name: of the subcommand.
        sentence: what it does, without a full stop.
        page: the guide that describes it.
        examples: command lines.
        options: of `argparse.ArgumentParser`.
    """
    parser: Parser = commands.add_parser(
        name, help=sentence, description=f"{sentence}.", epilog=epilogue(page, *examples), **options
    )
    return parser


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command, and turn exceptions into one line on stderr and an exit code.

    Mistakes of the user exit with 2: a `UserError`, or a file that cannot be opened because it is
    missing, a folder or a link to itself. A full disk, a diverged run and other system failures
    exit with 1, an interrupt with 130. If the reader of a pipe closes it, as `head` does, the
    command exits silently with 1 (Python's signal module, "Note on SIGPIPE"). Other exceptions are
    defects and keep their traceback.
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
        return _complain(_system_message(error), 2 if error.errno in _USERS_MISTAKES else 1)
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
    """Make waiting OpenMP threads release their core early.

    In PyTorch's Linux builds they spin much longer than the work of a small model takes, which
    delays both programs if another one uses the core. Torch reads the variable at import, so it is
    set before; a value set by the user is kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


# Errors when opening a file that the user has named.
_USERS_MISTAKES = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTEMPTY, errno.ENXIO, errno.ENODEV, errno.EROFS,
}  # fmt: skip


def open_streams() -> None:
    """Set stdout and stderr to UTF-8 in any locale, and replace closed streams.

    Writing results to a closed stdout is an error; messages for a closed stderr are dropped.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # File names that are not valid in the locale are written as the original bytes.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _flushed(main: Callable[[], int | None]) -> int:
    """Run `main` and flush stdout; `--help` raises `SystemExit`."""
    try:
        code = main() or 0
    except SystemExit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _is_written(stream: TextIO) -> bool:
    """Flush a stream, and return whether that worked; if not, drop the buffered text."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):  # Python flushes again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True


def _complain(message: str, code: int) -> int:
    with suppress(OSError):
        say(f"error: {message}")
    _is_written(sys.stderr)
    return code


def _system_message(error: OSError) -> str:
    file = error.filename
    if not _is_written(sys.stdout):
        file = file or "standard output"
    reason = (error.strerror or str(error) or type(error).__name__).splitlines()[0]
    if file:
        return f"{file}: {reason.lower()}"
    return f"a file or standard output: {reason.lower()}; check its disk, or write elsewhere"
