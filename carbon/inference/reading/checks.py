"""What a model can be asked for: layers, frames and windows that it has room for."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from carbon.arguments import check_several
from carbon.errors import ModelError, UserError
from carbon.tokenizer import K

EVERY_FRAME = tuple(range(K))


class NotFinite(ModelError):
    """What a model says of an input is no finite number.

    Attributes:
        number: of the input among those given, from 1; None where there is but one.
    """

    def __init__(self, where: str, number: int | None = None) -> None:
        """Name the input."""
        super().__init__(
            f"{where}: what the model says of it is not finite; are its weights damaged, or too "
            "large for this dtype?"
        )
        self.number = number


def check_finite(values: Any, where: str, number: int | None = None) -> None:
    """Raise NotFinite unless a number, or all of an array's, are finite."""
    if not np.isfinite(values).all():
        raise NotFinite(where, number)


def check_layer(network: Any, layer: int) -> None:
    """Raise UserError unless the network has so many layers."""
    num_layers = len(network.model.layers)
    if not 0 <= layer <= num_layers:
        raise UserError(f"layer {layer}: the model has {num_layers}; give 0 to {num_layers}")


def checked_frames(frames: Iterable[int]) -> tuple[int, ...]:
    """Return frames once each and in order; raise UserError unless they are some of 0 to 5."""
    check_several("frames", frames, "(0, 3)")
    found = tuple(sorted(set(frames)))
    if not found or not set(found) <= set(EVERY_FRAME):
        given = ", ".join(map(str, found)) or "none"
        raise UserError(f"frames {given}: give some of 0 to {K - 1}")
    return found


def check_window(window_bp: int, most_bp: int) -> None:
    """Raise UserError unless a window has two 6-mers at least and the model holds it."""
    if not 2 * K <= window_bp <= most_bp:
        raise UserError(
            f"a window of {window_bp} bp does not fit: give {2 * K} to {most_bp} bp for this model"
        )
