"""Scanned bases, and what follows from their log-probabilities."""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Interval, Reference, reverse_complement
from carbon.inference.checks import check_finite, check_interval
from carbon.inference.options import COMBINATIONS, STRANDS_READ
from carbon.inference.passages import Passage, branch_of, stem_of
from carbon.inference.scan.method import ScanMethod
from carbon.tokenizer import K

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

Float32s = NDArray[np.float32]

SCANNED_BASES = "ACGT"


class ScanChunk(NamedTuple):
    """Scanned bases of a contig.

    Attributes:
        interval: where they lie.
        bases: the reference, upper-case.
        log_probabilities: (bases, 4) float32, in nats, of A, C, G and T on the forward strand.
        tokens_read: tokens that the network has read since the chunk before, `<dna>` and tags
            included.
    """

    interval: Interval
    bases: str
    log_probabilities: Float32s
    tokens_read: int

    @property
    def is_base(self) -> NDArray[np.bool_]:
        """Tell where the reference has that base: (bases, 4); nowhere in the row of an N."""
        letters = np.frombuffer(self.bases.encode("ascii"), dtype=np.uint8)
        found: NDArray[np.bool_] = letters[:, None] == np.frombuffer(b"ACGT", dtype=np.uint8)
        return found

    @property
    def log_p_ref(self) -> Float32s:
        """Log-probability of the reference base, (bases,); NaN where that is unknown."""
        chosen = np.where(self.is_base, self.log_probabilities, 0).sum(axis=1)
        return np.where(self.is_base.any(axis=1), chosen, np.float32(np.nan))

    @property
    def deltas(self) -> Float32s:
        """Log p(base) - log p(reference base): (bases, 4), 0 for the reference base, or NaN."""
        found: Float32s = self.log_probabilities - self.log_p_ref[:, None]
        return found

    @property
    def mean_delta(self) -> Float32s:
        """Mean of the three SNVs' deltas, (bases,); NaN where the reference is unknown."""
        found: Float32s = self.deltas.sum(axis=1) / np.float32(3)
        return found

    @property
    def worst_delta(self) -> Float32s:
        """Least of the three SNVs' deltas, (bases,); NaN where the reference is unknown."""
        found: Float32s = np.where(self.is_base, np.float32(np.inf), self.deltas).min(axis=1)
        return found

    @property
    def entropy_nats(self) -> Float32s:
        """Entropy of the four bases, (bases,): 0 where one is certain, 1.386 where none is."""
        found: Float32s = -(np.exp(self.log_probabilities) * self.log_probabilities).sum(axis=1)
        return found


def join_chunks(chunks: Iterable[ScanChunk]) -> ScanChunk:
    """Return consecutive chunks as one, for a region that memory holds.

    Raises:
        ValueError: there is no chunk.
    """
    given = list(chunks)
    if not given:
        raise ValueError("no chunk to join: was the interval empty?")
    first, last = given[0].interval, given[-1].interval
    return ScanChunk(
        Interval(first.contig, first.start, last.end),
        "".join(chunk.bases for chunk in given),
        np.concatenate([chunk.log_probabilities for chunk in given]),
        sum(chunk.tokens_read for chunk in given),
    )


_BLOCK_TOKENS = 2**16  # of the windows that are read, and kept, together
# Columns of the chain, which are ATCG, as ACGT of the forward strand.
_COLUMNS = {"+": [0, 2, 3, 1], "-": [1, 3, 2, 0]}


class Window(NamedTuple):
    """A window of one pass over a contig; its places count along the strand that is read.

    Attributes:
        contig_start: the first scored base on the contig, by which windows are put in order.
        number: of the pass.
        strand: that is read.
        contig: its name.
        contig_bp: length of the contig.
        start: of the window.
        scored_from: the first base to score.
        scored_to: behind the last base to score.
    """

    contig_start: int
    number: int
    strand: str
    contig: str
    contig_bp: int
    start: int
    scored_from: int
    scored_to: int

    @property
    def first_token(self) -> int:
        """Where the 6-mer of the first scored base begins."""
        return self.scored_from - (self.scored_from - self.start) % K

    @property
    def stop(self) -> int:
        """Where the 6-mer of the last scored base ends, or the contig."""
        return min(self.scored_to + (self.start - self.scored_to) % K, self.contig_bp)


class WindowValues(NamedTuple):
    """What reading some windows gave.

    Attributes:
        values: (scored bases, 4) float32 of each window, as `ScanChunk.log_probabilities`.
        tokens_read: by the network, for all of them.
    """

    values: list[Float32s]
    tokens_read: int


def scan_region(
    runner: "ModelRunner", reference: Reference, region: Interval, method: ScanMethod
) -> Iterator[ScanChunk]:
    """Return the chunks of a region in order, each as soon as all offsets and strands have it.

    Memory depends on the window, and not on the region.

    Raises:
        GenomeError: the contig is not in the reference, or the region ends past it.
    """
    check_interval(region)
    reference.fetch(Interval(region.contig, region.end, region.end))  # raises what is to be raised
    blocks = window_blocks(reference, [region], method, windows_at_once(runner, method))
    read = ((block, read_windows(runner, reference, block, method)) for block in blocks)
    return chunks_of(read, reference, [region], method)


def window_blocks(
    reference: Reference, regions: Iterable[Interval], method: ScanMethod, number: int
) -> Iterator[list[Window]]:
    """Yield the windows of regions, in the order in which they finish each, in blocks.

    Args:
        reference: the sequence.
        regions: of it.
        method: how they are scanned.
        number: of windows of a block; see `windows_at_once`.
    """
    windows = chain.from_iterable(_in_order(reference, region, method) for region in regions)
    while block := list(islice(windows, number)):
        yield block


def windows_at_once(runner: "ModelRunner", method: ScanMethod) -> int:
    """Return how many windows a block has."""
    row_tokens = method.window_bp // K + len(runner.vocabulary.prefix(method.tags))
    return max(1, _BLOCK_TOKENS // row_tokens)


def read_windows(
    runner: "ModelRunner", reference: Reference, block: Sequence[Window], method: ScanMethod
) -> WindowValues:
    """Read some windows."""
    passages = [_passage(runner, reference, window, method.tags) for window in block]
    measured = runner.conditionals(passages)
    values = [_on_contig(window, steps) for window, (steps,) in zip(block, measured, strict=True)]
    return WindowValues(values, sum(len(p.stem) + len(p.branches[0].ids) - 1 for p in passages))


def chunks_of(
    blocks: Iterable[tuple[Sequence[Window], WindowValues]],
    reference: Reference,
    regions: Sequence[Interval],
    method: ScanMethod,
) -> Iterator[ScanChunk]:
    """Yield the chunks of regions in order, each as soon as all offsets and strands have it.

    Args:
        blocks: of `window_blocks`, with what reading them gave.
        reference: the sequence.
        regions: in the order of the blocks, none of which overlap, and none is empty unless it is
            alone.
        method: how they are scanned.

    Raises:
        ModelError: the model says nothing finite of a base.
    """
    region_of, tokens_read = _finder(regions), 0
    arriving: _Arriving | None = None
    for block, found in blocks:
        tokens_read += found.tokens_read
        read = zip(block, found.values, strict=True)
        for region, windows in groupby(read, key=lambda pair: region_of(pair[0])):
            if arriving is None or arriving.region != region:
                arriving = _Arriving(region, method)
            for window, values in windows:
                arriving.add(window, values)
            if chunk := arriving.ready(reference, tokens_read):
                yield chunk
                tokens_read = 0


def _finder(regions: Sequence[Interval]) -> Callable[[Window], Interval]:
    """Return what finds the region whose bases a window scores."""
    by_contig: dict[str, list[Interval]] = {}
    for region in regions:
        by_contig.setdefault(region.contig, []).append(region)
    starts = {contig: [each.start for each in some] for contig, some in by_contig.items()}

    def region_of(window: Window) -> Interval:
        number = bisect_right(starts[window.contig], window.contig_start) - 1
        return by_contig[window.contig][number]

    return region_of


class _Arriving:
    """A region of which windows come, and what has come of it that is not handed on yet."""

    def __init__(self, region: Interval, method: ScanMethod) -> None:
        self.region = region
        self._method = method
        self._start = region.start
        # What each pass has given from the start on.
        self._passes = [np.empty((0, 4), dtype=np.float32) for _ in _passes(method)]

    def add(self, window: Window, values: Float32s) -> None:
        """Take what reading a window gave."""
        self._passes[window.number] = np.concatenate([self._passes[window.number], values])

    def ready(self, reference: Reference, tokens_read: int) -> ScanChunk | None:
        """Return what all passes have, if anything, and begin behind it."""
        ready_bp = min(map(len, self._passes))
        if not ready_bp:
            return None
        interval = Interval(self.region.contig, self._start, self._start + ready_bp)
        length_bp = reference.contig_lengths_bp[interval.contig]
        passes = [values[:ready_bp] for values in self._passes]
        combined = _combined(passes, self._start, length_bp, self._method)
        check_finite(combined, f"region {interval.to_region()}")
        self._passes = [values[ready_bp:] for values in self._passes]
        self._start = interval.end
        return ScanChunk(interval, reference.fetch(interval).upper(), combined, tokens_read)


def num_passes(method: ScanMethod) -> int:
    """Return how often a region is read."""
    return len(_passes(method))


def tokens_of(window: Window, runner: "ModelRunner", method: ScanMethod) -> int:
    """Return how many tokens the network reads of a window; its last one is predicted only."""
    num_kmers = -(-(window.stop - window.start) // K)
    return len(runner.vocabulary.prefix(method.tags)) + num_kmers - 1


def _passes(method: ScanMethod) -> list[tuple[str, int]]:
    """Return the strands and offsets in which a region is read."""
    return [(strand, f) for strand in STRANDS_READ[method.strands] for f in method.offsets]


def _in_order(reference: Reference, region: Interval, method: ScanMethod) -> Iterator[Window]:
    """Return the windows of a region, in the order in which they finish it."""
    length_bp = reference.contig_lengths_bp[region.contig]
    return heapq.merge(
        *(
            _windows(number, strand, offset, region, length_bp, method)
            for number, (strand, offset) in enumerate(_passes(method))
        )
    )


def _windows(
    number: int, strand: str, offset: int, region: Interval, contig_bp: int, method: ScanMethod
) -> Iterator[Window]:
    """Yield the windows of one pass that score bases of a region, in the order of the contig."""
    start, end = region.start, region.end
    if strand == "-":
        start, end = contig_bp - end, contig_bp - start
    if start == end:
        return
    window_bp, context_bp = method.window_bp, method.least_context_bp
    stride_bp = window_bp - context_bp

    def index_at(place: int) -> int:
        """Return which window scores a place; -1 is what lies before the first."""
        if place < offset:
            return -1
        return max(0, 1 + (place - offset - window_bp) // stride_bp)

    indices = range(index_at(start), index_at(end - 1) + 1)
    for index in indices if strand == "+" else reversed(indices):
        first = offset + index * stride_bp
        scored = (first + (context_bp if index else 0), first + window_bp)
        if index < 0:  # the bases before the offset are the beginning of a 6-mer behind `<dna>`
            first, scored = 0, (0, offset)
        scored_from, scored_to = max(scored[0], start), min(scored[1], end)
        contig_start = scored_from if strand == "+" else contig_bp - scored_to
        yield Window(
            contig_start, number, strand, region.contig, contig_bp, first, scored_from, scored_to
        )


def _passage(
    runner: "ModelRunner", reference: Reference, window: Window, tags: tuple[str, ...]
) -> Passage:
    """Return what is read for a window: its context, and the tokens with bases to score."""
    contig, start, stop = window.contig, window.start, window.stop
    if window.strand == "+":
        bases = reference.fetch(Interval(contig, start, stop))
    else:
        length_bp = window.contig_bp
        bases = reverse_complement(
            reference.fetch(Interval(contig, length_bp - stop, length_bp - start))
        )
    context_bp = window.first_token - start
    stem = stem_of(bases[:context_bp], runner.vocabulary, tags)
    return Passage(stem, (branch_of(bases[context_bp:], runner.vocabulary),))


def _on_contig(window: Window, steps: Float32s) -> Float32s:
    """Turn the chain of a window's tokens, (tokens, 6, 4), to scored bases of the contig."""
    scored = slice(window.scored_from - window.first_token, window.scored_to - window.first_token)
    values = steps.reshape(-1, 4)[scored, _COLUMNS[window.strand]]
    return values if window.strand == "+" else values[::-1]


def _combined(
    passes: Sequence[Float32s], start: int, contig_bp: int, method: ScanMethod
) -> Float32s:
    """Join the passes over bases from `start` on: (bases, 4) each and in all.

    The mean of log-probabilities is brought to a sum of probabilities of 1, which changes no
    difference of two of them: a delta is the mean of the deltas.
    """
    if len(passes) == 1:
        return passes[0]
    strands = STRANDS_READ[method.strands]
    stack = np.stack(passes).reshape(len(strands), len(method.offsets), -1, 4)
    if COMBINATIONS[method.combine].own_offset:
        places = np.arange(start, start + stack.shape[2])
        along = {"+": places, "-": contig_bp - 1 - places}
        offsets = np.stack([along[strand] % K for strand in strands])
        stack = np.take_along_axis(stack, offsets[:, None, :, None], axis=1)
    mean = stack.mean(axis=(0, 1), dtype=np.float64)
    total = np.log(np.exp(mean).sum(axis=1, keepdims=True))
    combined: Float32s = (mean - total).astype(np.float32)
    return combined
