"""How many tokens memory holds at a time, and whether it ran out."""

import copy
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carbon.errors import UserError
from carbon.inference.checks import check_layer
from carbon.inference.options import By
from carbon.inference.passages import (
    STEP_TOKENS,
    Branch,
    Int64s,
    Passage,
    Row,
    rows_of,
    tokens_of,
    whole_steps,
)
from carbon.losses import chain, chain_conditionals, marginal
from carbon.model import LoadedModel
from carbon.model.load import keeping, kept_in
from carbon.progress import say
from carbon.tokenizer import known_bases

_CPU_BATCH_TOKENS = 8_192  # more at a time is slower
_MEMORY_SHARE = 0.5  # of what the weights leave, for one forward pass


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether memory ran out, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return True
    return "can't allocate memory" in str(error)  # what the allocator of the CPU says


def batch_tokens_of(network: Any) -> int:
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
    head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
    kv_width = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim
    # One layer's activations are alive at a time, the keys and values of all of them.
    token_bytes = itemsize * (kv_width + 12 * config.hidden_size + 4 * config.intermediate_size)
    room = _MEMORY_SHARE * (memory_bytes - weight_bytes) / token_bytes
    tokens = 1 << max(int(room).bit_length() - 1, 5)
    return tokens if device.type == "cuda" else min(tokens, _CPU_BATCH_TOKENS)


Decoder = TypeVar("Decoder", bound=nn.Module)


def decoder_with(decoder: Decoder, **modules: nn.Module) -> Decoder:
    """Return a decoder that shares all modules with another but for those that are named.

    The decoder that is passed in is not changed, so that several threads may run it.

    Args:
        decoder: a stock decoder, whose forward pass runs `embed_tokens`, `layers` and `norm`.
        **modules: by those names, what the new one runs instead; `nn.Identity()` runs nothing.
    """
    view = copy.copy(decoder)
    view._modules = {**decoder._modules, **modules}
    return view


class Observed(nn.Module):
    """A layer that runs as it is and passes the states after it to a function."""

    def __init__(self, layer: nn.Module, observe: Callable[[Tensor], None]) -> None:
        """Wrap a layer, which is not changed."""
        super().__init__()
        self._layer, self._observe = layer, observe

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Return what the layer returns."""
        output = self._layer(*inputs, **options)
        self._observe(output[0] if isinstance(output, tuple) else output)
        return output


T = TypeVar("T")

Measure = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From logits (N, 4096) fp32, true 6-mers (N,) and known bases (N, 6) to (N, ...) fp32."""

LIKELIHOODS: dict[By, Measure] = {"chain": chain, "marginals": marginal}

_HEAD_TOKENS = 2048  # of one product with the 4,096 rows


class ModelRunner:
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
        self.batch_tokens = batch_tokens or batch_tokens_of(self.network)
        self._head: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """That of the weights, by name, such as `float32`."""
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def yarn(self) -> float | None:
        """By how much YaRN stretches the context; None where it does not."""
        rope: Any = self.network.config.rope_parameters
        return float(rope["factor"]) if rope.get("rope_type") == "yarn" else None

    @cached_property
    def masked_network(self) -> Any:
        """The network, or one over the same weights, with an attention that takes any mask.

        Flash-attn takes no mask but that of a padded batch.
        """
        if not self.network.config._attn_implementation.startswith("flash"):
            return self.network
        weights = itertools.chain(self.network.parameters(), self.network.buffers())
        network = copy.deepcopy(self.network, {id(weight): weight for weight in weights})
        network.set_attn_implementation("sdpa")
        return network

    def logits(self, states: Tensor) -> Tensor:
        """Return logits over the 6-mers in fp32: (N, width) to (N, 4096).

        The product is fp32 whatever the dtype of the network: rounded to bfloat16, logits of 16
        would be right to 0.06 nats.
        """
        if self._head is None:
            self._head = self.network.lm_head.weight[self.vocabulary.kmer_rows].detach().float()
        # A product of few rows may take another path through the library, with other last bits.
        rows = torch.nn.functional.pad(states.float(), (0, 0, 0, -len(states) % STEP_TOKENS))
        return torch.nn.functional.linear(rows, self._head)[: len(states)]

    def likelihoods(self, passages: Sequence[Passage], by: By) -> list[list[NDArray[np.float32]]]:
        """Return the log-likelihoods of all bases: for each branch a (tokens, 6) array, in nats."""
        return self.measure(passages, LIKELIHOODS[by])

    def conditionals(self, passages: Sequence[Passage]) -> list[list[NDArray[np.float32]]]:
        """Return log p(base | all before it): for each branch a (tokens, 6, 4) array, in nats."""
        return self.measure(passages, chain_conditionals)

    def measure(
        self, passages: Sequence[Passage], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure every token of every branch: for each passage a list of (tokens, ...) arrays."""
        for passage in passages:
            self._check_length(tokens_of(passage))
        rows = [row for number, passage in enumerate(passages) for row in rows_of(number, passage)]
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
            alike[whole_steps(len(row))][number] = number
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
        if not is_out_of_memory(error) or num_rows == 1:
            raise error
        self.batch_tokens = max(1, row_tokens * (num_rows // 2))
        say(f"out of memory with {num_rows} rows at a time; going on with half of them")

    @torch.inference_mode()
    def _read_rows(self, rows: Sequence[Int64s], layer: int | None = None) -> Tensor:
        """Return the states of rows that are padded to one length: (rows, tokens, width)."""
        ids = self._padded_ids(rows, whole_steps(max(map(len, rows))))
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
        self, rows: Sequence[Row], measure: Measure
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
        self, rows: Sequence[Row], measure: Measure
    ) -> list[list[NDArray[np.float32]]]:
        """Measure rows that share so many tokens with others: stems first, then what follows."""
        shared, padded_tokens = rows[0].shared_tokens, rows[0].padded_tokens
        shares = {row.passage: row.stem[:shared] for row in rows}
        places = {passage: n for n, passage in enumerate(shares)}
        owner = [places[row.passage] for row in rows]
        stems = torch.from_numpy(np.stack(list(shares.values()))).to(self.device)
        output: Any = self.network.model(input_ids=stems, **keeping(self.network.model))
        kept = kept_in(output)
        kept.batch_select_indices(torch.tensor(owner, device=self.device))
        ids = self._padded_ids([row.ids[shared:] for row in rows], padded_tokens - shared)
        hidden = self.network.model(input_ids=ids, **keeping(self.network.model, kept))[0]
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
    run: Callable[[Sequence[Row], Measure], list[T]],
    rows: Sequence[Row],
    measure: Measure,
    numbers: list[int],
) -> list[T]:
    return run([rows[n] for n in numbers], measure)


def _states_behind(network: Any, ids: Tensor, layer: int) -> Tensor:
    """Return the states behind `layer` layers, without running those after them."""
    check_layer(network, layer)
    first = network.model.layers[:layer]
    decoder = decoder_with(network.model, layers=first, norm=torch.nn.Identity())
    states: Tensor = decoder(input_ids=ids, use_cache=False)[0]
    return states
