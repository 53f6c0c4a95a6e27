"""The `carbon` command: every verb is a module of `carbon.verbs`."""

import argparse
import sys

from carbon.__version__ import __version__
from carbon.console import Parser, run_command
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
    models,
    next_token,
    predict,
    scan,
    score,
    serve,
    tokenize,
    variants,
)

VERBS = (
    tokenize,
    score,
    variants,
    compare,
    background,
    scan,
    next_token,
    generate,
    design,
    embed,
    adapt,
    predict,
    serve,
    convert,
    info,
    models,
    doctor,
)


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return its exit code: 0 done, 1 failed, 2 the user's mistake."""

    def run() -> int | None:
        arguments = _parser().parse_args(argv)
        arguments.command = ["carbon", *(sys.argv[1:] if argv is None else argv)]
        return arguments.run(arguments)  # type: ignore[no-any-return]

    return run_command(run)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="carbon", description="Generative DNA language models, on any machine.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
