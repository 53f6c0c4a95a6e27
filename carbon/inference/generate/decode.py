"""Incremental decoding: a KV cache of rows, and CUDA graphs that replay a step in one launch."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from carbon.inference.generate.sampling import draw
from carbon.inference.options import SamplingRule
from carbon.inference.passages import prefix_of
from carbon.inference.runner import ModelRunner
from carbon.model.load import cache_arguments
from carbon.tokenizer import K

_ONE_CAPTURE = Lock()  # CUDA allows only one capture in a process at a time


class CudaGraph:
    """A function of tensors as a CUDA graph.

    The graph replays the kernels of one call on the memory of that call. So the function must not
    synchronise with the device, all shapes must follow from the inputs, and everything that changes
    between calls must be in them: a number of the host would keep its value from the capture.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> None:
        """Call the function twice on tensors like these: to warm up, and for the capture."""
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        with _ONE_CAPTURE, torch.cuda.device(inputs[0].device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(*self._inputs)  # libraries allocate memory here, not in the graph
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may continue to launch their own work, which is not captured.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._outputs = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the function for new inputs, without waiting for the device."""
        for tensor, new in zip(self._inputs, inputs, strict=True):
            tensor.copy_(new)
        self._graph.replay()
        return tuple(tensor.clone() for tensor in self._outputs)


BLOCK = 512  # positions of one block of torch's CPU attention; also tokens of one forward pass
_SHORT = (
    128  # positions of short rows; the first ones of a whole block are summed up in the same order
)


class RowCache(DynamicCache):
    """Keys and values of rows: (rows, heads, positions, width) for each layer."""

    def __init__(self, runner: ModelRunner, num_rows: int, most_positions: int) -> None:
        """Allocate memory for `most_positions` positions of each row."""
        super().__init__()
        config, weight = runner.network.config, runner.network.lm_head.weight
        shape = (
            num_rows,
            config.num_key_value_heads,
            padded_positions(most_positions),
            config.head_dim,
        )
        self._layers_kv = [
            (weight.new_zeros(shape), weight.new_zeros(shape))
            for _ in range(config.num_hidden_layers)
        ]
        self._all_rows = torch.arange(num_rows, device=weight.device)

    def set_positions(
        self,
        positions: Tensor,
        num_positions: int,
        written: list[int] | None = None,
        attended: list[int] | None = None,
    ) -> None:
        """Set where the next keys and values are written, and which are attended to.

        Args:
            positions: (rows, tokens) int64 of the new tokens; rows beyond the written ones are
                padding.
            num_positions: positions of each row that are attended to.
            written: the rows to write; None for all.
            attended: the rows to attend to; None for all.
        """
        rows = self._all_rows if written is None else self._indices(written)
        self._at = (rows[:, None], positions[: len(rows)])
        self._num_positions = num_positions
        self._attended = None if attended is None else self._indices(attended)
        self._single_row = attended[0] if attended is not None and len(set(attended)) == 1 else None
        self._num_rows = len(positions)

    def _indices(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows).to(self._all_rows.device, non_blocking=True)

    def keep_rows(self, rows: list[int]) -> None:
        """Drop all other rows."""
        self._layers_kv = [(keys[rows], values[rows]) for keys, values in self._layers_kv]
        self._all_rows = self._all_rows[: len(rows)]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values and return all of them; `transformers` calls this."""
        keys, values = self._layers_kv[layer_idx]
        return self._put(keys, key_states), self._put(values, value_states)

    def _put(self, cached: Tensor, new: Tensor) -> Tensor:
        rows, positions = self._at
        cached[rows, :, positions] = new[: len(rows)].transpose(1, 2)
        seen = cached[:, :, : self._num_positions]
        if self._attended is None:
            return seen
        if self._single_row is not None:
            return seen[self._single_row].expand(self._num_rows, -1, -1, -1)
        return seen[self._attended]


def padded_positions(needed: int) -> int:
    """Return the positions to allocate for a row: whole blocks, or few for short rows."""
    return whole(needed, _SHORT if needed <= _SHORT else BLOCK)


def whole(number: int, step: int) -> int:
    """Return the least multiple of `step` that is at least `number`."""
    return number + -number % step


_STEP = 32  # tokens
_TILE = 8  # rows, or tokens of a short pass
_MOST_PADDING = 40  # tokens after a row's end: a draft's and the one before, in whole tiles
_GRAPH_DEVICES = {"cuda"}  # devices on which a launch takes longer than many kernels
_SYNCHRONISING_ROPE = {
    "dynamic",
    "longrope",
}  # RoPE types that wait for the device to get row lengths


class Decoder:
    """Growing rows of tokens, whose keys and values are cached.

    A row that fills the context restarts from its tags, `<dna>` and the last half of the context.
    """

    def __init__(
        self,
        runner: ModelRunner,
        prompts: Sequence[str],
        tags: tuple[str, ...],
        most_kmers: int | None = None,
    ) -> None:
        """Take a prompt for each row; its whole 6-mers are used, its tail is ignored.

        Args:
            runner: runs the network.
            prompts: DNA.
            tags: metadata tags to condition on.
            most_kmers: maximum 6-mers of a row with its prompt, for which memory is allocated; a
                whole context if None or more than that.
        """
        self._runner = runner
        self._num_prefix = len(runner.six_mers.prefix(tags))
        prefixes = [prefix_of(p[: len(p) // K * K], runner.six_mers, tags) for p in prompts]
        self._ids: list[list[int]] = [prefix.tolist() for prefix in prefixes]
        self._num_cached = np.zeros(len(prompts), dtype=np.int64)  # cached tokens of each row
        context = runner.context_tokens
        longest = min(context, self._num_prefix + (context if most_kmers is None else most_kmers))
        self._cache = RowCache(runner, len(prompts), longest + _MOST_PADDING)
        self._graphs: dict[tuple[int, SamplingRule], CudaGraph] = {}
        rope: Any = runner.network.config.rope_parameters
        synchronises = rope.get("rope_type") in _SYNCHRONISING_ROPE
        self._uses_graphs = runner.device.type in _GRAPH_DEVICES and not synchronises

    def room(self, row: int) -> int:
        """Return the tokens a row can take before it restarts; 0 before its prompt has run."""
        num_cached = int(self._num_cached[row])
        return self._runner.context_tokens - num_cached if num_cached else 0

    @torch.inference_mode()
    def extend(self, fresh: Sequence[Sequence[int]], max_fresh: int = 1) -> Tensor:
        """Append 6-mers to each row and return the logits that follow them.

        Args:
            fresh: the next 6-mers of each row, 0 to 4,095. The first call also runs the prompt of a
                row; later, rows without new 6-mers are left alone.
            max_fresh: maximum number of new 6-mers of a row; it alone determines the shapes.

        Returns:
            (rows, tokens, 4096) fp32 logits on the model's device: at n those after the n-th new
            6-mer. A row that starts or restarts in this call has only those after its last 6-mer,
            at 0 if it has none. Other entries are undefined.
        """
        for ids, kmers in zip(self._ids, fresh, strict=True):
            ids.extend(self._runner.six_mers.first_kmer + kmer for kmer in kmers)
        num_fresh = np.array([len(kmers) for kmers in fresh])
        fits = self._num_cached + num_fresh <= self._runner.context_tokens
        starts = (self._num_cached == 0) | ~fits
        states = self._empty_states(len(fresh), 1 if max_fresh == 1 else whole(max_fresh, _TILE))
        if starts.any():
            rows = np.flatnonzero(starts).tolist()
            states[rows, np.maximum(num_fresh[rows] - 1, 0)] = self._prefill(rows)
        rows = np.flatnonzero(~starts & (num_fresh > 0)).tolist()
        if rows:
            chosen = [self._ids[row][-num_fresh[row] :] for row in rows]
            states[rows] = self._run_tokens(rows, chosen, states.shape[1])
        return self._runner.logits(states.flatten(0, 1)).view(*states.shape[:2], -1)

    def draw_next(self, kmers: Tensor, uniform: Tensor, rule: SamplingRule) -> tuple[Tensor, ...]:
        """Append a 6-mer to every row and draw the next; pass both to `append_tokens` afterwards.

        The call does not wait for the device. All rows must have started and have room. On a GPU
        the first call for a number of rows and positions is captured, and later ones replay it.

        Args:
            kmers: (rows,) int64, 0 to 4,095, on the device.
            uniform: (rows, 6) fp64 in [0, 1), on the device.
            rule: sampling rule; its repetition penalty is ignored.

        Returns:
            (rows, 4096) fp32 logits after these 6-mers, and (rows,) int64 the drawn 6-mers.
        """
        num_positions = padded_positions(int(self._num_cached.max()) + 1)
        inputs = (kmers, self.to_device(self._num_cached.copy()), uniform)
        self._num_cached += 1
        step = partial(self._step, num_positions=num_positions, rule=rule)
        if not self._uses_graphs:
            return step(*inputs)
        if (num_positions, rule) not in self._graphs:
            self._graphs[num_positions, rule] = CudaGraph(step, *inputs)
        return self._graphs[num_positions, rule](*inputs)

    def _step(
        self,
        kmers: Tensor,
        positions: Tensor,
        uniform: Tensor,
        *,
        num_positions: int,
        rule: SamplingRule,
    ) -> tuple[Tensor, Tensor]:
        """Run the network and draw, with device tensors of constant shapes only."""
        self._cache.set_positions(positions[:, None], num_positions)
        ids = kmers[:, None] + self._runner.six_mers.first_kmer
        logits = self._runner.logits(self._states(ids, positions[:, None], num_positions)[:, 0])
        return logits, draw(logits, rule, uniform)

    def append_tokens(self, kmers: Sequence[Sequence[int]]) -> None:
        """Record the 6-mers that `draw_next` appended to each row."""
        for ids, row_kmers in zip(self._ids, kmers, strict=True):
            ids.extend(self._runner.six_mers.first_kmer + kmer for kmer in row_kmers)

    def drop_last(self, row: int, tokens: int) -> None:
        """Remove the last tokens of a row.

        If nothing else has run since the row last restarted, its next call restarts it.
        """
        del self._ids[row][len(self._ids[row]) - tokens :]
        left = self._num_cached[row] - tokens
        self._num_cached[row] = left if left >= self._num_prefix else 0

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Drop all other rows; the remaining rows are renumbered."""
        self._ids = [self._ids[row] for row in rows]
        self._num_cached = self._num_cached[list(rows)]
        self._cache.keep_rows(list(rows))
        self._graphs.clear()

    def _prefill(self, rows: list[int]) -> Tensor:
        """Run rows from their start, or from the last half context: (rows, width)."""
        recent = {row: self._recent(self._ids[row]) for row in rows}
        self._num_cached[rows] = 0
        states = self._empty_states(len(self._ids), 1)[:, 0]
        for at in range(0, max(map(len, recent.values())), BLOCK):
            longer = {row: BLOCK for row in rows if len(recent[row]) > at}
            run = partial(self._prefill_block, recent, at, states)
            for _ in self._runner.in_batches(longer, run):
                pass
        return states[rows]

    def _prefill_block(
        self, recent: dict[int, list[int]], at: int, states: Tensor, rows: list[int]
    ) -> None:
        """Run the tokens of rows from `at` on, and store their last states in `states`."""
        parts = [recent[row][at : at + BLOCK] for row in rows]
        new = self._run_tokens(rows, parts, whole(max(map(len, parts)), _STEP))
        states[rows] = new[range(len(rows)), [len(part) - 1 for part in parts]]

    def _recent(self, ids: list[int]) -> list[int]:
        context = self._runner.context_tokens
        if len(ids) <= context:
            return ids
        return ids[: self._num_prefix] + ids[-(context // 2) :]

    def _run_tokens(self, rows: list[int], fresh: list[list[int]], width: int) -> Tensor:
        """Run new tokens: (rows, width, states). Padding after a row's end is masked."""
        # Copies of the first row fill the last tile; their states are dropped.
        rows = rows + rows[:1] * (-len(rows) % _TILE if width == 1 else 0)
        ids = np.full((len(rows), width), self._runner.six_mers.pad, dtype=np.int64)
        ids[:, 0] = fresh[0][0]
        for padded, row in zip(ids, fresh, strict=False):
            padded[: len(row)] = row
        states = self._forward(rows[: len(fresh)], rows, self.to_device(ids))
        self._num_cached[rows[: len(fresh)]] += [len(row) for row in fresh]
        return states[: len(fresh)]

    def _forward(self, written: list[int], attended: list[int], ids: Tensor) -> Tensor:
        """Run ids, (attended rows, width), after cached tokens; cache only the written rows."""
        first = self._num_cached[attended]
        width = ids.shape[1]
        positions = self.to_device(first)[:, None] + torch.arange(width, device=ids.device)
        num_positions = padded_positions(int(first.max()) + width)
        if attended == list(range(len(self._ids))):
            self._cache.set_positions(positions, num_positions)
        else:
            self._cache.set_positions(positions, num_positions, written, attended)
        return self._states(ids, positions, num_positions)

    def _states(self, ids: Tensor, positions: Tensor, num_positions: int) -> Tensor:
        """Run the network on ids at positions, both (rows, width): (rows, width, states)."""
        unseen = torch.arange(num_positions, device=ids.device) > positions[:, None, :, None]
        network = self._runner.masked_network
        mask = torch.zeros(unseen.shape, dtype=network.dtype, device=ids.device)
        states: Tensor = network.model(
            input_ids=ids,
            attention_mask=mask.masked_fill_(unseen, -torch.inf),
            position_ids=positions,
            **cache_arguments(network.model, self._cache),
        )[0]
        return states

    def _empty_states(self, *shape: int) -> Tensor:
        network = self._runner.network
        size = (*shape, network.config.hidden_size)
        return torch.zeros(size, dtype=network.dtype, device=network.device)

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """Copy an array to the device of the model."""
        # Unpinned memory is staged immediately, so the call does not wait for the device.
        return torch.from_numpy(array).to(self._runner.device, non_blocking=True)
