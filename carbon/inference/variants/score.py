"""Zero-shot variant scores: the log-likelihood of ALT minus the log-likelihood of REF.

Variants are trimmed and left-aligned first, so that a score does not depend on notation. Both
protocols condition on the bases before the variant and compare an equal number of bases from the
variant on, with ALT and with REF. A strand on which the contig ends before the alleles differ
cannot distinguish them; it is left out and reported.

An indel shifts the k-mers of all bases after it, and shifting the k-mer boundaries changes the
likelihood of identical sequence. So `centered` leaves out more or fewer bases at the start of ALT's
window than of REF's, and the k-mers of both after the variant begin at the same reference bases.
Alleles of a site that leave out equally many bases share the prefix of the forward pass.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.batching import drained, in_blocks
from carbon.genome import Reference, Variant
from carbon.genome.interval import BASES
from carbon.genome.normalize import common_start_bp, normalize_variant
from carbon.inference.checks import check_finite
from carbon.inference.options import PROTOCOLS, STRANDS_READ, WINDOW_PROTOCOLS
from carbon.inference.passages import Passage, batch_rows, continuation_of, prefix_of
from carbon.inference.variants.shared_bases import (
    AlleleReading,
    SharedBases,
    divergence,
    hides_allele,
    reading_of,
    shared_bases,
    state_distance,
    whole_tokens,
)
from carbon.inference.variants.tiles import (
    TiledSite,
    num_tiled_tokens,
    tiled_readings,
    tiled_site,
)
from carbon.inference.variants.windows import (
    AlleleWindows,
    Method,
    VariantSite,
    allele_windows,
    needed_bp,
    on_grid,
    room_bp,
    site_of,
    skipped_bp,
)

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

STRAND_NAMES = {"+": "forward", "-": "reverse"}
_VARIANTS_PER_BLOCK = 512


class VariantScore(NamedTuple):
    """The score of a variant.

    Attributes:
        variant: the variant as given.
        delta: log-likelihood(ALT) - log-likelihood(REF) in nats, the mean of the strands that
            distinguish the alleles; None if there is a reason.
        reason: why the variant has no score; None if it has one.
        forward: delta of the forward strand; None if it was not scored or is left out.
        reverse: delta of the reverse strand; None if it was not scored or is left out.
        spread: offset/strand standard deviation: the root mean square deviation of the deltas of
            all scored offsets and strands from their mean; None if there is only one.
        strand_left_out: `forward` or `reverse` if this strand cannot distinguish the alleles, so
            that `delta` is from the other strand alone; None otherwise.
        strand_masked: `forward`, `reverse` or `both`, the strands with an offset at which the bases
            after the variant do not depend on its allele, because every k-mer in which REF and ALT
            differ has an unknown base. `delta` then has only the bases of these k-mers; `jsd` and
            `embedding_distance` leave these offsets out. None if there are none.
        abs_delta: absolute value of `delta`; like the following, None unless requested.
        jsd: mean Jensen-Shannon divergence in nats, the mean of strands; None if the alleles
            compare no common reference base, or are masked on all strands and offsets.
        embedding_distance: L2 distance of mean states, the mean of strands; None if no k-mer
            consists of common reference bases alone, likewise.
        allele_entropy: in nats; None unless the variant is an SNV.
        calibrated_delta: in nats; None unless the variant is an SNV whose change has a cell in the
            background.
    """

    variant: Variant
    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None
    spread: float | None = None
    strand_left_out: str | None = None
    strand_masked: str | None = None
    abs_delta: float | None = None
    jsd: float | None = None
    embedding_distance: float | None = None
    allele_entropy: float | None = None
    calibrated_delta: float | None = None

    @property
    def unsure(self) -> bool | None:
        """Whether the delta is low-confidence: smaller than its SD; None without an SD.

        With two offsets or strands this means that they disagree about the sign.
        """
        if self.delta is None or self.spread is None:
            return None
        return abs(self.delta) < self.spread


class AlleleComparison(NamedTuple):
    """Log-likelihoods of the bases from a variant on, on one strand.

    The rows of `ref` and `alt` have equal length; for an insertion or deletion they do not end at
    the same base of the contig. A row of `alt` uses the offset at which the k-mers after the
    variant begin at the same bases as in the same row of `ref`.

    Attributes:
        ref_bp: length of REF, trimmed and left-aligned, with which the rows of `ref` begin. With
            `tiled` the rows begin where they differ, and then have this many bases before the
            first reference base that both have.
        alt_bp: length of ALT, likewise, with which the rows of `alt` begin.
        ref: (offsets, bases) float32, log-likelihoods in nats with REF, along the strand.
        alt: (offsets, bases) float32, with ALT.
        jsd: mean Jensen-Shannon divergence over common reference bases, in nats; None if there are
            none, or unless requested.
        embedding_distance: L2 distance of the mean states of common k-mers, likewise.
        num_masked: offsets at which the bases after the variant do not depend on the allele,
            because it shares its k-mers with unknown bases. `jsd` and `embedding_distance` are
            means over the other offsets, None if there are none.
    """

    ref_bp: int
    alt_bp: int
    ref: NDArray[np.float32]
    alt: NDArray[np.float32]
    jsd: float | None = None
    embedding_distance: float | None = None
    num_masked: int = 0

    @property
    def offset_deltas(self) -> list[float]:
        """Log-likelihood(ALT) - log-likelihood(REF) over all bases, by offset."""
        return [
            float((of_alt.astype(np.float64) - of_ref).sum())
            for of_ref, of_alt in zip(self.ref, self.alt, strict=True)
        ]

    @property
    def delta(self) -> float:
        """Mean over offsets."""
        deltas = self.offset_deltas
        return sum(deltas) / len(deltas)

    @property
    def allele_delta(self) -> float:
        """Contribution of the bases of the alleles."""
        ref, alt = self._means
        return float(alt[: self.alt_bp].sum() - ref[: self.ref_bp].sum())

    @property
    def downstream_deltas(self) -> NDArray[np.float64]:
        """Contribution of each base after the variant in both windows, the nearest first."""
        ref, alt = self._means
        behind_ref, behind_alt = ref[self.ref_bp :], alt[self.alt_bp :]
        shared_bp = min(len(behind_ref), len(behind_alt))
        return behind_alt[:shared_bp] - behind_ref[:shared_bp]

    @property
    def length_delta(self) -> float:
        """Contribution of the last bases, which only the window of the shorter allele includes."""
        ref, alt = self._means
        shared_bp = len(self.downstream_deltas)
        return float(alt[self.alt_bp + shared_bp :].sum() - ref[self.ref_bp + shared_bp :].sum())

    @property
    def _means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.ref.mean(axis=0, dtype=np.float64), self.alt.mean(axis=0, dtype=np.float64)


Compared = tuple[VariantScore, dict[str, AlleleComparison]]
"""A variant's score, and its comparison by strand (`+`, `-`), empty if there is a reason."""

_Readings = dict[tuple[VariantSite, int], dict[str, AlleleReading]]
"""Readings of the bases from the variant on, by site and bases left out, then by allele."""
_Pools = dict[tuple[VariantSite, str], tuple[range, ...]]
"""Ranges of bases from the variant on whose states are averaged, by site and allele."""


def score_variants(
    runner: "ModelRunner", reference: Reference, variants: Iterable[Variant], method: Method
) -> Iterator[VariantScore]:
    """Yield scores in the order of the variants, a block of them in memory at a time.

    With `tiled`, variants in the order of the contig share what is read.
    """
    for block in in_blocks(variants, _VARIANTS_PER_BLOCK):
        yield from (score for score, _ in compare_block(runner, reference, block, method))


def num_tokens(
    runner: "ModelRunner", reference: Reference, variants: Sequence[Variant], method: Method
) -> int:
    """Return the tokens, with padding, that scoring a block of variants runs."""
    prepared = _prepared_block(runner, reference, variants, method)
    prepared += chain.from_iterable(_alternatives(runner, reference, prepared, method).values())
    if method.protocol in WINDOW_PROTOCOLS:
        passages = _passages(runner, _windows_of(reference, prepared, method), {}, method)[1]
        rows = [
            row for number, passage in enumerate(passages) for row in batch_rows(number, passage)
        ]
        shared = {row.passage: row.shared_tokens for row in rows}
        return sum(row.padded_tokens - row.shared_tokens for row in rows) + sum(shared.values())
    return num_tiled_tokens(runner, reference, _sites_of(prepared), method)


def compare_block(
    runner: "ModelRunner", reference: Reference, block: list[Variant], method: Method
) -> Iterator[Compared]:
    """Yield the score of each variant, and its comparison by strand (`+`, `-`)."""
    prepared = _prepared_block(runner, reference, block, method)
    alternatives = _alternatives(runner, reference, prepared, method)
    compare = (
        _comparisons_of_windows if method.protocol in WINDOW_PROTOCOLS else _comparisons_of_tiles
    )
    read = [*chain.from_iterable(alternatives.values()), *prepared]
    comparisons = compare(runner, reference, read, method)
    entropies = {
        place: allele_entropy(_delta_of(next(comparisons)) for _ in snvs)
        for place, snvs in alternatives.items()
    }
    for variant, prepared_variant, by_strand in zip(block, prepared, comparisons, strict=True):
        if prepared_variant.reason:
            yield VariantScore(variant, None, prepared_variant.reason), by_strand
            continue
        entropy = entropies.get(_snv_place(prepared_variant.variant))
        yield _score_of(variant, prepared_variant, by_strand, entropy, method), by_strand


def _score_of(
    variant: Variant,
    prepared: "_PreparedVariant",
    by_strand: Mapping[str, AlleleComparison],
    entropy: float | None,
    method: Method,
) -> VariantScore:
    deltas = {strand: compared.delta for strand, compared in by_strand.items()}
    delta = sum(deltas.values()) / len(deltas)
    divergence = _mean_of(compared.jsd for compared in by_strand.values())
    distance = _mean_of(compared.embedding_distance for compared in by_strand.values())
    for value in (delta, divergence, distance, entropy):
        if value is not None:
            check_finite(value, f"variant {variant.to_text()}")
    left_out = next((STRAND_NAMES[strand] for strand in prepared.left_out), None)
    both = deltas.get("+"), deltas.get("-")
    return VariantScore(
        variant, delta, None, *both, spread_of(by_strand), left_out, _masked(by_strand),
        abs_delta=abs(delta) if "abs_delta" in method.scores else None,
        jsd=divergence,
        embedding_distance=distance,
        allele_entropy=entropy,
    )  # fmt: skip


def _masked(by_strand: Mapping[str, AlleleComparison]) -> str | None:
    """Return the strands on which an unknown base masks the alleles; None if there is none."""
    names = [STRAND_NAMES[strand] for strand, each in by_strand.items() if each.num_masked]
    return "both" if len(names) > 1 else next(iter(names), None)


def _delta_of(by_strand: Mapping[str, AlleleComparison]) -> float:
    return sum(compared.delta for compared in by_strand.values()) / len(by_strand)


def _mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that exist; None if none does."""
    existing = [value for value in values if value is not None]
    return sum(existing) / len(existing) if existing else None


def allele_entropy(deltas: Iterable[float]) -> float:
    """Return the entropy in nats of the distribution over REF and ALTs with these deltas."""
    log_odds = np.array([0.0, *deltas])
    log_p = log_odds - np.logaddexp.reduce(log_odds)
    return float(-(np.exp(log_p) * log_p).sum())


def spread_of(by_strand: Mapping[str, AlleleComparison]) -> float | None:
    """Return the offset/strand SD in nats; None if there is only one delta."""
    deltas = [delta for compared in by_strand.values() for delta in compared.offset_deltas]
    return float(np.std(deltas)) if len(deltas) > 1 else None


class _PreparedVariant(NamedTuple):
    """A variant trimmed and left-aligned, with its site on each strand or the reason for no score.

    Attributes:
        variant: normalised by `normalize_variant`.
        reason: why it has no score, or None.
        sites: site by strand that distinguishes the alleles.
        left_out: strands that cannot.
    """

    variant: Variant
    reason: str | None
    sites: dict[str, Any]
    left_out: tuple[str, ...]


def _prepared_block(
    runner: "ModelRunner", reference: Reference, variants: Iterable[Variant], method: Method
) -> list[_PreparedVariant]:
    # The last k-mer of a window is only predicted.
    readable_bp = room_bp(runner, method.tags) + method.k
    return [_prepared(reference, variant, method, readable_bp) for variant in variants]


_Place = tuple[str, int, str]
"""Contig, position and REF of an SNV."""


def _snv_place(variant: Variant) -> _Place | None:
    """Return the place of a normalised variant; None unless it is an SNV."""
    if len(variant.ref) != 1 or len(variant.alt) != 1:
        return None
    return variant.contig, variant.position, variant.ref.upper()


def _alternatives(
    runner: "ModelRunner",
    reference: Reference,
    prepared: Sequence[_PreparedVariant],
    method: Method,
) -> dict[_Place | None, list[_PreparedVariant]]:
    """Return the three SNVs at the place of each SNV, if a score needs them."""
    if not method.reads_all_alts:
        return {}
    places = dict.fromkeys(_snv_place(each.variant) for each in prepared if each.sites)
    return {
        place: _prepared_block(runner, reference, _snvs_at(*place), method)
        for place in places
        if place
    }


def _snvs_at(contig: str, position: int, ref: str) -> list[Variant]:
    return [Variant(contig, position, ref, alt) for alt in sorted(BASES - {ref})]


def _prepared(
    reference: Reference, variant: Variant, method: Method, readable_bp: int
) -> _PreparedVariant:
    if reason := _why_no_bases(reference, variant):
        return _PreparedVariant(variant, reason, {}, ())
    plain = normalize_variant(reference, variant)
    find = _window_sites if method.protocol in WINDOW_PROTOCOLS else _tiled_sites
    found = find(reference, plain, method, readable_bp)
    if found is None:
        return _PreparedVariant(plain, PROTOCOLS[method.protocol].too_long, {}, ())
    sites = {strand: site for strand, site in found.items() if site is not None}
    left_out = tuple(strand for strand, site in found.items() if site is None)
    return _PreparedVariant(plain, None if sites else "contig_edge", sites, left_out)


def _window_sites(
    reference: Reference, plain: Variant, method: Method, readable_bp: int
) -> dict[str, VariantSite | None] | None:
    """Return the site by strand, None if it does not distinguish the alleles.

    None for all if the alleles are too long.
    """
    protocol = WINDOW_PROTOCOLS[method.protocol]
    most_bp = protocol.most_needed_bp(method.window_bp, readable_bp)
    needed = {
        strand: needed_bp(reference, plain, strand, most_bp)
        for strand in STRANDS_READ[method.strands]
    }
    if any(bp is not None and bp > most_bp for bp in needed.values()):
        return None
    return {
        strand: None
        if bp is None
        else site_of(plain, strand, protocol.counted_bp(bp, strand, method.window_bp))
        for strand, bp in needed.items()
    }


def _tiled_sites(
    reference: Reference, plain: Variant, method: Method, readable_bp: int
) -> dict[str, TiledSite | None] | None:
    """Return what `_window_sites` returns, for tiles."""
    sites = {
        strand: tiled_site(reference, plain, strand, method.grid.downstream_bp)
        for strand in STRANDS_READ[method.strands]
    }
    most_bp = readable_bp - method.window_bp
    if any(site is not None and max(site.allele_bp) > most_bp for site in sites.values()):
        return None
    return sites


def _why_no_bases(reference: Reference, variant: Variant) -> str | None:
    """Return why a variant has no bases to score, or None.

    Raises:
        GenomeError: REF differs from the reference.
    """
    contig, position = variant.contig, variant.position
    if reason := reference.check_ref(contig, position, variant.ref, f"variant {variant.to_text()}"):
        return reason
    if reason := variant.why_unscorable():
        return reason
    is_inside = 0 <= position < reference.contig_lengths_bp[contig]
    return None if is_inside else "telomere"


def _comparisons_of_tiles(
    runner: "ModelRunner",
    reference: Reference,
    prepared: Sequence[_PreparedVariant],
    method: Method,
) -> Iterator[dict[str, AlleleComparison]]:
    """Yield what `_comparisons_of_windows` yields, for tiles."""
    sites = _sites_of(prepared)
    found = dict(zip(sites, tiled_readings(runner, reference, sites, method), strict=True))
    for each in prepared:
        yield {
            strand: _comparison(site.allele_bp, found[site][0], found[site][1], site.shared)
            for strand, site in each.sites.items()
        }


def _comparison(
    allele_bp: tuple[int, int],
    ref: Sequence[AlleleReading],
    alt: Sequence[AlleleReading],
    shared: SharedBases,
) -> AlleleComparison:
    """Return the comparison of the readings of both alleles, one for each offset."""
    pairs = [pair for pair in zip(ref, alt, strict=True) if not hides_allele(*pair, shared)]
    seen_ref, seen_alt = [of_ref for of_ref, _ in pairs], [of_alt for _, of_alt in pairs]
    return AlleleComparison(
        *allele_bp,
        np.stack([each.likelihoods for each in ref]),
        np.stack([each.likelihoods for each in alt]),
        divergence(seen_ref, seen_alt, shared),
        state_distance(seen_ref, seen_alt, shared),
        num_masked=len(ref) - len(pairs),
    )


def _sites_of(prepared: Sequence[_PreparedVariant]) -> list[Any]:
    """Return the different sites; variants written in several ways have one."""
    return list(dict.fromkeys(site for each in prepared for site in each.sites.values()))


def _comparisons_of_windows(
    runner: "ModelRunner",
    reference: Reference,
    prepared: Sequence[_PreparedVariant],
    method: Method,
) -> Iterator[dict[str, AlleleComparison]]:
    """Yield the comparison by strand of each variant; none if there is a reason."""
    windows = _windows_of(reference, prepared, method)
    pools = _pools(prepared, windows) if method.reads_states else {}
    readings = _measured(runner, windows, pools, method)
    for variant, _, sites, _ in prepared:
        yield {
            strand: _compared(variant, site, windows[site], readings, method)
            for strand, site in sites.items()
        }


def _pools(
    prepared: Sequence[_PreparedVariant], windows: dict[VariantSite, AlleleWindows]
) -> _Pools:
    pools: dict[tuple[VariantSite, str], dict[range, None]] = defaultdict(dict)
    for variant, _, sites, _ in prepared:
        for site in sites.values():
            shared = _shared(_pair(variant), windows[site])
            for allele, bases in zip(_pair(variant), (shared.ref, shared.alt), strict=True):
                pools[site, allele][bases] = None
    return {place: tuple(ranges) for place, ranges in pools.items()}


def _shared(pair: tuple[str, str], window: AlleleWindows) -> SharedBases:
    texts = [window.rights[allele].upper() for allele in pair]
    counted_bp = min(map(len, texts))
    first, allele_bp = common_start_bp(*texts), (len(pair[0]), len(pair[1]))
    return shared_bases(first, allele_bp, allele_bp[1] - allele_bp[0], texts[0][:counted_bp])


def _windows_of(
    reference: Reference, prepared: Sequence[_PreparedVariant], method: Method
) -> dict[VariantSite, AlleleWindows]:
    alleles: dict[VariantSite, dict[str, None]] = {}  # in order of arrival, unlike a set
    for variant, _, sites, _ in prepared:
        for site in sites.values():
            alleles.setdefault(site, {}).update(dict.fromkeys(_pair(variant)))
    return {
        site: allele_windows(reference, site, at_site, method.protocol, method.window_bp)
        for site, at_site in alleles.items()
    }


def _pair(variant: Variant) -> tuple[str, str]:
    return variant.ref.upper(), variant.alt.upper()


def _compared(
    variant: Variant,
    site: VariantSite,
    window: AlleleWindows,
    readings: _Readings,
    method: Method,
) -> AlleleComparison:
    """Return the comparison of a variant on one strand, up to the length that both texts have."""
    pair = _pair(variant)
    counted_bp = min(len(window.rights[allele]) for allele in pair)
    of_ref, of_alt = (
        [
            readings[site, skipped_bp(site, allele, offset, method.protocol, method.k)][
                allele
            ].up_to(counted_bp)
            for offset in method.offsets
        ]
        for allele in pair
    )
    return _comparison((len(pair[0]), len(pair[1])), of_ref, of_alt, _shared(pair, window))


_Jobs = dict[tuple[VariantSite, int], dict[str, str]]
"""Bases from the variant on, by site and bases left out, then by allele."""


def _passages(
    runner: "ModelRunner",
    windows: dict[VariantSite, AlleleWindows],
    pools: _Pools,
    method: Method,
) -> tuple[_Jobs, list[Passage], list[int]]:
    """Return what is read: a passage for each job, and its bases before the variant.

    Alleles that leave out equally many bases at the window's start share the prefix.
    """
    vocabulary = runner.vocabulary
    jobs: _Jobs = {}
    for site, window in windows.items():
        for offset, (allele, right) in product(method.offsets, window.rights.items()):
            skip_bp = skipped_bp(site, allele, offset, method.protocol, method.k)
            jobs.setdefault((site, skip_bp), {})[allele] = right
    passages, tails_bp = [], []
    for (site, skip_bp), rights in jobs.items():
        left = on_grid(windows[site].left, skip_bp, method.protocol, method.k)
        # A token that begins before the variant and ends in it belongs to the continuations.
        whole_bp = len(left) // method.k * method.k
        prefix = prefix_of(left[:whole_bp], vocabulary, method.tags)
        tail = left[whole_bp:]
        continuations = (
            continuation_of(
                tail + right,
                vocabulary,
                tuple(
                    whole_tokens(bases, len(tail), method.k)
                    for bases in pools.get((site, allele), ())
                ),
            )
            for allele, right in rights.items()
        )
        passages.append(Passage(prefix, tuple(continuations), is_shared=True))
        tails_bp.append(len(tail))
    return jobs, passages, tails_bp


def _measured(
    runner: "ModelRunner",
    windows: dict[VariantSite, AlleleWindows],
    pools: _Pools,
    method: Method,
) -> _Readings:
    """Return the reading of every base from the variant on."""
    jobs, passages, tails_bp = _passages(runner, windows, pools, method)
    measure = runner.base_measure(method.by, conditionals=method.reads_conditionals)
    measured = runner.measure_with_means(passages, measure)
    return {
        (site, skip_bp): {
            allele: reading_of(
                each.values,
                continuation.ids,
                method.k,
                tail_bp,
                len(right),
                pools.get((site, allele), ()),
                each.means,
            )
            for (allele, right), continuation, each in zip(
                rights.items(), passage.continuations, of_job, strict=True
            )
        }
        for ((site, skip_bp), rights), passage, tail_bp, of_job in zip(
            jobs.items(), passages, tails_bp, drained(measured), strict=True
        )
    }
