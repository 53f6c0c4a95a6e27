"""What the lines of an annotation say of the frame and the ends of a CDS.

Sources: column 8 and `start_range`, `end_range`, `partial` of GFF3 (Sequence Ontology 1.26, NCBI's
account of its GFF3), the frame of GTF 2.2, the tags `cds_start_NF` and `cds_end_NF` of Ensembl.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from carbon.errors import GenomeError
from carbon.genome.features import Feature
from carbon.genome.genes import Span
from carbon.genome.genetic_codes import table_stated
from carbon.genome.interval import Strand

# A ribosome that slips makes a whole protein all the same. A stop codon that the tail of the
# messenger completes is not whole in the genome.
_MARK = re.compile(
    r"(?P<no_start>cds_start_NF)|(?P<no_end>cds_end_NF|aa:TERM)"
    r'|(?P<partial>partial[= ]"?true)'
    r'|(?P<exceptional>pseudo[= ]"?true|exception[= ]"?(?!ribosomal slippage))'
)


@dataclass(slots=True)
class CdsMarks:
    """Gathered from the exons and CDS of a transcript, and from its own line."""

    genetic_code: int | None = None
    has_recoded_codon: bool = False
    _exceptional: bool = False
    _partial: bool = False  # at an end that is not named
    _no_start: bool = False
    _no_end: bool = False
    _phases_bp: dict[int, int | None] = field(default_factory=dict)  # by the first base read

    def see(self, feature: Feature, contig_bp: int) -> None:
        """Take in what a line says; its contig of `contig_bp` may be circular."""
        found = _marks(feature.raw_attributes)
        if found:
            self._no_start |= "no_start" in found
            self._no_end |= "no_end" in found
            self._exceptional |= "exceptional" in found
        if table := feature.attributes.get("transl_table"):
            self._see_table(table, feature.where)
        if feature.kind == "CDS":
            self._see_cds(feature, "partial" in found)
            first = _first_base((feature.start, feature.end), feature.strand)
            self._phases_bp.setdefault(first % max(contig_bp, 1), feature.phase)

    def _see_cds(self, feature: Feature, partial: bool) -> None:
        # On other lines this is of the messenger, whose CDS may be whole.
        ends = ["start_range" in feature.attributes, "end_range" in feature.attributes]
        first, last = ends if feature.strand == "+" else ends[::-1]
        self._partial |= partial
        self._no_start |= first
        self._no_end |= last
        self.has_recoded_codon |= is_recoded(feature.attributes.get("transl_except", ""))

    def _see_table(self, table: str, where: str) -> None:
        stated = table_stated(table, where)
        if self.genetic_code not in (None, stated):
            raise GenomeError(
                f"{where}: transl_table={stated}, but {self.genetic_code} on another line of the "
                "transcript; keep one"
            )
        self.genetic_code = stated

    def phase_bp(self, cds: tuple[Span, ...], strand: Strand, contig_bp: int) -> int | None:
        """Return what `Transcript.phase_bp` is for ascending coding spans."""
        if not cds:
            return 0
        first = _first_base(cds[0] if strand == "+" else cds[-1], strand)
        stated = self._phases_bp.get(first % max(contig_bp, 1))
        if self._exceptional or (stated is None and not self.has_start):
            return None
        return stated or 0

    @property
    def has_start(self) -> bool:
        """Tell whether nothing says that the CDS begins before its first base here."""
        return not (self._no_start or (self._partial and not self._no_end))

    @property
    def incomplete(self) -> bool:
        """Tell whether the CDS is marked as partial, pseudo or exceptional."""
        return self._exceptional or self._partial or self._no_start or self._no_end


def is_recoded(exceptions: str) -> bool:
    """Tell whether a `transl_except` names an amino acid, and not only a completed stop codon."""
    return re.search("aa:(?!TERM)", exceptions) is not None


def _marks(text: str) -> Collection[str | None]:
    # One of these is in whatever the form finds, and sooner sought.
    if not (
        "_NF" in text
        or "partial" in text
        or "pseudo" in text
        or "exception" in text
        or "aa:TERM" in text
    ):
        return ()
    return {mark.lastgroup for mark in _MARK.finditer(text)}


def _first_base(span: Span, strand: str) -> int:
    return span[0] if strand == "+" else span[1] - 1
