"""Work of a GPU that is captured once and replayed: one launch where there were hundreds."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from carbon.inference.generate.sampling import SamplingRule, draw_on_device
from carbon.inference.passages import stem_of
from carbon.inference.runner import ModelRunner
from carbon.model.load import keeping
from carbon.tokenizer import K

_ONE_CAPTURE = Lock()  # CUDA allows no two in a process


class Replayed:
    """A function of tensors as a CUDA graph.

    The graph has the kernels of one call with the memory that they read and write. So the function
    asks nothing of the device, all shapes follow from those of its tensors, and what changes from
    call to call is in them: a number of the host would stay what it was at the capture.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], *given: Tensor) -> None:
        """Call the function twice on tensors like these: to warm up, and for the capture."""
        self._given = tuple(tensor.clone() for tensor in given)
        with _ONE_CAPTURE, torch.cuda.device(given[0].device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(*self._given)  # libraries take their memory here, and not in the graph
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            # Another thread may go on with its own work, which is not part of this.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._found = function(*self._given)

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return what the function finds for other contents; nothing waits for the device."""
        for tensor, new in zip(self._given, given, strict=True):
            tensor.copy_(new)
        self._graph.replay()
        return tuple(tensor.clone() for tensor in self._found)


BLOCK = 512  # places that torch's attention on a CPU takes at a time; also tokens of one pass
_FEW = 128  # places of short rows; in a whole block the first so many are summed up alike


class RowCache(DynamicCache):
    """Keys and values of rows, (rows, heads, places, width) a layer, every token at its place."""

    def __init__(self, runner: ModelRunner, num_rows: int, most_places: int) -> None:
        """Take memory for so many places of each row."""
        super().__init__()
        config, weight = runner.network.config, runner.network.lm_head.weight
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


_STEP = 32  # tokens
_TILE = 8  # rows, or tokens of few
_MOST_PADDING = 40  # tokens behind a row's end: those of a draft and the one before, in whole tiles
_REPLAYING = {"cuda"}  # devices on which a launch takes longer than many a kernel
_LOOKING_AT_PLACES = {"dynamic", "longrope"}  # rotations that ask the device how long rows are


class Decoder:
    """Rows of tokens, read as they grow; what was read is kept as keys and values.

    When a row fills the context, it starts again from its tags, `<dna>` and the last half of the
    context.
    """

    def __init__(
        self,
        runner: ModelRunner,
        prompts: Sequence[str],
        tags: tuple[str, ...],
        most_kmers: int | None = None,
    ) -> None:
        """Take a prompt for each row; its whole 6-mers are read, a tail is left out.

        Args:
            runner: runs the network.
            prompts: DNA.
            tags: metadata tags to condition on.
            most_kmers: of a row, prompt and all, for which memory is taken; a context of them, if
                None or more than that.
        """
        self._runner = runner
        self._num_prefix = len(runner.vocabulary.prefix(tags))
        stems = [stem_of(p[: len(p) // K * K], runner.vocabulary, tags) for p in prompts]
        self._ids: list[list[int]] = [stem.tolist() for stem in stems]
        self._num_read = np.zeros(len(prompts), dtype=np.int64)  # and kept, of each row
        context = runner.context_tokens
        longest = min(context, self._num_prefix + (context if most_kmers is None else most_kmers))
        self._cache = RowCache(runner, len(prompts), longest + _MOST_PADDING)
        self._graphs: dict[tuple[int, SamplingRule], Replayed] = {}
        rope: Any = runner.network.config.rope_parameters
        looks = rope.get("rope_type") in _LOOKING_AT_PLACES
        self._replays = runner.device.type in _REPLAYING and not looks

    def room(self, row: int) -> int:
        """Return how many tokens a row can take before it starts again; 0 if it is yet to start."""
        num_read = int(self._num_read[row])
        return self._runner.context_tokens - num_read if num_read else 0

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
            ids.extend(self._runner.vocabulary.first_kmer + kmer for kmer in kmers)
        num_fresh = np.array([len(kmers) for kmers in fresh])
        fits = self._num_read + num_fresh <= self._runner.context_tokens
        starts = (self._num_read == 0) | ~fits
        states = self._no_states(len(fresh), 1 if at_once == 1 else whole(at_once, _TILE))
        if starts.any():
            rows = np.flatnonzero(starts).tolist()
            states[rows, np.maximum(num_fresh[rows] - 1, 0)] = self._start(rows)
        rows = np.flatnonzero(~starts & (num_fresh > 0)).tolist()
        if rows:
            chosen = [self._ids[row][-num_fresh[row] :] for row in rows]
            states[rows] = self._pass(rows, chosen, states.shape[1])
        return self._runner.logits(states.flatten(0, 1)).view(*states.shape[:2], -1)

    def draw_next(self, kmers: Tensor, uniform: Tensor, rule: SamplingRule) -> tuple[Tensor, ...]:
        """Read a 6-mer of every row and draw the next, of both of which only `note` hears.

        Nothing here waits for the device. Every row has started and has room. On a GPU the first
        call for so many rows and places is captured, and the others replay it.

        Args:
            kmers: (rows,) int64, 0 to 4,095, on the device.
            uniform: (rows, 6) fp64 in [0, 1), on the device.
            rule: how to draw; its penalty of repetitions is left out.

        Returns:
            (rows, 4096) fp32 logits of what may follow, and (rows,) int64 what was drawn of them.
        """
        num_places = whole_places(int(self._num_read.max()) + 1)
        given = (kmers, self.sent(self._num_read.copy()), uniform)
        self._num_read += 1
        step = partial(self._step, num_places=num_places, rule=rule)
        if not self._replays:
            return step(*given)
        if (num_places, rule) not in self._graphs:
            self._graphs[num_places, rule] = Replayed(step, *given)
        return self._graphs[num_places, rule](*given)

    def _step(
        self, kmers: Tensor, places: Tensor, uniform: Tensor, *, num_places: int, rule: SamplingRule
    ) -> tuple[Tensor, Tensor]:
        """Read and draw, by nothing but tensors on the device whose shapes stay what they are."""
        self._cache.aim(places[:, None], num_places)
        ids = kmers[:, None] + self._runner.vocabulary.first_kmer
        logits = self._runner.logits(self._states(ids, places[:, None], num_places)[:, 0])
        return logits, draw_on_device(logits, rule, uniform)

    def note(self, kmers: Sequence[Sequence[int]]) -> None:
        """Hear of the 6-mers that `draw_next` has read of each row."""
        for ids, some in zip(self._ids, kmers, strict=True):
            ids.extend(self._runner.vocabulary.first_kmer + kmer for kmer in some)

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
        self._graphs.clear()

    def _start(self, rows: list[int]) -> Tensor:
        """Read rows from their beginning, or from that of the last half context: (rows, width)."""
        recent = {row: self._recent(self._ids[row]) for row in rows}
        self._num_read[rows] = 0
        states = self._no_states(len(self._ids), 1)[:, 0]
        most_rows = max(1, self._runner.batch_tokens // BLOCK)
        for at in range(0, max(map(len, recent.values())), BLOCK):
            longer = [row for row in rows if len(recent[row]) > at]
            for first in range(0, len(longer), most_rows):
                some = longer[first : first + most_rows]
                parts = [recent[row][at : at + BLOCK] for row in some]
                read = self._pass(some, parts, whole(max(map(len, parts)), _STEP))
                states[some] = read[range(len(some)), [len(part) - 1 for part in parts]]
        return states[rows]

    def _recent(self, ids: list[int]) -> list[int]:
        context = self._runner.context_tokens
        if len(ids) <= context:
            return ids
        return ids[: self._num_prefix] + ids[-(context // 2) :]

    def _pass(self, rows: list[int], fresh: list[list[int]], width: int) -> Tensor:
        """Read on: (rows, width, states). Behind a row's end is padding, which nothing sees."""
        # Company fills the last tile: the first row over and over, of which nothing is kept.
        rows = rows + rows[:1] * (-len(rows) % _TILE if width == 1 else 0)
        ids = np.full((len(rows), width), self._runner.vocabulary.pad, dtype=np.int64)
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
        places = self.sent(first)[:, None] + torch.arange(width, device=ids.device)
        num_places = whole_places(int(first.max()) + width)
        if read == list(range(len(self._ids))):
            self._cache.aim(places, num_places)
        else:
            self._cache.aim(places, num_places, written, read)
        return self._states(ids, places, num_places)

    def _states(self, ids: Tensor, places: Tensor, num_places: int) -> Tensor:
        """Run the network over ids at places, both (rows, width): (rows, width, states)."""
        unseen = torch.arange(num_places, device=ids.device) > places[:, None, :, None]
        network = self._runner.masked_network
        mask = torch.zeros(unseen.shape, dtype=network.dtype, device=ids.device)
        states: Tensor = network.model(
            input_ids=ids,
            attention_mask=mask.masked_fill_(unseen, -torch.inf),
            position_ids=places,
            **keeping(network.model, self._cache),
        )[0]
        return states

    def _no_states(self, *shape: int) -> Tensor:
        network = self._runner.network
        size = (*shape, network.config.hidden_size)
        return torch.zeros(size, dtype=network.dtype, device=network.device)

    def sent(self, array: NDArray[Any]) -> Tensor:
        """Return an array on the device of the model."""
        # Memory that is not pinned is copied aside at once, and nothing waits for the device.
        return torch.from_numpy(array).to(self._runner.device, non_blocking=True)
