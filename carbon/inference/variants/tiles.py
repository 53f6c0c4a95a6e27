"""The protocol `tiled`: alleles continue from one reading of the reference that variants share.

On each strand the reference is read in tiles on a fixed grid. A variant belongs to the tile that
owns the first base at which its alleles differ. Each allele continues from the k-mers of the tile
before that base, up to `downstream_bp` bases after the longer allele. The context and the compared
bases of a variant follow from its position and the options alone, never from other variants.

A tile is read once for each offset of the k-mers that occurs, in one shape. All continuations share
its keys and values, of which a mask hides those at and after the variant. So on a CPU a score does
not depend on its neighbours, to the last bit.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from carbon.batching import drained
from carbon.genome import Interval, Reference, Variant
from carbon.inference.passages import continuation_of, padded_length, prefix_of
from carbon.inference.variants.shared_bases import (
    AlleleReading,
    Int64s,
    SharedBases,
    reading_of,
    shared_bases,
    whole_tokens,
)
from carbon.inference.variants.windows import Method, TileGrid, along, nearest, same_bp, sides_of

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner


class TiledSite(NamedTuple):
    """A variant on a strand, in the strand's own coordinates.

    Attributes:
        strand: the scored strand.
        contig: contig of the reference.
        first: the first base at which the alleles differ.
        ref: (bases) from `first` on, with REF, in the case of the reference.
        alt: (bases) from `first` on, with ALT; as many.
        allele_bp: bases from `first` on after which both texts go on with the same bases of the
            reference: those of REF and of ALT, or more if an allele ends before `first`.
        longer_bp: bases that ALT has more than REF.
        is_reference: whether the bases with REF are those of the reference.
    """

    strand: str
    contig: str
    first: int
    ref: str
    alt: str
    allele_bp: tuple[int, int]
    longer_bp: int
    is_reference: bool

    @property
    def shared(self) -> SharedBases:
        """The reference bases that both alleles compare."""
        return shared_bases(0, self.allele_bp, self.longer_bp, self.ref)


def tiled_site(
    reference: Reference, variant: Variant, strand: str, downstream_bp: int
) -> TiledSite | None:
    """Return the compared bases of a variant on a strand.

    Args:
        reference: the reference sequence.
        variant: normalised by `normalize_variant`.
        strand: the scored strand.
        downstream_bp: bases compared after the longer allele.

    Returns:
        None if the contig ends before the alleles differ, or an unknown base comes first.
    """
    contig_bp = reference.contig_lengths_bp[variant.contig]
    longer_bp = max(len(variant.ref), len(variant.alt))
    same = same_bp(reference, variant, strand, contig_bp + longer_bp)
    if same is None:
        return None
    before, after = sides_of(reference, variant.interval, strand)
    compared_bp = max(0, longer_bp - same) + downstream_bp
    rest = along(strand, reference.fetch(nearest(after, same + compared_bp, strand)))
    alleles = [along(strand, allele) for allele in (variant.ref, variant.alt)]
    texts = [(allele + rest)[same : same + compared_bp] for allele in alleles]
    compared_bp = min(map(len, texts))
    # The texts may begin after an allele, which then ends that many bases before them.
    ref_bp, alt_bp = len(variant.ref) - same, len(variant.alt) - same
    before_bp = max(0, -ref_bp, -alt_bp)
    bases = along(strand, reference.fetch(variant.interval))
    return TiledSite(
        strand,
        variant.contig,
        before.length_bp + same,
        texts[0][:compared_bp],
        texts[1][:compared_bp],
        (ref_bp + before_bp, alt_bp + before_bp),
        len(variant.alt) - len(variant.ref),
        bases.upper() == alleles[0].upper(),
    )


class _Reading(NamedTuple):
    """A tile without its first bases."""

    strand: str
    contig: str
    tile: int
    skip_bp: int


class _Part(NamedTuple):
    """One allele's compared bases after a reading.

    Attributes:
        key: number of the site, number of the offset, and whether the allele is ALT.
        start: bases of the reading before the compared ones; negative if the first bases of the
            contig were left out.
        text: the compared bases.
        is_read: whether the reading has them itself.
        pools: ranges of the compared bases whose states are averaged.
    """

    key: tuple[int, int, bool]
    start: int
    text: str
    is_read: bool
    pools: tuple[range, ...]

    def token_pools(self, before_bp: int, k: int) -> tuple[range, ...]:
        """Return the pools in k-mers that begin so many bases before the compared ones."""
        return tuple(whole_tokens(bases, before_bp, k) for bases in self.pools)


AlleleReadings = tuple[list[AlleleReading], list[AlleleReading]]
"""Readings of the compared bases with REF and with ALT, one for each offset."""


def tiled_readings(
    runner: "ModelRunner", reference: Reference, sites: Sequence[TiledSite], method: Method
) -> list[AlleleReadings]:
    """Return the readings of the compared bases of each site.

    One tile is in memory at a time.
    """
    found: dict[tuple[int, int, bool], AlleleReading] = {}
    for reading, parts in _parts_by_reading(reference, sites, method).items():
        found |= _read(runner, reference, reading, parts, method)
    numbers = range(len(method.offsets))
    return [
        (
            [found[site, number, False] for number in numbers],
            [found[site, number, True] for number in numbers],
        )
        for site in range(len(sites))
    ]


def num_tiled_tokens(
    runner: "ModelRunner", reference: Reference, sites: Sequence[TiledSite], method: Method
) -> int:
    """Return the tokens, with padding, that `tiled_readings` runs."""
    num_prefix, k = len(prefix_of("", runner.vocabulary, method.tags)), method.k
    tile_tokens = padded_length(num_prefix + _most_kmers(method.grid))
    readings = _parts_by_reading(reference, sites, method)
    return len(readings) * tile_tokens + sum(
        padded_length(-(-(part.start % k + len(part.text)) // k) - 1)
        for parts in readings.values()
        for part in parts
        if not part.is_read
    )


def _most_kmers(grid: TileGrid) -> int:
    return -(-grid.window_bp // grid.k)


def _parts_by_reading(
    reference: Reference, sites: Sequence[TiledSite], method: Method
) -> dict[_Reading, list[_Part]]:
    grid = method.grid
    readings: dict[_Reading, list[_Part]] = defaultdict(list)
    for number, site in enumerate(sites):
        tile = grid.tile_of(site.first)
        start = site.first - tile * grid.step_bp
        contig_bp = reference.contig_lengths_bp[site.contig]
        end = min(grid.window_bp, contig_bp - tile * grid.step_bp)
        shared = site.shared
        for at, offset in enumerate(method.offsets):
            for is_alt, text, skip_bp, bases in (
                (False, site.ref, offset, shared.ref),
                # The k-mers after ALT begin at the same reference bases as those after REF.
                (True, site.alt, (offset + site.longer_bp) % method.k, shared.alt),
            ):
                is_read = not is_alt and site.is_reference
                is_read = is_read and skip_bp <= start and start + len(text) <= end
                reading = _Reading(site.strand, site.contig, tile, skip_bp)
                pools = (bases,) if method.reads_states else ()
                readings[reading].append(
                    _Part((number, at, is_alt), start - skip_bp, text, is_read, pools)
                )
    return readings


def _read(
    runner: "ModelRunner",
    reference: Reference,
    reading: _Reading,
    parts: list[_Part],
    method: Method,
) -> dict[tuple[int, int, bool], AlleleReading]:
    grid, vocabulary, k = method.grid, runner.vocabulary, method.k
    contig_bp = reference.contig_lengths_bp[reading.contig]
    tile_start = reading.tile * grid.step_bp
    end = min(tile_start + grid.window_bp, contig_bp)
    start = min(tile_start + reading.skip_bp, end)  # all of a tile at the end may be skipped
    bases = fetch_along(reference, reading.contig, start, end, reading.strand)
    prefix = prefix_of("", vocabulary, method.tags)
    measure = runner.base_measure(method.by, conditionals=method.reads_conditionals)
    own = [part for part in parts if part.is_read]
    pools = tuple(pool for part in own for pool in part.token_pools(part.start, k))
    tile = runner.tile(prefix, continuation_of(bases, vocabulary, pools), _most_kmers(grid))
    found = {}

    def ids_of(before: str, part: _Part) -> Int64s:
        return vocabulary.tokens(before + part.text).ids

    if own:
        measured = runner.measure_tile(tile, measure)
        means = iter(measured.means)
        for part in own:
            of_part = [next(means) for _ in part.pools]
            ids = ids_of(_before(bases, part.start, k), part)
            found[part.key] = reading_of(
                measured.values, ids, k, part.start, len(part.text), part.pools, of_part
            )
    others = [part for part in parts if not part.is_read]
    before = [_before(bases, part.start, k) for part in others]
    rows = [
        (
            max(0, part.start) // k,
            continuation_of(left + part.text, vocabulary, part.token_pools(len(left), k)),
        )
        for part, left in zip(others, before, strict=True)
    ]
    continued = runner.measure_continued(tile, rows, measure)
    for part, left, measured in zip(others, before, drained(continued), strict=True):
        ids = ids_of(left, part)
        found[part.key] = reading_of(
            measured.values, ids, k, len(left), len(part.text), part.pools, measured.means
        )
    return found


def _before(bases: str, start: int, k: int) -> str:
    """Return the bases before a position in its k-mer; unknown ones if the reading lacks them."""
    return "N" * (k + start) if start < 0 else bases[start // k * k : start]


def fetch_along(reference: Reference, contig: str, start: int, end: int, strand: str) -> str:
    """Return bases of a strand, by positions along it."""
    if strand == "-":
        length_bp = reference.contig_lengths_bp[contig]
        start, end = length_bp - end, length_bp - start
    return along(strand, reference.fetch(Interval(contig, start, end)))
