"""Reading many token sequences with one network, as many at a time as memory holds.

What is read is a passage: a stem and the branches that may follow it. The stem is read once, with
its keys and values kept, and every branch goes on from it, which is exact in a causal network. A
passage with one branch is one row of tokens.

On one machine with one number of threads the numbers of a row do not depend on what is read beside
it: only rows of one padded length are read together, so that no product and no block of the
attention ends elsewhere than it would for the row alone. Rows are padded on the right, where a
causal network does not look, to whole steps of 32 tokens; of a stem whole steps are shared and the
rest is read with each branch.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.console import say
from carbon.errors import UserError
from carbon.model import LoadedModel
from carbon.tokenizer import K, Vocabulary, encode, known_bases

T = TypeVar("T")
Int64s = NDArray[np.int64]

Measure = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From logits (N, 4096) fp32, true 6-mers (N,) and known bases (N, 6) to (N, ...) fp32."""

_STEP_TOKENS = 32  # a row is padded to whole steps
_HEAD_TOKENS = 2048  # of one product with the 4,096 rows
_CPU_BATCH_TOKENS = 16_384  # more at a time is no faster
_MEMORY_SHARE = 0.5  # of what the weights leave, for one forward pass


class Branch(NamedTuple):
    """Tokens to measure: ids as the network reads them, and what they stand for, all (tokens,).

    Attributes:
        ids: int64 token ids.
        kmers: int64, the true 6-mers, 0 to 4,095.
        known: uint8, six bits a token: which of its bases count.
    """

    ids: Int64s
    kmers: Int64s
    known: NDArray[np.uint8]


class Passage(NamedTuple):
    """A stem of token ids, and the branches that are measured after it."""

    stem: Int64s
    branches: tuple[Branch, ...]


def branch_of(sequence: str, vocabulary: Vocabulary) -> Branch:
    """Cut a sequence into 6-mers from its first base."""
    encoding = encode(sequence, vocabulary)
    tokens = slice(encoding.num_prefix, None)
    return Branch(encoding.ids[tokens], encoding.kmers[tokens], encoding.known[tokens])


def stem_of(sequence: str, vocabulary: Vocabulary, tags: tuple[str, ...] = ()) -> Int64s:
    """Return the ids of tags, `<dna>` and a sequence of whole 6-mers."""
    if len(sequence) % K:
        raise ValueError(f"a stem has whole 6-mers; this one has {len(sequence)} bases")
    return encode(sequence, vocabulary, tags=tags).ids


class Reader:
    """A network with the vocabulary of its rows, and the batches it is run in.

    Attributes:
        network: in evaluation mode.
        vocabulary: of its rows.
        context_tokens: positions of the network.
        batch_tokens: most tokens of one pass: what half of the memory beside the weights holds.
            It is halved when memory runs out all the same.
    """

    def __init__(self, model: LoadedModel, batch_tokens: int | None = None) -> None:
        """Wrap a loaded model."""
        self.network, self.vocabulary = model
        self.context_tokens: int = self.network.config.max_position_embeddings
        self.batch_tokens = batch_tokens or _batch_tokens(self.network)
        self._head: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    def logits(self, states: Tensor) -> Tensor:
        """Return logits over the 6-mers in fp32: (N, width) to (N, 4096).

        The product is fp32 whatever the dtype of the network: rounded to bfloat16, logits of 16
        would be right to 0.06 nats.
        """
        if self._head is None:
            self._head = self.network.lm_head.weight[self.vocabulary.kmer_rows].detach().float()
        # A product of few rows may take another path through the library, with other last bits.
        rows = torch.nn.functional.pad(states.float(), (0, 0, 0, -len(states) % _STEP_TOKENS))
        return torch.nn.functional.linear(rows, self._head)[: len(states)]

    def measure(
        self, passages: Sequence[Passage], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure every token of every branch: for each passage a list of (tokens, ...) arrays."""
        parts = [part for passage in passages for part in _parts(passage)]
        measured: list[list[NDArray[np.float32]]] = [[] for _ in parts]
        alike: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, part in enumerate(parts):
            tokens = len(part.stem) + max(_longest(part) - 1, 0)
            self._check_length(tokens)
            alike[_shared_tokens(part), _padded(tokens)].append(number)
        for (shared_tokens, _), numbers in alike.items():
            run = self._measure_forks if shared_tokens else self._measure_rows
            costs = {n: _held_tokens(parts[n]) for n in numbers}
            read = partial(_chosen, run, parts, measure)
            for batch, arrays in self._in_batches(costs, read):
                for n, array in zip(batch, arrays, strict=True):
                    measured[n] = array
        flat = iter([array for arrays in measured for array in arrays])
        return [[next(flat) for _ in passage.branches] for passage in passages]

    def states(
        self, rows: Sequence[Int64s], layer: int | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield `(number, states)` of rows of ids, (tokens, width), in an order of its own.

        Args:
            rows: token ids.
            layer: states behind this many layers, 0 for the embeddings; those that the head
                reads, behind all layers and the last norm, if None.
        """
        for row in rows:
            self._check_length(len(row))

        def read(batch: list[int]) -> list[Tensor]:
            return list(self._read_rows([rows[n] for n in batch], layer))

        alike: dict[int, dict[int, int]] = defaultdict(dict)
        for number, row in enumerate(rows):
            alike[_padded(len(row))][number] = len(row)
        for costs in alike.values():
            for batch, states in self._in_batches(costs, read):
                for n, state in zip(batch, states, strict=True):
                    yield n, state[: len(rows[n])]

    def _check_length(self, tokens: int) -> None:
        if tokens > self.context_tokens:
            raise UserError(
                f"{tokens} tokens do not fit into the model's context of {self.context_tokens}; "
                "give shorter windows, or extend the context with YaRN"
            )

    def _in_batches(
        self, costs: Mapping[int, int], run: Callable[[list[int]], list[T]]
    ) -> Iterator[tuple[list[int], list[T]]]:
        """Run over numbers in batches of like cost, in tokens; halve what memory does not hold."""
        waiting = sorted(((cost, number) for number, cost in costs.items()), key=lambda c: -c[0])
        while waiting:
            most = max(1, self.batch_tokens // max(_padded(waiting[0][0]), 1))
            batch = [number for _, number in waiting[:most]]
            try:
                measured = run(batch)
            except RuntimeError as error:
                self.halve(error, len(batch), _padded(waiting[0][0]))
                continue
            del waiting[:most]
            yield batch, measured

    def halve(self, error: RuntimeError, num_rows: int, row_tokens: int) -> None:
        """Let batches be half of one that memory does not hold; raise any other error again."""
        if not _is_out_of_memory(error) or num_rows == 1:
            raise error
        self.batch_tokens = max(1, row_tokens * (num_rows // 2))
        say(f"out of memory with {num_rows} rows at a time; going on with half of them")

    @torch.inference_mode()
    def _read_rows(self, rows: Sequence[Int64s], layer: int | None = None) -> Tensor:
        """Return the states of rows that are padded to one length: (rows, tokens, width)."""
        ids = self._padded_ids(rows)
        if layer is None:
            states: Tensor = self.network.model(input_ids=ids, use_cache=False)[0]
            return states
        return _states_behind(self.network, ids, layer)

    def _padded_ids(self, rows: Sequence[Int64s]) -> Tensor:
        shape = (len(rows), _padded(max(map(len, rows))))
        ids = np.full(shape, self.vocabulary.pad, dtype=np.int64)
        for padded, row in zip(ids, rows, strict=True):
            padded[: len(row)] = row
        return torch.from_numpy(ids).to(self.device)

    def _measure_rows(
        self, passages: Sequence[Passage], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure passages of one branch, or of branches of one token, in one pass."""
        rows = [
            np.concatenate([stem, branches[0].ids[:-1]]) if branches else stem
            for stem, branches in passages
        ]
        hidden = self._read_rows(rows)
        states, targets = [], []
        for row, (stem, branches) in zip(hidden, passages, strict=True):
            for branch in branches:
                # The state before a token predicts it.
                states.append(row[len(stem) - 1 : len(stem) - 1 + len(branch.ids)])
                targets.append(branch)
        arrays = iter(self._measure_states(states, targets, measure))
        return [[next(arrays) for _ in branches] for _, branches in passages]

    @torch.inference_mode()
    def _measure_forks(
        self, passages: Sequence[Passage], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure passages that share stems of one length: stems first, then branches on top."""
        shared = _shared_tokens(passages[0])
        stems = torch.from_numpy(np.stack([p.stem[:shared] for p in passages])).to(self.device)
        output: Any = self.network.model(input_ids=stems, use_cache=True)
        branches = [branch for passage in passages for branch in passage.branches]
        owner = [n for n, passage in enumerate(passages) for _ in passage.branches]
        cache = output.past_key_values
        cache.batch_select_indices(torch.tensor(owner, device=self.device))
        rest = [passages[n].stem[shared:] for n in owner]
        rows = [np.concatenate([r, b.ids[:-1]]) for r, b in zip(rest, branches, strict=True)]
        ids = self._padded_ids(rows)
        hidden = self.network.model(input_ids=ids, past_key_values=cache, use_cache=True)[0]
        last = output[0][:, -1:]
        states = [
            torch.cat([last[n], row])[len(r) : len(r) + len(branch.ids)]
            for n, row, r, branch in zip(owner, hidden, rest, branches, strict=True)
        ]
        arrays = iter(self._measure_states(states, branches, measure))
        return [[next(arrays) for _ in passage.branches] for passage in passages]

    @torch.inference_mode()
    def _measure_states(
        self, states: Sequence[Tensor], targets: Sequence[Branch], measure: Measure
    ) -> list[NDArray[np.float32]]:
        """Measure the tokens that states predict, in pieces that bound the logits in memory."""
        if not states:
            return []
        flat = torch.cat(list(states))
        kmers = torch.from_numpy(np.concatenate([t.kmers for t in targets])).to(self.device)
        known = torch.from_numpy(known_bases(np.concatenate([t.known for t in targets])))
        known = known.to(self.device)
        pieces = [
            measure(self.logits(flat[at]), kmers[at], known[at])
            for at in (
                slice(i, i + _HEAD_TOKENS) for i in range(0, max(len(flat), 1), _HEAD_TOKENS)
            )
        ]
        measured: NDArray[np.float32] = torch.cat(pieces).cpu().numpy()
        return np.split(measured, np.cumsum([len(t.ids) for t in targets])[:-1])


def _chosen(
    run: Callable[[Sequence[Passage], Measure], list[T]],
    passages: Sequence[Passage],
    measure: Measure,
    numbers: list[int],
) -> list[T]:
    return run([passages[n] for n in numbers], measure)


def _padded(tokens: int) -> int:
    return tokens + -tokens % _STEP_TOKENS


def _longest(passage: Passage) -> int:
    return max((len(branch.ids) for branch in passage.branches), default=0)


def _shared_tokens(passage: Passage) -> int:
    """Return the tokens of a stem that are read once for several branches: whole steps.

    None where branches are one token long: the state at the end of the stem predicts them all.
    """
    shares = len(passage.branches) > 1 and _longest(passage) > 1
    return len(passage.stem) // _STEP_TOKENS * _STEP_TOKENS if shares else 0


def _parts(passage: Passage) -> list[Passage]:
    """Return what is read together: a passage, or one a branch where there is nothing to share."""
    if len(passage.branches) < 2 or _longest(passage) < 2 or _shared_tokens(passage):
        return [passage]
    return [Passage(passage.stem, (branch,)) for branch in passage.branches]


def _held_tokens(passage: Passage) -> int:
    """Return the tokens in memory: with several branches each has its copy of the stem."""
    tokens = len(passage.stem) + max(_longest(passage) - 1, 0)
    if not _shared_tokens(passage):
        return tokens
    return len(passage.stem) + len(passage.branches) * _padded(tokens)


def check_layer(network: Any, layer: int) -> None:
    """Raise UserError unless the network has so many layers."""
    num_layers = len(network.model.layers)
    if not 0 <= layer <= num_layers:
        raise UserError(f"layer {layer}: the model has {num_layers}; give 0 to {num_layers}")


def _states_behind(network: Any, ids: Tensor, layer: int) -> Tensor:
    """Return the states behind `layer` layers, without keeping those of any other."""
    check_layer(network, layer)
    kept: list[Tensor] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output)

    watched = network.model.layers[layer - 1] if layer else network.model.embed_tokens
    handle = watched.register_forward_hook(keep)
    try:
        network.model(input_ids=ids, use_cache=False)
    finally:
        handle.remove()
    return kept[0]


def _is_out_of_memory(error: RuntimeError) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return True
    return "can't allocate memory" in str(error)  # what the allocator of the CPU says


def _batch_tokens(network: Any) -> int:
    """Return the tokens of one pass that memory holds: a power of two.

    It follows from the size of the memory and not from what is free at the moment, so that a run is
    cut into the same batches every time.
    """
    config = network.config
    weights = list(network.parameters())
    device, itemsize = network.device, weights[0].dtype.itemsize
    weight_bytes = sum(w.numel() * w.dtype.itemsize for w in weights)
    if device.type == "cuda":
        memory_bytes = torch.cuda.get_device_properties(device).total_memory
    else:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    head_dim = config.hidden_size // config.num_attention_heads
    kv_width = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim
    # One layer's activations are alive at a time, the keys and values of all of them.
    token_bytes = itemsize * (kv_width + 12 * config.hidden_size + 4 * config.intermediate_size)
    room = _MEMORY_SHARE * (memory_bytes - weight_bytes) / token_bytes
    tokens = 1 << max(int(room).bit_length() - 1, 5)
    return tokens if device.type == "cuda" else min(tokens, _CPU_BATCH_TOKENS)
