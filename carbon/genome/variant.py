"""A change of a reference sequence."""

from dataclasses import dataclass

from carbon.genome.interval import Interval

_BASES = frozenset("ACGT")


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """REF replaced by ALT at `position` (0-based, the first base of REF) of `contig`.

    >>> Variant("chr1", 9, "A", "T").to_text()
    'chr1:10 A>T'
    """

    contig: str
    position: int
    ref: str
    alt: str

    @property
    def interval(self) -> Interval:
        """The bases of the reference that REF covers."""
        return Interval(self.contig, self.position, self.position + len(self.ref))

    def to_text(self) -> str:
        """Write as `contig:position REF>ALT` with the 1-based position of a VCF."""
        return f"{self.contig}:{self.position + 1} {self.ref}>{self.alt}"

    def why_unscorable(self) -> str | None:
        """Say why no sequence follows from this record, or None if one does.

        Symbolic alleles, breakends and `*` describe no bases; N and IUPAC codes no certain ones.
        """
        alt = self.alt.upper()
        if alt in {"", ".", "*"} or any(mark in alt for mark in "<>[]"):
            return "symbolic_allele"
        if not set(alt) <= _BASES or not set(self.ref.upper()) <= _BASES:
            return "ambiguous_base"
        return "same_as_reference" if alt == self.ref.upper() else None
