"""Windows of alleles: scoring methods, sites, and the bases before and after a variant."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.genome.interval import BASES
from carbon.genome.normalize import common_start_bp
from carbon.inference.checks import check_window, checked_names, checked_offsets
from carbon.inference.options import (
    DEFAULT_DOWNSTREAM_BP,
    DEFAULT_SCORES,
    LEAST_CONTEXTS_PER_WINDOW,
    PROTOCOLS,
    STRANDS_READ,
    WINDOW_PROTOCOLS,
    By,
    ProtocolName,
    ScoreName,
    VariantOptions,
    check_choice,
    checked_scores,
)

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner


class TileGrid(NamedTuple):
    """The tiles of a strand, in the strand's own coordinates.

    Tile i begins at `i * step_bp` and owns the `step_bp` positions after its least context; tile 0
    also owns the positions before them. So every base compared for a short variant is in its tile.

    Attributes:
        window_bp: bases of a tile.
        least_context_bp: bases of a tile before the positions that it owns, whole k-mers.
        downstream_bp: bases compared after the longer allele.
        k: bases of a token.
    """

    window_bp: int
    least_context_bp: int
    downstream_bp: int
    k: int

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "TileGrid":
        """Return the grid of tiles that the settings of a method state."""
        return TileGrid(*(settings[name] for name in TileGrid._fields))

    @property
    def step_bp(self) -> int:
        """Bases from the start of a tile to the start of the next, whole k-mers."""
        return (self.window_bp - self.least_context_bp - self.downstream_bp) // self.k * self.k

    def tile_of(self, position: int) -> int:
        """Return the number of the tile that owns a position."""
        return max(0, (position - self.least_context_bp) // self.step_bp)


@dataclass(frozen=True, kw_only=True, slots=True)
class Method(VariantOptions):
    """How variants are scored: `VariantOptions` that fit a model.

    Attributes:
        window_bp: bases of the whole window, or of a tile; for `right_end`, the bases before the
            variant.
        downstream_bp: for `tiled`; otherwise None.
        least_context_bp: for `tiled`, whole k-mers; otherwise None.
        k: bases of a token of the model.
        offsets: sorted and distinct.
        tags: metadata tags to condition on.
        scores: names of `VARIANT_SCORES`, in its order.
    """

    window_bp: int
    offsets: tuple[int, ...]
    tags: tuple[str, ...]
    k: int
    scores: tuple[ScoreName, ...] = DEFAULT_SCORES

    @property
    def grid(self) -> TileGrid:
        """The grid of `tiled`.

        Raises:
            ValueError: the method reads no tiles.
        """
        if self.least_context_bp is None or self.downstream_bp is None:
            raise ValueError(f"{self.protocol} reads no tiles")
        return TileGrid(self.window_bp, self.least_context_bp, self.downstream_bp, self.k)

    @property
    def reads_conditionals(self) -> bool:
        """Whether a score needs the next-base distributions."""
        return "jsd" in self.scores

    @property
    def reads_states(self) -> bool:
        """Whether a score needs the states of the last layer."""
        return "embedding_distance" in self.scores

    @property
    def reads_all_alts(self) -> bool:
        """Whether a score needs all three ALTs of an SNV."""
        return "allele_entropy" in self.scores

    def settings(self) -> dict[str, Any]:
        """Return the options that deltas depend on as JSON, without those of other protocols."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and name != "scores"
        }


def method_for(
    runner: "ModelRunner", options: VariantOptions, scores: Iterable[str] = DEFAULT_SCORES
) -> Method:
    """Return a method whose window fits into the model's context.

    Raises:
        UserError: a choice, the window, an offset, a tag or a score is invalid.
    """
    check_choice("protocol", options.protocol, PROTOCOLS)
    check_choice("by", options.by, get_args(By))
    check_choice("strands", options.strands, STRANDS_READ)
    k = runner.vocabulary.k
    offsets, tags = checked_offsets(options.offsets, k), checked_names("tags", options.tags)
    most_bp = room_bp(runner, tags)
    window_bp = options.window_bp
    if window_bp is None:
        protocol = PROTOCOLS[options.protocol]
        fitting_bp = protocol.room_bp(most_bp)
        window_bp = runner.vocabulary.default_window_bp(protocol.default_window_bp, fitting_bp)
    check_window(window_bp, most_bp, k)
    checked: dict[str, Any] = {
        "window_bp": window_bp,
        "offsets": offsets,
        "tags": tags,
        "k": k,
        "scores": checked_scores(checked_names("scores", scores), options.protocol),
    }
    return Method(**asdict(options) | checked | _of_tiles(options, window_bp, k))


def _of_tiles(options: VariantOptions, window_bp: int, k: int) -> dict[str, int]:
    """Return the options that `tiled` alone has, with their defaults."""
    downstream_bp, context_bp = options.downstream_bp, options.least_context_bp
    if options.protocol in WINDOW_PROTOCOLS:
        if downstream_bp is not None or context_bp is not None:
            raise UserError(
                f"downstream and least context: only the protocol tiled has them, not "
                f"{options.protocol}"
            )
        return {}
    return tile_grid(window_bp, downstream_bp, context_bp, k=k)._asdict()


def tile_grid(
    window_bp: int, downstream_bp: int | None = None, context_bp: int | None = None, *, k: int
) -> TileGrid:
    """Return the grid of tiles of a length, with the defaults of `VariantOptions`.

    Raises:
        UserError: the least context and the bases downstream do not fit into a tile.
    """
    if context_bp is None:
        context_bp = window_bp // LEAST_CONTEXTS_PER_WINDOW // k * k
    if downstream_bp is None:
        downstream_bp = min(DEFAULT_DOWNSTREAM_BP, max(1, (window_bp - context_bp) // 2))
    whole_bp = context_bp + -context_bp % k
    if downstream_bp < 1 or context_bp < 0 or whole_bp + downstream_bp + k > window_bp:
        raise UserError(
            f"a least context of {context_bp} bp and {downstream_bp} bp downstream do not fit into "
            f"a window of {window_bp} bp: together give at most {window_bp - k}, and 1 or more "
            "downstream"
        )
    return TileGrid(window_bp, whole_bp, downstream_bp, k)


def room_bp(runner: "ModelRunner", tags: tuple[str, ...]) -> int:
    """Return how many bases fit into one forward pass next to the begin token and tags."""
    vocabulary = runner.vocabulary
    return (runner.context_tokens - len(vocabulary.prefix(tags))) * vocabulary.k


_FIRST_FETCH_BP = 64  # doubled with each further fetch, so that a long repeat takes linear time


class VariantSite(NamedTuple):
    """A site on a strand; variants at one site share the bases before them.

    Attributes:
        contig: contig of the reference.
        start: start of REF.
        end: end of REF.
        strand: the scored strand.
        counted_bp: compared bases, from the variant on. It is part of the site, so that the score
            of a variant does not depend on other variants of its batch.
    """

    contig: str
    start: int
    end: int
    strand: str
    counted_bp: int


class AlleleWindows(NamedTuple):
    """The bases before a site, and each allele with the bases after it.

    Both run along the strand, in the case of the reference.
    """

    left: str
    rights: dict[str, str]  # by allele


def site_of(variant: Variant, strand: str, counted_bp: int) -> VariantSite:
    """Return the site of a variant on a strand."""
    here = variant.interval
    return VariantSite(here.contig, here.start, here.end, strand, counted_bp)


def needed_bp(reference: Reference, variant: Variant, strand: str, most_bp: int) -> int | None:
    """Return how many bases, from the variant on, distinguish REF and ALT.

    They include the longer allele, and the first base at which the two texts, each an allele
    followed by the reference, differ. For an insertion or deletion in a repeat that base follows
    the last copy of the repeated unit.

    Args:
        reference: the reference sequence.
        variant: normalised by `normalize_variant`.
        strand: direction of the texts.
        most_bp: maximum length to compare.

    Returns:
        More than `most_bp` if the texts do not differ up to there; None if the contig ends before
        they differ, or an unknown base comes first.
    """
    longer_bp = max(len(variant.ref), len(variant.alt))
    if longer_bp > most_bp:
        return longer_bp
    common_bp = same_bp(reference, variant, strand, most_bp)
    return None if common_bp is None else max(longer_bp, common_bp + 1)


def same_bp(reference: Reference, variant: Variant, strand: str, most_bp: int) -> int | None:
    """Return the length of the common start of an allele and the reference after it, for both.

    Returns:
        At most `most_bp`; None if the contig ends before the texts differ, or an unknown base comes
        first.
    """
    alleles = tuple(along(strand, allele.upper()) for allele in (variant.ref, variant.alt))
    after = sides_of(reference, variant.interval, strand)[1]
    fetch_bp = _FIRST_FETCH_BP
    texts, rest = alleles, Interval(after.contig, after.start, after.start)
    while True:
        common_bp = common_start_bp(*texts)
        if common_bp < min(map(len, texts)):
            return common_bp if {text[common_bp] for text in texts} <= BASES else None
        if common_bp >= most_bp:
            return most_bp
        if rest == after:
            return None
        rest = nearest(after, fetch_bp, strand)
        fetch_bp *= 2
        following = along(strand, reference.fetch(rest).upper())
        texts = tuple(allele + following for allele in alleles)


def allele_windows(
    reference: Reference,
    site: VariantSite,
    alleles: Iterable[str],
    protocol: ProtocolName,
    window_bp: int,
) -> AlleleWindows:
    """Return the windows of alleles at a site, before tokenization.

    A window is cut at the end of the contig, so the right sides may differ in length.

    Args:
        reference: the reference sequence.
        site: site of REF, with strand and compared bases.
        alleles: on the forward strand, including REF.
        protocol: `centered` or `right_end`.
        window_bp: window of the protocol.
    """
    strand, counted_bp = site.strand, site.counted_bp
    before, after = sides_of(reference, Interval(site.contig, site.start, site.end), strand)
    opposite = "-" if strand == "+" else "+"
    before = nearest(before, WINDOW_PROTOCOLS[protocol].before_bp(strand, window_bp), opposite)
    after = nearest(after, counted_bp - min(map(len, alleles)), strand)
    left, rest = (along(strand, reference.fetch(side)) for side in (before, after))
    rights = {allele: (along(strand, allele) + rest)[:counted_bp] for allele in alleles}
    return AlleleWindows(left, rights)


def centered_pair(
    reference: Reference, variant: Variant, strand: str, window_bp: int, k: int
) -> tuple[str, str]:
    """Return the windows of `centered` with REF and with ALT along a strand.

    Both hold equally many bases from the variant on, and the k-mers of both after the variant begin
    at the same reference bases. So do those of their reverse complements.

    Args:
        reference: the reference sequence.
        variant: normalised by `normalize_variant`; half a window holds its longer allele.
        strand: direction of the windows.
        window_bp: bases of the window with REF; the window with ALT begins up to k - 1 bases later,
            or near the start of a contig with up to k - 1 unknown bases.
        k: bases of a token.
    """
    counted_bp = WINDOW_PROTOCOLS["centered"].counted_bp(0, strand, window_bp)
    site = site_of(variant, strand, counted_bp)
    pair = variant.ref.upper(), variant.alt.upper()
    left, rights = allele_windows(reference, site, pair, "centered", window_bp)
    shared_bp = min(map(len, rights.values()))
    ref, alt = (
        on_grid(left, skipped_bp(site, allele, 0, "centered", k), "centered", k)
        + rights[allele][:shared_bp]
        for allele in pair
    )
    return ref, alt


def sides_of(reference: Reference, here: Interval, strand: str) -> tuple[Interval, Interval]:
    """Return the intervals before and after a site along the strand, to the contig's ends."""
    contig_bp = reference.contig_lengths_bp[here.contig]
    left = Interval(here.contig, 0, here.start)
    right = Interval(here.contig, here.end, contig_bp)
    return (left, right) if strand == "+" else (right, left)


def nearest(side: Interval, length_bp: int, strand: str) -> Interval:
    """Return the first bases of an interval along a strand, all of them if it is shorter."""
    length_bp = min(length_bp, side.length_bp)
    if strand == "+":
        return Interval(side.contig, side.start, side.start + length_bp)
    return Interval(side.contig, side.end - length_bp, side.end)


def along(strand: str, bases: str) -> str:
    """Return forward bases along a strand."""
    return bases if strand == "+" else reverse_complement(bases)


def skipped_bp(site: VariantSite, allele: str, offset: int, protocol: ProtocolName, k: int) -> int:
    """Return the bases to leave out at the start of an allele's window.

    For `centered` it is the offset plus the additional length of the allele, modulo k, so that
    the k-mers after the variant begin at the same reference bases for every allele. This holds for
    either strand, because the window starts at the side that is scored first.

    Args:
        site: site of REF.
        allele: REF or an ALT.
        offset: bases left out for REF.
        protocol: `centered`, or `right_end`, in which every allele begins a k-mer.
        k: bases of a token.
    """
    if WINDOW_PROTOCOLS[protocol].alleles_alone:
        return offset
    return (offset + len(allele) - (site.end - site.start)) % k


def on_grid(left: str, skip_bp: int, protocol: ProtocolName, k: int) -> str:
    """Return the bases before the variant without the first ones, aligned to k-mers.

    If the alleles are compared alone, the variant begins a token, and `skip_bp` more bases are left
    out. Otherwise, if fewer than `skip_bp` bases precede the variant, unknown bases complete the
    k-mer in which the variant then begins.
    """
    if WINDOW_PROTOCOLS[protocol].alleles_alone:
        return left[len(left) % k + skip_bp :]
    return left[skip_bp:] if skip_bp <= len(left) else "N" * (k + len(left) - skip_bp)
