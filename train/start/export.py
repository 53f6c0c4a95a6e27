"""Trained weights in the layout of the model that they began as, file by file."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from carbon.model.folder import TAGS_KEY, weight_files
from carbon.tokenizer import HYBRID, NATIVE
from train.start.model import Start

_DNA_SPECIALS = ("oov", "dna_start", "dna_end")  # padding is a row of text
_COPIED = (".json", ".jinja", ".txt", ".model", ".py")


def save_as_it_came(
    start: Start, weights: Mapping[str, Tensor], folder: Path, theta: float, tags: Sequence[str]
) -> None:
    """Write a model with the files, shards and dtypes of its start, and its rows of text.

    Args:
        start: what the run went on from.
        weights: fp32, by their stock names, in the native layout.
        folder: that is there and empty.
        theta: of RoPE, as the last stage has it.
        tags: of the corpus; a native model's config names them beside those it knew.
    """
    source, files = start.folder.path, weight_files(start.folder.path)
    for path in source.iterdir():
        if path.is_file() and (path.suffix in _COPIED or path.name == "LICENSE"):
            shutil.copyfile(path, folder / path.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    _name_theta(config, theta)
    if not start.is_hybrid:
        known = {*start.folder.vocabulary.tags, *tags}
        config[TAGS_KEY] = [tag for tag in NATIVE.tags if tag in known]
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    for path in files:
        tensors = {
            name: _in_layout(tensor, weights.get(name), name, weights)
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, folder / path.name, metadata={"format": "pt"})


def _in_layout(
    before: Tensor, trained: Tensor | None, name: str, weights: Mapping[str, Tensor]
) -> Tensor:
    """Return a tensor as it was, with what was trained of it."""
    if trained is None:  # a tied head that was written all the same, or what older files have
        if name != "lm_head.weight":
            return before
        trained = weights["model.embed_tokens.weight"]
    trained = trained.to(before.dtype)
    if before.shape == trained.shape:
        return trained.contiguous()
    rows = before.clone()
    for special in _DNA_SPECIALS:
        rows[getattr(HYBRID, special)] = trained[getattr(NATIVE, special)]
    rows[HYBRID.kmer_rows] = trained[NATIVE.kmer_rows]
    return rows


def _name_theta(config: dict[str, Any], theta: float) -> None:
    """Write a theta wherever a config has one: transformers 4 and 5 look in different places."""
    for key in ("rope_parameters", "rope_scaling"):
        if isinstance(config.get(key), dict) and "rope_theta" in config[key]:
            config[key]["rope_theta"] = theta
    if "rope_theta" in config or "rope_parameters" not in config:
        config["rope_theta"] = theta
