"""The baseline of all tasks: interpolated Markov models of order 0 to 16, and a codon-periodic one.

`p_k(b) = w p_ML(b | k bases) + (1 - w) p_{k-1}(b)`, from `p_{-1} = 1/4` up: the interpolation of
Jelinek and Mercer (1980), with a weight `w` for each order, count and number of different next
bases (as in Witten and Bell 1991), separate for contexts that were seen in full. The weights
maximise the likelihood of a tenth of the training bases under counts of the other nine tenths
(expectation maximisation); then all bases are counted, on both strands.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError

MAX_ORDER = 16  # bases that fit into 32 bits
_DENSE_ORDER = 12  # up to here words are counted in a table of 268 MB, above by sorting
_MOST_BITS = 15  # counts differ by their powers of two, up to this one
_SHALLOW = 4 * (_MOST_BITS + 1)  # buckets of contexts that were not seen in full
_NUM_BUCKETS = 2 * _SHALLOW
_PIECE_BP = 50_000
_TUNED_EVERY, _MOST_TUNED_PIECES = 10, 100  # pieces that the counts leave out, to choose weights
_TUNED_BP = 1_000_000  # most bases to choose weights on, both strands together
_EM_STEPS = 20
_BLOCK_BP = 1_000_000

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Codes = NDArray[np.integer[Any]]
"""(bases,), A=0 C=1 G=2 T=3, 4 where unknown."""

_CODE = np.full(256, 4, dtype=np.int64)
for _code, _base in enumerate("ACGT"):
    _CODE[ord(_base)] = _CODE[ord(_base.lower())] = _code


def base_codes(sequence: str) -> Int64s:
    """Return A=0 C=1 G=2 T=3, and 4 for any other letter: (bases,)."""
    return _CODE[np.frombuffer(sequence.encode("latin-1", errors="replace"), dtype=np.uint8)]


class Contexts(NamedTuple):
    """The bases before each base of a sequence.

    Attributes:
        keys: (bases,) uint32, the 16 bases before, the nearest in the highest bits, 0 if unknown.
        depths: (bases,) int8, number of known bases directly before, at most 16.
    """

    keys: NDArray[np.uint32]
    depths: NDArray[np.int8]

    def at(self, places: Any) -> "Contexts":
        """Return the contexts at some places."""
        return Contexts(self.keys[places], self.depths[places])

    def followed_by(self, code: int) -> "Contexts":
        """Return the contexts one base later, if the base between is known."""
        nearest = np.uint32(code << 2 * (MAX_ORDER - 1))
        depths = np.minimum(self.depths + 1, MAX_ORDER).astype(np.int8)
        return Contexts((self.keys >> np.uint32(2)) | nearest, depths)


def contexts_of(codes: Codes) -> Contexts:
    """Return the context of every base of a sequence."""
    keys = np.zeros(len(codes), dtype=np.uint32)
    for distance in range(1, min(MAX_ORDER, len(codes) - 1) + 1):
        before = (codes[:-distance] % 4).astype(np.uint32)
        keys[distance:] |= before << np.uint32(2 * (MAX_ORDER - distance))
    places = np.arange(len(codes))
    unknown = np.maximum.accumulate(np.where(codes > 3, places, -1))
    depths = places - 1 - np.concatenate([[-1], unknown[:-1]])[: len(codes)]
    return Contexts(keys, np.minimum(depths, MAX_ORDER).astype(np.int8))


class Labelled(NamedTuple):
    """Bases, and the model that each belongs to.

    Attributes:
        codes: (bases,).
        labels: (bases,), the number of a model.
    """

    codes: Codes
    labels: NDArray[np.int8]

    def turned(self, turned_labels: NDArray[np.int8]) -> "Labelled":
        """Return the other strand, where labels change by a table: (labels,)."""
        codes = np.array([3, 2, 1, 0, 4], dtype=self.codes.dtype)[self.codes]
        return Labelled(codes[::-1], turned_labels[self.labels[::-1]])


class Piece(NamedTuple):
    """A stretch of training bases on one strand.

    Attributes:
        bases: with their labels.
        is_tuned: whether weights are chosen on it.
    """

    bases: Labelled
    is_tuned: bool


def unlabelled(sequences: Iterable[str]) -> Iterator[Labelled]:
    """Yield sequences whose bases all belong to model 0."""
    for sequence in sequences:
        codes = base_codes(sequence).astype(np.uint8)
        yield Labelled(codes, np.zeros(len(codes), dtype=np.int8))


NO_LABELS = np.zeros(1, dtype=np.int8)
"""The table of `Labelled.turned` where there is one model."""


def pieces_of(
    sequences: Iterable[Labelled], total_bp: int, turned_labels: NDArray[np.int8] = NO_LABELS
) -> Iterator[Piece]:
    """Cut sequences into pieces, each on both strands."""
    piece_bp = max(1, min(_PIECE_BP, total_bp // (2 * _TUNED_EVERY)))
    every = max(_TUNED_EVERY, total_bp // piece_bp // _MOST_TUNED_PIECES)
    number = 0
    for codes, labels in sequences:
        for at in range(0, len(codes), piece_bp):
            piece = Labelled(codes[at : at + piece_bp], labels[at : at + piece_bp])
            is_tuned = number % every == every - 1
            yield Piece(piece, is_tuned)
            yield Piece(piece.turned(turned_labels), is_tuned)
            number += 1


Targets = tuple[Contexts, NDArray[np.uint8]]
"""Contexts and the bases that follow them; 4 for bases that are not counted."""


class Seen(NamedTuple):
    """Counts of the bases after some contexts, all cut to one order.

    Attributes:
        shares: (contexts, 4), the share of each base among the counted ones, 0 if none was.
        buckets: (contexts,), contexts that share a weight: of as many counts (by powers of two), as
            many different next bases, and seen up to the highest order, as repeats are, or not. 0
            where nothing was counted.
    """

    shares: Floats
    buckets: Int64s


class _Words(NamedTuple):
    """Counted words: a context and the base after it, in ascending order.

    Attributes:
        words: (words,) uint64, the key of the context and two bits for the base.
        times: (words,) how often each occurs.
    """

    words: NDArray[np.uint64]
    times: Int64s


def _words_of(order: int, targets: Iterable[Targets]) -> _Words:
    """Count the words of `order` context bases; unknown bases are in none."""
    shift = np.uint64(2 * (MAX_ORDER - order))
    packed = (_packed(order, shift, *each) for each in targets)
    if order > _DENSE_ORDER:
        found, times = np.unique(
            np.concatenate([np.zeros(0, dtype=np.uint64), *packed]), return_counts=True
        )
    else:
        dense = np.zeros(4 ** (order + 1), dtype=np.uint32)
        for words in packed:
            some, counts = np.unique(words, return_counts=True)
            dense[some] += counts.astype(np.uint32)
        found = np.flatnonzero(dense).astype(np.uint64)
        times = dense[found]
    keys, bases = found >> np.uint64(2), found & np.uint64(3)
    return _Words((keys << (shift + np.uint64(2))) | bases, times.astype(np.int64))


def _packed(
    order: int, shift: np.uint64, contexts: Contexts, bases: NDArray[np.uint8]
) -> NDArray[np.uint64]:
    counted = (bases < 4) & (contexts.depths >= order)
    keys = contexts.keys[counted].astype(np.uint64) >> shift
    words: NDArray[np.uint64] = (keys << np.uint64(2)) | bases[counted].astype(np.uint64)
    return words


def _merged(one: _Words, other: _Words) -> _Words:
    words, place = np.unique(np.concatenate([one.words, other.words]), return_inverse=True)
    times = np.zeros(len(words), dtype=np.int64)
    np.add.at(times, place, np.concatenate([one.times, other.times]))
    return _Words(words, times)


class ContextCounts:
    """Counts of the bases that follow contexts, for all orders up to the longest.

    Contexts of order k are the first 2k bits of a key. Keys that share them form one stretch of the
    sorted array, whose two ends give the counts. Twenty bytes for each different context.

    Attributes:
        order: the longest context.
    """

    def __init__(self, order: int, words: _Words) -> None:
        """Index counted words."""
        self.order = order
        keys = (words.words >> np.uint64(2)).astype(np.uint32)
        is_first = np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]
        self._keys = keys[is_first]
        counts = np.zeros((4, len(self._keys)), dtype=np.uint32)
        bases = (words.words & np.uint64(3)).astype(np.int64)
        counts[bases, np.cumsum(is_first) - 1] = words.times
        self._before = np.zeros((4, len(self._keys) + 1), dtype=np.uint32)
        np.cumsum(counts, axis=1, dtype=np.uint32, out=self._before[:, 1:])

    def seen(self, contexts: Contexts, highest: int) -> Iterator[Seen]:
        """Yield the counts from order 0 to the highest; fast if keys ascend."""
        is_repeat = self._counts(contexts.keys, highest).any(axis=1)
        in_full = np.where(is_repeat & (contexts.depths >= highest), _SHALLOW, 0)
        for order in range(highest + 1):
            counts = self._counts(contexts.keys, order)
            counts[contexts.depths < order] = 0
            totals = counts.sum(axis=1)
            shares = counts / np.maximum(totals, 1)[:, None]
            bits = np.minimum(np.frexp(totals)[1], _MOST_BITS)
            different = (counts > 0).sum(axis=1)
            yield Seen(shares, np.where(totals > 0, in_full + 4 * bits + different - 1, 0))

    def of_bases(self) -> Int64s:
        """Return how often each base was counted, (4,)."""
        counts: Int64s = self._counts(np.zeros(1, dtype=np.uint32), 0)[0]
        return counts

    def _counts(self, keys: NDArray[np.uint32], order: int) -> Int64s:
        """Return how often each base follows the contexts cut to an order, (contexts, 4)."""
        rest = np.uint32((1 << 2 * (MAX_ORDER - order)) - 1)
        first = np.searchsorted(self._keys, keys & ~rest, side="left")
        last = np.searchsorted(self._keys, keys | rest, side="right")
        # Sums may pass 32 bits; their differences do not.
        found = (self._before[:, last] - self._before[:, first]).astype(np.int64).T
        return np.ascontiguousarray(found)


class Training:
    """Counts of training bases, and the contexts on which weights are chosen.

    Attributes:
        order: the highest of its models.
    """

    def __init__(self, order: int, pieces: Iterable[Piece], label: int = 0) -> None:
        """Count the bases with a label; the first `order` bases of each piece are context only.

        Raises:
            UserError: the order is not 0 to 16, or no base has as many known bases before it.
        """
        if not 0 <= order <= MAX_ORDER:
            raise UserError(f"Markov order {order}: give 0 to {MAX_ORDER}")
        self.order = order
        tuned: list[Targets] = []
        rest = _words_of(order, _rest(pieces, label, tuned))
        every = _merged(rest, _words_of(order, tuned))
        if not len(every.words) and not label:
            raise UserError(f"no {order + 1} known bases in a row to fit a Markov model on")
        self.counts = ContextCounts(order, every)
        self._rest, self._tuned = ContextCounts(order, rest), _joined(tuned)

    def weights(self, order: int) -> list[Floats]:
        """Return a weight for each bucket of every order up to one, chosen in ascending order."""
        contexts, targets = self._tuned
        here = np.arange(len(targets))
        before = np.full(len(targets), 0.25)
        weights = []
        for seen in self._rest.seen(contexts, order):
            share = seen.shares[here, targets]
            weights.append(_best_weights(seen, share, before))
            before = before + weights[-1][seen.buckets] * (share - before)
        return weights


def _rest(pieces: Iterable[Piece], label: int, tuned: list[Targets]) -> Iterator[Targets]:
    """Yield the targets of pieces that are counted; put the others into a list."""
    for (codes, labels), is_tuned in pieces:
        targets = contexts_of(codes), np.where(labels == label, codes, 4).astype(np.uint8)
        if is_tuned:
            tuned.append(targets)
        else:
            yield targets


def _joined(parts: Sequence[Targets]) -> Targets:
    """Return all contexts with a known target, by ascending key, at most `_TUNED_BP`."""
    known = [(c.keys[t < 4], c.depths[t < 4], t[t < 4]) for c, t in parts]
    nothing = contexts_of(base_codes(""))
    known.append((nothing.keys, nothing.depths, np.zeros(0, dtype=np.uint8)))
    keys, depths, targets = (np.concatenate(each) for each in zip(*known, strict=True))
    kept = np.argsort(keys)[:: 1 + len(keys) // _TUNED_BP]
    return Contexts(keys[kept], depths[kept]), targets[kept]


def _best_weights(seen: Seen, share: Floats, before: Floats) -> Floats:
    """Return the most likely weight of each bucket; one base for and one against are added.

    Args:
        seen: the counts after some contexts.
        share: (contexts,), the share of the base that follows.
        before: (contexts,), its probability by the orders below.
    """
    weights = np.full(_NUM_BUCKETS, 0.5)
    weights[0] = 0.0
    members = np.bincount(seen.buckets, minlength=_NUM_BUCKETS)
    for _ in range(_EM_STEPS):
        of_share = weights[seen.buckets] * share
        posterior = of_share / (of_share + (1 - weights[seen.buckets]) * before)
        found = np.bincount(seen.buckets, posterior, minlength=_NUM_BUCKETS)
        weights = np.where(np.arange(_NUM_BUCKETS) > 0, (found + 1) / (members + 2), 0.0)
    return weights


class Interpolated:
    """The distribution of a base given the bases before it, interpolated over orders.

    Attributes:
        order: the highest.
    """

    def __init__(self, order: int, training: Training) -> None:
        """Choose the weights of an order, at most the order of the training."""
        self.order = order
        self._counts, self._weights = training.counts, training.weights(order)

    def probabilities(self, contexts: Contexts) -> Floats:
        """Return p(A, C, G, T) after each context, (contexts, 4)."""
        ascending = np.argsort(contexts.keys)
        rows = np.full((len(ascending), 4), 0.25)
        seen_by_order = self._counts.seen(contexts.at(ascending), self.order)
        for seen, weights in zip(seen_by_order, self._weights, strict=True):
            rows += weights[seen.buckets][:, None] * (seen.shares - rows)
        result = np.empty_like(rows)
        result[ascending] = rows
        return result


NUM_STATES = 7
NONCODING = 6
# The first base of a codon of the forward strand is 0, of the reverse strand 3.
TURNED = np.array([3, 4, 5, 0, 1, 2, NONCODING], dtype=np.int8)


class CodonPeriodic:
    """The distribution of a base, with its place in a codon inferred from the bases before it.

    Seven states: the three places of a codon on either strand, and all other bases. Each has an
    interpolated model, and the models are weighted by the probability of their states given the
    bases before (the forward recursion of Rabiner 1989, as in gene finders). The annotation of what
    is measured is not used.
    """

    def __init__(self, order: int, sequences: Sequence[Labelled]) -> None:
        """Fit a model for each state, and the transitions between states, on both strands.

        Args:
            order: the highest of each state's model.
            sequences: bases with their states, outside of the measured regions.
        """
        total_bp = sum(len(each.codes) for each in sequences)
        pieces = list(pieces_of(sequences, total_bp, TURNED))
        self._models = [
            Interpolated(order, Training(order, pieces, state)) for state in range(NUM_STATES)
        ]
        pairs = np.ones((NUM_STATES, NUM_STATES))
        for (_, labels), _ in pieces:
            pairs += np.bincount(
                NUM_STATES * labels[:-1].astype(np.int64) + labels[1:], minlength=NUM_STATES**2
            ).reshape(NUM_STATES, NUM_STATES)
        self.transitions = pairs / pairs.sum(axis=1, keepdims=True)
        self.start = pairs.sum(axis=1) / pairs.sum()

    def by_state(self, contexts: Contexts) -> Floats:
        """Return p(A, C, G, T) after each context by each state: (states, contexts, 4)."""
        return np.array([model.probabilities(contexts) for model in self._models])

    def base_log_likelihoods(self, codes: Int64s) -> Floats:
        """Return log p of every base given all bases before it, 0 where it is unknown: (bases,)."""
        likelihoods, _ = self._read(codes)
        result: Floats = np.where(codes < 4, np.log(likelihoods), 0.0)
        return result

    def states_after(self, codes: Int64s) -> Floats:
        """Return the probability of each state of the base after a sequence: (states,)."""
        _, states = self._read(codes)
        after: Floats = states @ self.transitions if len(codes) else self.start
        return after

    def _read(self, codes: Int64s) -> tuple[Floats, Floats]:
        contexts = contexts_of(codes)
        likelihoods, states = [np.zeros(0)], self.start
        for at in range(0, len(codes), _BLOCK_BP):
            some = codes[at : at + _BLOCK_BP]
            rows = self.by_state(contexts.at(slice(at, at + _BLOCK_BP)))
            emissions = rows[:, np.arange(len(some)), some % 4].T
            emissions[some > 3] = 1.0
            first = states @ self.transitions if at else states
            found, states = forward(first, self.transitions, emissions)
            likelihoods.append(found)
        return np.concatenate(likelihoods), states


def forward(start: Floats, transitions: Floats, emissions: Floats) -> tuple[Floats, Floats]:
    """Return p(base | all before it) of each base, (bases,), and the last base's states, (states,).

    Args:
        start: (states,), of the first base.
        transitions: (states, states), from the first to the second.
        emissions: (bases, states), p(base | state and context), 1 where the base is unknown.
    """
    result = np.empty(len(emissions))
    states = start
    for place, emission in enumerate(emissions):
        joint = (states @ transitions if place else states) * emission
        result[place] = total = joint.sum()
        states = joint / total
    return result, states


def states_of(
    length_bp: int, coding: Iterable[tuple[str, Sequence[tuple[int, int]], int]]
) -> NDArray[np.int8]:
    """Return the state of every base of a contig, (bases,); of two codons the later one counts.

    Args:
        length_bp: of the contig.
        coding: of each transcript the strand, the ascending coding spans, and the number of bases
            before the first whole codon as the strand reads them.
    """
    states = np.full(length_bp, NONCODING, dtype=np.int8)
    for strand, spans, phase_bp in coding:
        places = np.concatenate([np.arange(start, end) for start, end in spans]) % length_bp
        places = places if strand == "+" else places[::-1]
        within = (np.arange(len(places)) - phase_bp) % 3
        states[places] = within + (0 if strand == "+" else 3)
    return states
