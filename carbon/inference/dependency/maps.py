"""Nucleotide dependency maps: how a substitution at one base changes the odds of the others.

e(i, j) is the largest absolute change of the log2 odds of any base at j, over the three
substitutions at i (Tomaz da Silva et al. 2025, https://doi.org/10.1038/s41588-025-02347-3). The
conditionals are those of the chain inside a k-mer. A causal model sees the bases before a base
alone, so the forward strand fills e(i, j) for j after i, and the reverse strand for j before i.

The reference is read once on each strand. A substitution changes the tokens from its k-mer on. The
reference and the substitutions of a k-mer continue the same keys and values in rows of one shape,
so that rounding does not appear as a dependency.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Interval, Reference
from carbon.genome.interval import BASES
from carbon.inference.checks import (
    check_finite,
    check_interval,
    check_window,
    checked_names,
    checked_offsets,
)
from carbon.inference.options import SYMMETRIES, DependencyOptions, check_choice
from carbon.inference.passages import Continuation, continuation_of, padded_length, prefix_of
from carbon.inference.variants.tiles import fetch_along
from carbon.inference.variants.windows import room_bp

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

_DEFAULT_WINDOW_BP = 8192
_CELL_BYTES = 32  # of a cell of the map in all arrays that are in memory together
_MEMORY_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencyMethod(DependencyOptions):
    """How a map is computed: `DependencyOptions` that fit a model.

    Attributes:
        window_bp: bases of the region and its context.
        offsets: sorted and distinct.
        tags: metadata tags to condition on.
        k: bases of a token of the model.
    """

    window_bp: int
    offsets: tuple[int, ...]
    tags: tuple[str, ...]
    k: int

    @property
    def longest_bp(self) -> int:
        """Longest region: it fits into the window at every offset, and its map into memory."""
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        of_memory = isqrt(int(_MEMORY_SHARE * memory_bytes / _CELL_BYTES))
        return min(self.window_bp - (self.k - 1), of_memory)


def dependency_method_for(runner: "ModelRunner", options: DependencyOptions) -> DependencyMethod:
    """Return a method whose window fits into the model's context.

    Raises:
        UserError: a choice, the window, an offset or a tag is invalid.
    """
    check_choice("symmetrise", options.symmetrise, SYMMETRIES)
    k = runner.vocabulary.k
    offsets, tags = checked_offsets(options.offsets, k), checked_names("tags", options.tags)
    most_bp = room_bp(runner, tags)
    window_bp = options.window_bp
    if window_bp is None:
        window_bp = runner.vocabulary.default_window_bp(_DEFAULT_WINDOW_BP, most_bp)
    check_window(window_bp, most_bp, k)
    checked = {"window_bp": window_bp, "offsets": offsets, "tags": tags, "k": k}
    return DependencyMethod(**asdict(options) | checked)


class DependencyMap(NamedTuple):
    """The dependencies between the bases of a region.

    Attributes:
        interval: the region.
        bases: its reference bases, upper-case.
        directed: (bases, bases) float32, e(i, j) in log2 odds: row i is the substituted base,
            column j the affected one. Above the diagonal are values of the forward strand, below
            it those of the reverse strand; the diagonal is 0. NaN for unknown bases, and on a
            strand on which the k-mer of base i has an unknown base at every offset.
        dependency: `directed`, made symmetric.
        tokens_read: input tokens of the network, with padding.
    """

    interval: Interval
    bases: str
    directed: Float32s
    dependency: Float32s
    tokens_read: int

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the reference knows each base, (bases,)."""
        return _is_known(self.bases)

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether a known base lacks e(i, j) on a strand, (bases,)."""
        known = self.known
        return known & np.isnan(self.directed[:, known]).any(axis=1)

    @property
    def influence(self) -> Float32s:
        """Mean of e(i, j) over the other bases j with a value, (bases,); NaN if there is none."""
        others = (~np.isnan(self.directed)).sum(axis=1) - 1  # without the base itself
        total = np.nansum(self.directed, axis=1, dtype=np.float64)
        mean = np.full(len(self.bases), np.nan, dtype=np.float32)
        np.divide(total, others, out=mean, where=others > 0, casting="same_kind")
        return mean


def _unwatched(tokens: int) -> None:
    """Report nothing."""


def dependency_map(
    runner: "ModelRunner",
    reference: Reference,
    interval: Interval,
    method: DependencyMethod,
    advance: Callable[[int], None] = _unwatched,
) -> DependencyMap:
    """Return the dependency map of a region.

    Args:
        runner: runner of the model.
        reference: the reference sequence.
        interval: the region, of at most `method.longest_bp` bases.
        method: how to compute it.
        advance: called with the number of tokens after each step.

    Raises:
        GenomeError: the reference lacks the contig, or the region extends past its end.
        UserError: the region is empty or too long.
        ModelError: the model's output is not finite.
    """
    check_interval(interval)
    check_length(interval, method)
    bases = reference.fetch(interval).upper()
    directed = np.zeros((len(bases), len(bases)), dtype=np.float32)
    for strand in "+-":
        along_strand = directed if strand == "+" else directed[::-1, ::-1]
        seen = _seen(runner, reference, interval, strand, method)
        num_seen = seen.sum(axis=0, dtype=np.float32)[:, None]
        for offset, is_seen in zip(method.offsets, seen, strict=True):
            part = strand_map(runner, reference, interval, strand, offset, method, advance)
            check_finite(part, f"region {interval.to_region()}")
            along_strand[is_seen] += part[is_seen] / num_seen[is_seen]
        is_masked = np.broadcast_to(num_seen == 0, directed.shape)
        along_strand[np.triu(is_masked, 1)] = np.nan
    unknown = ~_is_known(bases)
    directed[unknown], directed[:, unknown] = np.nan, np.nan
    dependency = _SYMMETRIC[method.symmetrise](directed, directed.T)
    tokens = num_dependency_tokens(runner, reference, interval, method)
    return DependencyMap(interval, bases, directed, dependency, tokens)


def _seen(
    runner: "ModelRunner",
    reference: Reference,
    interval: Interval,
    strand: str,
    method: DependencyMethod,
) -> NDArray[np.bool_]:
    """Return whether later bases see a base, (offsets, bases) along the strand.

    They do not if its k-mer has an unknown base: its one token hides all substitutions.
    """
    rows = []
    for offset in method.offsets:
        region = _StrandRegion.read(reference, interval, strand, offset, method)
        is_known = runner.vocabulary.tokens(region.bases).ids != runner.vocabulary.other
        rows.append(np.repeat(is_known, region.k)[region.context_bp : len(region.bases)])
    return np.stack(rows)


def check_length(interval: Interval, method: DependencyMethod) -> None:
    """Raise UserError unless a region has bases, and fits into window and memory."""
    where = f"region {interval.to_region()}"
    if not interval.length_bp:
        raise UserError(f"{where}: has no bases; give one or more")
    if interval.length_bp > method.longest_bp:
        raise UserError(
            f"{where}: {interval.length_bp} bp; the longest map with a window of "
            f"{method.window_bp} bp on this machine is {method.longest_bp} bp"
        )


_SYMMETRIC: dict[str, Callable[[Float32s, Float32s], Float32s]] = {
    "max": np.maximum,
    "mean": lambda one, other: (one + other) / np.float32(2),
}


def _is_known(bases: str) -> NDArray[np.bool_]:
    return np.array([base in BASES for base in bases], dtype=bool)


def strand_map(
    runner: "ModelRunner",
    reference: Reference,
    interval: Interval,
    strand: str,
    offset: int,
    method: DependencyMethod,
    advance: Callable[[int], None] = _unwatched,
) -> Float32s:
    """Return e(i, j) of one strand, in its direction: (bases, bases); 0 unless j is after i.

    A substitution does not reach the bases before it, but kernels of a GPU may round them
    differently in each row.
    """
    return np.triu(_computed(runner, reference, interval, strand, offset, method, advance), 1)


def _computed(
    runner: "ModelRunner",
    reference: Reference,
    interval: Interval,
    strand: str,
    offset: int,
    method: DependencyMethod,
    advance: Callable[[int], None],
) -> Float32s:
    """Return e(i, j) of one strand as the network computes it, also for j up to i."""
    region = _StrandRegion.read(reference, interval, strand, offset, method)
    effects = np.zeros((region.length_bp, region.length_bp), dtype=np.float32)
    advance(_tile_tokens(runner, region, method))
    for step in effects_of_substitutions(runner, region, method):
        effects[step.rows, region.length_bp - step.values.shape[1] :] = step.values
        advance(step.tokens)
    return effects


class _StrandRegion(NamedTuple):
    """A region with the bases before it along a strand, from the start of a k-mer.

    Attributes:
        bases: context and region; N before the start of the contig, upper-case.
        context_bp: bases before the region.
        k: bases of a token.
    """

    bases: str
    context_bp: int
    k: int

    @property
    def length_bp(self) -> int:
        """Length of the region."""
        return len(self.bases) - self.context_bp

    @property
    def kmers(self) -> range:
        """Numbers of the k-mers that hold bases of the region."""
        return range(self.context_bp // self.k, -(-len(self.bases) // self.k))

    def known_in(self, kmer: int) -> list[int]:
        """Return the places of the region's known bases in a k-mer."""
        end = min((kmer + 1) * self.k, len(self.bases))
        places = range(max(kmer * self.k, self.context_bp), end)
        return [place for place in places if self.bases[place] in BASES]

    @classmethod
    def read(
        cls,
        reference: Reference,
        interval: Interval,
        strand: str,
        offset: int,
        method: DependencyMethod,
    ) -> "_StrandRegion":
        """Fetch a region and its context; k-mers begin at the offset from the strand's start."""
        contig, start, end = interval.contig, interval.start, interval.end
        contig_bp = reference.contig_lengths_bp[contig]
        if strand == "-":
            start, end = contig_bp - end, contig_bp - start
        first = max(0, end - method.window_bp)
        first += (offset - first) % method.k
        if first > start:  # the bases before the offset end a k-mer of unknown bases
            first -= method.k
        bases = "N" * -first + fetch_along(reference, contig, max(0, first), end, strand)
        return cls(bases.upper(), start - first, method.k)


class _Step(NamedTuple):
    """Effects of the substitutions in a k-mer.

    Attributes:
        rows: numbers of the substituted bases in the region.
        values: (rows, bases from the k-mer's first base in the region on) of e(i, j).
        tokens: input tokens of the network, with padding.
    """

    rows: list[int]
    values: Float32s
    tokens: int


def effects_of_substitutions(
    runner: "ModelRunner", region: _StrandRegion, method: DependencyMethod
) -> Iterator[_Step]:
    """Yield the effects of the substitutions in each k-mer of a region on a strand."""
    vocabulary = runner.vocabulary
    prefix, tokens = (
        prefix_of("", vocabulary, method.tags),
        continuation_of(region.bases, vocabulary),
    )
    # The last k-mer is only predicted.
    inputs = Continuation(tokens.ids[:-1], tokens.kmers[:-1], tokens.known[:-1])
    tile = runner.tile(prefix, inputs, len(inputs.ids))
    for kmer in region.kmers:
        places, start = region.known_in(kmer), kmer * region.k
        if not places:
            continue
        texts = [region.bases[start:], *_substituted(region.bases, start, places)]
        rows = [continuation_of(text, vocabulary) for text in texts]
        measured = np.stack(runner.continued_conditionals(tile, kmer, rows))
        odds = log2_odds(measured.reshape(len(rows), -1, 4)[:, : len(texts[0])])
        changes = np.abs(odds[1:] - odds[0]).max(axis=2)
        effects = changes.reshape(len(places), 3, -1).max(axis=1)
        yield _Step(
            [place - region.context_bp for place in places],
            effects[:, max(region.context_bp - start, 0) :].astype(np.float32),
            _continued_tokens(region, kmer),
        )


def _substituted(bases: str, start: int, places: list[int]) -> Iterator[str]:
    """Yield the bases from `start` on with each of the three other bases at each place."""
    for place in places:
        for base in "ACGT":
            if base != bases[place]:
                yield bases[start:place] + base + bases[place + 1 :]


def log2_odds(log_p: Float32s) -> Float64s:
    """Return log2(p / (1 - p)) of each of four bases: (..., 4) of log p in nats.

    log(1 - p) is the logarithm of the sum of the other three, which keeps its digits where p
    rounds to 1.
    """
    exact = log_p.astype(np.float64)
    others = [np.logaddexp.reduce(np.delete(exact, base, axis=-1), axis=-1) for base in range(4)]
    odds: Float64s = (exact - np.stack(others, axis=-1)) / np.log(2)
    return odds


def num_dependency_tokens(
    runner: "ModelRunner", reference: Reference, interval: Interval, method: DependencyMethod
) -> int:
    """Return the tokens, with padding, that `dependency_map` runs."""
    regions = [
        _StrandRegion.read(reference, interval, strand, offset, method)
        for strand in "+-"
        for offset in method.offsets
    ]
    return sum(
        _tile_tokens(runner, region, method)
        + sum(_continued_tokens(region, kmer) for kmer in region.kmers)
        for region in regions
    )


def _tile_tokens(runner: "ModelRunner", region: _StrandRegion, method: DependencyMethod) -> int:
    prefix = prefix_of("", runner.vocabulary, method.tags)
    return padded_length(len(prefix) + -(-len(region.bases) // region.k) - 1)


def _continued_tokens(region: _StrandRegion, kmer: int) -> int:
    """Return the tokens of the reference and all substitutions in a k-mer, with padding."""
    places = region.known_in(kmer)
    num_rows = 1 + 3 * len(places) if places else 0
    return num_rows * padded_length(region.kmers.stop - kmer - 1)


def timed_tokens(
    runner: "ModelRunner", reference: Reference, interval: Interval, method: DependencyMethod
) -> Iterator[int]:
    """Yield the tokens of each step of the forward strand, when it is done."""
    region = _StrandRegion.read(reference, interval, "+", method.offsets[0], method)
    for step in effects_of_substitutions(runner, region, method):
        yield step.tokens
