"""Scores of every base of a region: windows, their combination over passes, and chunks."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Interval, Reference, reverse_complement
from carbon.inference.checks import check_finite, check_interval
from carbon.inference.options import COMBINATIONS, SIDES, STRANDS_READ
from carbon.inference.passages import Passage, continuation_of, prefix_of
from carbon.inference.scan.both_sides import num_tile_tokens, score_tile
from carbon.inference.scan.method import ScanMethod
from carbon.inference.scan.windows import ScanWindow, passes, window_blocks, windows_per_block

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

Float32s = NDArray[np.float32]

SCANNED_BASES = "ACGT"


class ScanChunk(NamedTuple):
    """Scanned bases of a contig.

    Attributes:
        interval: their interval.
        bases: the reference, upper-case.
        log_probabilities: (bases, 4) float32, in nats, of A, C, G and T on the forward strand.
        tokens_read: input tokens of the network since the previous chunk, with `<dna>` and tags.
    """

    interval: Interval
    bases: str
    log_probabilities: Float32s
    tokens_read: int

    @property
    def is_base(self) -> NDArray[np.bool_]:
        """Whether each base is the reference base: (bases, 4); the row of an N is all false."""
        letters = np.frombuffer(self.bases.encode("ascii"), dtype=np.uint8)
        is_base: NDArray[np.bool_] = letters[:, None] == np.frombuffer(b"ACGT", dtype=np.uint8)
        return is_base

    @property
    def log_p_ref(self) -> Float32s:
        """Log-probability of the reference base, (bases,); NaN where it is unknown."""
        chosen = np.where(self.is_base, self.log_probabilities, 0).sum(axis=1)
        return np.where(self.is_base.any(axis=1), chosen, np.float32(np.nan))

    @property
    def deltas(self) -> Float32s:
        """Log p(base) - log p(reference base): (bases, 4), 0 for the reference base, or NaN."""
        deltas: Float32s = self.log_probabilities - self.log_p_ref[:, None]
        return deltas

    @property
    def mean_delta(self) -> Float32s:
        """Mean delta of the three SNVs, (bases,); NaN where the reference is unknown."""
        mean: Float32s = self.deltas.sum(axis=1) / np.float32(3)
        return mean

    @property
    def worst_delta(self) -> Float32s:
        """Lowest delta of the three SNVs, (bases,); NaN where the reference is unknown."""
        worst: Float32s = np.where(self.is_base, np.float32(np.inf), self.deltas).min(axis=1)
        return worst

    @property
    def entropy_nats(self) -> Float32s:
        """Entropy of the four bases, (bases,): 0 if one is certain, 1.386 if uniform."""
        entropy: Float32s = -(np.exp(self.log_probabilities) * self.log_probabilities).sum(axis=1)
        return entropy


def join_chunks(chunks: Iterable[ScanChunk]) -> ScanChunk:
    """Return consecutive chunks as one, for a region that fits into memory.

    Raises:
        ValueError: there are no chunks.
    """
    parts = list(chunks)
    if not parts:
        raise ValueError("no chunk to join: was the interval empty?")
    first, last = parts[0].interval, parts[-1].interval
    return ScanChunk(
        Interval(first.contig, first.start, last.end),
        "".join(chunk.bases for chunk in parts),
        np.concatenate([chunk.log_probabilities for chunk in parts]),
        sum(chunk.tokens_read for chunk in parts),
    )


# Order of the chain's columns, ATCG, as ACGT of the forward strand.
_COLUMNS = {"+": [0, 2, 3, 1], "-": [1, 3, 2, 0]}


class WindowValues(NamedTuple):
    """Scores of some windows.

    Attributes:
        values: (scored bases, 4) float32 for each window, as `ScanChunk.log_probabilities`.
        tokens_read: input tokens of the network, for all windows.
    """

    values: list[Float32s]
    tokens_read: int


def scan_region(
    runner: "ModelRunner", reference: Reference, region: Interval, method: ScanMethod
) -> Iterator[ScanChunk]:
    """Return an iterator over the chunks of a region, each complete for all offsets and strands.

    Memory depends on the window, not on the region.

    Raises:
        GenomeError: the reference lacks the contig, or the region extends past its end.
    """
    check_interval(region)
    reference.fetch(
        Interval(region.contig, region.end, region.end)
    )  # raises errors before the first chunk
    blocks = window_blocks(reference, [region], method, windows_per_block(runner, method))
    scored = ((block, score_windows(runner, reference, block, method)) for block in blocks)
    return chunks_of(scored, reference, [region], method)


def score_windows(
    runner: "ModelRunner", reference: Reference, block: Sequence[ScanWindow], method: ScanMethod
) -> WindowValues:
    """Return the scores of some windows."""
    return _SCORERS[method.sides](runner, reference, block, method)


def _from_the_left(
    runner: "ModelRunner", reference: Reference, block: Sequence[ScanWindow], method: ScanMethod
) -> WindowValues:
    """Score bases by the bases before them, from one forward pass of each window."""
    passages = [_passage(runner, reference, window, method.tags) for window in block]
    measured = runner.conditionals(passages)
    values = [_on_contig(window, steps) for window, (steps,) in zip(block, measured, strict=True)]
    return WindowValues(
        values, sum(len(p.prefix) + len(p.continuations[0].ids) - 1 for p in passages)
    )


def _from_both_sides(
    runner: "ModelRunner", reference: Reference, block: Sequence[ScanWindow], method: ScanMethod
) -> WindowValues:
    """Score bases by the bases on both sides, each with continuations of its tile."""
    values = [score_tile(runner, reference, window, method) for window in block]
    tokens = [num_tile_tokens(runner, reference, window, method) for window in block]
    return WindowValues(values, sum(tokens))


_SCORERS = {"left": _from_the_left, "both": _from_both_sides}


def chunks_of(
    blocks: Iterable[tuple[Sequence[ScanWindow], WindowValues]],
    reference: Reference,
    regions: Sequence[Interval],
    method: ScanMethod,
) -> Iterator[ScanChunk]:
    """Yield the chunks of regions in order, each complete for all offsets and strands.

    Args:
        blocks: blocks of `window_blocks`, with their scores.
        reference: the reference sequence.
        regions: in the order of the blocks; they do not overlap, and none is empty unless it is the
            only one.
        method: scanning method.

    Raises:
        ModelError: the score of a base is not finite.
    """
    region_of, tokens_read = _finder(regions), 0
    open_region: _OpenRegion | None = None
    for block, scores in blocks:
        tokens_read += scores.tokens_read
        pairs = zip(block, scores.values, strict=True)
        for region, windows in groupby(pairs, key=lambda pair: region_of(pair[0])):
            if open_region is None or open_region.region != region:
                open_region = _OpenRegion(region, method)
            for window, values in windows:
                open_region.add(window, values)
            if chunk := open_region.ready(reference, tokens_read):
                yield chunk
                tokens_read = 0


def _finder(regions: Sequence[Interval]) -> Callable[[ScanWindow], Interval]:
    """Return a function from a window to the region that it scores."""
    by_contig: dict[str, list[Interval]] = {}
    for region in regions:
        by_contig.setdefault(region.contig, []).append(region)
    starts = {contig: [r.start for r in in_contig] for contig, in_contig in by_contig.items()}

    def region_of(window: ScanWindow) -> Interval:
        number = bisect_right(starts[window.contig], window.contig_start) - 1
        return by_contig[window.contig][number]

    return region_of


class _OpenRegion:
    """A region whose windows arrive, with the scores that are not in a chunk yet."""

    def __init__(self, region: Interval, method: ScanMethod) -> None:
        self.region = region
        self._method = method
        self._start = region.start
        # Scores of each pass from the start on.
        self._passes = [np.empty((0, 4), dtype=np.float32) for _ in passes(method)]

    def add(self, window: ScanWindow, values: Float32s) -> None:
        """Append the scores of a window."""
        self._passes[window.number] = np.concatenate([self._passes[window.number], values])

    def ready(self, reference: Reference, tokens_read: int) -> ScanChunk | None:
        """Return the bases that all passes have scored, if any, and remove them."""
        ready_bp = min(map(len, self._passes))
        if not ready_bp:
            return None
        interval = Interval(self.region.contig, self._start, self._start + ready_bp)
        length_bp = reference.contig_lengths_bp[interval.contig]
        ready = [values[:ready_bp] for values in self._passes]
        combined = _combined(ready, self._start, length_bp, self._method)
        bases = reference.fetch(interval).upper()
        chunk = ScanChunk(interval, bases, combined, tokens_read)
        is_scored = chunk.is_base.any(axis=1) | SIDES[self._method.sides].scores_unknown
        check_finite(combined[is_scored], f"region {interval.to_region()}")
        self._passes = [values[ready_bp:] for values in self._passes]
        self._start = interval.end
        return chunk


def num_window_tokens(
    runner: "ModelRunner", reference: Reference, window: ScanWindow, method: ScanMethod
) -> int:
    """Return the input tokens of a window; the last token of a row is only predicted."""
    if method.sides == "both":
        return num_tile_tokens(runner, reference, window, method)
    num_kmers = -(-(window.stop - window.start) // window.k)
    return len(runner.vocabulary.prefix(method.tags)) + num_kmers - 1


def _passage(
    runner: "ModelRunner", reference: Reference, window: ScanWindow, tags: tuple[str, ...]
) -> Passage:
    """Return the batch row of a window: its context, and the tokens with scored bases."""
    contig, start, stop = window.contig, window.start, window.stop
    if window.strand == "+":
        bases = reference.fetch(Interval(contig, start, stop))
    else:
        length_bp = window.contig_bp
        bases = reverse_complement(
            reference.fetch(Interval(contig, length_bp - stop, length_bp - start))
        )
    context_bp = window.first_token - start
    prefix = prefix_of(bases[:context_bp], runner.vocabulary, tags)
    return Passage(prefix, (continuation_of(bases[context_bp:], runner.vocabulary),))


def _on_contig(window: ScanWindow, steps: Float32s) -> Float32s:
    """Convert the chain of a window's tokens, (tokens, k, 4), to scored bases of the contig."""
    scored = slice(window.scored_from - window.first_token, window.scored_to - window.first_token)
    values = steps.reshape(-1, 4)[scored, _COLUMNS[window.strand]]
    return values if window.strand == "+" else values[::-1]


def _combined(
    scored: Sequence[Float32s], start: int, contig_bp: int, method: ScanMethod
) -> Float32s:
    """Combine the scores of all passes from `start` on: each (bases, 4), result (bases, 4).

    The mean of log-probabilities is normalised to probabilities that sum to 1. This leaves
    differences unchanged: a delta is the mean of the deltas.
    """
    if len(scored) == 1:
        return scored[0]
    strands = STRANDS_READ[method.strands]
    stack = np.stack(scored).reshape(len(strands), len(method.offsets), -1, 4)
    if COMBINATIONS[method.combine].own_offset:
        places = np.arange(start, start + stack.shape[2])
        along = {"+": places, "-": contig_bp - 1 - places}
        offsets = np.stack([along[strand] % method.k for strand in strands])
        stack = np.take_along_axis(stack, offsets[:, None, :, None], axis=1)
    mean = stack.mean(axis=(0, 1), dtype=np.float64)
    total = np.log(np.exp(mean).sum(axis=1, keepdims=True))
    combined: Float32s = (mean - total).astype(np.float32)
    return combined


class KmerPositions:
    """Mean and SD of log P(REF) by the position of the base in its k-mer.

    A track without an effect of the tokens has k equal means. Positions count along the forward
    strand, or along the reverse strand if it alone is scored, from the first offset.
    """

    def __init__(self, method: ScanMethod, contig_lengths_bp: dict[str, int]) -> None:
        """Begin without bases."""
        self._offset, self._is_reverse = method.offsets[0], method.strands == "reverse"
        self._contig_lengths_bp = contig_lengths_bp
        self._sums = np.zeros((3, method.k))

    def add(self, chunk: ScanChunk) -> None:
        """Count the bases of a chunk that have a value."""
        places = np.arange(chunk.interval.start, chunk.interval.end)
        if self._is_reverse:
            places = self._contig_lengths_bp[chunk.interval.contig] - 1 - places
        values = chunk.log_p_ref.astype(np.float64)
        known = ~np.isnan(values)
        k = self._sums.shape[1]
        positions, values = (places[known] - self._offset) % k, values[known]
        for row, power in zip(self._sums, (0, 1, 2), strict=True):
            row += np.bincount(positions, values**power, minlength=k)

    def summary(self) -> dict[str, Any]:
        """Return bases, mean and SD in nats by position; None for a position without bases."""
        bases, total, squares = self._sums
        statistics = [
            (float(s / n), float(np.sqrt(max(q / n - (s / n) ** 2, 0)))) if n else (None, None)
            for n, s, q in zip(bases, total, squares, strict=True)
        ]
        means, deviations = zip(*statistics, strict=True)
        return {"bases": bases.astype(int).tolist(), "mean": list(means), "sd": list(deviations)}
