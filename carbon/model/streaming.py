"""Weights one at a time: a mapping that keeps none, and a safetensors file written as they come.

The libraries that write safetensors want all tensors of a file at once, which for a network is the
memory of all its weights.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

# In the order in which the library writes them: those of the widest alignment first.
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


class Kind(NamedTuple):
    """What a tensor is before it is there."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of its values."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class OnDemand(Mapping[str, Tensor]):
    """Tensors by name, each read when it is asked for; none is kept."""

    def __init__(self, names: Collection[str], read: Callable[[str], Tensor]) -> None:
        """Take the names in their order, and what reads one of them."""
        self._names = dict.fromkeys(names)
        self._read = read

    def __getitem__(self, name: str) -> Tensor:
        """Read one; KeyError if there is none of that name."""
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is one of a name, without reading it."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._names)


def kinds_of_file(path: Path) -> dict[str, Kind]:
    """Return what tensors a safetensors file holds.

    Raises:
        KeyError: one is of a dtype that no weight, and nothing beside weights, has.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {n: Kind(_DTYPES[f.get_dtype()], tuple(f.get_shape())) for n, f in found.items()}


def write_streamed(path: Path, kinds: Mapping[str, Kind], tensors: Mapping[str, Tensor]) -> None:
    """Write the bytes that `safetensors.torch.save_file` does, holding one tensor at a time.

    The format is that of https://github.com/huggingface/safetensors: the length of a header, the
    header in JSON, the values.

    Args:
        path: of the file.
        kinds: of the tensors that it is to hold.
        tensors: where each is asked for once.

    Raises:
        ValueError: a tensor is not of its kind.
    """
    of_dtype = {dtype: name for name, dtype in _DTYPES.items()}
    order = list(of_dtype)
    names = sorted(kinds, key=lambda name: (order.index(kinds[name].dtype), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        kind, start = kinds[name], end
        end = start + kind.num_bytes
        header[name] = {
            "dtype": of_dtype[kind.dtype],
            "shape": kind.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = tensors[name]
            if (tensor.dtype, tuple(tensor.shape)) != kinds[name]:
                raise ValueError(f"{name}: {tensor.dtype} {tuple(tensor.shape)}, not {kinds[name]}")
            values = tensor.contiguous().flatten().view(torch.uint8)
            file.write(values.numpy().data)
            del tensor, values
