"""The starting checkpoint of a run: checked against the recipe, in the native layout.

A hybrid is trained as its DNA rows: 4,224 of 155,776. Its tags are text, so the byte pairs that
spell them use reserved rows during training, and no row of text changes.
"""

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.errors import ConfigError, ModelError, UserError
from carbon.io.config import check
from carbon.io.files import sha256_of_file
from carbon.model.folder import (
    ModelFolder,
    carbon_folder,
    check_memory,
    read_config,
    tensor_shapes,
    weight_files,
)
from carbon.model.presets import PRESETS
from carbon.pretrained import local_folder
from carbon.tokenizer import GENE_TAGS, HYBRID, NATIVE, SPECIES_TAGS
from train.config import TrainConfig

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig

Prefix = tuple[int, ...]
_FIRST_SLOT = NATIVE.dna_end + 1
_ENDS = ("model.embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True, eq=False)
class Start:
    """A starting checkpoint.

    Attributes:
        folder: its files, checked for consistency.
    """

    folder: ModelFolder

    @property
    def is_hybrid(self) -> bool:
        """Whether it has rows of text."""
        return self.folder.six_mers.name == HYBRID.name

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its configuration and weights."""
        files = [self.folder.path / "config.json", *weight_files(self.folder.path)]
        lines = [f"{file.name} {sha256_of_file(file)}\n" for file in files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @cached_property
    def prefixes(self) -> Mapping[Prefix, Prefix]:
        """Prefixes of segments, from native ids to the run's, where they differ."""
        if not self.is_hybrid:
            return {}
        ids, slot_of = self._text_ids(), {text: slot for slot, text in self.slots.items()}
        return {
            tuple(NATIVE.prefix(tags)): (*(slot_of[i] for i in text), NATIVE.begin)
            for tags, text in ids.items()
        }

    @cached_property
    def slots(self) -> Mapping[int, int]:
        """Reserved rows that hold rows of text, with the ids of the text."""
        found = sorted({i for ids in self._text_ids().values() for i in ids})
        slots = range(_FIRST_SLOT, NATIVE.first_kmer)
        assert len(found) <= len(slots), "tags are spelt with less than 124 byte pairs"
        return dict(zip(slots, found, strict=False))

    def _text_ids(self) -> dict[tuple[str, ...], list[int]]:
        """Return the ids of each combination of tags; none of one that the model does not know."""
        if not self.is_hybrid:
            return {}
        known = self.folder.six_mers
        pairs = itertools.product(("", *SPECIES_TAGS), ("", *GENE_TAGS))
        return {
            tags: known.tag_ids(tuple(tag for tag in tags if tag in known.tags))
            for pair in pairs
            if (tags := tuple(tag for tag in pair if tag))
        }

    def frozen_rows(self, tags: tuple[str, ...]) -> list[int]:
        """Return frozen rows below the 6-mers: rows that no tag of the corpus uses."""
        trained = {NATIVE.begin, NATIVE.other}
        if not self.is_hybrid:
            trained |= set(NATIVE.tag_ids(tags))
        return [row for row in range(NATIVE.first_kmer) if row not in trained]

    def check_memory(self, num_processes: int) -> None:
        """Refuse weights of which the share of one process exceeds the machine's memory."""
        share_bytes = 4 * self.folder.num_parameters // num_processes
        check_memory(share_bytes, f"model.start: {self.folder.path}")

    def weight(self, name: str) -> "Tensor":
        """Return a weight by its stock name, fp32, embedding and head in the native layout.

        Raises:
            ModelError: a number of it is not finite.
        """
        from safetensors import safe_open

        from carbon.model.convert import native_rows
        from carbon.model.load import check_finite

        with safe_open(self._file_of[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        check_finite(tensor, name, f"model.start: {self.folder.path}")
        if name in _ENDS and self.is_hybrid:
            rows = native_rows(tensor, HYBRID)
            rows[list(self.slots)] = tensor[list(self.slots.values())]
            tensor = rows
        return tensor.float()

    @cached_property
    def _file_of(self) -> dict[str, Path]:
        files = weight_files(self.folder.path)
        return {name: file for file in files for name in tensor_shapes(file)}


def open_start(config: TrainConfig) -> Start | None:
    """Return the starting checkpoint of a run; None for random weights.

    Raises:
        UserError: the folder is missing, not a Carbon model, or does not fit the recipe.
    """
    if not config.model.start:
        return None
    _folder_of(config.model.start)
    start = Start(carbon_folder(config.model.start))
    _check_fit(config, start.folder.config)
    if TUNINGS[config.model.tune].adapts and find_spec("peft") is None:
        raise UserError("model.tune = 'lora': needs peft; pip install 'carbon-dna[finetune]'")
    return start


def start_config(source: str) -> "PreTrainedConfig":
    """Return the configuration of a starting checkpoint, with the native vocabulary's rows.

    Raises:
        ModelError: the folder is missing or has no model.
    """
    from transformers import AutoConfig

    from carbon.model.convert import native_ids

    folder = _folder_of(source)
    read_config(folder)
    stock = AutoConfig.from_pretrained(str(folder)).to_dict()
    stock |= native_ids()
    # The trainer draws nothing at random while it runs, and keeps weights in fp32.
    stock |= {"attention_dropout": 0.0, "dtype": "float32"}
    return AutoConfig.for_model(**stock)


def filled_in(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a recipe's table, completed with the starting checkpoint's RoPE theta."""
    model, phases = table.get("model"), table.get("phases")
    source = model.get("start") if isinstance(model, Mapping) else None
    if not isinstance(source, str) or not source or not isinstance(phases, list):
        return table
    rope: Any = start_config(source).rope_parameters
    theta = {"rope_theta": float(rope["rope_theta"])}
    filled = [{**theta, **each} if isinstance(each, Mapping) else each for each in phases]
    return {**table, "phases": filled}


def _folder_of(source: str) -> Path:
    folder = local_folder(source)
    if folder is None:
        raise ModelError(f"model.start: {source}: no such folder; give that of a model")
    return folder


def _check_fit(config: TrainConfig, found: Mapping[str, Any]) -> None:
    model = config.model
    if model.preset:
        wanted = PRESETS[model.preset]
        for field in fields(wanted):
            value, there = getattr(wanted, field.name), found.get(field.name, False)
            check(
                value == there,
                f"model.preset = {model.preset!r} has {field.name} {value}, and {model.start} "
                f"{there}; leave preset out",
            )
    longest, positions = config.longest_context_tokens, found["max_position_embeddings"]
    check(
        longest <= positions,
        f"context_tokens = {longest}: {model.start} has {positions} positions; give no more",
    )
    layers = found["num_hidden_layers"]
    if model.last_layers > layers:
        raise ConfigError(
            f"model.last_layers = {model.last_layers}: {model.start} has {layers} layers"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """A way to train from a starting checkpoint.

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
