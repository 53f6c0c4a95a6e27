"""The SNVs around a variant: their scores, their consequences, and both as JSON values."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from carbon.genome import Annotation, Consequences, Interval, Reference, Variant, snv_effect
from carbon.genome.consequence_terms import TERMS
from carbon.genome.consequences import SnvEffect, effect_on
from carbon.genome.genes import Gene, Transcript
from carbon.genome.genome import Genome
from carbon.genome.normalize import normalize_variant
from carbon.inference import Model, VariantKeywords
from carbon.inference.scan.score import SCANNED_BASES
from carbon.inference.variants.score import VariantScore
from demo.coding import snvs_in
from demo.panel import Progress, Result

NO_CONSEQUENCE = "unknown"  # no annotation, or an annotation that does not describe these bases
_ORDER = (*TERMS, NO_CONSEQUENCE)
_BATCH = 16  # variants between two reports of progress
_MOST_STRIP_BP = 3000
_COPIED = ("delta", "forward", "reverse", "spread", "unsure", "strand_left_out", "reason")


def score_values(score: VariantScore, reference: Reference) -> dict[str, Any]:
    """Return a score as JSON values, with the variant as given and as scored (normalised)."""
    return {
        "variant": score.variant.to_text(),
        "scored_as": normalize_variant(reference, score.variant).to_text(),
    } | {name: getattr(score, name) for name in _COPIED}


def effect_values(genome: Genome, variant: Variant) -> list[dict[str, Any]]:
    """Return the effect of a variant on the first transcript of each gene that contains it.

    Returns:
        `gene`, `term` and `change` of each, as in `SnvEffect`; other variants have no `change`.
    """
    variant = normalize_variant(genome.reference, variant)
    effects = (
        (gene.name, _effect(genome.reference, transcript, variant))
        for gene in genome.genes_in(variant.interval)
        for transcript in gene.transcripts[:1]
    )
    return [{"gene": name, **effect._asdict()} for name, effect in effects if effect]


def _effect(reference: Reference, transcript: Transcript, variant: Variant) -> SnvEffect | None:
    if len(variant.ref) == len(variant.alt) == 1:
        return snv_effect(reference, transcript, variant)
    effect = effect_on(reference, transcript, variant)
    return SnvEffect(effect.term, "") if effect else None


def consequences_in(
    reference: Reference, interval: Interval, annotation: Annotation | None
) -> dict[Variant, str]:
    """Return every SNV of a region with its most severe consequence for any gene.

    Args:
        reference: reference sequence; unknown bases have no SNVs.
        interval: the region.
        annotation: annotation of the reference; without it every consequence is `NO_CONSEQUENCE`.
    """
    consequences = Consequences(reference, annotation) if annotation else None
    return {
        variant: (consequences and consequences.of(variant).consequence) or NO_CONSEQUENCE
        for variant in snvs_in(reference, interval)
    }


def some_of_each(consequences: Mapping[Variant, str], most: int, seed: int = 0) -> list[Variant]:
    """Return SNVs of each consequence, with a random sample where there are more than `most`."""
    random = np.random.default_rng(seed)
    chosen: list[Variant] = []
    for term in _ORDER:
        alike = [variant for variant, own in consequences.items() if own == term]
        chosen += [alike[n] for n in sorted(random.permutation(len(alike))[:most])]
    return chosen


def by_consequence(
    consequences: Mapping[Variant, str], deltas: Mapping[Variant, float]
) -> dict[str, list[float]]:
    """Return the deltas of each consequence, most severe first.

    >>> stop, other = Variant("c", 4, "C", "A"), Variant("c", 5, "G", "T")
    >>> by_consequence({stop: "stop_gained", other: "stop_gained"}, {other: -3.0})
    {'stop_gained': [-3.0]}
    """
    terms: dict[str, list[float]] = {term: [] for term in _ORDER}
    for variant, term in consequences.items():
        if variant in deltas:
            terms[term].append(deltas[variant])
    return {term: values for term, values in terms.items() if values}


@dataclass(slots=True)
class Scores:
    """Scores of variants by one method; each variant is scored once.

    Attributes:
        model: model that scores.
        reference: reference of the variants.
        options: the method.
        scores: scores so far.
    """

    model: Model
    reference: Reference
    options: VariantKeywords
    scores: dict[Variant, VariantScore] = field(default_factory=dict)

    def add(self, variants: Iterable[Variant]) -> Iterator[Progress]:
        """Score the variants that have no score, in batches; yield the progress after each."""
        missing = [v for v in dict.fromkeys(variants) if v not in self.scores]
        for at in range(0, len(missing), _BATCH):
            batch = missing[at : at + _BATCH]
            scored = self.model.score_variants(self.reference, batch, **self.options)
            self.scores.update(zip(batch, scored, strict=True))
            yield Progress(min(at + _BATCH, len(missing)), len(missing), "variants")

    @property
    def deltas(self) -> dict[Variant, float]:
        """Deltas of all variants that have one."""
        return {v: s.delta for v, s in self.scores.items() if s.delta is not None}


def window_around(genome: Genome, variant: Variant, window_bp: int) -> Interval:
    """Return the window with the variant at its centre, truncated at the ends of the contig."""
    start = max(0, normalize_variant(genome.reference, variant).position - window_bp // 2)
    length_bp = genome.reference.contig_lengths_bp[variant.contig]
    return Interval(variant.contig, start, min(start + window_bp, length_bp))


def place_around(genome: Genome, gene: Gene | None, variant: Variant) -> Interval:
    """Return the gene, or the part of it around the variant if the gene is long."""
    place = window_around(genome, variant, _MOST_STRIP_BP)
    if gene is None or not gene.interval.overlaps(variant.interval):
        return place
    start, end = max(place.start, gene.interval.start), min(place.end, gene.interval.end)
    return Interval(place.contig, start, end)


def heat_map(
    genome: Genome, variant: Variant, map_bp: int, scores: Scores
) -> Generator[Progress, None, Result]:
    """Return the deltas of all SNVs around a variant: None for unknown bases, 0 for REF."""
    window = window_around(genome, variant, map_bp)
    yield from scores.add(snvs_in(genome.reference, window))
    bases, deltas = genome.reference.fetch(window).upper(), scores.deltas

    def delta(at: int, ref: str, alt: str) -> float | None:
        if ref not in SCANNED_BASES:
            return None
        return 0.0 if ref == alt else deltas.get(Variant(window.contig, at, ref, alt))

    rows = [
        [delta(at, ref, alt) for alt in SCANNED_BASES]
        for at, ref in enumerate(bases, start=window.start)
    ]
    return {"window": window.to_region(), "bases": bases, "deltas": rows}
