"""Save a model folder in safetensors, from a network or one weight at a time.

`safetensors` and torch's `HuggingFaceStorageWriter` need all tensors of a file in memory. To write
512 MiB, torch's writer needs 1,521 MiB, `write_streamed` 18 MiB. torch's writer also names its
shards in the header, which changes the bytes.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from carbon.model.folder import TAGS_KEY
from carbon.tokenizer import NATIVE, save_stock_tokenizer

# In the library's order: widest alignment first.
_DTYPES = {
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide the progress bars of transformers on stderr, where Carbon prints its own."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


class TensorType(NamedTuple):
    """Dtype and shape of a tensor that has not been read."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size of the values in bytes."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class OnDemand(Mapping[str, Tensor]):
    """Tensors by name, each read on every access."""

    def __init__(self, names: Collection[str], read: Callable[[str], Tensor]) -> None:
        """Take the names in order, and a function that reads one of them."""
        self._names = dict.fromkeys(names)
        self._read = read

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor; KeyError for an unknown name."""
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        """Return whether a name is known, without reading the tensor."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._names)


def tensor_types(path: Path) -> dict[str, TensorType]:
    """Return dtype and shape of each tensor in a safetensors file.

    Raises:
        KeyError: a tensor has a dtype that neither weights nor buffers have.
    """
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:  # PyTorch maps the whole file into memory
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {
            n: TensorType(_DTYPES[f.get_dtype()], tuple(f.get_shape())) for n, f in slices.items()
        }


def write_streamed(
    path: Path, types: Mapping[str, TensorType], tensors: Mapping[str, Tensor]
) -> None:
    """Write the bytes of `safetensors.torch.save_file`, holding one tensor at a time.

    The format (https://github.com/huggingface/safetensors) is the length of a header, the header in
    JSON, and the values.

    Args:
        path: file to write.
        types: of the tensors to write.
        tensors: source of the tensors; each is read once.

    Raises:
        ValueError: a tensor does not have its type.
    """
    of_dtype = {dtype: name for name, dtype in _DTYPES.items()}
    order = list(of_dtype)
    names = sorted(types, key=lambda name: (order.index(types[name].dtype), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        of_name, start = types[name], end
        end = start + of_name.num_bytes
        header[name] = {
            "dtype": of_dtype[of_name.dtype],
            "shape": of_name.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = tensors[name]
            if (tensor.dtype, tuple(tensor.shape)) != types[name]:
                raise ValueError(f"{name}: {tensor.dtype} {tuple(tensor.shape)}, not {types[name]}")
            values = tensor.contiguous().flatten().view(torch.uint8)
            file.write(values.numpy().data)
            del tensor, values


def name_tags(config: PreTrainedConfig, tags: Iterable[str]) -> None:
    """Name the metadata tags that a native model was trained with in its config.

    Stock transformers keeps the entry when it saves the model.
    """
    config.update({TAGS_KEY: list(tags)})


def save_model(
    network: PreTrainedModel, folder: str | Path, *, max_shard_size: str = "50GB"
) -> None:
    """Write a native model as a stock folder: config, safetensors, tokenizer.

    `generation_config.json` suppresses the tokens that are not 6-mers, which no objective trains.
    `config.json` also names RoPE as transformers 4 does, and the tags of `name_tags`.

    Args:
        network: with the rows of the native vocabulary.
        folder: created if it does not exist.
        max_shard_size: largest size of a file of weights, such as `5GB`.

    Raises:
        OSError: the disk is full, or cannot be written to for another reason.
    """
    with _errors_of_the_system(folder):
        with no_bars():
            network.save_pretrained(folder, max_shard_size=max_shard_size)
        _complete(Path(folder))


def save_weights(config: PreTrainedConfig, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write the files of `save_model` with one file of weights, holding one weight at a time.

    Args:
        config: of the native model.
        weights: fp32, by their stock names; of tied weights only the embedding.
        folder: an existing folder.

    Raises:
        OSError: the disk is full, or cannot be written to for another reason.
    """
    with torch.device("meta"):
        network: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    types = {
        name: TensorType(torch.float32, tuple(weight.shape))
        for name, weight in network.named_parameters()
    }
    config.architectures, config.dtype = [type(network).__name__], "float32"
    with _errors_of_the_system(folder):
        config.save_pretrained(folder)
        write_streamed(folder / "model.safetensors", types, weights)
        _complete(folder)


def _complete(folder: Path) -> None:
    """Write the files of a native model folder other than its configuration and weights."""
    _add_older_rope_keys(folder / "config.json")
    generation = GenerationConfig(  # type: ignore[no-untyped-call]
        pad_token_id=NATIVE.pad, suppress_tokens=list(range(NATIVE.first_kmer))
    )
    generation.save_pretrained(folder)
    save_stock_tokenizer(folder)


@contextmanager
def _errors_of_the_system(folder: str | Path) -> Iterator[None]:
    """Raise OSError for errors of safetensors and tokenizers whose text names a system error."""
    try:
        yield
    except Exception as error:
        if not (match := re.search(r"\(os error (\d+)\)", str(error))):
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), str(folder)) from None


def _add_older_rope_keys(config_path: Path) -> None:
    """Write `rope_theta` and `rope_scaling` next to `rope_parameters`.

    transformers 4, which serving stacks may use, reads only these, and assumes a theta of 10,000
    where they are missing.
    """
    config = json.loads(config_path.read_text(encoding="utf-8"))
    scaling = dict(config["rope_parameters"])
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
