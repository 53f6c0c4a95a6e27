"""Windows of a scan: what each pass over offsets and strands reads, and which bases it scores."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from carbon.batching import in_blocks
from carbon.genome import Interval, Reference
from carbon.inference.options import STRANDS_READ
from carbon.inference.scan.method import ScanMethod

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

BLOCK_TOKENS = 2**16
"""Maximum tokens of the windows that are scored and held together, unless one window has more."""


class ScanWindow(NamedTuple):
    """A window of one pass over a contig; positions count along the scored strand.

    Attributes:
        contig_start: the first scored base on the contig; windows are ordered by it.
        number: number of the pass.
        strand: the scored strand.
        contig: name of the contig.
        contig_bp: length of the contig.
        start: start of the window.
        scored_from: the first scored base.
        scored_to: end of the scored bases, exclusive.
        k: bases of a token.
    """

    contig_start: int
    number: int
    strand: str
    contig: str
    contig_bp: int
    start: int
    scored_from: int
    scored_to: int
    k: int

    @property
    def first_token(self) -> int:
        """Start of the k-mer that holds the first scored base."""
        return self.scored_from - (self.scored_from - self.start) % self.k

    @property
    def stop(self) -> int:
        """End of the k-mer that holds the last scored base, or of the contig."""
        return min(self.scored_to + (self.start - self.scored_to) % self.k, self.contig_bp)


def passes(method: ScanMethod) -> list[tuple[str, int]]:
    """Return strand and offset of each pass over a region."""
    return [(strand, f) for strand in STRANDS_READ[method.strands] for f in method.offsets]


def window_blocks(
    reference: Reference, regions: Iterable[Interval], method: ScanMethod, number: int
) -> Iterator[list[ScanWindow]]:
    """Return the windows of regions in blocks, ordered by where they end in each region.

    Args:
        reference: the reference sequence.
        regions: regions to scan.
        method: scanning method.
        number: windows of a block; see `windows_per_block`.
    """
    windows = chain.from_iterable(_in_order(reference, region, method) for region in regions)
    return in_blocks(windows, number)


def windows_per_block(runner: "ModelRunner", method: ScanMethod) -> int:
    """Return the number of windows of a block; a tile is a block, for its many continuations."""
    if method.sides == "both":
        return 1
    row_tokens = method.window_bp // method.k + len(runner.vocabulary.prefix(method.tags))
    return max(1, BLOCK_TOKENS // row_tokens)


def _in_order(reference: Reference, region: Interval, method: ScanMethod) -> Iterator[ScanWindow]:
    """Return the windows of a region, ordered by where they end."""
    length_bp = reference.contig_lengths_bp[region.contig]
    return heapq.merge(
        *(
            _windows(number, strand, offset, region, length_bp, method)
            for number, (strand, offset) in enumerate(passes(method))
        )
    )


def _windows(
    number: int, strand: str, offset: int, region: Interval, contig_bp: int, method: ScanMethod
) -> Iterator[ScanWindow]:
    """Yield the windows of one pass that score bases of a region, in contig order."""
    start, end = region.start, region.end
    if strand == "-":
        start, end = contig_bp - end, contig_bp - start
    if start == end:
        return
    indices, span_of = _SPANS[method.sides](start, end, offset, method)
    for index in indices if strand == "+" else reversed(indices):
        first, owned_from, owned_to = span_of(index)
        scored_from, scored_to = max(owned_from, start), min(owned_to, end)
        contig_start = scored_from if strand == "+" else contig_bp - scored_to
        yield ScanWindow(
            contig_start, number, strand, region.contig, contig_bp, first, scored_from, scored_to,
            method.k,
        )  # fmt: skip


Spans = tuple[range, Callable[[int], tuple[int, int, int]]]
"""Indices of windows, and a function from an index to the window's start and the start and end of
the bases that it scores."""


def _window_spans(start: int, end: int, offset: int, method: ScanMethod) -> Spans:
    """Return the windows that score bases from those before them."""
    window_bp, context_bp = method.window_bp, method.least_context_bp
    stride_bp = window_bp - context_bp

    def index_at(place: int) -> int:
        """Return the index of the window that scores a position; -1 before the first window."""
        if place < offset:
            return -1
        return max(0, 1 + (place - offset - window_bp) // stride_bp)

    def span_of(index: int) -> tuple[int, int, int]:
        if index < 0:  # the bases before the offset begin the first k-mer
            return 0, 0, offset
        first = offset + index * stride_bp
        return first, first + (context_bp if index else 0), first + window_bp

    return range(index_at(start), index_at(end - 1) + 1), span_of


def _tile_spans(start: int, end: int, offset: int, method: ScanMethod) -> Spans:
    """Return the tiles that own bases; the offset moves the k-mers inside a tile."""
    grid = method.grid

    def span_of(tile: int) -> tuple[int, int, int]:
        first = tile * grid.step_bp
        owned_from = first + (grid.least_context_bp if tile else 0)
        return first, owned_from, first + grid.least_context_bp + grid.step_bp

    return range(grid.tile_of(start), grid.tile_of(end - 1) + 1), span_of


_SPANS = {"left": _window_spans, "both": _tile_spans}
