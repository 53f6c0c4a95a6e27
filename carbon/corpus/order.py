"""Which row of which source is sample number i: a pure function of seed, mixture and i.

The blend gives every prefix of the run each source's share to within one row. It is the
just-in-time schedule of Steiner and Yeomans (1993): the n-th row of a source with share w may stand
from place floor(n / w) on and must stand by place ceil((n + 1) / w) - 1; serving the earliest
deadline first always fits. Shares are multiples of 1/10,000, so the schedule repeats and one period
is all that is kept. Inside a source, rows come in an order permuted anew for each epoch by a keyed
Feistel network.
"""

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

SHARE_UNITS = 10_000
_FEISTEL_ROUNDS = 4
_MASK64 = (1 << 64) - 1


class Blend:
    """A mixture's order of sources, with random access."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        """Take shares that sum to one, each a multiple of 1/10,000."""
        units = {name: round(share * SHARE_UNITS) for name, share in shares.items()}
        common = gcd(*units.values())
        counts = [count // common for count in units.values()]
        self.names = tuple(units)
        self._period = sum(counts)
        self._schedule = _just_in_time(counts)
        is_source = self._schedule[None, :] == np.arange(len(counts))[:, None]
        self._before = np.zeros((len(counts), self._period + 1), dtype=np.int64)
        np.cumsum(is_source, axis=1, out=self._before[:, 1:])

    def source(self, i: int) -> str:
        """Return the name of the source of row `i`."""
        return self.names[int(self._schedule[i % self._period])]

    def count(self, name: str, i: int) -> int:
        """Return how many of the first `i` rows come from source `name`."""
        if name not in self.names:
            return 0
        before = self._before[self.names.index(name)]
        return int(i // self._period * before[-1] + before[i % self._period])


def _just_in_time(counts: list[int]) -> np.ndarray:
    """Return one period of the schedule, source numbers in the order of places."""
    period = sum(counts)
    release: list[list[tuple[int, int]]] = [[] for _ in range(period)]
    for source, count in enumerate(counts):
        for n in range(count):
            deadline = -(-(n + 1) * period // count)
            release[n * period // count].append((deadline, source))
    waiting: list[tuple[int, int]] = []
    schedule = np.empty(period, dtype=np.int64)
    for place in range(period):
        for job in release[place]:
            heapq.heappush(waiting, job)
        schedule[place] = heapq.heappop(waiting)[1]
    return schedule


def permuted(n: int, size: int, key: int) -> int:
    """Return the place of `n` in a keyed permutation of `range(size)`, with O(1) memory.

    A balanced Feistel network over the next power of four, walked until it lands inside.
    """
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    while True:
        left, right = n >> half_bits, n & mask
        for round_number in range(_FEISTEL_ROUNDS):
            left, right = right, left ^ (_mix(key ^ (right << 8) ^ round_number) & mask)
        n = (left << half_bits) | right
        if n < size:
            return n


def _mix(x: int) -> int:
    """Scramble 64 bits (the finalizer of SplitMix64; Steele, Lea and Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


@lru_cache(maxsize=1024)
def _key(*parts: object) -> int:
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


@dataclass(frozen=True, slots=True)
class StageRows:
    """What the order needs to know of a stage: how many rows, from which mixture."""

    num_rows: int
    mixture: Mapping[str, float]


class Sample(NamedTuple):
    """Sample number i: its stage, its source, and the row of that source's packing."""

    stage: int
    source: str
    row: int
    epoch: int


class SampleOrder:
    """The whole run's order of rows; knows nothing but its arguments."""

    def __init__(
        self, seed: int, stages: tuple[StageRows, ...], rows_of_source: Mapping[str, int]
    ) -> None:
        """Lay the stages end to end; per-source counters go on across them."""
        self._seed = seed
        self._rows_of_source = dict(rows_of_source)
        self._blends = [Blend(stage.mixture) for stage in stages]
        self.stage_starts = [0]
        self._counts_before: list[dict[str, int]] = [dict.fromkeys(rows_of_source, 0)]
        for stage, blend in zip(stages, self._blends, strict=True):
            before = self._counts_before[-1]
            self._counts_before.append(
                {name: before[name] + blend.count(name, stage.num_rows) for name in before}
            )
            self.stage_starts.append(self.stage_starts[-1] + stage.num_rows)

    def __len__(self) -> int:
        """Return the rows of the whole run."""
        return self.stage_starts[-1]

    def stage_of(self, i: int) -> int:
        """Return the number of the stage that sample `i` belongs to."""
        return int(np.searchsorted(self.stage_starts, i, side="right")) - 1

    def __getitem__(self, i: int) -> Sample:
        """Return sample `i`."""
        stage = self.stage_of(i)
        blend, offset = self._blends[stage], i - self.stage_starts[stage]
        source = blend.source(offset)
        n = self._counts_before[stage][source] + blend.count(source, offset)
        epoch, place = divmod(n, self._rows_of_source[source])
        key = _key(self._seed, source, epoch)
        return Sample(stage, source, permuted(place, self._rows_of_source[source], key), epoch)

    def random(self, i: int) -> np.random.Generator:
        """Return the generator for what is random about sample `i`: form, frame, strand."""
        # The number goes into the upper words of the counter, where no stream grows into another.
        return np.random.Generator(np.random.Philox(key=_key(self._seed, "row"), counter=i << 64))
