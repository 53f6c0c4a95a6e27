"""What of a given model is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carbon.config import check

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer. Embedding and head are none of them: where they are tied, an adapter on
one would take the two apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """A way to go on from a model.

    Attributes:
        keys: of `[model]`, that belong to this way alone.
        check: raises ConfigError where their values cannot be.
        freezes: whether the weights of the model stay as they are, but for its last layers.
        adapts: whether every layer gets low-rank adapters.
    """

    keys: tuple[str, ...] = ()
    check: Callable[[Any], None] = lambda model: None
    freezes: bool = False
    adapts: bool = False


def _check_lora(model: Any) -> None:
    check(model.lora_rank >= 1, f"lora_rank = {model.lora_rank}: give 1 or more")
    check(model.lora_alpha > 0, f"lora_alpha = {model.lora_alpha}: give more than 0")
    targets = model.lora_targets
    check(bool(targets), "lora_targets = []: name one at least")
    check(len(set(targets)) == len(targets), f"lora_targets = {list(targets)}: names one twice")
    for target in targets:
        check(
            target in LINEARS,
            f"lora_targets: {target!r} is no matrix of a layer; give of {', '.join(LINEARS)}",
        )


def _check_last(model: Any) -> None:
    check(model.last_layers >= 1, f"last_layers = {model.last_layers}: give 1 or more")


TUNINGS = {
    "whole": Tuning(),
    "lora": Tuning(
        keys=("lora_rank", "lora_alpha", "lora_targets"),
        check=_check_lora,
        freezes=True,
        adapts=True,
    ),
    "last": Tuning(keys=("last_layers",), check=_check_last, freezes=True),
}
