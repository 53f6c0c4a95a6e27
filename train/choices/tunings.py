"""What of a given model is trained."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """A way to go on from a model.

    Attributes:
        freezes: whether the weights of the model stay as they are, but for its last layers.
        adapts: whether every layer gets low-rank adapters.
    """

    freezes: bool = False
    adapts: bool = False


TUNINGS = {
    "whole": Tuning(),
    "lora": Tuning(freezes=True, adapts=True),
    "last": Tuning(freezes=True),
}
