"""Run a network in batches that fit into memory, with shared prefixes."""

import copy
import hashlib
import itertools
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carbon.errors import UserError
from carbon.inference.checks import check_layer
from carbon.inference.options import By
from carbon.inference.passages import (
    STEP_TOKENS,
    BatchRow,
    Continuation,
    Int64s,
    Passage,
    batch_rows,
    longest_row_tokens,
    padded_length,
)
from carbon.losses import chain, chain_conditionals, chain_probabilities, marginal
from carbon.model import LoadedModel
from carbon.model.load import cache_arguments, cache_of
from carbon.progress import say
from carbon.tokenizer import Vocabulary, known_bases, six_mers

_CPU_BATCH_TOKENS = 8_192  # larger batches are slower
_MEMORY_SHARE = 0.5  # for one forward pass, of the memory next to the weights


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error reports exhausted memory, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return True
    return "can't allocate memory" in str(error)  # the message of the CPU allocator


def batch_tokens_of(network: Any) -> int:
    """Return the tokens of one forward pass that fit into memory: a power of two.

    It depends on the size of the memory, not on the free part, so that every run has the same
    batches.
    """
    config = network.config
    weights = list(network.parameters())
    device, itemsize = network.device, weights[0].dtype.itemsize
    weight_bytes = sum(w.numel() * w.dtype.itemsize for w in weights)
    if device.type == "cuda":
        memory_bytes = torch.cuda.get_device_properties(device).total_memory
    else:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    heads, hidden = config.num_attention_heads, config.hidden_size
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    kv_width = 2 * config.num_hidden_layers * kv_heads * head_dim
    # Activations of one layer are alive at a time; keys and values of all layers.
    token_bytes = itemsize * (kv_width + 12 * hidden + 4 * inner)
    room = _MEMORY_SHARE * (memory_bytes - weight_bytes) / token_bytes
    tokens = 1 << max(int(room).bit_length() - 1, 5)
    return tokens if device.type == "cuda" else min(tokens, _CPU_BATCH_TOKENS)


Decoder = TypeVar("Decoder", bound=nn.Module)


def decoder_with(decoder: Decoder, **modules: nn.Module) -> Decoder:
    """Return a decoder that shares all modules with another except the named ones.

    The given decoder is not changed, so that several threads may run it.

    Args:
        decoder: a stock decoder, whose forward pass runs `embed_tokens`, `layers` and `norm`.
        **modules: replacements, by these names; `nn.Identity()` skips a module.
    """
    view = copy.copy(decoder)
    view._modules = {**decoder._modules, **modules}
    return view


class Observed(nn.Module):
    """A layer that also passes the states after it to a function."""

    def __init__(self, layer: nn.Module, observe: Callable[[Tensor], None]) -> None:
        """Wrap a layer, which is not changed."""
        super().__init__()
        self._layer, self._observe = layer, observe

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Return the output of the layer."""
        output = self._layer(*inputs, **options)
        self._observe(output[0] if isinstance(output, tuple) else output)
        return output


T = TypeVar("T")

Measure = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From logits (N, 4**k) fp32, true k-mers (N,) and known bases (N, k) to (N, ...) fp32."""

LIKELIHOODS: dict[By, Measure] = {"chain": chain, "marginals": marginal}

_HEAD_TOKENS = 2048  # rows of one product with the head
_CONTINUED_TOKENS = 1024  # of a batch of continuations; each copies the keys of its tile


class Tile(NamedTuple):
    """A row that has been run once, for continuations of any part of it.

    Attributes:
        prefix: ids of tags and the begin token.
        tokens: the tokens after them.
        states: (1, padded tokens, width) states of the last layer after the norm.
        cache: keys and values of all padded tokens.
    """

    prefix: Int64s
    tokens: Continuation
    states: Tensor
    cache: Any


class Measured(NamedTuple):
    """Results of a forward pass for a continuation.

    Attributes:
        values: (tokens, ...) fp32, the values of a `Measure` for each token.
        means: for each of the continuation's pools the mean state, (width,) fp32, of its tokens
            with all bases known, after all layers and the last norm; None without such a token.
    """

    values: NDArray[np.float32]
    means: tuple[NDArray[np.float32] | None, ...]


class Batcher:
    """Runs rows in batches that fit into memory.

    Attributes:
        batch_tokens: maximum tokens of one forward pass: as many as fit into half of the memory
            next to the weights. It is halved when memory runs out nevertheless.
        after_batch: called after each batch; a server runs other requests then.
    """

    def __init__(self, network: Any, batch_tokens: int | None = None) -> None:
        """Take the network that is run, to measure its memory."""
        self.batch_tokens = batch_tokens or batch_tokens_of(network)
        self.after_batch: Callable[[], None] = lambda: None

    def in_batches(
        self,
        row_tokens: Mapping[int, int],
        run: Callable[[list[int]], T],
        *,
        passages: Mapping[int, int] | None = None,
        most_rows: int | None = None,
    ) -> Iterator[tuple[list[int], T]]:
        """Run rows in batches, in the given order; halve batches that exceed memory.

        Args:
            row_tokens: tokens by row number, in the order of the rows; sort them by length. A batch
                has rows as long as its longest.
            run: function from row numbers to a result. After running out of memory it is called
                again for the first half.
            passages: passage by row number; the rows of a passage are consecutive, and are split
                only if they exceed a batch.
            most_rows: maximum rows of a batch.

        Yields:
            The row numbers of each batch, and the result.
        """
        waiting = deque(row_tokens)
        while waiting:
            batch = self._next_batch(waiting, row_tokens, passages or {}, most_rows)
            try:
                result = run(batch)
            except RuntimeError as error:
                self._halve(error, len(batch), max(row_tokens[number] for number in batch))
                continue
            for _ in batch:
                waiting.popleft()
            self.after_batch()
            yield batch, result

    def _next_batch(
        self,
        waiting: Iterable[int],
        row_tokens: Mapping[int, int],
        passages: Mapping[int, int],
        most_rows: int | None,
    ) -> list[int]:
        batch: list[int] = []
        longest = 0
        for number in waiting:
            longest = max(longest, row_tokens[number])
            is_full = (len(batch) + 1) * longest > self.batch_tokens or len(batch) == most_rows
            if batch and is_full:
                whole = [n for n in batch if n not in passages or passages[n] != passages[number]]
                return whole or batch
            batch.append(number)
        return batch

    def _halve(self, error: RuntimeError, num_rows: int, row_tokens: int) -> None:
        """Halve the batch size after running out of memory; raise any other error again."""
        if not is_out_of_memory(error) or num_rows == 1:
            raise error
        self.batch_tokens = max(1, row_tokens * (num_rows // 2))
        say(f"out of memory with {num_rows} rows in a batch; continuing with half of them")


class ModelRunner(Batcher):
    """Runs a network in batches that fit into memory.

    Attributes:
        network: the network, in evaluation mode.
        vocabulary: its k-mers; all that scores know of a model.
        context_tokens: positions of the network.
    """

    def __init__(self, model: LoadedModel, batch_tokens: int | None = None) -> None:
        """Wrap a loaded model."""
        self.network, self.vocabulary = model
        self.context_tokens: int = self.network.config.max_position_embeddings
        super().__init__(self.network, batch_tokens)
        self._head: Tensor | None = None

    @property
    def six_mers(self) -> Vocabulary:
        """The vocabulary of a model of Carbon's own.

        Raises:
            UserError: the model is another one, which cannot generate.
        """
        return six_mers(self.vocabulary)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype, such as `float32`."""
        return str(self.network.dtype).removeprefix("torch.")

    @cached_property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights: names, shapes and float32 values, in order of name.

        It depends neither on the location of the files nor on their sharding. The weights must not
        change afterwards.
        """
        digest = hashlib.sha256()
        for name, weight in sorted(self.network.named_parameters()):
            digest.update(f"{name} {tuple(weight.shape)}\n".encode())
            digest.update(weight.detach().float().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    @property
    def yarn(self) -> float | None:
        """Factor by which YaRN stretches the context; None without YaRN."""
        rope: Any = getattr(self.network.config, "rope_parameters", None) or {}
        return float(rope["factor"]) if rope.get("rope_type") == "yarn" else None

    @cached_property
    def masked_network(self) -> Any:
        """The network, or one that shares its weights, with an attention that accepts any mask.

        Flash-attn accepts only the mask of a padded batch.
        """
        if not self.network.config._attn_implementation.startswith("flash"):
            return self.network
        weights = itertools.chain(self.network.parameters(), self.network.buffers())
        network = copy.deepcopy(self.network, {id(weight): weight for weight in weights})
        network.set_attn_implementation("sdpa")
        return network

    def logits(self, states: Tensor) -> Tensor:
        """Return logits over the k-mers in fp32: (N, width) to (N, 4**k).

        The product is fp32 for any dtype of the network: in bfloat16, logits of 16 would have an
        error of 0.06 nats.
        """
        if self._head is None:
            head: Any = self.network.get_output_embeddings()  # type: ignore[no-untyped-call]
            ids = torch.from_numpy(self.vocabulary.ids).to(self.device)
            self._head = head.weight.detach()[ids].float()
        # For few rows the library may choose another kernel, with other last bits.
        rows = torch.nn.functional.pad(states.float(), (0, 0, 0, -len(states) % STEP_TOKENS))
        return torch.nn.functional.linear(rows, self._head)[: len(states)]

    @staticmethod
    def base_measure(by: By, *, conditionals: bool) -> Measure:
        """Return a measure of the bases of a token.

        Its (N, k) values are log-likelihoods in nats. With `conditionals` 4 k columns follow: p(b |
        all bases before it) of the four bases b at each of the k places.
        """
        likelihoods = LIKELIHOODS[by]
        if not conditionals:
            return likelihoods

        def both(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
            of_all = chain_probabilities(logits, kmers, known).flatten(1)
            return torch.cat([likelihoods(logits, kmers, known), of_all], dim=1)

        return both

    def likelihoods(self, passages: Sequence[Passage], by: By) -> list[list[NDArray[np.float32]]]:
        """Return log-likelihoods of bases in nats: a (tokens, k) array for each continuation."""
        return self.measure(passages, LIKELIHOODS[by])

    def conditionals(self, passages: Sequence[Passage]) -> list[list[NDArray[np.float32]]]:
        """Return log p(base | all before it) in nats: a (tokens, k, 4) array a continuation."""
        return self.measure(passages, chain_conditionals)

    def measure(
        self, passages: Sequence[Passage], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Apply `measure` to every token: a (tokens, ...) array for each continuation."""
        measured = self.measure_with_means(passages, measure)
        return [[each.values for each in of_passage] for of_passage in measured]

    def measure_with_means(
        self, passages: Sequence[Passage], measure: Measure
    ) -> list[list[Measured]]:
        """Apply `measure` to every token, and average the states of pools."""
        for passage in passages:
            self._check_length(longest_row_tokens(passage))
        rows = [
            row for number, passage in enumerate(passages) for row in batch_rows(number, passage)
        ]
        measured: list[list[Measured]] = [[] for _ in rows]
        owners = {number: row.passage for number, row in enumerate(rows)}
        same_shape: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for number, row in enumerate(rows):
            shape = row.shared_tokens, row.padded_tokens
            same_shape[shape][number] = row.padded_tokens
        for (shared_tokens, _), row_tokens in same_shape.items():
            run = self._measure_shared if shared_tokens else self._measure_rows
            run_batch = partial(_run_rows, run, rows, measure)
            for batch, of_rows in self.in_batches(row_tokens, run_batch, passages=owners):
                for n, of_row in zip(batch, of_rows, strict=True):
                    measured[n] = of_row
        flat = iter([each for of_row in measured for each in of_row])
        return [[next(flat) for _ in passage.continuations] for passage in passages]

    def states(
        self, rows: Sequence[Int64s], layer: int | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield `(number, states)` of rows of ids, states (tokens, width), in order of row length.

        Args:
            rows: token ids.
            layer: states after this many layers, 0 for the embeddings; if None, those after all
                layers and the last norm, which the head takes.
        """
        for row in rows:
            self._check_length(len(row))

        def run(batch: list[int]) -> list[Tensor]:
            return list(self._row_states([rows[n] for n in batch], layer))

        same_shape: dict[int, dict[int, int]] = defaultdict(dict)
        for number, row in enumerate(rows):
            same_shape[padded_length(len(row))][number] = padded_length(len(row))
        for row_tokens in same_shape.values():
            for batch, states in self.in_batches(row_tokens, run):
                for n, state in zip(batch, states, strict=True):
                    yield n, state[: len(rows[n])]

    def _check_length(self, tokens: int) -> None:
        if tokens > self.context_tokens:
            raise UserError(
                f"{tokens} tokens do not fit into the model's context of {self.context_tokens}; "
                "give shorter windows, or extend the context with YaRN"
            )

    @torch.inference_mode()
    def _row_states(self, rows: Sequence[Int64s], layer: int | None = None) -> Tensor:
        """Return the states of rows padded to one length: (rows, tokens, width)."""
        ids = self._padded_ids(rows, padded_length(max(map(len, rows))))
        if layer is None:
            return self._run(ids)
        return _states_after(self.network, ids, layer)

    def _run(self, ids: Tensor) -> Tensor:
        """Return the states of rows of ids: (rows, tokens, width)."""
        if not ids.shape[1]:  # the first token of a model without a begin token, alone
            head: Any = self.network.get_output_embeddings()  # type: ignore[no-untyped-call]
            none: Tensor = head.weight.new_zeros(*ids.shape, head.weight.shape[1])
            return none
        positions = self._positions(0, ids.shape[1])
        states: Tensor = self.network.base_model(input_ids=ids, use_cache=False, **positions)[0]
        return states

    def _positions(self, first: int, length: int) -> dict[str, Tensor]:
        """Return arguments that keep padding inside a table of positions; rotary ones have none."""
        if getattr(self.network.config, "rope_parameters", None):
            return {}
        places = torch.arange(first, first + length, device=self.device)
        return {"position_ids": places.clamp(max=self.context_tokens - 1)[None]}

    def _before(self, states: Tensor, first: int, num_tokens: int) -> Tensor:
        """Return the states that predict tokens of a row: (tokens, width).

        Nothing predicts the first token of a model without a begin token; zeros stand for its
        state, whose k-mers are equally likely.

        Args:
            states: (row, width), after each token of the row.
            first: position of the first predicted token.
            num_tokens: number of predicted tokens.
        """
        if first:
            return states[first - 1 : first - 1 + num_tokens]
        return torch.cat([states.new_zeros(1, states.shape[1]), states])[:num_tokens]

    def _padded_ids(self, rows: Sequence[Int64s], num_tokens: int) -> Tensor:
        # Attention is causal, so that any token may follow the end of a row.
        ids = np.full((len(rows), num_tokens), self.vocabulary.ids[0], dtype=np.int64)
        for padded, row in zip(ids, rows, strict=True):
            padded[: len(row)] = row
        return torch.from_numpy(ids).to(self.device)

    def _measure_rows(self, rows: Sequence[BatchRow], measure: Measure) -> list[list[Measured]]:
        """Measure rows without a shared prefix in one forward pass."""
        hidden = self._row_states([row.ids for row in rows])
        states, targets = [], []
        for row_states, row in zip(hidden, rows, strict=True):
            for continuation in row.continuations:
                states.append(self._before(row_states, len(row.prefix), len(continuation.ids)))
                targets.append(continuation)
        measured = iter(self._measure_states(states, targets, measure))
        return [[next(measured) for _ in row.continuations] for row in rows]

    @torch.inference_mode()
    def _measure_shared(self, rows: Sequence[BatchRow], measure: Measure) -> list[list[Measured]]:
        """Measure rows with shared prefixes of one length: prefixes first, then continuations."""
        shared, padded_tokens = rows[0].shared_tokens, rows[0].padded_tokens
        prefix_by_passage = {row.passage: row.prefix[:shared] for row in rows}
        indices = {passage: n for n, passage in enumerate(prefix_by_passage)}
        owner = [indices[row.passage] for row in rows]
        prefixes = torch.from_numpy(np.stack(list(prefix_by_passage.values()))).to(self.device)
        network = self.network.base_model
        output: Any = network(input_ids=prefixes, **cache_arguments(network))
        cache = cache_of(output)
        cache.batch_select_indices(torch.tensor(owner, device=self.device))
        ids = self._padded_ids([row.ids[shared:] for row in rows], padded_tokens - shared)
        positions = self._positions(shared, ids.shape[1])
        hidden = network(input_ids=ids, **cache_arguments(network, cache), **positions)[0]
        last = output[0][:, -1:]
        states, targets = [], []
        for n, row_states, row in zip(owner, hidden, rows, strict=True):
            (continuation,) = row.continuations
            first = len(row.prefix) - shared  # of the states from the last shared one on
            states.append(torch.cat([last[n], row_states])[first : first + len(continuation.ids)])
            targets.append(continuation)
        return [[measured] for measured in self._measure_states(states, targets, measure)]

    @torch.inference_mode()
    def tile(self, prefix: Int64s, tokens: Continuation, most_tokens: int) -> Tile:
        """Run a row once, and keep its keys and values.

        Args:
            prefix: ids of tags and the begin token.
            tokens: the tokens after them.
            most_tokens: tokens that the longest tile has, whose shape all have.

        Raises:
            UserError: the row exceeds the model's context.
        """
        ids = np.concatenate([prefix, tokens.ids])
        self._check_length(len(ids))
        rows = self._padded_ids([ids], padded_length(max(1, len(prefix) + most_tokens)))
        network = self.masked_network.base_model
        positions = self._positions(0, rows.shape[1])
        output: Any = network(input_ids=rows, **cache_arguments(network), **positions)
        return Tile(prefix, tokens, output[0], cache_of(output))

    def measure_tile(self, tile: Tile, measure: Measure) -> Measured:
        """Apply `measure` to a tile's own tokens."""
        states = self._before(tile.states[0], len(tile.prefix), len(tile.tokens.ids))
        return self._measure_states([states], [tile.tokens], measure)[0]

    def measure_continued(
        self, tile: Tile, continuations: Sequence[tuple[int, Continuation]], measure: Measure
    ) -> list[Measured]:
        """Apply `measure` to every token of continuations of a tile.

        Args:
            tile: the row that is continued.
            continuations: for each the number of the tile's tokens that it follows, without the
                prefix, and its tokens.
            measure: as for `measure`.
        """
        measured: dict[int, Measured] = {}
        same_shape: dict[int, dict[int, int]] = defaultdict(dict)
        for number, (follows, tokens) in enumerate(continuations):
            self._check_length(len(tile.prefix) + follows + len(tokens.ids) - 1)
            length = padded_length(len(tokens.ids) - 1)
            same_shape[length][number] = length

        def run(batch: list[int]) -> list[Measured]:
            return self._measure_continued(tile, [continuations[n] for n in batch], measure)

        for length, row_tokens in same_shape.items():
            most_rows = max(1, _CONTINUED_TOKENS // max(1, length))
            for batch, of_rows in self.in_batches(row_tokens, run, most_rows=most_rows):
                measured |= zip(batch, of_rows, strict=True)
        return [measured[number] for number in range(len(continuations))]

    def continued_conditionals(
        self, tile: Tile, follows: int, continuations: Sequence[Continuation]
    ) -> list[NDArray[np.float32]]:
        """Return log p(base | all before it) in nats: (tokens, k, 4) for each continuation.

        All run in one forward pass if it fits into memory, so that they differ by their tokens
        alone on any device.

        Args:
            tile: the row that is continued.
            follows: number of the tile's tokens that all continuations follow.
            continuations: their tokens, equally many.
        """
        num_tokens = len(continuations[0].ids) - 1
        self._check_length(len(tile.prefix) + follows + num_tokens)
        row_tokens = tile.states.shape[1] + padded_length(num_tokens)

        def run(batch: list[int]) -> list[NDArray[np.float32]]:
            rows = [(follows, continuations[number]) for number in batch]
            measured = self._measure_continued(tile, rows, chain_conditionals)
            return [each.values for each in measured]

        numbers = dict.fromkeys(range(len(continuations)), row_tokens)
        return [array for _, arrays in self.in_batches(numbers, run) for array in arrays]

    @torch.inference_mode()
    def _measure_continued(
        self, tile: Tile, rows: Sequence[tuple[int, Continuation]], measure: Measure
    ) -> list[Measured]:
        """Measure continuations of one padded length in one forward pass."""
        length = padded_length(max(len(tokens.ids) for _, tokens in rows) - 1)
        positions = [len(tile.prefix) + follows for follows, _ in rows]
        states = [self._before(tile.states[0], position, 1) for position in positions]
        if length:
            network = self.masked_network.base_model
            seen = torch.tensor(positions, device=self.device)
            places = seen[:, None] + torch.arange(length, device=self.device)
            hidden = network(
                input_ids=self._padded_ids([tokens.ids[:-1] for _, tokens in rows], length),
                attention_mask=self._mask_of_continued(tile, seen, length),
                position_ids=places.clamp(max=self.context_tokens - 1),
                **cache_arguments(network, _expanded(tile.cache, len(rows))),
            )[0]
            states = [
                torch.cat([before, row[: len(tokens.ids) - 1]])
                for before, row, (_, tokens) in zip(states, hidden, rows, strict=True)
            ]
        return self._measure_states(states, [tokens for _, tokens in rows], measure)

    def _mask_of_continued(self, tile: Tile, seen: Tensor, length: int) -> Tensor:
        """Return what each token may attend to: (rows, 1, length, tile tokens + length)."""
        of_tile = torch.arange(tile.states.shape[1], device=self.device) < seen[:, None]
        own = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
        return torch.cat(
            [
                of_tile[:, None, None].expand(-1, -1, length, -1),
                own.expand(len(seen), 1, -1, -1),
            ],
            dim=-1,
        )

    @torch.inference_mode()
    def _measure_states(
        self, states: Sequence[Tensor], targets: Sequence[Continuation], measure: Measure
    ) -> list[Measured]:
        """Measure the tokens that states predict, in chunks that bound the memory of logits."""
        if not states:
            return []
        flat = torch.cat(list(states))
        kmers = torch.from_numpy(np.concatenate([t.kmers for t in targets])).to(self.device)
        masks = np.concatenate([t.known for t in targets])
        known = torch.from_numpy(known_bases(masks, self.vocabulary.k)).to(self.device)
        chunks = [
            measure(self.logits(flat[at]), kmers[at], known[at])
            for at in (
                slice(i, i + _HEAD_TOKENS) for i in range(0, max(len(flat), 1), _HEAD_TOKENS)
            )
        ]
        values: NDArray[np.float32] = torch.cat(chunks).cpu().numpy()
        by_target = np.split(values, np.cumsum([len(t.ids) for t in targets])[:-1])
        means = map(partial(_mean_states, self.vocabulary.all_known), states, targets)
        return list(map(Measured, by_target, means))


def _mean_states(
    all_known: int, states: Tensor, tokens: Continuation
) -> tuple[NDArray[np.float32] | None, ...]:
    """Return the mean state of each pool, given the states that predict the tokens."""
    means = []
    for pool in tokens.pools:
        whole = tokens.known[pool.start : pool.stop] == all_known
        after = states[pool.start + 1 : pool.stop + 1]  # the state of a token predicts the next
        if not whole.all():
            after = after[torch.from_numpy(whole).to(states.device)]
        means.append(after.float().mean(dim=0).cpu().numpy() if whole.any() else None)
    return tuple(means)


def _expanded(cache: Any, num_rows: int) -> Any:
    """Return a KV cache of one row as one of several, which shares its memory until it grows."""
    expanded = copy.copy(cache)
    expanded.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in expanded.layers:
        layer.keys = layer.keys.expand(num_rows, -1, -1, -1)
        layer.values = layer.values.expand(num_rows, -1, -1, -1)
    return expanded


def _run_rows(
    run: Callable[[Sequence[BatchRow], Measure], list[T]],
    rows: Sequence[BatchRow],
    measure: Measure,
    numbers: list[int],
) -> list[T]:
    return run([rows[n] for n in numbers], measure)


def _states_after(network: Any, ids: Tensor, layer: int) -> Tensor:
    """Return the states after `layer` layers, without running later layers."""
    check_layer(network, layer)
    whole = network.base_model
    decoder = decoder_with(whole, layers=whole.layers[:layer], norm=torch.nn.Identity())
    states: Tensor = decoder(input_ids=ids, use_cache=False)[0]
    return states
