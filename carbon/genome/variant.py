"""A change of a reference sequence."""

import re
from dataclasses import dataclass
from typing import Self

from carbon.errors import GenomeError
from carbon.genome.interval import Interval

BASES = frozenset("ACGT")
_POSITION, _REF = r"(\d[\d,]{0,14})", r"([A-Za-z]+)"
# Bases, a symbolic allele, no or an overlapping allele, a breakend, a single breakend (VCF 4.3).
_ALT = r"([A-Za-z]+|<[^<>\s]+>|[*.]|\S*[\[\]]\S*|\.[A-Za-z]+|[A-Za-z]+\.)"
_FORMS = (
    re.compile(rf"(\S+?)(?::|\s+){_POSITION}\s+{_REF}(?:\s*>\s*|\s+){_ALT}"),
    re.compile(rf"(\S+)-{_POSITION}-{_REF}-{_ALT}"),  # of gnomAD; a contig may have dashes too
)


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

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` writes, or the four fields with blanks or dashes between them.

        ALT may be anything that a VCF allows there: `why_unscorable` gives the reason for an ALT
        without bases, such as `<DEL>`.

        >>> Variant.from_text("chr1:10 A>T")
        Variant(contig='chr1', position=9, ref='A', alt='T')
        >>> Variant.from_text("HLA-A-10-A-<DEL>")
        Variant(contig='HLA-A', position=9, ref='A', alt='<DEL>')

        Raises:
            GenomeError: it is something else.
        """
        match = next(filter(None, (form.fullmatch(text.strip()) for form in _FORMS)), None)
        position = int(match[2].replace(",", "")) - 1 if match else -1
        if match is None or position < 0:
            raise GenomeError(
                f"variant '{text}': write it as contig:position REF>ALT, such as chr1:10 A>T, "
                "or chr1-10-A-T, with positions from 1"
            )
        return cls(match[1], position, match[3], match[4])

    @property
    def alleles(self) -> tuple[str, str]:
        """REF and ALT."""
        return self.ref, self.alt

    @property
    def interval(self) -> Interval:
        """The bases of the reference that REF covers."""
        return Interval(self.contig, self.position, self.position + len(self.ref))

    def to_text(self) -> str:
        """Write as `contig:position REF>ALT` with the 1-based position of a VCF."""
        return f"{self.contig}:{self.position + 1} {self.ref}>{self.alt}"

    def why_unscorable(self) -> str | None:
        """Say why no sequence follows from this record, or None if one does.

        Symbolic alleles, breakends (single ones, such as `C.`, too) and `*` describe no bases; N
        and IUPAC codes no certain ones.
        """
        alt = self.alt.upper()
        if not self.ref or alt in {"", "*"} or any(mark in alt for mark in "<>[]."):
            return "symbolic_allele"
        if not set(alt) <= BASES or not set(self.ref.upper()) <= BASES:
            return "ambiguous_base"
        return "same_as_reference" if alt == self.ref.upper() else None


def allele_key(contig: str, position: int, ref: str, alt: str) -> str:
    """Return an allele as one word, with the 1-based position of a VCF and bases in upper case.

    >>> allele_key("chr1", 10, "a", "T")
    'chr1:10:A:T'
    """
    return f"{contig}:{position}:{ref.upper()}:{alt.upper()}"
