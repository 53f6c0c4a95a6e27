"""What network a run trains, and what of it."""

from dataclasses import dataclass, fields
from typing import Annotated

from carbon.config import OneOf, check, check_choices
from carbon.model.presets import PRESETS
from train.choices.kmer_rows import KMER_ROWS
from train.choices.tunings import LINEARS, TUNINGS


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The network: one with random weights, or a model to go on from."""

    preset: Annotated[str, OneOf(PRESETS, or_empty=True)] = ""
    """A size of `carbon.model.presets`; not needed beside `start`, which has its own."""
    kmer_rows: Annotated[str, OneOf(KMER_ROWS)] = "independent"
    """How rows of 6-mers begin: each at random, as published, or as the sum of vectors of their six
    bases, with which a small model learns sooner (docs/lab-book.md, 2026-11-24)."""
    start: str = ""
    """Folder of a model to go on from, native or of the released layout; random weights if empty.
    What it is (sizes, vocabulary, tags, RoPE theta) holds for the run."""
    tune: Annotated[str, OneOf(TUNINGS)] = "whole"
    """What of `start` is trained: all of it, low-rank adapters, or its last layers."""
    lora_rank: int = 16
    """Of an adapter's two matrices."""
    lora_alpha: float = 32.0
    """What an adapter adds is multiplied by `lora_alpha / lora_rank`."""
    lora_targets: tuple[str, ...] = LINEARS
    """Matrices of every layer that get an adapter."""
    last_layers: int = 0
    """How many layers, from the end, are trained, and the final norm with them."""

    def __post_init__(self) -> None:
        check_choices(self)
        check(
            bool(self.preset or self.start),
            f"'preset' is missing: give one of {', '.join(PRESETS)}, or start, a model's folder",
        )
        check(
            bool(self.start) or self.tune == "whole",
            f"tune = {self.tune!r}: needs start, the folder of a model to go on from",
        )
        check(
            not self.start or self.kmer_rows == "independent",
            f"kmer_rows = {self.kmer_rows!r}: rows are those of start = {self.start!r}; leave one "
            "of the two out",
        )
        self._check_keys_of_tuning()
        TUNINGS[self.tune].check(self)

    def _check_keys_of_tuning(self) -> None:
        for field in fields(self):
            owners = [name for name, each in TUNINGS.items() if field.name in each.keys]
            value = getattr(self, field.name)
            check(
                not owners or self.tune in owners or value == field.default,
                f"{field.name} = {value!r}: only tune = {' or '.join(map(repr, owners))} has that",
            )
