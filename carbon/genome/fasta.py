"""Reference sequences with random access (pysam), from plain, bgzip or gzip FASTA.

An index that is missing is written beside the file, as `samtools faidx` does, or into a temporary
folder where that is not allowed. Plain gzip has no random access, so it is unpacked into the
temporary folder first. Whoever builds an index reads the whole file once; that is when its form is
checked.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from carbon.errors import GenomeError
from carbon.genome.alphabet import IUPAC_BASES
from carbon.genome.fasta_index import open_indexed
from carbon.genome.interval import Interval


class Reference:
    """A FASTA file opened for random access.

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
            raise GenomeError(f"{path}: no such file; give a FASTA, plain, bgzip or gzip")
        self._scratch = tempfile.TemporaryDirectory(prefix="carbon-fasta-")
        try:
            self._fasta = open_indexed(self.path, Path(self._scratch.name))
        except BaseException:
            self._scratch.cleanup()
            raise
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
        return str(self._fasta.fetch(interval.contig, interval.start, interval.end))

    def fetch_circular(self, contig: str, start: int, end: int) -> str:
        """Return bases `start` to `end` of a contig; past its end they go on from base 0."""
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is None or end <= length_bp or start >= end:
            return self.fetch(Interval(contig, start, end))
        if start >= length_bp:
            return self.fetch_circular(contig, start - length_bp, end - length_bp)
        first = self.fetch(Interval(contig, start, length_bp))
        return first + self.fetch_circular(contig, 0, end - length_bp)

    def check_ref(self, contig: str, position: int, ref: str, where: str) -> None:
        """Raise GenomeError, opening with `where`, unless REF stands at `position` (0-based)."""
        there = self.disagreement(contig, position, ref, where)
        if there is not None:
            raise GenomeError(
                f"{where}: REF is {short(ref)} but {self.path} has {short(there)}; "
                "is it the assembly that the variants were called on?"
            )

    def disagreement(self, contig: str, position: int, ref: str, where: str) -> str | None:
        """Return the bases at `position` (0-based) if they are not those of REF, else None.

        Where the reference has an IUPAC code, any base that it stands for agrees: VCF 4.3 (section
        1.6.1) reduces such a REF to one base. A REF of N, as structural variants have, agrees with
        any; and nothing stands at the telomeres, which VCF numbers 0 and one past the end.

        Raises:
            GenomeError: there is no such contig, or REF ends past it; the message opens with
                `where`.
        """
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is None:
            raise GenomeError(f"{where}: {self.explain_missing([contig])}")
        if position in (-1, length_bp):
            return None
        if position < 0 or position + len(ref) > length_bp:
            raise GenomeError(
                f"{where}: REF ends past the contig's {length_bp} bases; "
                f"is {self.path} the assembly that the variants were called on?"
            )
        there = self.fetch(Interval(contig, position, position + len(ref))).upper()
        agree = (
            a in ("N", b, *IUPAC_BASES.get(b, "")) for a, b in zip(ref.upper(), there, strict=True)
        )
        return None if all(agree) else there

    def explain_missing(self, contigs: Iterable[str]) -> str:
        """Say which contigs are absent, and whether a `chr` prefix is all that is between."""
        contigs = list(contigs)
        ours = list(self.contig_lengths_bp)
        swapped = [c[3:] if c.startswith("chr") else f"chr{c}" for c in contigs]
        hint = "; are both of the same assembly?"
        if any(c in self.contig_lengths_bp for c in swapped):
            hint = "; one side writes a 'chr' prefix: rename the contigs of one of the two"
        return f"no contig {_some(contigs)} in the FASTA, which has {_some(ours)}{hint}"

    def close(self) -> None:
        """Close the file and remove what was unpacked for it."""
        self._fasta.close()
        self._scratch.cleanup()

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


def _some(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (" ..." if len(names) > 3 else "")
