"""Which row of which source is sample number i: a pure function of seed, mixture and i.

The blend gives every prefix of the run each source's share to within one row. It is the
just-in-time schedule of Steiner and Yeomans (1993): the n-th row of a source with share w may stand
from place floor(n / w) on and must stand by place ceil((n + 1) / w) - 1; serving the earliest
deadline first always fits. Shares are multiples of 1/10,000, so the schedule repeats and one period
is all that is kept. Inside a source, rows of one length come in an order permuted anew for each
epoch by a keyed Feistel network. What is random about a row is a hash of its number.

Everything takes arrays of sample numbers, of any size and in any order, and costs the same wherever
they lie.
"""

import hashlib
import heapq
from collections.abc import Mapping, Sequence
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
        """Take shares that sum to one, each a multiple of 1/10,000, in any order."""
        units = {name: round(shares[name] * SHARE_UNITS) for name in sorted(shares)}
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


Stream = tuple[str, int]
"""A source and a row length: one packing, which has its own counter and permutations."""


@dataclass(frozen=True, slots=True)
class SpanRows:
    """What the order needs to know of a stretch of the run: a stage, or a part of one."""

    num_rows: int
    mixture: Mapping[str, float]
    row_tokens: int


class Sample(NamedTuple):
    """Sample number i: its span, its source, and the row of that source's packing into a length.

    `noise` is 64 random bits of its own, for its form, offset and strand.
    """

    span: int
    source: str
    row_tokens: int
    row: int
    epoch: int
    noise: int


class Samples(NamedTuple):
    """The same of n samples: (n,) int64, `noise` uint64; a stream is a place in `streams`."""

    span: Int64s
    stream: Int64s
    row: Int64s
    epoch: Int64s
    noise: UInt64s


class SampleOrder:
    """The whole run's order of rows; knows nothing but its arguments.

    Attributes:
        streams: sources with the lengths of their rows.
        span_starts: the first sample of each span, and the end of the run.
        counts_before: (streams,) rows of each drawn before each span, and in the whole run.
    """

    def __init__(
        self, seed: int, spans: Sequence[SpanRows], rows_of_stream: Mapping[Stream, int]
    ) -> None:
        """Lay the spans end to end; the counters of the streams go on across them."""
        self.streams = tuple(rows_of_stream)
        self._sizes = list(rows_of_stream.values())
        self._stream_keys = [_key(seed, *stream) for stream in self.streams]
        self._row_key = _key(seed, "row")
        self._blends = [Blend(span.mixture) for span in spans]
        places = {stream: i for i, stream in enumerate(self.streams)}
        self._places = [
            np.array([places[name, span.row_tokens] for name in blend.names])
            for blend, span in zip(self._blends, spans, strict=True)
        ]
        self.span_starts = [0]
        self.counts_before = [np.zeros(len(self.streams), dtype=np.int64)]
        self._blend_starts = _blend_starts(spans)
        for number, span in enumerate(spans):
            drawn = self.counts_before[-1].copy()
            drawn[self._places[number]] += self._drawn(number, span.num_rows)
            self.counts_before.append(drawn)
            self.span_starts.append(self.span_starts[-1] + span.num_rows)

    def _drawn(self, span: int, num_rows: int) -> list[int]:
        """Return how many of a span's first rows come from each source of its blend."""
        blend, start = self._blends[span], self._blend_starts[span]
        return [blend.count(n, start + num_rows) - blend.count(n, start) for n in blend.names]

    def __len__(self) -> int:
        """Return the rows of the whole run."""
        return self.span_starts[-1]

    def __getitem__(self, i: int) -> Sample:
        """Return sample `i`.

        Raises:
            IndexError: the run has no such sample.
        """
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        span, stream, row, epoch, noise = (int(one[0]) for one in self.lookup(np.array([i])))
        return Sample(span, *self.streams[stream], row, epoch, noise)

    def lookup(self, numbers: Int64s) -> Samples:
        """Return the samples of these numbers, each of the run, in any order."""
        spans = np.searchsorted(self.span_starts, numbers, side="right") - 1
        streams, drawn = np.empty_like(numbers), np.empty_like(numbers)
        for span in np.unique(spans).tolist():
            mine = spans == span
            blend, start = self._blends[span], self._blend_starts[span]
            offsets = numbers[mine] - self.span_starts[span] + start
            of_blend = blend.sources(offsets)
            streams[mine] = self._places[span][of_blend]
            before = self.counts_before[span][streams[mine]] - blend.counts(
                of_blend, np.full_like(offsets, start)
            )
            drawn[mine] = before + blend.counts(of_blend, offsets)
        rows, epochs = np.empty_like(numbers), np.empty_like(numbers)
        for stream in np.unique(streams).tolist():
            mine = streams == stream
            epochs[mine], places = np.divmod(drawn[mine], self._sizes[stream])
            keys = mix(self._stream_keys[stream] ^ mix(epochs[mine].astype(np.uint64)))
            rows[mine] = permuted(places, self._sizes[stream], keys)
        noise = mix(self._row_key ^ mix(numbers.astype(np.uint64)))
        return Samples(spans, streams, rows, epochs, noise)


def _blend_starts(spans: Sequence[SpanRows]) -> list[int]:
    """Return where each span begins in its blend: where the one before ended, if that had the same.

    So parts of a stage have its shares together, however short each is.
    """
    starts: list[int] = []
    for number, span in enumerate(spans):
        before = spans[number - 1] if number else None
        goes_on = before is not None and before.mixture == span.mixture
        starts.append(starts[-1] + before.num_rows if before is not None and goes_on else 0)
    return starts
