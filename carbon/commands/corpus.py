"""`carbon corpus`: the commands of the corpus builder, which only a checkout has."""

from importlib import import_module
from importlib.util import find_spec

from carbon.errors import UserError


def corpus(*words: str) -> int:
    """Build, inspect and publish corpora; runs in a checkout.

    Commands: build, inspect, download, simulate, variants, mixture, publish; `carbon corpus --help`
    describes them.

    Args:
        words: a command and its options.
    """
    if not find_spec("data_pipeline"):
        raise UserError(
            "carbon corpus: this installation lacks the package data_pipeline; run it in a "
            "checkout, after `bash scripts/install` (docs/install.md)"
        )
    try:
        return int(import_module("data_pipeline.__main__").main(list(words)))
    except SystemExit as end:  # argparse ends with it after help and mistakes
        return int(end.code or 0)
