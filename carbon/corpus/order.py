"""Order of samples: source and row of sample number i, a pure function of seed, mixture and i.

In every prefix of the run, the blend keeps each source's share to within one row. It is the
just-in-time schedule of Steiner and Yeomans (1993): the n-th row of a source with share w is
released at place floor(n / w) and due at place ceil((n + 1) / w) - 1, and earliest-deadline-first
scheduling always meets the deadlines. Shares are multiples of 1/10,000, so the schedule is periodic
and only one period is stored. Within a source, rows of one length are permuted in each epoch by a
keyed Feistel network. All randomness of a sample is a hash of its number.

Functions take arrays of sample numbers of any size and order; the cost does not depend on the
numbers.
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
    """Order of the sources of a mixture, with random access."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        """Build the schedule from shares that sum to one, each a multiple of 1/10,000."""
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
        """Return the source of each row, as an index into `names`."""
        sources: Int64s = self._schedule[numbers % self._period]
        return sources

    def counts(self, sources: Int64s, numbers: Int64s) -> Int64s:
        """Return for each number the count of rows before it that come from its source.

        Args:
            sources: (n,) indices into `names`.
            numbers: (n,) row numbers.
        """
        periods, places = np.divmod(numbers, self._period)
        counts: Int64s = periods * self._before[sources, -1] + self._before[sources, places]
        return counts

    def count(self, name: str, i: int) -> int:
        """Return the number of rows from source `name` among the first `i` rows."""
        if name not in self.names:
            return 0
        return int(self.counts(np.array([self.names.index(name)]), np.array([i]))[0])


def _just_in_time(counts: list[int]) -> np.ndarray:
    """Return one period of the schedule: the source at each place."""
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

    A balanced Feistel network over the next power of four is applied until the result is in range.

    Args:
        numbers: (n,), each below `size`.
        size: size of the permutation.
        keys: (n,), or one key for all.
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
    """Mix 64 bits with the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _key(*parts: object) -> np.uint64:
    text = "\0".join(map(str, parts)).encode()
    return np.uint64(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))


Stream = tuple[str, int]
"""A source and a row length: one packing, with a counter and permutations."""


@dataclass(frozen=True, slots=True)
class SpanRows:
    """Number of rows, mixture and row length of a phase of the run, or of a part of a phase."""

    num_rows: int
    mixture: Mapping[str, float]
    row_tokens: int


class Sample(NamedTuple):
    """A sample: span of the run, source, row length, row of that packing, and epoch.

    `noise` is 64 random bits of the sample, for its form, offset and strand.
    """

    span: int
    source: str
    row_tokens: int
    row: int
    epoch: int
    noise: int


class Samples(NamedTuple):
    """Arrays of n samples: (n,) int64, `noise` uint64; a stream is an index into `streams`."""

    span: Int64s
    stream: Int64s
    row: Int64s
    epoch: Int64s
    noise: UInt64s


class SampleOrder:
    """Order of the rows of a whole run.

    Attributes:
        streams: sources with the lengths of their rows.
        span_starts: first sample of each span, and the end of the run.
        counts_before: (streams,) rows drawn from each stream before each span, and in the whole
            run.
    """

    def __init__(
        self, seed: int, spans: Sequence[SpanRows], rows_of_stream: Mapping[Stream, int]
    ) -> None:
        """Place the spans end to end; the counters of the streams continue across spans."""
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
        """Return the number of rows from each source of the blend in the first rows of a span."""
        blend, start = self._blends[span], self._blend_starts[span]
        return [blend.count(n, start + num_rows) - blend.count(n, start) for n in blend.names]

    def __len__(self) -> int:
        """Return the number of rows of the whole run."""
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
        """Return the samples with these numbers, in any order."""
        spans = np.searchsorted(self.span_starts, numbers, side="right") - 1
        streams, drawn = np.empty_like(numbers), np.empty_like(numbers)
        for span in np.unique(spans).tolist():
            in_span = spans == span
            blend, start = self._blends[span], self._blend_starts[span]
            offsets = numbers[in_span] - self.span_starts[span] + start
            of_blend = blend.sources(offsets)
            streams[in_span] = self._places[span][of_blend]
            before = self.counts_before[span][streams[in_span]] - blend.counts(
                of_blend, np.full_like(offsets, start)
            )
            drawn[in_span] = before + blend.counts(of_blend, offsets)
        rows, epochs = np.empty_like(numbers), np.empty_like(numbers)
        for stream in np.unique(streams).tolist():
            in_stream = streams == stream
            epochs[in_stream], places = np.divmod(drawn[in_stream], self._sizes[stream])
            keys = mix(self._stream_keys[stream] ^ mix(epochs[in_stream].astype(np.uint64)))
            rows[in_stream] = permuted(places, self._sizes[stream], keys)
        noise = mix(self._row_key ^ mix(numbers.astype(np.uint64)))
        return Samples(spans, streams, rows, epochs, noise)


def _blend_starts(spans: Sequence[SpanRows]) -> list[int]:
    """Return the start of each span in its blend: the end of the previous span of the same mixture.

    Parts of a phase thus keep its shares together, however short each part is.
    """
    starts: list[int] = []
    for number, span in enumerate(spans):
        before = spans[number - 1] if number else None
        continues = before is not None and before.mixture == span.mixture
        starts.append(starts[-1] + before.num_rows if before is not None and continues else 0)
    return starts
