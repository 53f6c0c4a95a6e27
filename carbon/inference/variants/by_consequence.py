"""The SNVs of a stretch by what they do to genes, and where one of them stands among its like."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carbon.genome import Annotation, Consequences, Interval, Reference, Variant
from carbon.genome.consequences import SEVERITY
from carbon.inference.scan.chunks import SCANNED_BASES, ScanChunk

UNTOLD = "untold"  # no annotation, or none that tells what the bases are
_ORDER = (*SEVERITY, UNTOLD)


class Standing(NamedTuple):
    """An SNV among those of the same consequence.

    Attributes:
        consequence: the one that they have.
        delta: its own, in nats.
        share_below: of them that have a lower delta, 0 to 1.
    """

    consequence: str
    delta: float
    share_below: float


@dataclass(frozen=True, slots=True)
class SnvsByConsequence:
    """The SNVs of a stretch.

    Attributes:
        consequences: of all of them, the most severe for any gene.
        deltas: of those that were scored, in nats.
    """

    consequences: Mapping[Variant, str]
    deltas: Mapping[Variant, float]

    @property
    def by_consequence(self) -> dict[str, list[float]]:
        """Return the deltas of each consequence, the most severe first."""
        found: dict[str, list[float]] = {term: [] for term in _ORDER}
        for variant, delta in self.deltas.items():
            found[self.consequences[variant]].append(delta)
        return {term: deltas for term, deltas in found.items() if deltas}

    def standing(self, variant: Variant, delta: float) -> Standing | None:
        """Return where a variant of this delta stands; None if it is no SNV of the stretch.

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
    """Return every SNV of a stretch with its most severe consequence for any gene.

    Args:
        reference: unknown bases have no SNVs.
        interval: the stretch.
        annotation: of the reference; without one no consequence is told.
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
    """Return the delta of every SNV of what was scanned, of the alleles alone."""
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
    """Return SNVs of each consequence, drawn at random where there are more than `most`."""
    random = np.random.default_rng(seed)
    chosen: list[Variant] = []
    for term in _ORDER:
        alike = [variant for variant, own in consequences.items() if own == term]
        chosen += [alike[n] for n in sorted(random.permutation(len(alike))[:most])]
    return chosen
