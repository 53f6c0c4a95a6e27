"""Reading rows of 6-mers that grow, of any lengths, side by side.

On one CPU with one thread count the numbers of a row do not depend on the rows beside it. Every
token's keys and values lie at the token's own place of its row, so that a longer neighbour adds
masked places at the end and moves nothing. Places come in whole blocks, tokens in whole steps and
rows in whole tiles, so that every product has a shape of which the library computes each row alike.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from carbon.inference.reading import Reader, stem_of
from carbon.model.kept import keeping
from carbon.tokenizer import K

_BLOCK = 512  # places that torch's attention on a CPU takes at a time; also tokens of one pass
_FEW = 128  # places of short rows; in a whole block the first so many are summed up alike
_STEP = 32  # tokens
_TILE = 8  # rows, or tokens of few


class Decoder:
    """Rows of tokens, read as they grow; what was read is kept as keys and values.

    When a row fills the context, it starts again from its tags, `<dna>` and the last half of the
    context.
    """

    def __init__(self, reader: Reader, prompts: Sequence[str], tags: tuple[str, ...]) -> None:
        """Take a prompt for each row; its whole 6-mers are read, a tail is left out."""
        self._reader = reader
        self._num_prefix = len(reader.vocabulary.prefix(tags))
        stems = [stem_of(p[: len(p) // K * K], reader.vocabulary, tags) for p in prompts]
        self._ids: list[list[int]] = [stem.tolist() for stem in stems]
        self._num_read = np.zeros(len(prompts), dtype=np.int64)  # and kept, of each row
        self._cache = _RowCache(reader, len(prompts))

    def room(self, row: int) -> int:
        """Return how many tokens a row can take before it starts again; 0 if it is yet to start."""
        num_read = int(self._num_read[row])
        return self._reader.context_tokens - num_read if num_read else 0

    @torch.inference_mode()
    def read(self, fresh: Sequence[Sequence[int]], at_once: int = 1) -> Tensor:
        """Read more 6-mers of each row and return what may follow them.

        Args:
            fresh: for each row its next 6-mers, 0 to 4,095. A row that has not started reads its
                prompt as well; another may have none, and is left alone.
            at_once: most 6-mers a row can have; shapes follow from it and not from what rows have.

        Returns:
            (rows, tokens, 4096) fp32 logits on the model's device: at n those behind the n-th fresh
            6-mer. A row that starts in this call has them behind the last one only, at 0 where it
            has none. The rest means nothing.
        """
        for ids, kmers in zip(self._ids, fresh, strict=True):
            ids.extend(self._reader.vocabulary.first_kmer + kmer for kmer in kmers)
        num_fresh = np.array([len(kmers) for kmers in fresh])
        fits = self._num_read + num_fresh <= self._reader.context_tokens
        starts = (self._num_read == 0) | ~fits
        states = self._no_states(len(fresh), 1 if at_once == 1 else _whole(at_once, _TILE))
        if starts.any():
            rows = np.flatnonzero(starts).tolist()
            states[rows, np.maximum(num_fresh[rows] - 1, 0)] = self._start(rows)
        rows = np.flatnonzero(~starts & (num_fresh > 0)).tolist()
        if rows:
            chosen = [self._ids[row][-num_fresh[row] :] for row in rows]
            states[rows] = self._pass(rows, chosen, states.shape[1])
        return self._reader.logits(states.flatten(0, 1)).view(*states.shape[:2], -1)

    def read_next(self, kmers: Tensor) -> Tensor:
        """Read a 6-mer of every row, which are on the device and of which only `note` hears.

        Nothing here waits for the device. Every row has started and has room.

        Args:
            kmers: (rows,) int64, 0 to 4,095.

        Returns:
            (rows, 4096) fp32 logits of what may follow.
        """
        rows = list(range(len(self._ids)))
        states = self._run(rows, rows, kmers[:, None] + self._reader.vocabulary.first_kmer)
        self._num_read += 1
        return self._reader.logits(states[:, 0])

    def note(self, kmers: Sequence[Sequence[int]]) -> None:
        """Hear of the 6-mers that `read_next` has read of each row."""
        for ids, some in zip(self._ids, kmers, strict=True):
            ids.extend(self._reader.vocabulary.first_kmer + kmer for kmer in some)

    def forget(self, row: int, tokens: int) -> None:
        """Take back the last tokens of a row.

        Where these are all that was read since the row last started, it is read anew next time.
        """
        del self._ids[row][len(self._ids[row]) - tokens :]
        left = self._num_read[row] - tokens
        self._num_read[row] = left if left >= self._num_prefix else 0

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these, which are numbered anew."""
        self._ids = [self._ids[row] for row in rows]
        self._num_read = self._num_read[list(rows)]
        self._cache.keep(list(rows))

    def _start(self, rows: list[int]) -> Tensor:
        """Read rows from their beginning, or from that of the last half context: (rows, width)."""
        recent = {row: self._recent(self._ids[row]) for row in rows}
        self._num_read[rows] = 0
        states = self._no_states(len(self._ids), 1)[:, 0]
        most_rows = max(1, self._reader.batch_tokens // _BLOCK)
        for at in range(0, max(map(len, recent.values())), _BLOCK):
            longer = [row for row in rows if len(recent[row]) > at]
            for first in range(0, len(longer), most_rows):
                some = longer[first : first + most_rows]
                parts = [recent[row][at : at + _BLOCK] for row in some]
                read = self._pass(some, parts, _whole(max(map(len, parts)), _STEP))
                states[some] = read[range(len(some)), [len(part) - 1 for part in parts]]
        return states[rows]

    def _recent(self, ids: list[int]) -> list[int]:
        context = self._reader.context_tokens
        if len(ids) <= context:
            return ids
        return ids[: self._num_prefix] + ids[-(context // 2) :]

    def _pass(self, rows: list[int], fresh: list[list[int]], width: int) -> Tensor:
        """Read on: (rows, width, states). Behind a row's end is padding, which nothing sees."""
        # Company fills the last tile: the first row over and over, of which nothing is kept.
        rows = rows + rows[:1] * (-len(rows) % _TILE if width == 1 else 0)
        ids = np.full((len(rows), width), self._reader.vocabulary.pad, dtype=np.int64)
        ids[:, 0] = fresh[0][0]
        for padded, row in zip(ids, fresh, strict=False):
            padded[: len(row)] = row
        states = self._run(rows[: len(fresh)], rows, self.sent(ids))
        self._num_read[rows[: len(fresh)]] += [len(row) for row in fresh]
        return states[: len(fresh)]

    def _run(self, written: list[int], read: list[int], ids: Tensor) -> Tensor:
        """Read ids (read rows, width) behind what rows have; the cache keeps the written rows'."""
        first = self._num_read[read]
        width = ids.shape[1]
        steps = torch.arange(width, device=ids.device)
        places = self.sent(first)[:, None] + steps
        num_places = self._cache.prepare(written, read, places, int(first.max()) + width)
        unseen = torch.arange(num_places, device=ids.device) > places[:, None, :, None]
        network = self._reader.masked_network
        mask = torch.zeros(unseen.shape, dtype=network.dtype, device=ids.device)
        states: Tensor = network.model(
            input_ids=ids,
            attention_mask=mask.masked_fill_(unseen, -torch.inf),
            position_ids=places,
            **keeping(network.model, self._cache),
        )[0]
        return states

    def _no_states(self, *shape: int) -> Tensor:
        network = self._reader.network
        size = (*shape, network.config.hidden_size)
        return torch.zeros(size, dtype=network.dtype, device=network.device)

    def sent(self, array: NDArray[Any]) -> Tensor:
        """Return an array on the device of the model."""
        # Memory that is not pinned is copied aside at once, and nothing waits for the device.
        return torch.from_numpy(array).to(self._reader.device, non_blocking=True)


class _RowCache(DynamicCache):
    """Keys and values of rows, (rows, heads, places, width) a layer, every token at its place."""

    def __init__(self, reader: Reader, num_rows: int) -> None:
        super().__init__()
        config = reader.network.config
        self._most_places = _whole(reader.context_tokens, _STEP) + _STEP  # with padding
        self._num_places = 0
        shape = (num_rows, config.num_key_value_heads, 0, config.head_dim)
        weight = reader.network.lm_head.weight
        self._kept = [
            (weight.new_zeros(shape), weight.new_zeros(shape))
            for _ in range(config.num_hidden_layers)
        ]

    def prepare(self, written: list[int], read: list[int], places: Tensor, needed: int) -> int:
        """Say which rows are written and read next, and where; return the places that are read."""
        everything = list(range(len(self._kept[0][0])))
        self._at = (self._indices(written)[:, None], places[: len(written)])
        self._read = None if read == everything else self._indices(read)
        self._only_row = read[0] if len(set(read)) == 1 else None
        self._num_read = len(read)
        whole = _whole(needed, _FEW if needed <= _FEW else _BLOCK)
        self._num_places = min(whole, self._most_places)
        self._reserve()
        return self._num_places

    def _indices(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows).to(self._kept[0][0].device, non_blocking=True)

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        self._kept = [(keys[rows], values[rows]) for keys, values in self._kept]

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

    def _reserve(self) -> None:
        """Have room for the places; it grows by half, so that it is seldom copied."""
        there = self._kept[0][0].shape[2]
        if self._num_places <= there:
            return
        wanted = min(_whole(there + there // 2, _BLOCK), self._most_places)
        more = (0, 0, 0, max(self._num_places, wanted) - there)
        pad = torch.nn.functional.pad
        self._kept = [(pad(keys, more), pad(values, more)) for keys, values in self._kept]


def _whole(number: int, step: int) -> int:
    return number + -number % step
