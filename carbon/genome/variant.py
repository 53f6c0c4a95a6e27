"""A change of a reference sequence."""

import re
from dataclasses import dataclass
from typing import Self

from carbon.errors import GenomeError
from carbon.genome.interval import Interval

BASES = frozenset("ACGT")
_TEXT = re.compile(r"(\S+?)(?::|\s+)(\d[\d,]{0,14})\s+([A-Za-z]+)(?:\s*>\s*|\s+)([A-Za-z]+)")


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
        """Read what `to_text` writes, or contig, position, REF and ALT with blanks between.

        >>> Variant.from_text("chr1:10 A>T")
        Variant(contig='chr1', position=9, ref='A', alt='T')

        Raises:
            GenomeError: it is something else.
        """
        match = _TEXT.fullmatch(text.strip())
        position = int(match[2].replace(",", "")) - 1 if match else -1
        if match is None or position < 0:
            raise GenomeError(
                f"variant '{text}': write it as contig:position REF>ALT, such as chr1:10 A>T, "
                "with positions from 1"
            )
        return cls(match[1], position, match[3], match[4])

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
        if alt in {"", "*"} or any(mark in alt for mark in "<>[]."):
            return "symbolic_allele"
        if not set(alt) <= BASES or not set(self.ref.upper()) <= BASES:
            return "ambiguous_base"
        return "same_as_reference" if alt == self.ref.upper() else None
