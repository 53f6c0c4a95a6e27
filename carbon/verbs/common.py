"""Arguments that verbs share."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carbon.inference import Carbon

Verbs = Any  # what `add_subparsers` returns; its class is private


def add_model(verb: argparse.ArgumentParser) -> None:
    """Add what every verb with a model takes."""
    verb.add_argument("--model", required=True, help="model folder, or a name on the Hub")
    verb.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto (default)")
    verb.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
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


def frames(text: str) -> tuple[int, ...]:
    """Read frames such as `0,2,4` or `all`, for `argparse`."""
    if text == "all":
        return (0, 1, 2, 3, 4, 5)
    if not all(part in "012345" and len(part) == 1 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of frames such as 0,2,4 or all")
    return tuple(int(part) for part in text.split(","))
