"""What the lines of an annotation say of the frame and the ends of a CDS.

Sources: column 8 and `start_range`, `end_range`, `partial` of GFF3 (Sequence Ontology 1.26, NCBI's
account of its GFF3), `partial` of Prodigal, the frame of GTF 2.2, the tags `cds_start_NF` and
`cds_end_NF` of Ensembl.
"""

from dataclasses import dataclass, field

from carbon.errors import GenomeError
from carbon.genome import marks
from carbon.genome.features import Feature
from carbon.genome.genes import Span
from carbon.genome.genetic_codes import table_stated
from carbon.genome.interval import Strand


@dataclass(slots=True)
class CdsMarks:
    """Gathered from the exons and CDS of a transcript, and from the lines above it.

    Attributes:
        genetic_code: the NCBI translation table that a CDS states.
        slips: the ribosome slips.
        trans_spliced: a line says that it is joined from several transcripts.
    """

    genetic_code: int | None = None
    has_recoded_codon: bool = False
    slips: bool = False
    trans_spliced: bool = False
    _exceptional: bool = False
    _partial: bool = False  # at an end that is not named
    _no_start: bool = False
    _no_end: bool = False
    _phases_bp: dict[int, int | None] = field(default_factory=dict)  # by the first base read

    def see(self, feature: Feature, contig_bp: int, *, is_cds: bool = False) -> None:
        """Take in what a line says; its contig of `contig_bp` may be circular."""
        attributes = feature.attributes
        if not marks.MARK_KEYS.isdisjoint(attributes):
            self._exceptional |= marks.is_exceptional(attributes)
            self.slips |= marks.slips(attributes)
            self.trans_spliced |= marks.is_trans_spliced(attributes)
            no_start, no_end = marks.ends_not_found(attributes)
            self._no_start |= no_start
            self._no_end |= no_end or marks.has_completed_stop(attributes)
        if table := attributes.get("transl_table"):
            self._see_table(table, feature.where)
        if is_cds:
            self._see_cds(feature)
            first = _first_base((feature.start, feature.end), feature.strand)
            self._phases_bp.setdefault(first % max(contig_bp, 1), feature.phase)

    def take(self, other: "CdsMarks") -> None:
        """Take in the marks of UTRs of the same transcript, which say nothing of the ends."""
        self._exceptional |= other._exceptional
        self.trans_spliced |= other.trans_spliced

    def see_gene(self, feature: Feature, *, is_coding: bool) -> None:
        """Take in what the line of a gene or transcript says of what is below it.

        Of a transcript without a CDS a type such as `processed_pseudogene` says nothing more.
        """
        self._exceptional |= marks.is_pseudo(feature.attributes) or (
            is_coding and marks.is_pseudogene(feature.kind, feature.attributes)
        )
        self.trans_spliced |= marks.is_trans_spliced(feature.attributes)
        table = feature.attributes.get("transl_table")
        if table and self.genetic_code is None:
            self._see_table(table, feature.where)

    def _see_cds(self, feature: Feature) -> None:
        # On other lines this is of the messenger, whose CDS may be whole.
        attributes = feature.attributes
        ends = marks.partial_ends(attributes)
        self._partial |= ends is None
        left, right = ends or (False, False)
        self._no_start |= left if feature.strand == "+" else right
        self._no_end |= right if feature.strand == "+" else left
        self.has_recoded_codon |= marks.has_recoded_codon(attributes)

    def _see_table(self, table: str, where: str) -> None:
        stated = table_stated(table, where)
        if self.genetic_code not in (None, stated):
            raise GenomeError(
                f"{where}: transl_table={stated}, but {self.genetic_code} on another line of the "
                "transcript; keep one"
            )
        self.genetic_code = stated

    def phase_bp(self, cds: tuple[Span, ...], strand: Strand, contig_bp: int) -> int | None:
        """Return what `Transcript.phase_bp` is for ascending coding spans.

        None where they are parts that are trans-spliced in an unknown order.
        """
        return None if self.trans_spliced and cds else self.first_phase_bp(cds, strand, contig_bp)

    def first_phase_bp(self, cds: tuple[Span, ...], strand: Strand, contig_bp: int) -> int | None:
        """Return the phase of a CDS whose first span on the strand is the first that is read."""
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


def _first_base(span: Span, strand: str) -> int:
    return span[0] if strand == "+" else span[1] - 1
