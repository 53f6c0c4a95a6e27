"""Every SNV of a stretch by what it does to genes, and where one of them stands among its like."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from carbon.genome import Annotation, Consequences, Interval, Reference, Variant
from carbon.genome.consequences import SEVERITY
from carbon.inference.scan.chunks import SCANNED_BASES, ScanChunk

UNTOLD = "untold"  # no annotation, or none that tells what the bases are


class Snv(NamedTuple):
    """An SNV's most severe consequence for any gene, and its delta as an allele alone, in nats."""

    consequence: str
    delta: float


class Standing(NamedTuple):
    """An SNV among those of the same consequence.

    Attributes:
        consequence: the one that they have.
        delta: its own, of the alleles alone, in nats.
        share_below: of them that have a lower delta, 0 to 1.
    """

    consequence: str
    delta: float
    share_below: float


@dataclass(frozen=True, slots=True)
class EverySnv:
    """The SNVs of a stretch.

    Attributes:
        interval: where they lie.
        snvs: all of them.
    """

    interval: Interval
    snvs: Mapping[Variant, Snv]

    @property
    def deltas(self) -> dict[str, list[float]]:
        """Return the deltas by consequence, the most severe first."""
        found: dict[str, list[float]] = {term: [] for term in (*SEVERITY, UNTOLD)}
        for snv in self.snvs.values():
            found[snv.consequence].append(snv.delta)
        return {term: deltas for term, deltas in found.items() if deltas}

    def standing(self, variant: Variant) -> Standing | None:
        """Return where a variant stands; None if it is no SNV of the stretch.

        >>> stop, other = Variant("c", 4, "C", "A"), Variant("c", 5, "G", "T")
        >>> snvs = {stop: Snv("stop_gained", -1.0), other: Snv("stop_gained", -3.0)}
        >>> EverySnv(Interval("c", 4, 6), snvs).standing(stop)
        Standing(consequence='stop_gained', delta=-1.0, share_below=0.5)
        """
        if variant not in self.snvs:
            return None
        own = self.snvs[variant]
        like = self.deltas[own.consequence]
        return Standing(*own, sum(delta < own.delta for delta in like) / len(like))


def every_snv(scanned: ScanChunk, reference: Reference, annotation: Annotation | None) -> EverySnv:
    """Return the SNVs of what was scanned.

    Args:
        scanned: log-probabilities of a stretch, from which the deltas follow.
        reference: that was scanned.
        annotation: of the reference; without one no consequence is told.
    """
    consequences = Consequences(reference, annotation) if annotation else None
    place = scanned.interval
    found = {}
    rows = zip(scanned.bases, scanned.deltas.tolist(), strict=True)
    for position, (ref, deltas) in enumerate(rows, start=place.start):
        for alt, delta in zip(SCANNED_BASES, deltas, strict=True):
            if ref != alt and ref in SCANNED_BASES:
                variant = Variant(place.contig, position, ref, alt)
                term = consequences.of(variant).consequence if consequences else None
                found[variant] = Snv(term or UNTOLD, delta)
    return EverySnv(place, found)
