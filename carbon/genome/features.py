"""The lines of GFF3 and GTF, one feature each, in the order of the file.

Formats: GFF3 1.26 (Sequence Ontology) and GTF 2.2. Which of the two a line is, its ninth column
tells; coordinates become 0-based and half-open here and nowhere else.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from carbon.errors import GenomeError
from carbon.genome.streams import BROKEN_GZIP, open_text


class Feature(NamedTuple):
    """One line.

    Attributes:
        where: its file and line number, for messages.
        phase: column 8 (phase of GFF3, frame of GTF): bases before the first whole codon as the
            strand reads the feature, 0 to 2; None where it stands for nothing.
    """

    contig: str
    kind: str
    start: int
    end: int
    strand: str
    attributes: Mapping[str, str]
    is_gtf: bool
    raw_attributes: str
    where: str
    phase: int | None = None

    @property
    def identifier(self) -> str:
        """What the line calls itself or what it belongs to."""
        names = ("transcript_id", "gene_id") if self.is_gtf else ("ID", "Parent", "Name")
        return next((self.attributes[n] for n in names if n in self.attributes), self.where)

    @property
    def parents(self) -> list[str]:
        """The identifiers that a GFF3 line names as its parents."""
        return [unquote(p) for p in self.attributes.get("Parent", "").split(",") if p]


def read_features(path: Path) -> Iterator[Feature]:
    """Yield the features of a GFF3 or GTF, plain or gzip; a FASTA at the end of it is left out.

    Raises:
        GenomeError: at the first line that is not of the format.
    """
    number = 0
    try:
        with open_text(path, errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if line.startswith("##FASTA") or line.startswith(">"):
                    return
                if line.strip() and not line.startswith("#"):
                    yield _parse_line(line.rstrip("\r\n"), f"{path} line {number}")
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: broken after line {number} ({error}); fetch it again") from None


def _parse_line(line: str, where: str) -> Feature:
    columns = line.split("\t")
    if len(columns) != 9:
        raise GenomeError(
            f"{where}: {len(columns)} columns, GFF3 and GTF have 9, split by tabs; is it one?"
        )
    contig, _, kind, first, last, _, strand, phase, text = columns
    are_numbers = _POSITION.fullmatch(first) and _POSITION.fullmatch(last)
    if not (are_numbers and 1 <= int(first) <= int(last)):
        shown = f"'{first[:_SHOWN]}' and '{last[:_SHOWN]}'"
        raise GenomeError(f"{where}: need 1 <= start <= end, got {shown}")
    is_gtf = _GTF_ATTRIBUTE.match(text) is not None
    attributes = _gtf_attributes(text) if is_gtf else _gff3_attributes(text)
    contig = contig if is_gtf else unquote(contig)
    start, end = int(first) - 1, int(last)
    phase_bp = int(phase) if phase in _PHASES else None
    return Feature(contig, kind, start, end, strand, attributes, is_gtf, text, where, phase_bp)


_PHASES = {"0", "1", "2"}
_POSITION = re.compile("[0-9]{1,15}")
_SHOWN = 20  # letters of what is no position

_GTF_ATTRIBUTE = re.compile(r'\s*(\w+) +(?:"([^"]*)"|([^";]+))\s*(?:;|$)')


def _gtf_attributes(text: str) -> dict[str, str]:
    return {m[1]: m[2] if m[2] is not None else m[3] for m in _GTF_ATTRIBUTE.finditer(text)}


def _gff3_attributes(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(";") if "=" in item)
    # A comma separates values and an escaped one does not, so Parent is split before unquoting.
    return {
        key.strip(): value if key.strip() == "Parent" else unquote(value) for key, _, value in pairs
    }
