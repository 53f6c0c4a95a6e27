"""Reading many token sequences with one network, as many at a time as memory holds.

What is read is a passage: a stem and the branches that may follow it. The stem is read once, with
its keys and values kept, and every branch goes on from it, which is exact in a causal network. A
passage with one branch is one row of tokens. Of one with more branches than memory holds some are
read at a time, and the stem again with each lot.

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
_CPU_BATCH_TOKENS = 8_192  # more at a time is slower
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


class _Row(NamedTuple):
    """A stem and a branch, or all branches of one token, which the end of the stem predicts.

    Its shape follows from the whole passage and not from the rows that are read beside it.

    Attributes:
        passage: number of the passage; rows of one share their stem.
        stem: token ids.
        branches: what is measured.
        shared_tokens: of the stem, that are read once for all rows of the passage.
        padded_tokens: of stem and branch.
    """

    passage: int
    stem: Int64s
    branches: tuple[Branch, ...]
    shared_tokens: int
    padded_tokens: int

    @property
    def ids(self) -> Int64s:
        """What is read: of the branch all but the last token, which is only predicted."""
        return np.concatenate([self.stem, *(branch.ids[:-1] for branch in self.branches)])


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
        for passage in passages:
            self._check_length(_tokens(passage))
        rows = [row for number, passage in enumerate(passages) for row in _rows(number, passage)]
        measured: list[list[NDArray[np.float32]]] = [[] for _ in rows]
        alike: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for number, row in enumerate(rows):
            alike[row.shared_tokens, row.padded_tokens][number] = row.passage
        for (shared_tokens, padded_tokens), owners in alike.items():
            run = self._measure_forks if shared_tokens else self._measure_rows
            read = partial(_chosen, run, rows, measure)
            for batch, arrays in self._in_batches(owners, padded_tokens, read):
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
            alike[_padded(len(row))][number] = number
        for padded_tokens, owners in alike.items():
            for batch, states in self._in_batches(owners, padded_tokens, read):
                for n, state in zip(batch, states, strict=True):
                    yield n, state[: len(rows[n])]

    def _check_length(self, tokens: int) -> None:
        if tokens > self.context_tokens:
            raise UserError(
                f"{tokens} tokens do not fit into the model's context of {self.context_tokens}; "
                "give shorter windows, or extend the context with YaRN"
            )

    def _in_batches(
        self, owners: Mapping[int, int], row_tokens: int, run: Callable[[list[int]], list[T]]
    ) -> Iterator[tuple[list[int], list[T]]]:
        """Run over rows of one length in batches; halve what memory does not hold.

        Args:
            owners: by the number of a row, that of its passage, which stays whole where it can.
            row_tokens: of each row.
            run: takes numbers of rows.
        """
        waiting = list(owners)
        while waiting:
            most = max(1, self.batch_tokens // max(row_tokens, 1))
            some = [owners[number] for number in waiting[: most + 1]]
            whole = some.index(some[-1]) if len(some) > most else most
            batch = waiting[: whole or most]  # a passage that is too large for one is read in parts
            try:
                measured = run(batch)
            except RuntimeError as error:
                self.halve(error, len(batch), row_tokens)
                continue
            del waiting[: len(batch)]
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
        ids = self._padded_ids(rows, _padded(max(map(len, rows))))
        if layer is None:
            states: Tensor = self.network.model(input_ids=ids, use_cache=False)[0]
            return states
        return _states_behind(self.network, ids, layer)

    def _padded_ids(self, rows: Sequence[Int64s], num_tokens: int) -> Tensor:
        ids = np.full((len(rows), num_tokens), self.vocabulary.pad, dtype=np.int64)
        for padded, row in zip(ids, rows, strict=True):
            padded[: len(row)] = row
        return torch.from_numpy(ids).to(self.device)

    def _measure_rows(
        self, rows: Sequence[_Row], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure rows that share nothing in one pass."""
        hidden = self._read_rows([row.ids for row in rows])
        states, targets = [], []
        for read, row in zip(hidden, rows, strict=True):
            for branch in row.branches:
                # The state before a token predicts it.
                states.append(read[len(row.stem) - 1 : len(row.stem) - 1 + len(branch.ids)])
                targets.append(branch)
        arrays = iter(self._measure_states(states, targets, measure))
        return [[next(arrays) for _ in row.branches] for row in rows]

    @torch.inference_mode()
    def _measure_forks(
        self, rows: Sequence[_Row], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure rows that share so many tokens with others: stems first, then what follows."""
        shared, padded_tokens = rows[0].shared_tokens, rows[0].padded_tokens
        shares = {row.passage: row.stem[:shared] for row in rows}
        places = {passage: n for n, passage in enumerate(shares)}
        owner = [places[row.passage] for row in rows]
        stems = torch.from_numpy(np.stack(list(shares.values()))).to(self.device)
        output: Any = self.network.model(input_ids=stems, use_cache=True)
        cache = output.past_key_values
        cache.batch_select_indices(torch.tensor(owner, device=self.device))
        ids = self._padded_ids([row.ids[shared:] for row in rows], padded_tokens - shared)
        hidden = self.network.model(input_ids=ids, past_key_values=cache, use_cache=True)[0]
        last = output[0][:, -1:]
        states, targets = [], []
        for n, read, row in zip(owner, hidden, rows, strict=True):
            (branch,) = row.branches
            first = len(row.stem) - shared  # of the states from the last shared one on
            states.append(torch.cat([last[n], read])[first : first + len(branch.ids)])
            targets.append(branch)
        return [[array] for array in self._measure_states(states, targets, measure)]

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
    run: Callable[[Sequence[_Row], Measure], list[T]],
    rows: Sequence[_Row],
    measure: Measure,
    numbers: list[int],
) -> list[T]:
    return run([rows[n] for n in numbers], measure)


def _padded(tokens: int) -> int:
    return tokens + -tokens % _STEP_TOKENS


def _tokens(passage: Passage) -> int:
    """Return the tokens of the longest row of a passage, the last of which is only predicted."""
    longest = max((len(branch.ids) for branch in passage.branches), default=0)
    return len(passage.stem) + max(longest - 1, 0)


def _rows(number: int, passage: Passage) -> Iterator[_Row]:
    """Yield the rows of a passage; of the stem whole steps are shared by several."""
    stem, branches = passage
    tokens = _tokens(passage)
    if len(branches) < 2 or tokens == len(stem):
        yield _Row(number, stem, branches, 0, _padded(tokens))
        return
    shared_tokens = len(stem) // _STEP_TOKENS * _STEP_TOKENS
    for branch in branches:
        longest = tokens if shared_tokens else _tokens(Passage(stem, (branch,)))
        yield _Row(number, stem, (branch,), shared_tokens, _padded(longest))


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
