"""The `carbon` command line: each command is a function in `carbon.commands`, imported on use."""

import inspect
import re
import sys
from collections.abc import Callable
from itertools import takewhile, zip_longest
from typing import Any

from cyclopts import (
    App,
    Argument,
    ArgumentCollection,
    ConsumeMultipleError,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    UnusedCliTokensError,
    ValidationError,
)

from carbon.__version__ import __version__
from carbon.commands.packages import PACKAGES, run_package
from carbon.console import epilogue, run_command
from carbon.errors import UserError, did_you_mean
from carbon.launcher import end_with_launcher
from carbon.parallel.options import WorkerOptions, start_early

COMMAND_GROUPS = {
    "Models and installation": {
        "models": "models:models",
        "info": "models:info",
        "convert": "convert:convert",
        "doctor": "doctor:doctor",
        "completion": "completion:completion",
    },
    "Variants": {
        "variants": "variants:variants",
        "background": "background:background",
        "compare": "compare:compare",
        "join": "compare:join",
    },
    "Sequences": {
        "score": "score:score",
        "embed": "embed:embed",
        "scan": "scan:scan",
        "dependency": "dependency:dependency",
        "tokenize": "tokenize:tokenize",
    },
    "Generation": {
        "generate": "generate:generate",
        "next": "next_token:next_token",
        "design": "design:design",
        "rl": "rl:rl",
    },
    "Labels": {
        "finetune": "finetune:finetune",
        "predict": "finetune:predict",
    },
    "Training": {
        "corpus": "packages:corpus",
        "train": "packages:train",
        "eval": "packages:evaluate",
    },
    "Servers": {
        "serve": "serve:serve",
        "demo": "packages:demo",
    },
}
"""The commands in the order of the help: their module of `carbon.commands`, and function."""

COMMANDS = {name: place for places in COMMAND_GROUPS.values() for name, place in places.items()}

_HELP = {"--help", "-h", "--version"}
_OPTIONS = ("--help", "--version")
_WHOLE = (int, int | None)
_FLATTENED = "*"  # name of a parameter whose fields are options


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 for a mistake of the user."""
    end_with_launcher()
    words = sys.argv[1:] if argv is None else argv

    def run() -> int | None:
        if words and words[0] in PACKAGES:  # they have parsers of their own
            return run_package(words[0], tuple(words[1:]))
        command, bound = parse(words)
        for value in bound.arguments.values():
            if isinstance(value, WorkerOptions):
                start_early(value)
        return command(*bound.args, **bound.kwargs)  # type: ignore[no-any-return]

    return run_command(run)


def application(imports_all: bool = False) -> App:
    """Return the application with all commands.

    Args:
        imports_all: import all commands, whose docstrings `carbon --help` lists; otherwise each is
            imported when it runs.
    """
    from carbon.commands.examples import GUIDES
    from carbon.commands.help import HelpFormatter
    from carbon.commands.shared import option_name

    app = App(
        name="carbon",
        help="Generative DNA language models, on any machine.",
        help_epilogue=epilogue("README.md", "carbon models --copy yeast", "carbon doctor"),
        version=_version,
        help_format="plaintext",
        help_formatter=HelpFormatter(),
        default_parameter=Parameter(
            name_transform=option_name,
            negative=(),
            allow_repeating=True,  # the last value counts, so scripts can append to defaults
            show_default=_shown_default,
        ),
    )
    app["--help"].group = app["--version"].group = Group("Options", sort_key=len(COMMAND_GROUPS))
    for rank, (title, places) in enumerate(COMMAND_GROUPS.items()):
        group = Group(title, sort_key=rank)
        for order, (name, place) in enumerate(places.items()):
            guide = GUIDES.get(name)
            app.command(
                f"carbon.commands.{place}",
                name=name,
                group=group,
                sort_key=order,
                help_epilogue=guide and epilogue(guide.page, *guide.examples),
            )
            if imports_all:
                _ = app[name]
    return app


def _shown_default(value: Any) -> str | None:
    if value is None or value is False or value in ("", ()):
        return None
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse(words: list[str]) -> tuple[Callable[..., Any], inspect.BoundArguments]:
    """Return the function of a command line, without calling it, and its arguments.

    Raises:
        UserError: a word is invalid.
    """
    name = words[0] if words else ""
    app = application(imports_all=name in _HELP)
    prefix = f"carbon {name}" if name in COMMANDS else "carbon"
    try:
        if not _HELP.intersection(words):
            _check_words(app, words)
        command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise UserError(f"{_message(app, error, words)} (`{prefix} --help` lists all)") from None
    return command, bound


def _check_words(app: App, words: list[str]) -> None:
    """Check for unknown options and fractional numbers, which cyclopts reports late or accepts.

    Raises:
        CycloptsError: a word is invalid.
    """
    if not words:
        raise CycloptsError("give a command")
    first, *rest = words
    if first not in COMMANDS:
        kind, known = ("option", _OPTIONS) if first.startswith("-") else ("command", COMMANDS)
        raise CycloptsError(f"there is no {kind} {first}{did_you_mean(first, known)}")
    hints = {name: argument.hint for argument in _arguments(app, first) for name in argument.names}
    options = list(takewhile(lambda word: word != "--", rest))
    for word, following in zip_longest(options, options[1:], fillvalue=""):
        name, is_whole, value = word.partition("=")
        if name.startswith("--") and name not in hints:
            raise CycloptsError(f"there is no option {name}{did_you_mean(name, hints)}")
        number = value if is_whole else following
        if hints.get(name) in _WHOLE and number and not re.fullmatch(r"[+-]?\d+", number):
            raise CycloptsError(f"{name} '{number}': give a whole number")


def _arguments(app: App, command: str) -> ArgumentCollection:
    return app[command].assemble_argument_collection(default_parameter=app.default_parameter)


def _message(app: App, error: CycloptsError, words: list[str]) -> str:
    """Return a one-line message for an error of cyclopts."""
    has_too_many = isinstance(error, ConsumeMultipleError) and error.actual_count
    if isinstance(error, MissingArgumentError) and error.argument and not has_too_many:
        return _missing(_arguments(app, words[0]), error.argument, words)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"'{error.unused_tokens[0]}' is not expected"
    if isinstance(error, ValidationError) and error.group:
        return error.exception_message
    error.verbose = False
    text = " ".join(str(error).split()).rstrip(".").replace("Invalid value for", "argument", 1)
    return text[:1].lower() + text[1:]


def _missing(arguments: ArgumentCollection, missing: Argument, words: list[str]) -> str:
    """Return a message with all missing required arguments, or the option without a value."""
    names_given = {word.partition("=")[0] for word in words}
    if name := next((name for name in missing.names if name in names_given), None):
        num_values = missing.token_count()[0]
        return f"{name}: give {num_values if num_values > 1 else 'a'} value{'s'[: num_values > 1]}"
    required = [
        each.name
        for each in arguments
        if each.required
        and not names_given.intersection(each.names)
        and (each.name.startswith("-") or each.name == missing.name != _FLATTENED)
    ]
    return f"required: {', '.join(required)}"


def _version() -> str:
    """Return versions and device; called only for `--version`, because it imports torch."""
    import torch

    from carbon.devices import default_device

    device = default_device()
    name = torch.cuda.get_device_name(0) if device == "cuda" else device
    return f"carbon {__version__}, torch {torch.__version__}, {name}"


if __name__ == "__main__":
    raise SystemExit(main())
