"""Markov models that mix all orders up to 16, each trusted by how often its context was seen.

`p_k(b) = w p_ML(b | k bases) + (1 - w) p_{k-1}(b)`, from `p_{-1} = 1/4` up: the interpolation of
Jelinek and Mercer (1980), with a weight `w` for each order, count and number of different bases
behind the context (as in Witten and Bell 1991), apart for contexts that were seen in full. The
weights maximise the likelihood of a tenth of the training bases under counts of the other nine
(expectation maximisation); then all are counted.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.heldout.context_counts import (
    NUM_BUCKETS,
    Codes,
    ContextCounts,
    Contexts,
    Int64s,
    Part,
    Seen,
    contexts_of,
)
from eval.heldout.markov import base_codes

Floats = NDArray[np.float64]

_PIECE_BP = 50_000
_TUNED_EVERY = 10  # one piece in so many is left out of the counts, to choose weights on
_TUNED_BP = 1_000_000  # at most, on either strand
_EM_STEPS = 20
_BLOCK_BP = 1_000_000


class Labelled(NamedTuple):
    """Known bases and which of several models each belongs to.

    Attributes:
        codes: (bases,), A=0 C=1 G=2 T=3, 4 for anything else; pieces have a byte each.
        labels: (bases,), the number of a model.
    """

    codes: Codes
    labels: NDArray[np.int8]

    def turned(self, turned_labels: NDArray[np.int8]) -> "Labelled":
        """Return the other strand, where a label means another: (labels,)."""
        codes = np.array([3, 2, 1, 0, 4], dtype=self.codes.dtype)[self.codes]
        return Labelled(codes[::-1], turned_labels[self.labels[::-1]])


class MixedModel:
    """The distribution of a base given those before it, mixed over orders.

    Attributes:
        order: the highest.
    """

    def __init__(self, order: int, pieces: Sequence[Labelled], label: int = 0) -> None:
        """Learn weights and counts of the bases with a label."""
        self.order = order
        parts = [
            (contexts_of(codes), np.where(labels == label, codes, 4).astype(np.uint8))
            for codes, labels in pieces
        ]
        tuned = [part for n, part in enumerate(parts) if _is_tuned(n)]
        rest = [part for n, part in enumerate(parts) if not _is_tuned(n)]
        self._weights = _learned(ContextCounts(order, rest), tuned)
        self._counts = ContextCounts(order, parts)

    def probabilities(self, contexts: Contexts) -> Floats:
        """Return p(A, C, G, T) behind each context, (contexts, 4)."""
        ascending = np.argsort(contexts.keys)
        rows = np.full((len(ascending), 4), 0.25)
        in_order = Contexts(contexts.keys[ascending], contexts.depths[ascending])
        for seen, weights in zip(self._counts.seen(in_order), self._weights, strict=True):
            rows += weights[seen.buckets][:, None] * (seen.shares - rows)
        result = np.empty_like(rows)
        result[ascending] = rows
        return result


def _is_tuned(number: int) -> bool:
    # Either strand of a piece stands right behind the other.
    return number // 2 % _TUNED_EVERY == _TUNED_EVERY - 1


def _learned(counts: ContextCounts, parts: Sequence[Part]) -> list[Floats]:
    """Return a weight a bucket for every order, chosen one order after the other."""
    contexts, targets = _joined(parts)
    here = np.arange(len(targets))
    before = np.full(len(targets), 0.25)
    weights = []
    for seen in counts.seen(contexts):
        share = seen.shares[here, targets]
        weights.append(_best_weights(seen, share, before))
        before = before + weights[-1][seen.buckets] * (share - before)
    return weights


def _joined(parts: Sequence[Part]) -> Part:
    """Return all contexts with a known target, by ascending key, at most `_TUNED_BP`."""
    known = [(c.keys[t < 4], c.depths[t < 4], t[t < 4]) for c, t in parts]
    nothing = contexts_of(base_codes(""))
    known.append((nothing.keys, nothing.depths, np.zeros(0, dtype=np.uint8)))
    keys, depths, targets = (np.concatenate(each) for each in zip(*known, strict=True))
    kept = np.argsort(keys)[:: 1 + len(keys) // _TUNED_BP]
    return Contexts(keys[kept], depths[kept]), targets[kept]


def _best_weights(seen: Seen, share: Floats, before: Floats) -> Floats:
    """Return the likeliest weight of each bucket; one base for and one against are added.

    Args:
        seen: what the counts say of some contexts.
        share: (contexts,), the share of the base that does follow.
        before: (contexts,), its probability by the orders below.
    """
    weights = np.full(NUM_BUCKETS, 0.5)
    weights[0] = 0.0
    members = np.bincount(seen.buckets, minlength=NUM_BUCKETS)
    for _ in range(_EM_STEPS):
        of_share = weights[seen.buckets] * share
        posterior = of_share / (of_share + (1 - weights[seen.buckets]) * before)
        found = np.bincount(seen.buckets, posterior, minlength=NUM_BUCKETS)
        weights = np.where(np.arange(NUM_BUCKETS) > 0, (found + 1) / (members + 2), 0.0)
    return weights


class MixedMarkov:
    """A mixed model of whole sequences, counted on both strands."""

    def __init__(self, order: int, sequences: Iterable[str]) -> None:
        """Learn from training sequences; the first `order` bases of each are not counted."""
        codes = map(base_codes, sequences)
        plain = [Labelled(each, np.zeros(len(each), dtype=np.int8)) for each in codes]
        self._model = MixedModel(order, pieces_of(plain, np.zeros(1, dtype=np.int8)))

    def log_likelihoods(self, sequence: str) -> Floats:
        """Return log p of every base, NaN where it is unknown: (bases,)."""
        codes = base_codes(sequence)
        return log_of_known(probabilities_of([self._model], codes)[0], codes)


def pieces_of(sequences: Iterable[Labelled], turned_labels: NDArray[np.int8]) -> list[Labelled]:
    """Cut sequences into pieces, some of which can be left out, each before its other strand."""
    sequences = list(sequences)
    total_bp = sum(len(each.codes) for each in sequences)
    piece_bp = max(1, min(_PIECE_BP, total_bp // (2 * _TUNED_EVERY)))
    cut = [
        Labelled(codes[at : at + piece_bp].astype(np.uint8), labels[at : at + piece_bp])
        for codes, labels in sequences
        for at in range(0, len(codes), piece_bp)
    ]
    return [strand for piece in cut for strand in (piece, piece.turned(turned_labels))]


def probabilities_of(models: Sequence[MixedModel], codes: Int64s) -> Floats:
    """Return p(A, C, G, T) of every base by each model: (models, bases, 4)."""
    contexts = contexts_of(codes)
    result = np.empty((len(models), len(codes), 4))
    for start in range(0, len(codes), _BLOCK_BP):
        block = slice(start, start + _BLOCK_BP)
        some = Contexts(contexts.keys[block], contexts.depths[block])
        for rows, model in zip(result, models, strict=True):
            rows[block] = model.probabilities(some)
    return result


def log_of_known(rows: Floats, codes: Int64s) -> Floats:
    """Return log p of the bases that stand there, NaN where unknown; rows are (bases, 4)."""
    chosen = rows[np.arange(len(codes)), codes % 4]
    result: Floats = np.where(codes < 4, np.log(chosen), np.nan)
    return result
