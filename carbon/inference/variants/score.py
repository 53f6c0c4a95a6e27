"""Zero-shot variant scores: the log-likelihood of ALT minus the log-likelihood of REF.

Variants are trimmed and left-aligned first, so that a score does not depend on notation. Both
protocols condition on the bases before the variant and compare an equal number of bases from the
variant on, with ALT and with REF. A strand on which the contig ends before the alleles differ
cannot distinguish them; it is left out and reported.

An indel shifts the 6-mers of all bases after it, and shifting the 6-mer boundaries changes the
likelihood of identical sequence. So `centered` leaves out more or fewer bases at the start of ALT's
window than of REF's, and the 6-mers of both after the variant begin at the same reference bases.
Alleles of a site that leave out equally many bases share the prefix of the forward pass.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.batching import in_blocks
from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.checks import check_finite
from carbon.inference.options import PROTOCOLS, STRANDS_READ, WINDOW_PROTOCOLS
from carbon.inference.passages import Passage, batch_rows, continuation_of, prefix_of
from carbon.inference.variants.tiles import (
    TiledSite,
    num_tiled_tokens,
    tiled_likelihoods,
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
from carbon.tokenizer import K

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
    """

    variant: Variant
    delta: float | None
    reason: str | None
    forward: float | None = None
    reverse: float | None = None
    spread: float | None = None
    strand_left_out: str | None = None

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
    the same base of the contig. A row of `alt` uses the offset at which the 6-mers after the
    variant begin at the same bases as in the same row of `ref`.

    Attributes:
        ref_bp: length of REF, trimmed and left-aligned, with which the rows of `ref` begin.
        alt_bp: length of ALT, likewise, with which the rows of `alt` begin.
        ref: (offsets, bases) float32, log-likelihoods in nats with REF, along the strand.
        alt: (offsets, bases) float32, with ALT.
    """

    ref_bp: int
    alt_bp: int
    ref: NDArray[np.float32]
    alt: NDArray[np.float32]

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

_Steps = dict[tuple[VariantSite, int], dict[str, NDArray[np.float32]]]
"""Log-likelihoods of the bases from the variant on, by site and bases left out, then by allele."""


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
    readable_bp = room_bp(runner, method.tags) + K
    prepared = [_prepared(reference, variant, method, readable_bp) for variant in variants]
    if method.protocol in WINDOW_PROTOCOLS:
        passages = _passages(runner, _windows_of(reference, prepared, method), method)[1]
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
    # The last 6-mer of a window is only predicted.
    readable_bp = room_bp(runner, method.tags) + K
    prepared = [_prepared(reference, variant, method, readable_bp) for variant in block]
    compare = (
        _comparisons_of_windows if method.protocol in WINDOW_PROTOCOLS else _comparisons_of_tiles
    )
    comparisons = compare(runner, reference, prepared, method)
    for variant, prepared_variant, by_strand in zip(block, prepared, comparisons, strict=True):
        if prepared_variant.reason:
            yield VariantScore(variant, None, prepared_variant.reason), by_strand
            continue
        deltas = {strand: comparison.delta for strand, comparison in by_strand.items()}
        mean = sum(deltas.values()) / len(deltas)
        check_finite(mean, f"variant {variant.to_text()}")
        both = deltas.get("+"), deltas.get("-")
        left_out = next((STRAND_NAMES[s] for s in prepared_variant.left_out), None)
        score = VariantScore(variant, mean, None, *both, spread_of(by_strand), left_out)
        yield score, by_strand


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
    found = dict(zip(sites, tiled_likelihoods(runner, reference, sites, method), strict=True))
    for each in prepared:
        yield {
            strand: AlleleComparison(*site.allele_bp, *found[site])
            for strand, site in each.sites.items()
        }


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
    steps = _measured(runner, windows, method)
    for variant, _, sites, _ in prepared:
        yield {
            strand: _compared(variant, site, windows[site], steps, method)
            for strand, site in sites.items()
        }


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
    variant: Variant, site: VariantSite, window: AlleleWindows, steps: _Steps, method: Method
) -> AlleleComparison:
    """Return the comparison of a variant on one strand, up to the length that both texts have."""
    pair = _pair(variant)
    counted_bp = min(len(window.rights[allele]) for allele in pair)
    of_ref, of_alt = (
        np.stack(
            [
                steps[site, skipped_bp(site, allele, offset, method.protocol)][allele][:counted_bp]
                for offset in method.offsets
            ]
        )
        for allele in pair
    )
    return AlleleComparison(len(pair[0]), len(pair[1]), of_ref, of_alt)


_Jobs = dict[tuple[VariantSite, int], dict[str, str]]
"""Bases from the variant on, by site and bases left out, then by allele."""


def _passages(
    runner: "ModelRunner", windows: dict[VariantSite, AlleleWindows], method: Method
) -> tuple[_Jobs, list[Passage], list[int]]:
    """Return what is read: a passage for each job, and its bases before the variant.

    Alleles that leave out equally many bases at the window's start share the prefix.
    """
    vocabulary = runner.vocabulary
    jobs: _Jobs = {}
    for site, window in windows.items():
        for offset, (allele, right) in product(method.offsets, window.rights.items()):
            skip_bp = skipped_bp(site, allele, offset, method.protocol)
            jobs.setdefault((site, skip_bp), {})[allele] = right
    passages, tails_bp = [], []
    for (site, skip_bp), rights in jobs.items():
        left = on_grid(windows[site].left, skip_bp, method.protocol)
        # A token that begins before the variant and ends in it belongs to the continuations.
        whole_bp = len(left) // K * K
        prefix = prefix_of(left[:whole_bp], vocabulary, method.tags)
        continuations = (
            continuation_of(left[whole_bp:] + right, vocabulary) for right in rights.values()
        )
        passages.append(Passage(prefix, tuple(continuations), is_shared=True))
        tails_bp.append(len(left) - whole_bp)
    return jobs, passages, tails_bp


def _measured(
    runner: "ModelRunner", windows: dict[VariantSite, AlleleWindows], method: Method
) -> _Steps:
    """Return the log-likelihood of every base from the variant on."""
    jobs, passages, tails_bp = _passages(runner, windows, method)
    measured = runner.likelihoods(passages, method.by)
    return {
        job: {
            allele: steps.reshape(-1)[tail_bp : tail_bp + len(right)]
            for (allele, right), steps in zip(rights.items(), arrays, strict=True)
        }
        for (job, rights), tail_bp, arrays in zip(jobs.items(), tails_bp, measured, strict=True)
    }
