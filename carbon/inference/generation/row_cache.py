"""Keys and values of rows of many lengths, in memory that is taken once and stays where it is."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from carbon.inference.reading.reader import Reader

BLOCK = 512  # places that torch's attention on a CPU takes at a time; also tokens of one pass
_FEW = 128  # places of short rows; in a whole block the first so many are summed up alike


class RowCache(DynamicCache):
    """Keys and values of rows, (rows, heads, places, width) a layer, every token at its place."""

    def __init__(self, reader: Reader, num_rows: int, most_places: int) -> None:
        """Take memory for so many places of each row."""
        super().__init__()
        config, weight = reader.network.config, reader.network.lm_head.weight
        shape = (num_rows, config.num_key_value_heads, whole_places(most_places), config.head_dim)
        self._kept = [
            (weight.new_zeros(shape), weight.new_zeros(shape))
            for _ in range(config.num_hidden_layers)
        ]
        self._everything = torch.arange(num_rows, device=weight.device)

    def aim(
        self,
        places: Tensor,
        num_places: int,
        written: list[int] | None = None,
        read: list[int] | None = None,
    ) -> None:
        """Say where the next keys and values go, and which are read.

        Args:
            places: (rows, tokens) int64 of what comes; rows beyond the written ones are company.
            num_places: of each row, that are read.
            written: the rows; None for all.
            read: the rows; None for all.
        """
        rows = self._everything if written is None else self._indices(written)
        self._at = (rows[:, None], places[: len(rows)])
        self._num_places = num_places
        self._read = None if read is None else self._indices(read)
        self._only_row = read[0] if read is not None and len(set(read)) == 1 else None
        self._num_read = len(places)

    def _indices(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows).to(self._everything.device, non_blocking=True)

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        self._kept = [(keys[rows], values[rows]) for keys, values in self._kept]
        self._everything = self._everything[: len(rows)]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Put new keys and values in their places and return all; `transformers` calls this."""
        keys, values = self._kept[layer_idx]
        return self._put(keys, key_states), self._put(values, value_states)

    def _put(self, kept: Tensor, new: Tensor) -> Tensor:
        rows, places = self._at
        kept[rows, :, places] = new[: len(rows)].transpose(1, 2)
        seen = kept[:, :, : self._num_places]
        if self._read is None:
            return seen
        if self._only_row is not None:
            return seen[self._only_row].expand(self._num_read, -1, -1, -1)
        return seen[self._read]


def whole_places(needed: int) -> int:
    """Return the places of a row that needs so many: in whole blocks, or few."""
    return whole(needed, _FEW if needed <= _FEW else BLOCK)


def whole(number: int, step: int) -> int:
    """Return the least multiple of a step that is not less than a number."""
    return number + -number % step
