"""How often each base follows every context of up to 16 bases, from one sorted array.

A context is a number of 32 bits with the base nearest to the target in its highest two. So the
contexts of order k are the first 2k bits, and those that share them stand in one stretch of the
sorted array, whose two ends are the counts of all orders at once.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_ORDER = 16  # bases that fit into 32 bits
_MOST_BITS = 15  # counts are told apart by their powers of two, up to this one
_SHALLOW = 4 * (_MOST_BITS + 1)  # buckets of contexts that were not seen in full
NUM_BUCKETS = 2 * _SHALLOW

Int64s = NDArray[np.int64]
Codes = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]


class Contexts(NamedTuple):
    """What stands before each base of a sequence.

    Attributes:
        keys: (bases,) uint32, the 16 bases before, the nearest in the highest bits, 0 if unknown.
        depths: (bases,) int8, how many bases right before are known, 16 at most.
    """

    keys: NDArray[np.uint32]
    depths: NDArray[np.int8]


def contexts_of(codes: Codes) -> Contexts:
    """Return the context of every base of a sequence of `base_codes`."""
    keys = np.zeros(len(codes), dtype=np.uint32)
    for distance in range(1, min(MOST_ORDER, len(codes) - 1) + 1):
        before = (codes[:-distance] % 4).astype(np.uint32)
        keys[distance:] |= before << np.uint32(2 * (MOST_ORDER - distance))
    places = np.arange(len(codes))
    unknown = np.maximum.accumulate(np.where(codes > 3, places, -1))
    depths = places - 1 - np.concatenate([[-1], unknown[:-1]])[: len(codes)]
    return Contexts(keys, np.minimum(depths, MOST_ORDER).astype(np.int8))


Part = tuple[Contexts, NDArray[np.uint8]]
"""Contexts and the bases that follow them: A=0 C=1 G=2 T=3, 4 for what is not counted."""


class Seen(NamedTuple):
    """What was counted behind some contexts, all cut to one order.

    Attributes:
        shares: (contexts, 4), the share of each base among the counted ones, 0 if none was.
        buckets: (contexts,), contexts that deserve equal trust: of as many counts (by powers of
            two), as many different bases behind them, and seen up to the highest order, as repeats
            are, or not. 0 where nothing was counted.
    """

    shares: Floats
    buckets: Int64s


class ContextCounts:
    """Counts of the bases that follow contexts.

    Sixteen bytes a counted base, and four more for its context: 480 MB for both strands of 12 Mbp.

    Attributes:
        order: the longest context.
    """

    def __init__(self, order: int, parts: Iterable[Part]) -> None:
        """Count the targets of contexts of `order` bases, which is 0 to 16."""
        self.order = order
        packed = [np.zeros(0, dtype=np.uint64)]
        for contexts, targets in parts:
            counted = (targets < 4) & (contexts.depths >= order)
            keys = contexts.keys[counted].astype(np.uint64) << np.uint64(2)
            packed.append(keys | targets[counted].astype(np.uint64))
        ordered = np.concatenate(packed)
        packed.clear()
        ordered.sort()
        bases = (ordered & np.uint64(3)).astype(np.uint8)
        self._keys = (ordered >> np.uint64(2)).astype(np.uint32)
        self._before = np.zeros((4, len(bases) + 1), dtype=np.uint32)
        for base in range(4):
            np.cumsum(bases == base, dtype=np.uint32, out=self._before[base, 1:])

    def seen(self, contexts: Contexts) -> Iterator[Seen]:
        """Yield what was counted, from order 0 to the highest; fast if keys ascend."""
        is_repeat = self._counts(contexts.keys, self.order).any(axis=1)
        in_full = np.where(is_repeat & (contexts.depths >= self.order), _SHALLOW, 0)
        for order in range(self.order + 1):
            counts = self._counts(contexts.keys, order)
            counts[contexts.depths < order] = 0
            totals = counts.sum(axis=1)
            shares = counts / np.maximum(totals, 1)[:, None]
            bits = np.minimum(np.frexp(totals)[1], _MOST_BITS)
            different = (counts > 0).sum(axis=1)
            yield Seen(shares, np.where(totals > 0, in_full + 4 * bits + different - 1, 0))

    def _counts(self, keys: NDArray[np.uint32], order: int) -> Int64s:
        """Return how often each base follows the contexts cut to an order, (contexts, 4)."""
        rest = np.uint32((1 << 2 * (MOST_ORDER - order)) - 1)
        first = np.searchsorted(self._keys, keys & ~rest, side="left")
        last = np.searchsorted(self._keys, keys | rest, side="right")
        found: Int64s = (self._before[:, last].astype(np.int64) - self._before[:, first]).T
        return np.ascontiguousarray(found)
