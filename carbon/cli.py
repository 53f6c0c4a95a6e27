"""The `carbon` command: every verb is a module of `carbon.verbs`."""

import argparse
import sys
from typing import Any

from carbon.__version__ import __version__
from carbon.console import Parser, run_command
from carbon.errors import UserError
from carbon.launcher import end_with_launcher
from carbon.parallel.options import start_early
from carbon.verbs import (
    adapt,
    background,
    compare,
    convert,
    design,
    doctor,
    embed,
    generate,
    info,
    join,
    models,
    next_token,
    predict,
    scan,
    score,
    serve,
    tokenize,
    tune,
    variants,
)

VERBS = (
    tokenize,
    score,
    variants,
    compare,
    join,
    background,
    scan,
    next_token,
    generate,
    design,
    tune,
    embed,
    adapt,
    predict,
    serve,
    convert,
    info,
    models,
    doctor,
)

ROOMS = ("data_pipeline", "train", "eval", "demo")
"""Folders of a checkout with commands of their own; the wheel does not have them."""


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return its exit code: 0 done, 1 failed, 2 the user's mistake."""
    end_with_launcher()
    words = sys.argv[1:] if argv is None else argv

    def run() -> int | None:
        if words and words[0] in ROOMS:
            raise UserError(
                f"carbon {words[0]}: is no verb; in a checkout it is `python -m {words[0]}`, and "
                "an installed wheel does not have it (docs/install.md)"
            )
        arguments = _parser().parse_args(words)
        start_early(arguments)
        return arguments.run(arguments)  # type: ignore[no-any-return]

    return run_command(run)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="carbon", description="Generative DNA language models, on any machine.")
    parser.add_argument(
        "--version", action=_Version, help="print the versions of Carbon and torch, and the device"
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


class _Version(argparse.Action):
    """Prints versions and device; torch is imported when that is asked for, and not before."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import torch

        from carbon.devices import default_device

        device = default_device()
        name = torch.cuda.get_device_name(0) if device == "cuda" else device
        print(f"carbon {__version__}, torch {torch.__version__}, {name}")
        parser.exit()


if __name__ == "__main__":
    raise SystemExit(main())
