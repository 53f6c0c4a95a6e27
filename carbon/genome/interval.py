"""Intervals of a contig and variants, as values, and their text forms."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from carbon.errors import GenomeError, TypedError, abridged

Strand = Literal["+", "-"]


def as_utf8(text: str) -> str:
    """Return an argument of a command as text.

    Under `LC_ALL=C` without UTF-8 mode, Python passes bytes outside ASCII as lone surrogates.
    """
    try:
        return text.encode(errors="surrogateescape").decode(errors="surrogateescape")
    except UnicodeEncodeError:  # other surrogates, which no argument has
        return text


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """An interval of a contig, 0-based and half-open: `start` is inside, `end` is outside.

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
        """Return whether the two share at least one base."""
        shared_bp = min(self.end, other.end) - max(self.start, other.start)
        return self.contig == other.contig and shared_bp > 0

    def widened(self, flank_bp: int, contig_length_bp: int) -> "Interval":
        """Return this interval extended by `flank_bp` on each side, within the contig."""
        start = max(0, self.start - flank_bp)
        return Interval(self.contig, start, min(contig_length_bp, self.end + flank_bp))

    def to_region(self) -> str:
        """Return `contig:first-last`, 1-based and inclusive, as in samtools and browsers.

        >>> Interval("chr1", 10, 12).to_region()
        'chr1:11-12'
        """
        return f"{self.contig}:{self.start + 1}-{self.end}"


def region_contig(text: str) -> str:
    """Return the contig of a region, for files that do not list their contigs.

    >>> region_contig("chr1:11-12"), region_contig("chr1:11"), region_contig("HLA:A")
    ('chr1', 'chr1', 'HLA:A')
    """
    match = re.fullmatch(r"(.+):[\d,-]*", text)
    return match[1] if match else text


def from_region(text: str, contig_lengths_bp: dict[str, int]) -> Interval:
    """Parse `contig`, `contig:first-last` or `contig:first-` on the known contigs.

    Positions are 1-based and inclusive; `contig:first-` goes to the end of the contig. A single
    position is refused, because samtools and bcftools read it differently.

    >>> from_region("chr1:11-12", {"chr1": 100})
    Interval(contig='chr1', start=10, end=12)

    Raises:
        GenomeError: the contig is unknown, or the region is empty or ends past the contig.
    """
    if text in contig_lengths_bp:
        return Interval(text, 0, contig_lengths_bp[text])
    match = re.fullmatch(r"(.+):(\d[\d,]{0,19})-(\d[\d,]{0,19})?", text)
    contig, _, position = text.rpartition(":")
    if match is None and contig in contig_lengths_bp:
        if re.fullmatch(r"\d[\d,]{0,19}", position):
            raise GenomeError(
                f"region '{text}': samtools reads it to the end of the contig, bcftools as one "
                f"position; write {text}- or {text}-{position}"
            )
        raise GenomeError(f"region '{text}': write it as contig:first-last, from 1")
    if match is None or match[1] not in contig_lengths_bp:
        first_names = ", ".join(list(contig_lengths_bp)[:5])
        raise GenomeError(
            f"region '{text}': no such contig; write it as in the FASTA: {first_names} ..."
        )
    length_bp = contig_lengths_bp[match[1]]
    first, last = (int((n or str(length_bp)).replace(",", "")) for n in match.group(2, 3))
    if not 1 <= first <= last <= length_bp:
        raise GenomeError(
            f"region '{text}': the contig has bases 1 to {length_bp}; write first-last within them"
        )
    return Interval(match[1], first - 1, last)


BASES = frozenset("ACGT")
_SHOWN = 60  # letters of a text in a message
_POSITION, _REF = r"(\d[\d,]{0,14})", r"([A-Za-z]+)"
# Bases, a symbolic, missing or overlapping allele, a breakend, a single breakend (VCF 4.3).
_ALT = r"([A-Za-z]+|<[^<>\s]+>|[*.]|\S*[\[\]]\S*|\.[A-Za-z]+|[A-Za-z]+\.)"
_FORMS = (
    re.compile(rf"(\S+?)(?::|\s+){_POSITION}\s+{_REF}(?:\s*>\s*|\s+){_ALT}"),
    re.compile(rf"(\S+)-{_POSITION}-{_REF}-{_ALT}"),  # gnomAD; a contig may contain dashes, too
    re.compile(rf"(\S+):{_POSITION}:{_REF}:{_ALT}"),
)
Elements = Sequence[tuple[str, re.Pattern[str]]]
"""Elements of a text in order: the name of each for messages, and its pattern with one group."""
_ELEMENTS: Elements = (
    ("a contig", re.compile(r"(\S*[^\s:-](?=[:\s-]+\d)|[^\s:]+)")),
    ("a position, from 1,", re.compile(r"[:\s-]+(0*[1-9][\d,]{0,13})(?!\d)")),
    ("REF, in bases,", re.compile(r"[:\s-]+([A-Za-z]+)")),
    ("> and ALT", re.compile(r"\s*(>|[:\s-])")),
    ("ALT", re.compile(rf"\s*{_ALT}")),
    ("nothing more", re.compile(r"\s*($)")),
)


def read_elements(text: str, at: int, elements: Elements, hint: str) -> list[str]:
    """Return the elements of a text from index `at` on.

    Raises:
        TypedError: an element does not follow; the message names the first wrong letter and ends
            with the hint.
    """
    values: list[str] = []
    for name, pattern in elements:
        match = pattern.match(text, at)
        if match is None:
            raise unexpected(name, text, at, hint)
        values.append(match[1])
        at = match.end()
    return values


def unexpected(name: str, text: str, at: int, hint: str) -> TypedError:
    """Return the error of a text without the expected element at `at`, after blanks and colons."""
    at += len(text[at:]) - len(text[at:].lstrip(" \t:"))
    stands = f"{text[at]!r} stands where" if at < len(text) else "it ends where"
    return TypedError(f"letter {at + 1}: {stands} {name} should; {hint}", text, at)


class VariantReader(Protocol):
    """Reader of variant notation with the names of a genome, such as `carbon.Genome`."""

    def variant(self, text: str) -> "Variant":
        """Return the variant that a text denotes."""


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A variant: ALT replaces REF at `position` (0-based, first base of REF) of `contig`.

    >>> Variant("chr1", 9, "A", "T").to_text()
    'chr1:10 A>T'
    """

    contig: str
    position: int
    ref: str
    alt: str

    @classmethod
    def parse(cls, text: str, genome: VariantReader | None = None) -> "Variant":
        """Parse variant notation.

        Without a genome, the text is `contig:position REF>ALT`, as `to_text` writes it, or the four
        fields separated by blanks, dashes or colons. ALT may be any allele that VCF allows;
        `why_unscorable` returns a reason for an ALT that is not bases, such as `<DEL>`.

        With a genome, contigs may be written with or without `chr`, and coding positions of HGVS
        are read, too (`carbon.genome.notation`). Alleles must then be bases.

        >>> Variant.parse("chr1:10 A>T")
        Variant(contig='chr1', position=9, ref='A', alt='T')
        >>> Variant.parse("HLA-A-10-A-<DEL>")
        Variant(contig='HLA-A', position=9, ref='A', alt='<DEL>')

        Args:
            text: variant notation.
            genome: open genome, such as `carbon.Genome.open(fasta, annotation)`.

        Raises:
            TypedError: the text has another form; the message names the first wrong letter.
        """
        if genome is not None:
            return genome.variant(text)
        stripped = text.strip()
        match = next(filter(None, (form.fullmatch(stripped) for form in _FORMS)), None)
        position = int(match[2].replace(",", "")) - 1 if match else -1
        if match is None or position < 0:
            raise _not_a_variant(stripped)
        return cls(match[1], position, match[3], match[4])

    @property
    def alleles(self) -> tuple[str, str]:
        """REF and ALT."""
        return self.ref, self.alt

    @property
    def interval(self) -> Interval:
        """Interval of the reference that REF covers."""
        return Interval(self.contig, self.position, self.position + len(self.ref))

    def to_text(self) -> str:
        """Return `contig:position REF>ALT` with the 1-based position of a VCF."""
        return f"{self.contig}:{self.position + 1} {self.ref}>{self.alt}"

    def why_unscorable(self) -> str | None:
        """Return the reason why the alleles do not define a sequence to score, or None.

        Returns:
            `symbolic_allele` for symbolic alleles, breakends (also single ones, such as `C.`) and
            `*`; `ambiguous_base` for N and IUPAC codes; `same_as_reference` if ALT equals REF.
        """
        alt = self.alt.upper()
        if not self.ref or alt in {"", "*"} or any(mark in alt for mark in "<>[]."):
            return "symbolic_allele"
        if not set(alt) <= BASES or not set(self.ref.upper()) <= BASES:
            return "ambiguous_base"
        return "same_as_reference" if alt == self.ref.upper() else None


def _not_a_variant(text: str) -> TypedError:
    hint = (
        "write it as contig:position REF>ALT, such as chr1:10 A>T, or chr1-10-A-T, with positions "
        "from 1"
    )
    where = f"variant {abridged(text, _SHOWN)!r}"
    try:
        read_elements(text, 0, _ELEMENTS, hint)
    except TypedError as error:
        return TypedError(f"{where}: {error}", text, error.at)
    return TypedError(f"{where}: {hint}", text, 0)  # separators are mixed


def allele_key(contig: str, position: int, ref: str, alt: str) -> str:
    """Return `contig:position:REF:ALT`, with the 1-based position of a VCF and upper-case bases.

    >>> allele_key("chr1", 10, "a", "T")
    'chr1:10:A:T'
    """
    return f"{contig}:{position}:{ref.upper()}:{alt.upper()}"
