"""A variant's score compared with the scores of neighbouring SNVs, as JSON values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Annotation, Consequences, Interval, Reference, Variant, snv_effect
from carbon.genome.consequence_terms import TERMS
from carbon.genome.genome import Genome
from carbon.genome.normalize import normalize_variant
from carbon.genome.notation import read_variant
from carbon.inference.options import ScanOptions
from carbon.inference.runner import ModelRunner
from carbon.inference.scan import join_chunks, scan_method_for, scan_region
from carbon.inference.scan.score import SCANNED_BASES, ScanChunk
from carbon.inference.variants.score import (
    STRAND_NAMES,
    AlleleComparison,
    VariantScore,
    score_variants,
)
from carbon.inference.variants.windows import Method
from demo.variant_files import Listed


def told_strands(strands: Mapping[str, AlleleComparison]) -> dict[str, Any]:
    """Return the parts of each strand's delta: alleles, downstream bases and the window's end."""
    return {
        STRAND_NAMES[strand]: {
            "delta": compared.delta,
            "allele_delta": compared.allele_delta,
            "downstream_deltas": compared.downstream_deltas.tolist(),
            "length_delta": compared.length_delta,
        }
        for strand, compared in strands.items()
    }


def told_numbers(values: NDArray[np.floating[Any]]) -> list[Any]:
    """Return an array as nested lists, with None for NaN."""
    found: NDArray[np.object_] = values.astype(object)
    found[np.isnan(values)] = None
    lists: list[Any] = found.tolist()
    return lists


def told_score(score: VariantScore, reference: Reference) -> dict[str, Any]:
    """Return a score as JSON values, with the variant as given and as scored (normalised)."""
    return {
        "variant": score.variant.to_text(),
        "scored_as": normalize_variant(reference, score.variant).to_text(),
        "delta": score.delta,
        "forward": score.forward,
        "reverse": score.reverse,
        "spread": score.spread,
        "unsure": score.unsure,
        "strand_left_out": score.strand_left_out,
        "reason": score.reason,
    }


def told_effects(genome: Genome, variant: Variant) -> list[dict[str, Any]]:
    """Return the effect of an SNV on the first transcript of each gene that contains it."""
    found = []
    variant = normalize_variant(genome.reference, variant)
    for gene in genome.genes_in(variant.interval):
        for transcript in gene.transcripts[:1]:
            if effect := snv_effect(genome.reference, transcript, variant):
                found.append({"gene": gene.name, **effect._asdict()})
    return found


def told_scan(scanned: ScanChunk) -> dict[str, Any]:
    """Return the results of a scan for each base as JSON values; unknown bases have None."""
    known = [value for value in told_numbers(scanned.log_p_ref) if value is not None]
    return {
        "region": scanned.interval.to_region(),
        "bases": scanned.bases,
        "log_p_ref": told_numbers(scanned.log_p_ref),
        "log_probabilities": scanned.log_probabilities.tolist(),
        "entropy_nats": scanned.entropy_nats.tolist(),
        "nats_per_base": -sum(known) / len(known) if known else None,
    }


UNTOLD = "untold"  # no annotation, or an annotation that does not describe these bases
_ORDER = (*TERMS, UNTOLD)


class Standing(NamedTuple):
    """Rank of an SNV among the SNVs with the same consequence.

    Attributes:
        consequence: the shared consequence.
        delta: delta of this SNV, in nats.
        share_below: share of the SNVs that have a lower delta, 0 to 1.
    """

    consequence: str
    delta: float
    share_below: float


@dataclass(frozen=True, slots=True)
class SnvsByConsequence:
    """All SNVs of a region, with their consequences and deltas.

    Attributes:
        consequences: the most severe consequence of each SNV for any gene.
        deltas: deltas of the scored SNVs, in nats.
    """

    consequences: Mapping[Variant, str]
    deltas: Mapping[Variant, float]

    @property
    def by_consequence(self) -> dict[str, list[float]]:
        """Return the deltas of each consequence, most severe first."""
        found: dict[str, list[float]] = {term: [] for term in _ORDER}
        for variant, delta in self.deltas.items():
            found[self.consequences[variant]].append(delta)
        return {term: deltas for term, deltas in found.items() if deltas}

    def standing(self, variant: Variant, delta: float) -> Standing | None:
        """Return the rank of an SNV with this delta; None if the region does not contain the SNV.

        >>> stop, other = Variant("c", 4, "C", "A"), Variant("c", 5, "G", "T")
        >>> terms = dict.fromkeys((stop, other), "stop_gained")
        >>> SnvsByConsequence(terms, {stop: -1.0, other: -3.0}).standing(stop, -1.0)
        Standing(consequence='stop_gained', delta=-1.0, share_below=0.5)
        """
        if variant not in self.consequences:
            return None
        term = self.consequences[variant]
        like = self.by_consequence.get(term, [])
        return Standing(term, delta, sum(each < delta for each in like) / max(len(like), 1))


def consequences_in(
    reference: Reference, interval: Interval, annotation: Annotation | None
) -> dict[Variant, str]:
    """Return every SNV of a region with its most severe consequence for any gene.

    Args:
        reference: reference sequence; unknown bases have no SNVs.
        interval: the region.
        annotation: annotation of the reference; without it every consequence is `UNTOLD`.
    """
    consequences = Consequences(reference, annotation) if annotation else None
    found = {}
    for position, ref in enumerate(reference.fetch(interval).upper(), start=interval.start):
        for alt in SCANNED_BASES:
            if ref != alt and ref in SCANNED_BASES:
                variant = Variant(interval.contig, position, ref, alt)
                found[variant] = (consequences and consequences.of(variant).consequence) or UNTOLD
    return found


def deltas_in(scanned: ScanChunk) -> dict[Variant, float]:
    """Return the delta of the alleles alone for every SNV in the scanned region."""
    return {
        Variant(scanned.interval.contig, position, ref, alt): delta
        for position, ref, row in zip(
            range(scanned.interval.start, scanned.interval.end),
            scanned.bases,
            scanned.deltas.tolist(),
            strict=True,
        )
        for alt, delta in zip(SCANNED_BASES, row, strict=True)
        if ref != alt and ref in SCANNED_BASES
    }


def some_of_each(consequences: Mapping[Variant, str], most: int, seed: int = 0) -> list[Variant]:
    """Return SNVs of each consequence, with a random sample where there are more than `most`."""
    random = np.random.default_rng(seed)
    chosen: list[Variant] = []
    for term in _ORDER:
        alike = [variant for variant, own in consequences.items() if own == term]
        chosen += [alike[n] for n in sorted(random.permutation(len(alike))[:most])]
    return chosen


_CENTERED_WINDOW_BP = 384  # short: many SNVs a second, each in its own window


def place_around(genome: Genome, variant: Variant, most_bp: int) -> Interval:
    """Return the region around a variant, at most `most_bp` long and limited to its first gene.

    Outside genes, the region is not limited to a gene.
    """
    place = window_around(genome, variant, most_bp)
    variant = normalize_variant(genome.reference, variant)
    if genes := genome.genes_in(variant.interval):
        gene = genes[0].interval
        return Interval(place.contig, max(place.start, gene.start), min(place.end, gene.end))
    return place


def window_around(genome: Genome, variant: Variant, window_bp: int) -> Interval:
    """Return the window with the variant at its centre, truncated at the ends of the contig."""
    start = max(0, normalize_variant(genome.reference, variant).position - window_bp // 2)
    length_bp = genome.reference.contig_lengths_bp[variant.contig]
    return Interval(variant.contig, start, min(start + window_bp, length_bp))


def variant_or_first(text: str, listed: Sequence[Listed], genome: Genome) -> Variant:
    """Return the variant that the visitor typed, or the first scorable variant of a VCF.

    Raises:
        UserError: the text is not a variant, or there is no variant.
    """
    if text:
        return read_variant(text, genome.reference, genome.annotation)
    fit = (v for v, reason in listed if reason is None and v.why_unscorable() is None)
    if variant := next(fit, None):
        return variant
    missing = "the VCF has none that can be scored here" if listed else "no variant is given"
    raise UserError(f"{missing}; type one as contig:position REF>ALT")


def short_method(method: Method) -> Method:
    """Return the method for scoring the SNVs of a region, with shorter windows for `centered`."""
    if method.protocol == "right_end":
        return method
    return replace(method, window_bp=min(_CENTERED_WINDOW_BP, method.window_bp))


def read_snvs(
    reader: ModelRunner, genome: Genome, place: Interval, method: Method, most: int
) -> SnvsByConsequence:
    """Score the SNVs of a region: all of them by `right_end`, else a sample of each consequence.

    Args:
        reader: runner of the model.
        genome: genome whose annotation determines the consequences.
        place: the region.
        method: method from `short_method`; `right_end` scores all SNVs in one scan at offset 0.
        most: largest number of SNVs of each consequence, if each SNV needs its own window.
    """
    terms = consequences_in(genome.reference, place, genome.annotation)
    if method.protocol == "right_end":
        scanning = scan_method_for(
            reader, ScanOptions(window_bp=method.window_bp, strands=method.strands)
        )
        scan = join_chunks(scan_region(reader, genome.reference, place, scanning))
        return SnvsByConsequence(terms, deltas_in(scan))
    some = sorted(some_of_each(terms, most), key=lambda variant: variant.position)
    return SnvsByConsequence(terms, _deltas(reader, genome, some, method))


def told_among(
    reader: ModelRunner, genome: Genome, variant: Variant, snvs: SnvsByConsequence, method: Method
) -> dict[str, Any]:
    """Return the SNVs of a region and the rank of a variant among them, as JSON values.

    Returns:
        `window_bp`; for each consequence, `all` (number of SNVs) and `deltas` (of the scored
        SNVs); `this`, the fields of `Standing`, or None if the variant is not an SNV of the region.
    """
    own, variant = None, normalize_variant(genome.reference, variant)
    if variant in snvs.consequences:
        read = snvs.deltas
        if variant not in read:
            read = _deltas(reader, genome, [variant], method)
        own = snvs.standing(variant, read[variant])
    return {
        "window_bp": method.window_bp,
        "all": dict(Counter(snvs.consequences.values())),
        "deltas": snvs.by_consequence,
        "this": own._asdict() if own else None,
    }


def _deltas(
    reader: ModelRunner, genome: Genome, variants: list[Variant], method: Method
) -> dict[Variant, float]:
    scores = score_variants(reader, genome.reference, variants, method)
    return {score.variant: score.delta for score in scores if score.delta is not None}
