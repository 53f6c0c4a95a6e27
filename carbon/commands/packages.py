"""`carbon corpus`, `train`, `eval` and `demo`: programs of packages that only a checkout has."""

from importlib import import_module
from importlib.util import find_spec

from carbon.errors import UserError

PACKAGES = {"corpus": "data_pipeline", "train": "train", "eval": "eval", "demo": "demo"}
"""Package of each command, found by name; `carbon` does not import them."""


def corpus(*words: str) -> int:
    """Build, inspect and publish corpora; runs in a checkout.

    Commands: build, inspect, download, simulate, variants, mixture, publish; `carbon corpus --help`
    describes them.

    Args:
        words: a command and its options.
    """
    return run_package("corpus", words)


def train(*words: str) -> int:
    """Train a model from a recipe; runs in a checkout.

    Commands: run, preview, export, summary; `carbon train --help` describes them. With several
    processes it is `torchrun -m train`.

    Args:
        words: a command and its options.
    """
    return run_package("train", words)


def evaluate(*words: str) -> int:
    """Evaluate models on tasks; runs in a checkout.

    Commands: run, report, list, build; `carbon eval --help` describes them.

    Args:
        words: a command and its options.
    """
    return run_package("eval", words)


def demo(*words: str) -> int:
    """Open the demo in a browser; runs in a checkout.

    Args:
        words: options; `carbon demo --help` describes them.
    """
    return run_package("demo", words)


def run_package(command: str, words: tuple[str, ...]) -> int:
    """Run a package's program with its own parser, and return its exit code.

    Raises:
        UserError: this installation lacks the package.
    """
    package = PACKAGES[command]
    if not find_spec(package):
        raise UserError(
            f"carbon {command}: this installation lacks the package {package}; run it in a "
            "checkout, after `bash scripts/install` (docs/install.md)"
        )
    try:
        return int(import_module(f"{package}.__main__").main(list(words)))
    except SystemExit as end:  # argparse ends with it after help and mistakes
        return int(end.code or 0)
