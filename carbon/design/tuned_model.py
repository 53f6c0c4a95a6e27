"""A tuned model as its start was: the same files, but for the weights that had adapters."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from carbon.model.folder import weight_files
from carbon.model.save import OnDemand, tensor_types, write_streamed

# What is told of the start beside these, as its results, is not told of another model.
_COPIED = (
    "config.json",
    "generation_config.json",
    "*tokenizer*",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "dna_config.json",
    "*.safetensors.index.json",
    "*.py",
    "LICENSE",
)


def save_as_start(start: Path, tuned: Mapping[str, Tensor], folder: Path) -> None:
    """Write a model folder with the files, shards and dtypes of another.

    Args:
        start: folder of the model that was tuned.
        tuned: merged weights that differ, by their stock names; all others are the start's.
        folder: that is there and empty.
    """
    for pattern in _COPIED:
        for path in start.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    for path in weight_files(start):
        _save_file(path, tuned, folder / path.name)


def _save_file(path: Path, tuned: Mapping[str, Tensor], output: Path) -> None:
    kinds = tensor_types(path)

    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            before: Tensor = file.get_tensor(name)
        return tuned[name].to("cpu", before.dtype).contiguous() if name in tuned else before

    write_streamed(output, kinds, OnDemand(kinds, read))
