"""The fine-tuned network and its losses: padded batches, a stock decoder, pooling, and a head."""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F
from transformers import PreTrainedModel

from carbon.errors import UserError
from carbon.finetune.config import VariantInput
from carbon.finetune.split import Input, input_bp, sequences_of
from carbon.genome import reverse_complement
from carbon.inference.checks import layers_of_decoder
from carbon.inference.options import POOLS, STRANDS_READ, Pool, Strands
from carbon.inference.runner import Batcher
from carbon.inference.score import overlapping_windows
from carbon.model import LoadedModel
from carbon.tokenizer import KmerVocabulary, six_mers


class Batch(NamedTuple):
    """Padded token rows; all tensors are on one device.

    Attributes:
        ids: (rows, longest) int64, counted from the first row of the DNA vocabulary: see
            `first_row`.
        weights: (rows, longest) float32, weight of each state in the vector of its row.
        pairs: for a label of every base: (2, k-mers), flat token index of each k-mer in the forward
            row, and in the reverse complement.
        bases: for a label of every base: (bases,), index of each real base among k per k-mer.
    """

    ids: Tensor
    weights: Tensor
    pairs: Tensor | None = None
    bases: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device."""
        return Batch(*(None if tensor is None else tensor.to(device) for tensor in self))  # type: ignore[arg-type]


MakeBatch = Callable[[Sequence[str]], Batch]
"""Makes a batch of sequences, at least one base each."""


def first_row(vocabulary: KmerVocabulary) -> int:
    """Return the first embedding row that DNA needs; text tokens come before it."""
    start: int = vocabulary.rows.start
    return start


def tokens_of(length_bp: int, pool: Pool, vocabulary: KmerVocabulary) -> int:
    """Return the tokens of a sequence, the begin token included."""
    return len(vocabulary.prefix()) - (-length_bp // vocabulary.k) + POOLS[pool].close


def room_bp(context_tokens: int, pool: Pool, vocabulary: KmerVocabulary) -> int:
    """Return the bases of the longest sequence that fits a context."""
    num_kmers = context_tokens - len(vocabulary.prefix()) - POOLS[pool].close
    return num_kmers * vocabulary.k


def batches(vocabulary: KmerVocabulary, pool: Pool, *, per_base: bool = False) -> MakeBatch:
    """Return a function that makes batches, for one vector per sequence or one per base."""
    if per_base:
        return lambda sequences: _batch_of_bases(sequences, vocabulary)
    return lambda sequences: _padded(sequences, vocabulary, pool)


def rows_of(inputs: Sequence[Input]) -> list[str]:
    """Return the sequences of a batch: one each, or every REF window and then every ALT window.

    >>> rows_of([("A", "C"), ("G", "T")])
    ['A', 'G', 'C', 'T']
    """
    return list(chain.from_iterable(zip(*map(sequences_of, inputs), strict=True)))


def turned(item: Input) -> Input:
    """Return an input on the other strand."""
    if isinstance(item, str):
        return reverse_complement(item)
    ref, alt = map(reverse_complement, item)
    return ref, alt


def _padded(sequences: Sequence[str], vocabulary: KmerVocabulary, pool: Pool) -> Batch:
    pooling = POOLS[pool]
    begin = np.array(vocabulary.prefix(), dtype=np.int64)
    end = np.array([six_mers(vocabulary).dna_end] if pooling.close else [], dtype=np.int64)
    longest = max(tokens_of(len(s), pool, vocabulary) for s in sequences)
    ids = np.zeros((len(sequences), longest), dtype=np.int64)
    weights = np.zeros((len(sequences), longest), dtype=np.float32)
    for row, sequence in enumerate(sequences):
        tokens = vocabulary.tokens(sequence)
        num_known = np.bitwise_count(tokens.known)
        size = len(begin) + len(tokens.ids) + len(end)
        ids[row, :size] = np.concatenate([begin, tokens.ids, end]) - first_row(vocabulary)
        if pooling.last_alone:
            weights[row, size - 1] = 1
        else:
            weights[row, len(begin) : len(begin) + len(num_known)] = num_known
    return Batch(torch.from_numpy(ids), torch.from_numpy(weights))


def _batch_of_bases(sequences: Sequence[str], vocabulary: KmerVocabulary) -> Batch:
    """Read both strands: forward rows first, then their reverse complements in the same order.

    A tail of fewer than k bases is padded with A. The reverse complement is padded with T in front,
    so that both have the same k-mer boundaries: k-mer t of n is the complement of n - 1 - t.
    """
    k, num_begin = vocabulary.k, len(vocabulary.prefix())
    turned = ["T" * (-len(s) % k) + reverse_complement(s) for s in sequences]
    batch = _padded([*sequences, *turned], vocabulary, "mean")
    num_rows, longest = batch.ids.shape
    num_kmers = np.array([-(-len(s) // k) for s in sequences])
    starts = longest * np.arange(num_rows) + num_begin  # of the first k-mer of each row
    forward = [start + np.arange(n) for start, n in zip(starts, num_kmers, strict=False)]
    reverse = [
        start + np.arange(n - 1, -1, -1)
        for start, n in zip(starts[len(sequences) :], num_kmers, strict=True)
    ]
    first_bases = k * (np.cumsum(num_kmers) - num_kmers)
    bases = [first + np.arange(len(s)) for first, s in zip(first_bases, sequences, strict=True)]
    return batch._replace(
        pairs=torch.from_numpy(np.stack([np.concatenate(forward), np.concatenate(reverse)])),
        bases=torch.from_numpy(np.concatenate(bases)),
    )


class Head(nn.Module):
    """Layer norm, if requested, and a linear map with a bias, in float32."""

    def __init__(self, width: int, num_outputs: int, *, norm: bool = True, parts: int = 1) -> None:
        """Initialise the map with small random weights, so that outputs start near their bias.

        Each of several parts of the vector has its own norm: the difference of two alleles is
        small compared with either of them.
        """
        super().__init__()
        self.norm: nn.Module = nn.Identity()
        if norm:
            self.norm = (
                nn.LayerNorm(width, dtype=torch.float32)
                if parts == 1
                else nn.GroupNorm(parts, width, dtype=torch.float32)
            )
        self.linear = nn.Linear(width, num_outputs, dtype=torch.float32)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (N, outputs) float32 of (N, width)."""
        outputs: Tensor = self.linear(self.norm(vectors.float()))
        return outputs.float()


class FinetunedNetwork(nn.Module):
    """A stock backbone and a head.

    The vector of a sequence is the mean of its states weighted by known bases, or its last state,
    as `carbon.inference.options.POOLS` defines; it equals `Model.embed`.

    A causal state depends on the bases to its left only. For a label of every base the reverse
    complement is read too, and the head takes two states for each k-mer: of the forward pass and of
    the reverse pass. It gives k times the outputs of a base.

    Attributes:
        backbone: a stock decoder, or one inside a peft model. Its embedding
            has the rows of DNA only, which keeps gradients and optimizer moments small.
        head: maps vectors to logits.
        per_base: whether every base has a row of outputs.
        variant_input: what is read of a variant, key of `VARIANT_INPUTS`.
        k: bases of a token.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        *,
        k: int,
        per_base: bool = False,
        variant_input: VariantInput = "alt",
    ) -> None:
        """Store backbone and head."""
        super().__init__()
        self.backbone, self.head, self.per_base = backbone, head, per_base
        self.variant_input, self.k = variant_input, k

    def forward(self, batch: Batch) -> Tensor:
        """Return logits, float32: (rows, outputs), or (bases of all rows, outputs)."""
        states = self.states(batch)
        if not self.per_base:
            logits: Tensor = self.head(vectors_of_rows(states, batch, self.variant_input))
            return logits
        assert batch.bases is not None
        of_tokens: Tensor = self.head(both_sides(states, batch))
        return of_tokens.view(len(of_tokens) * self.k, -1).index_select(0, batch.bases)

    def states(self, batch: Batch) -> Tensor:
        """Return the state of every token after the last layer and norm: (rows, longest, width)."""
        output: Any = self.backbone(input_ids=batch.ids, use_cache=False)
        states: Tensor = output.last_hidden_state
        return states


def pooled(states: Tensor, batch: Batch) -> Tensor:
    """Return the weighted mean of each row's states: (rows, width) float32, NaN for zero weight."""
    sums = torch.einsum("rtw,rt->rw", states.float(), batch.weights)
    return sums / batch.weights.sum(dim=1, keepdim=True)


Combine = Callable[[Tensor, Tensor], Tensor]
"""Maps vectors with REF and with ALT, (variants, width) each, to (variants, 2 x width)."""

COMBINED: dict[VariantInput, Combine] = {
    "ref_and_difference": lambda ref, alt: torch.cat([ref, alt - ref], dim=1),
    "sum_and_distance": lambda ref, alt: torch.cat([ref + alt, (alt - ref).abs()], dim=1),
}
"""Features of both alleles; `alt` reads one."""


def num_alleles(variant_input: VariantInput) -> int:
    """Return the windows that are read of a variant, which is also the parts of its features."""
    return 1 + (variant_input in COMBINED)


def vectors_of_rows(states: Tensor, batch: Batch, variant_input: VariantInput) -> Tensor:
    """Return one float32 vector of each example: its pooled states, or those of both alleles.

    The vectors of two alleles agree in their first digits, so that they are subtracted in float32
    even where the decoder runs in bfloat16.
    """
    if variant_input not in COMBINED:
        return pooled(states, batch)
    with torch.autocast(states.device.type, enabled=False):
        ref, alt = pooled(states, batch).chunk(2)
        return COMBINED[variant_input](ref, alt)


def both_sides(states: Tensor, batch: Batch) -> Tensor:
    """Return the states of each k-mer in both passes, concatenated: (k-mers, 2 x width)."""
    assert batch.pairs is not None
    flat = states.flatten(0, 1)
    return torch.cat([flat.index_select(0, places) for places in batch.pairs], dim=1)


class OpenedModel:
    """A loaded model whose decoder is prepared for fine-tuning, and can be restored.

    Attributes:
        model: a model; unusable for other purposes until `closed` is called.
        backbone: its decoder. The embedding has the rows of DNA only.
    """

    def __init__(self, model: LoadedModel, layer: int | None = None) -> None:
        """Prepare a model.

        Args:
            model: a model whose decoder has layers.
            layer: use this number of layers and no final norm; all layers and the norm if None.

        Raises:
            UserError: the model has fewer layers, or no layers that run one by one.
        """
        self.model = model
        self.backbone: Any = model.network.base_model
        layers_of_decoder(self.backbone)
        whole: Any = self.backbone
        self._whole = (whole.embed_tokens, whole.layers, whole.norm)
        num_layers = len(whole.layers)
        if layer is not None:
            if not 0 <= layer <= num_layers:
                raise UserError(f"layer {layer}: the model has {num_layers}; give 0 to that")
            whole.layers, whole.norm = whole.layers[:layer], nn.Identity()
            whole.config.num_hidden_layers = layer
        whole.embed_tokens = _embedding_of(whole.embed_tokens, model.vocabulary.rows)

    def closed(self) -> PreTrainedModel:
        """Restore the model, with the fine-tuned weights, and return it."""
        backbone = self.backbone
        embeddings = backbone.embed_tokens.weight.detach()
        backbone.embed_tokens, backbone.layers, backbone.norm = self._whole
        with torch.no_grad():
            backbone.embed_tokens.weight[self.model.vocabulary.rows] = embeddings
        backbone.config.num_hidden_layers = len(backbone.layers)
        return self.model.network


def _embedding_of(whole: nn.Embedding, rows: slice) -> nn.Embedding:
    """Return an embedding that has a copy of some rows, and is otherwise computed as the whole.

    Some networks scale the rows inside their embedding, such as Gemma.
    """
    part = copy.copy(whole)
    weight = nn.Parameter(whole.weight.detach()[rows].clone())
    part._parameters, part._buffers = {"weight": weight}, dict(whole._buffers)
    part.num_embeddings, part.padding_idx = len(weight), None
    return part


class SequenceWindow(NamedTuple):
    """A window of a sequence.

    Attributes:
        sequence: its number.
        start: start of the window in the sequence.
        item: bases to read, of both alleles for a variant.
        is_turned: whether they are the window's reverse complement.
    """

    sequence: int
    start: int
    item: Input
    is_turned: bool

    @property
    def bases(self) -> str:
        """The bases to read; of a variant with ALT."""
        return sequences_of(self.item)[-1]


_KNOWN = re.compile("[ACGTacgt]")


def windows_read(sequence: str, room_bp: int, k: int, *, tile: bool) -> Iterator[tuple[int, str]]:
    """Yield start and bases of each window of a sequence that has a known base.

    Args:
        sequence: DNA in either case.
        room_bp: bases of the longest window.
        k: bases of a token.
        tile: use windows that overlap by half; otherwise only the first.
    """
    starts = [start for start, _ in overlapping_windows(len(sequence), room_bp, k)] if tile else [0]
    for start in starts:
        bases = sequence[start : start + room_bp]
        if _KNOWN.search(bases):
            yield start, bases


def _windows_of(item: Input, room_bp: int, k: int, *, tile: bool) -> Iterator[tuple[int, Input]]:
    """Yield what `windows_read` yields; both alleles of a variant are one window, if known."""
    if isinstance(item, str):
        yield from windows_read(item, room_bp, k, tile=tile)
    elif all(map(_KNOWN.search, item)):
        yield 0, item


class Averager:
    """Runs a network over strands and windows of sequences, and averages its outputs.

    Attributes:
        network: maps a `Batch` to (rows, width), or to several rows for each row of the batch.
        room_bp: bases of the longest sequence that is read whole.
        width: length of each vector.
        batcher: runs rows in batches that fit into memory.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        backbone: Any,
        vocabulary: KmerVocabulary,
        pool: Pool,
        width: int,
        *,
        per_base: bool = False,
        size_of: Callable[[int], int] | None = None,
    ) -> None:
        """Wrap a network whose decoder is `backbone`.

        Args:
            network: maps a `Batch` to vectors.
            backbone: its decoder.
            vocabulary: vocabulary of the embedding rows.
            pool: states that form the vector of a sequence.
            width: length of each vector.
            per_base: whether every base is predicted, which needs the reverse complement too.
            size_of: maps the bases of a row to its number of vectors; all bases if `per_base`, else
                1.
        """
        self.network = network
        self.room_bp = room_bp(backbone.config.max_position_embeddings, pool, vocabulary)
        self.batcher = Batcher(backbone)
        self.width, self._pool, self._per_base = width, pool, per_base
        self._size_of = size_of or (lambda bases: bases if per_base else 1)
        self._vocabulary = vocabulary
        self._batch = batches(vocabulary, pool, per_base=per_base)

    @property
    def k(self) -> int:
        """Bases of a token."""
        return self._vocabulary.k

    @property
    def batch_tokens(self) -> int:
        """Maximum tokens of a forward pass."""
        return self.batcher.batch_tokens

    def means(
        self, sequences: Sequence[Input], strands: Strands, *, tile: bool
    ) -> list[NDArray[np.float64]]:
        """Return the mean over strands and windows: (width,) each, or (bases, width).

        Windows without a known base are ignored. The mean is NaN without any window, and for bases
        that no window holds. Without `tile`, sequences are truncated to the context.
        """
        per_base, width = self._per_base, self.width
        shapes = [(len(s), width) if per_base else (width,) for s in sequences]
        sums = [np.zeros(shape) for shape in shapes]
        counts = [np.zeros((*shape[:-1], 1)) for shape in shapes]
        windows = list(self.windows(sequences, strands, tile=tile))
        for window, vectors in zip(windows, self.read(windows), strict=True):
            size = len(window.bases)
            at = slice(window.start, window.start + size) if per_base else slice(None)
            forward = vectors[::-1] if per_base and window.is_turned else vectors
            # Weight windows by their bases, and predictions of a base equally.
            weight = 1 if per_base else size
            sums[window.sequence][at] += weight * forward
            counts[window.sequence][at] += weight
        with np.errstate(invalid="ignore"):
            return [total / count for total, count in zip(sums, counts, strict=True)]

    def windows(
        self, sequences: Sequence[Input], strands: Strands, *, tile: bool
    ) -> Iterator[SequenceWindow]:
        """Yield the windows of each sequence with a known base, without `tile` only the first."""
        for number, sequence in enumerate(sequences):
            for start, item in _windows_of(sequence, self.room_bp, self.k, tile=tile):
                for strand in STRANDS_READ[strands]:
                    is_turned = strand == "-"
                    read = turned(item) if is_turned else item
                    yield SequenceWindow(number, start, read, is_turned)

    @torch.inference_mode()
    def read(self, windows: Sequence[SequenceWindow]) -> list[NDArray[np.float32]]:
        """Return the vectors of each window; windows of similar length share a batch."""
        lengths = [
            tokens_of(input_bp(w.item), self._pool, self._vocabulary)
            * len(sequences_of(w.item))
            * (1 + self._per_base)
            for w in windows
        ]
        vectors: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(windows)
        device = next(self.network.parameters()).device

        def run(group: list[int]) -> list[NDArray[np.float32]]:
            rows = rows_of([windows[n].item for n in group])
            logits = self.network(self._batch(rows).to(device)).cpu().numpy()
            ends = np.cumsum([self._size_of(len(windows[n].bases)) for n in group])
            return np.split(logits, ends[:-1])

        by_length = sorted(range(len(windows)), key=lambda n: lengths[n])
        row_tokens = {n: lengths[n] for n in by_length}
        for group, parts in self.batcher.in_batches(row_tokens, run):
            for n, part in zip(group, parts, strict=True):
                vectors[n] = part if self._per_base else part[0]
        return vectors


LEAST_FOR_CORRELATION = 3
"""With two rows the correlation is always 1 or -1, and its gradient 0."""
_FLOOR = 1e-8  # minimum product of two sums of squares, as published
_HUBER_SHARE = 0.2  # as published for DREAM 2022

Sum = Callable[[Tensor], Tensor]
Total = Callable[[Tensor, Tensor, Tensor, Sum], Tensor]
"""Maps logits, targets, their weights and a sum over processes to a weighted total."""


def mean_loss(
    name: str,
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    total_weight: float | Tensor | None = None,
    *,
    alone: bool = False,
) -> Tensor:
    """Return a loss whose mean over processes is the loss of all rows.

    Args:
        name: key of `LOSSES`.
        logits: (rows, outputs), any floating type; the loss is computed in float32.
        targets: (rows, columns), NaN where unknown.
        weights: (rows, columns), weights of the targets, 0 where unknown.
        total_weight: sum over all microbatches of a step on all processes; of this microbatch if
            None. 0 gives a loss of 0.
        alone: compute the loss of this process without waiting for others.
    """
    summed, num_processes = (_same, 1) if alone else (_summed, _num_processes())
    total = LOSSES[name](logits.float(), targets.float(), weights.float(), summed)
    all_weight = summed(weights.sum().float().detach()) if total_weight is None else total_weight
    divisor = torch.as_tensor(all_weight, dtype=torch.float32, device=total.device)
    return total * (num_processes / divisor.clamp(min=torch.finfo(torch.float32).tiny))


def _same(values: Tensor) -> Tensor:
    return values


def _cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total cross-entropy of class indices in the only column."""
    known = torch.nan_to_num(targets[:, 0]).long()
    return weights[:, 0] @ F.cross_entropy(logits, known, reduction="none")


def _binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total of columns of 0 and 1, each with its own logit."""
    known = torch.nan_to_num(targets)
    return (weights * F.binary_cross_entropy_with_logits(logits, known, reduction="none")).sum()


def _squared(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    return (weights * (logits - _known(targets, logits)) ** 2).sum()


def _huber(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total of Huber's loss (1964): half the square up to 1, then linear."""
    return (weights * F.huber_loss(logits, _known(targets, logits), reduction="none")).sum()


def _known(targets: Tensor, logits: Tensor) -> Tensor:
    """Return targets, replaced by the logits where unknown, so that their gradient is 0."""
    return torch.where(torch.isnan(targets), logits.detach(), targets)


def _correlation(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return 1 - Pearson's r over the rows of all processes, mean over columns, times the weight
    here.

    Each column's r is computed from sums over all processes, so that processes may differ in their
    number of rows. A column with fewer than three rows has its squared error instead. Published for
    DeepSTARR and DREAM 2022 in the Carbon report, D.4, for the rows of one process and of all.
    """
    of_column = _correlation_by_column(logits, targets, (weights > 0).float(), summed)
    return of_column.mean() * weights.sum()


def _correlation_by_column(logits: Tensor, targets: Tensor, known: Tensor, summed: Sum) -> Tensor:
    values = _known(targets, logits)
    sums = torch.stack([known.sum(0), (known * logits).sum(0), (known * values).sum(0)])
    number, *of = summed(sums)
    number = number.detach()
    x, y = (a - total / number.clamp(min=1) for a, total in zip((logits, values), of, strict=True))
    error = logits - values
    products = [(known * a * b).sum(0) for a, b in ((x, x), (y, y), (x, y), (error, error))]
    xx, yy, xy, squared = summed(torch.stack(products))
    r = xy / (xx * yy).clamp(min=_FLOOR).sqrt()
    return torch.where(number < LEAST_FOR_CORRELATION, squared / number.clamp(min=1), 1 - r)


def _correlation_and_huber(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return 1 - r, which is scale-free, plus a fifth of Huber's loss, which sets the scale."""
    both = [of(logits, targets, weights, summed) for of in (_correlation, _huber)]
    return both[0] + _HUBER_SHARE * both[1]


LOSSES: dict[str, Total] = {
    "cross_entropy": _cross_entropy,
    "binary_cross_entropy": _binary_cross_entropy,
    "mse": _squared,
    "huber": _huber,
    "correlation": _correlation,
    "correlation_huber": _correlation_and_huber,
}


OF_A_WHOLE_BATCH = frozenset({"correlation", "correlation_huber"})
"""Losses that are not sums over rows: the mean over two halves differs from the whole."""


def _summed(values: Tensor) -> Tensor:
    """Return a sum over processes whose gradient is summed over processes too."""
    total: Tensor = values if _num_processes() == 1 else all_reduce(values)  # type: ignore[no-untyped-call]
    return total


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
