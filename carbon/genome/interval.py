"""A stretch of a contig."""

import re
from dataclasses import dataclass
from typing import Literal

from carbon.errors import GenomeError

Strand = Literal["+", "-"]


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A stretch of one contig, 0-based and half-open: `start` is inside, `end` is outside.

    >>> Interval("chr1", 10, 12).length_bp
    2
    """

    contig: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise GenomeError(
                f"{self.contig}: need 0 <= start <= end, got {self.start} and {self.end}"
            )

    @property
    def length_bp(self) -> int:
        """Number of bases covered."""
        return self.end - self.start

    def overlaps(self, other: "Interval") -> bool:
        """Tell whether the two share at least one base."""
        shared_bp = min(self.end, other.end) - max(self.start, other.start)
        return self.contig == other.contig and shared_bp > 0

    def widened(self, flank_bp: int, contig_length_bp: int) -> "Interval":
        """Return this interval with `flank_bp` more on each side, cut at the contig's ends."""
        start = max(0, self.start - flank_bp)
        return Interval(self.contig, start, min(contig_length_bp, self.end + flank_bp))

    def to_region(self) -> str:
        """Write as `contig:first-last`, 1-based and inclusive, as samtools and browsers do.

        >>> Interval("chr1", 10, 12).to_region()
        'chr1:11-12'
        """
        return f"{self.contig}:{self.start + 1}-{self.end}"


def from_region(text: str, contig_lengths_bp: dict[str, int]) -> Interval:
    """Read `contig` or `contig:first-last` (1-based, inclusive) against the known contigs.

    >>> from_region("chr1:11-12", {"chr1": 100})
    Interval(contig='chr1', start=10, end=12)

    Raises:
        GenomeError: the contig is unknown, or the region is empty or ends past the contig.
    """
    if text in contig_lengths_bp:
        return Interval(text, 0, contig_lengths_bp[text])
    match = re.fullmatch(r"(.+):(\d[\d,]{0,19})-(\d[\d,]{0,19})", text)
    if match is None and text.rpartition(":")[0] in contig_lengths_bp:
        raise GenomeError(f"region '{text}': write it as contig:first-last, from 1")
    if match is None or match[1] not in contig_lengths_bp:
        some = ", ".join(list(contig_lengths_bp)[:5])
        raise GenomeError(f"region '{text}': no such contig; write it as in the FASTA: {some} ...")
    first, last = (int(number.replace(",", "")) for number in match.group(2, 3))
    length_bp = contig_lengths_bp[match[1]]
    if not 1 <= first <= last <= length_bp:
        raise GenomeError(
            f"region '{text}': the contig has bases 1 to {length_bp}; write first-last within them"
        )
    return Interval(match[1], first - 1, last)
