"""Which row of which source is sample number i: a pure function of seed, mixture and i.

The blend gives every prefix of the run each source's share to within one row. It is the
just-in-time schedule of Steiner and Yeomans (1993): the n-th row of a source with share w may stand
from place floor(n / w) on and must stand by place ceil((n + 1) / w) - 1; serving the earliest
deadline first always fits. Shares are multiples of 1/10,000, so the schedule repeats and one period
is all that is kept. Inside a source, rows come in an order permuted anew for each epoch by a keyed
Feistel network. What is random about a row is a hash of its number.

Everything takes arrays of sample numbers, of any size and in any order, and costs the same wherever
they lie.
"""

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

SHARE_UNITS = 10_000
_FEISTEL_ROUNDS = 4


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

    def sources(self, numbers: Int64s) -> Int64s:
        """Return the source of each row, as a place in `names`."""
        found: Int64s = self._schedule[numbers % self._period]
        return found

    def counts(self, sources: Int64s, numbers: Int64s) -> Int64s:
        """Return how many of the rows before each number come from the source beside it."""
        periods, places = np.divmod(numbers, self._period)
        found: Int64s = periods * self._before[sources, -1] + self._before[sources, places]
        return found

    def count(self, name: str, i: int) -> int:
        """Return how many of the first `i` rows come from source `name`."""
        if name not in self.names:
            return 0
        return int(self.counts(np.array([self.names.index(name)]), np.array([i]))[0])


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


def permuted(numbers: Int64s, size: int, keys: UInt64s) -> Int64s:
    """Return the place of each number in a keyed permutation of `range(size)`, with O(1) memory.

    A balanced Feistel network over the next power of four, walked until it lands inside.

    Args:
        numbers: (n,), each below `size`.
        size: of the permutation.
        keys: (n,), or one for all.
    """
    half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    places = np.array(numbers, dtype=np.uint64)
    keys = np.broadcast_to(keys, places.shape)
    outside = np.arange(len(places))
    while len(outside):
        left, right = places[outside] >> half_bits, places[outside] & mask
        for round_number in range(_FEISTEL_ROUNDS):
            mixed = mix(keys[outside] ^ (right << np.uint64(8)) ^ np.uint64(round_number))
            left, right = right, left ^ (mixed & mask)
        places[outside] = (left << half_bits) | right
        outside = outside[places[outside] >= size]
    return places.astype(np.int64)


def mix(x: UInt64s) -> UInt64s:
    """Scramble 64 bits (the finalizer of SplitMix64; Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _key(*parts: object) -> np.uint64:
    text = "\0".join(map(str, parts)).encode()
    return np.uint64(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))


@dataclass(frozen=True, slots=True)
class StageRows:
    """What the order needs to know of a stage: how many rows, from which mixture."""

    num_rows: int
    mixture: Mapping[str, float]


class Sample(NamedTuple):
    """Sample number i: its stage, its source, and the row of that source's packing.

    `noise` is 64 random bits of its own, for its form, frame and strand.
    """

    stage: int
    source: str
    row: int
    epoch: int
    noise: int


class Samples(NamedTuple):
    """The same of n samples: (n,) int64, `noise` uint64; a source is a place in `names`."""

    stage: Int64s
    source: Int64s
    row: Int64s
    epoch: Int64s
    noise: UInt64s


class SampleOrder:
    """The whole run's order of rows; knows nothing but its arguments.

    Attributes:
        names: of the sources.
        stage_starts: the first sample of each stage, and the end of the run.
        counts_before: (sources,) rows of each source drawn before each stage, and in the whole run.
    """

    def __init__(
        self, seed: int, stages: tuple[StageRows, ...], rows_of_source: Mapping[str, int]
    ) -> None:
        """Lay the stages end to end; per-source counters go on across them."""
        self.names = tuple(rows_of_source)
        self._sizes = list(rows_of_source.values())
        self._source_keys = [_key(seed, name) for name in self.names]
        self._row_key = _key(seed, "row")
        self._blends = [Blend(stage.mixture) for stage in stages]
        places = {name: i for i, name in enumerate(self.names)}
        self._places = [np.array([places[name] for name in b.names]) for b in self._blends]
        self.stage_starts = [0]
        self.counts_before = [np.zeros(len(self.names), dtype=np.int64)]
        for stage, blend in zip(stages, self._blends, strict=True):
            used = [blend.count(name, stage.num_rows) for name in self.names]
            self.counts_before.append(self.counts_before[-1] + np.array(used, dtype=np.int64))
            self.stage_starts.append(self.stage_starts[-1] + stage.num_rows)

    def __len__(self) -> int:
        """Return the rows of the whole run."""
        return self.stage_starts[-1]

    def stage_of(self, i: int) -> int:
        """Return the number of the stage that sample `i` belongs to."""
        return int(np.searchsorted(self.stage_starts, i, side="right")) - 1

    def __getitem__(self, i: int) -> Sample:
        """Return sample `i`."""
        stage, source, row, epoch, noise = (int(one[0]) for one in self.lookup(np.array([i])))
        return Sample(stage, self.names[source], row, epoch, noise)

    def lookup(self, numbers: Int64s) -> Samples:
        """Return the samples of these numbers, each of the run, in any order."""
        stages = np.searchsorted(self.stage_starts, numbers, side="right") - 1
        sources, drawn = np.empty_like(numbers), np.empty_like(numbers)
        for stage in np.unique(stages).tolist():
            mine = stages == stage
            blend, offsets = self._blends[stage], numbers[mine] - self.stage_starts[stage]
            of_blend = blend.sources(offsets)
            sources[mine] = self._places[stage][of_blend]
            before = self.counts_before[stage][sources[mine]]
            drawn[mine] = before + blend.counts(of_blend, offsets)
        rows, epochs = np.empty_like(numbers), np.empty_like(numbers)
        for source in np.unique(sources).tolist():
            mine = sources == source
            epochs[mine], places = np.divmod(drawn[mine], self._sizes[source])
            keys = mix(self._source_keys[source] ^ mix(epochs[mine].astype(np.uint64)))
            rows[mine] = permuted(places, self._sizes[source], keys)
        noise = mix(self._row_key ^ mix(numbers.astype(np.uint64)))
        return Samples(stages, sources, rows, epochs, noise)
