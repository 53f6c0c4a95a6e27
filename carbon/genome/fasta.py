"""Reference sequences with random access (pysam), from plain, bgzip or gzip FASTA.

An index that is missing, or that is not of the file, is written beside it, as `samtools faidx`
does, or into a temporary folder where that is not allowed or the disk is full. Plain gzip has no
random access, so it is unpacked into the temporary folder first, and so is a file with a byte-order
mark. Whoever builds an index reads the whole file once; that is when its form is checked.
"""

from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import NamedTuple

from carbon.errors import GenomeError
from carbon.genome.alphabet import IUPAC_BASES
from carbon.genome.contig_names import prefix_hint, shown_names
from carbon.genome.fasta_index import open_indexed
from carbon.genome.interval import Interval
from carbon.io.files import why_no_file


class Disagreement(NamedTuple):
    """Why a REF cannot be taken to stand in the reference.

    Attributes:
        reason: `ref_mismatch`, `ref_past_end`, `contig_unknown`, or `reference_unknown` where the
            reference has N.
        there: what the reference has in upper case; empty where there are no such bases.
    """

    reason: str
    there: str

    @property
    def is_contradiction(self) -> bool:
        """Whether REF and the reference cannot both be right."""
        return self.reason != "reference_unknown"


class Reference:
    """A FASTA file opened for random access; several threads may share it.

    Attributes:
        path: the file as the user named it.
        contig_lengths_bp: length of every contig, in the order of the file.
    """

    def __init__(self, path: str | Path) -> None:
        """Open and, where needed, check and index the file.

        Raises:
            GenomeError: the file is missing, empty, truncated or not DNA in FASTA.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise GenomeError(f"{path}: {why_no_file(path)}; give a FASTA, plain, bgzip or gzip")
        self._fasta = open_indexed(self.path)
        self._lock = Lock()  # htslib seeks and reads in two steps
        names, lengths_bp = self._fasta.references, self._fasta.lengths
        self.contig_lengths_bp = dict(zip(names, lengths_bp, strict=True))

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval, in the case of the file.

        Raises:
            GenomeError: the contig is unknown or the interval ends past it.
        """
        length_bp = self.contig_lengths_bp.get(interval.contig)
        if length_bp is None:
            raise GenomeError(f"{self.path}: {self.explain_missing([interval.contig])}")
        if interval.end > length_bp:
            raise GenomeError(
                f"{self.path}: {interval.to_region()} ends past the contig's {length_bp} bases"
            )
        if not interval.length_bp:  # pysam refuses the end of a contig of 2^31 - 1 bases
            return ""
        return self._read(interval.contig, interval.start, interval.end)

    def fetch_circular(self, contig: str, start: int, end: int) -> str:
        """Return bases `start` to `end` of a contig; past its end they go on from base 0."""
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is not None and 0 <= start < end <= length_bp:
            return self._read(contig, start, end)
        if length_bp is None or end <= length_bp or start >= end:
            return self.fetch(Interval(contig, start, end))
        if start >= length_bp:
            return self.fetch_circular(contig, start - length_bp, end - length_bp)
        first = self.fetch(Interval(contig, start, length_bp))
        return first + self.fetch_circular(contig, 0, end - length_bp)

    def _read(self, contig: str, start: int, end: int) -> str:
        with self._lock:
            return str(self._fasta.fetch(contig, start, end))

    def check_ref(self, contig: str, position: int, ref: str, where: str) -> str | None:
        """Return None where REF stands at `position` (0-based), or that this is not known.

        Returns:
            `reference_unknown` where the reference has N for a base of REF, else None.

        Raises:
            GenomeError: REF cannot stand there; the message opens with `where`.
        """
        found = self.disagreement(contig, position, ref)
        if found is None or not found.is_contradiction:
            return found.reason if found else None
        raise GenomeError(
            f"{where}: {self.explain(found, contig, ref)}; "
            "is it the assembly that the variants were called on?"
        )

    def disagreement(self, contig: str, position: int, ref: str) -> Disagreement | None:
        """Return why REF cannot be taken to stand at `position` (0-based), else None.

        Case does not matter. Where the reference has an IUPAC code of some bases, any of them
        agrees: VCF 4.3 (section 1.6.1) reduces such a REF to one base. Where it has N, it does not
        say what stands there: any base of REF may be right, and none is known to be. A REF of N,
        as structural variants have, says nothing and agrees with any base; and nothing stands at
        the telomeres, which VCF numbers 0 and one past the end.
        """
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is None:
            return Disagreement("contig_unknown", "")
        if position in (-1, length_bp):
            return None
        if position < 0 or position + len(ref) > length_bp:
            return Disagreement("ref_past_end", "")
        there = self.fetch(Interval(contig, position, position + len(ref))).upper()
        pairs = [(a, b) for a, b in zip(ref.upper(), there, strict=True) if a not in ("N", b)]
        if not all(b == "N" or a in IUPAC_BASES.get(b, "") for a, b in pairs):
            return Disagreement("ref_mismatch", there)
        is_unknown = any(b == "N" for _, b in pairs)
        return Disagreement("reference_unknown", there) if is_unknown else None

    def explain(self, found: Disagreement, contig: str, ref: str) -> str:
        """Say in words what a disagreement is."""
        if found.reason == "contig_unknown":
            return self.explain_missing([contig])
        if found.reason == "ref_past_end":
            return f"REF ends past the contig's {self.contig_lengths_bp[contig]} bases"
        return f"REF is {short(ref)} but {self.path} has {short(found.there)}"

    def explain_missing(self, contigs: Iterable[str]) -> str:
        """Say which contigs are absent, and whether a `chr` prefix is all that is between."""
        contigs = list(contigs)
        hint = prefix_hint(contigs, self.contig_lengths_bp) or "; are both of the same assembly?"
        there = shown_names(self.contig_lengths_bp)
        return f"no contig {shown_names(contigs)} in the FASTA, which has {there}{hint}"

    def close(self) -> None:
        """Close the file, and let go of what was unpacked for it."""
        self._fasta.close()

    def __enter__(self) -> "Reference":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def short(bases: str) -> str:
    """Write bases, the first of them if they are many."""
    return bases if len(bases) <= 12 else f"{bases[:12]}... ({len(bases)} bases)"
