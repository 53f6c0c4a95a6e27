"""Check that a model folder's head and its `tie_word_embeddings` agree (docs/decisions/0015)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import ModelError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_CHUNK_BYTES = 1 << 24


class _Stored(NamedTuple):
    """A tensor of a safetensors file: dtype, shape and bytes, mapped from the disk."""

    dtype: str
    shape: Sequence[int]
    values: NDArray[np.uint8]


def check_tying(folder: Path, config: Mapping[str, Any], files: Sequence[Path]) -> None:
    """Refuse a folder whose config ties the head to the embedding, while its weights have another.

    Libraries disagree on what such a folder is: transformers 5 reads the head that is stored,
    transformers 4 and vLLM the embedding.

    Args:
        folder: of the model.
        config: what `read_config` returns.
        files: of its weights, whole.

    Raises:
        ModelError: a tied head differs from the embedding.
    """
    if not config["tie_word_embeddings"]:
        return
    head, embedding = _stored(files, HEAD), _stored(files, EMBEDDING)
    if head is None or embedding is None or _are_equal(head, embedding):
        return
    raise ModelError(
        f"{folder}: config.json has tie_word_embeddings true, but {HEAD} differs from {EMBEDDING}; "
        "set it to false if the head was trained apart, or remove the head from the weights"
    )


def _stored(files: Sequence[Path], name: str) -> _Stored | None:
    for path in files:
        with path.open("rb") as file:
            num_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(num_bytes))
        if name in header:
            dtype, shape = header[name]["dtype"], header[name]["shape"]
            begin, end = header[name]["data_offsets"]
            values = np.memmap(path, np.uint8, "r", 8 + num_bytes + begin, (end - begin,))
            return _Stored(dtype, shape, values)
    return None


def _are_equal(one: _Stored, other: _Stored) -> bool:
    """Compare a piece at a time: heads of large models take gigabytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(
        np.array_equal(one.values[i : i + _CHUNK_BYTES], other.values[i : i + _CHUNK_BYTES])
        for i in range(0, len(one.values), _CHUNK_BYTES)
    )
