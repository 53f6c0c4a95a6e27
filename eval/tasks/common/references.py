"""References as the tasks need them: under either name of a contig, or made of windows."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from carbon.errors import GenomeError
from carbon.genome import CHR, Interval, Reference, contig_names


class AnyName(Reference):
    """A FASTA that answers to `1` and to `chr1`: ClinVar writes one, UCSC the other."""

    def __init__(self, path: str | Path) -> None:
        """Open the file.

        Raises:
            GenomeError: it is missing or no FASTA.
        """
        super().__init__(path)
        self._own = contig_names(CHR, self.contig_lengths_bp)
        for other, contig in self._own.items():
            self.contig_lengths_bp[other] = self.contig_lengths_bp[contig]

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval, whichever way its contig is written."""
        own = self._own.get(interval.contig, interval.contig)
        return super().fetch(Interval(own, interval.start, interval.end))


class Windows(Reference):
    """The windows of a table as contigs, so that what reads a FASTA reads them too.

    Equal windows are one contig: variants of one place share the bases before it.

    Attributes:
        names: of the contig of each row.
    """

    def __init__(self, table: pa.Table, column: str) -> None:
        """Take a column of sequences; they stay where the table has them."""
        self.path = Path(column)
        self._windows = table[column]
        encoded = pc.dictionary_encode(self._windows.cast(pa.large_string())).combine_chunks()
        lengths_bp = pc.utf8_length(encoded.dictionary).to_pylist()
        self.names = [f"window-{number + 1}" for number in encoded.indices.to_pylist()]
        self._row_of = {name: row for row, name in enumerate(self.names)}
        self.contig_lengths_bp = {
            f"window-{number + 1}": length_bp for number, length_bp in enumerate(lengths_bp)
        }

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval of a window."""
        row = self._row_of.get(interval.contig)
        if row is None or interval.end > self.contig_lengths_bp[interval.contig]:
            raise GenomeError(f"{interval.to_region()} is not in the windows of the dataset")
        return str(self._windows[row].as_py()[interval.start : interval.end])

    def close(self) -> None:
        """Do nothing: no file is open."""
