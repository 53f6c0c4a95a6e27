"""Arguments that verbs share."""

import argparse
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from carbon.options import Dtype

if TYPE_CHECKING:
    from carbon.inference import Carbon

T = TypeVar("T")
Verbs = Any  # what `add_subparsers` returns; its class is private

NOT_GIVEN: Any = argparse.SUPPRESS
"""The default of an option that has its default where it is used: see `options_of`."""


def add_model(verb: argparse.ArgumentParser) -> None:
    """Add what every verb with a model takes."""
    verb.add_argument("--model", required=True, help="model folder, or a name on the Hub")
    verb.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto (default)")
    verb.add_argument("--dtype", choices=get_args(Dtype), default="float32")
    verb.add_argument(
        "--attention", default="auto", help="sdpa, flash_attention_2, or auto (default)"
    )
    verb.add_argument(
        "--yarn", type=float, metavar="FACTOR", help="stretch the context so many times"
    )
    verb.add_argument("--tag", action="append", default=[], dest="tags", help="metadata tag")


def load(arguments: argparse.Namespace) -> "Carbon":
    """Load the model that the arguments name."""
    from carbon.inference import load

    return load(
        arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        attention=arguments.attention,
        yarn=arguments.yarn,
    )


def options_of(arguments: argparse.Namespace, kind: type[T]) -> T:
    """Return the options of a kind, such as `ScanOptions`, that the command line gives.

    An argument that is one of them has its name as `dest`, and `NOT_GIVEN` for its default.
    """
    names = kind.__annotations__
    return kind(**{name: value for name, value in vars(arguments).items() if name in names})


def frames(text: str) -> tuple[int, ...]:
    """Read frames such as `0,2,4` or `all`, for `argparse`."""
    if text == "all":
        return (0, 1, 2, 3, 4, 5)
    if not all(part in "012345" and len(part) == 1 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of frames such as 0,2,4 or all")
    return tuple(int(part) for part in text.split(","))
