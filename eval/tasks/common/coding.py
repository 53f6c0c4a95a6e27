"""Coding exons of a genome, one transcript a gene, checked by translation."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    Strand,
    Transcript,
    reverse_complement,
    spliced,
    translate,
)
from carbon.genome.annotation import reads_standard_code
from carbon.genome.genes import MITOCHONDRIA

# They have codes of their own; the tasks are of the standard one.
_ORGANELLES = MITOCHONDRIA | {"Pt", "ChrC", "C"}


class CodingExon(NamedTuple):
    """The coding bases of one exon, 0-based and half-open on the contig.

    Attributes:
        gene: it is of.
        transcript: the one of the gene with the longest CDS.
        start: of its coding bases.
        end: of its coding bases.
        rank: among the exons with coding bases, from 1, as they are read.
        skipped_bp: bases before the first complete codon, 0 to 2.
    """

    gene: Gene
    transcript: Transcript
    start: int
    end: int
    rank: int
    skipped_bp: int

    @property
    def length_bp(self) -> int:
        """Number of coding bases."""
        return self.end - self.start

    @property
    def strand(self) -> Strand:
        """The transcribed strand."""
        return self.transcript.strand


def coding_exons(
    reference: Reference, annotation: Annotation, dropped: Counter[str]
) -> Iterator[CodingExon]:
    """Yield the coding exons of each gene's transcript with the longest CDS, in order.

    Args:
        reference: of the annotation.
        annotation: its genes.
        dropped: counts the genes that are left out, by reason.
    """
    for gene in annotation.genes:
        coding = [transcript for transcript in gene.transcripts if transcript.cds]
        if not coding:
            dropped["gene_without_cds"] += 1
            continue
        transcript = min(coding, key=lambda t: (-t.cds_length_bp, t.transcript_id))
        if reason := _why_not(reference, transcript):
            dropped[reason] += 1
            continue
        read = transcript.cds if transcript.strand == "+" else transcript.cds[::-1]
        before_bp = 0
        for rank, (start, end) in enumerate(read, start=1):
            yield CodingExon(gene, transcript, start, end, rank, -before_bp % 3)
            before_bp += end - start


def _why_not(reference: Reference, transcript: Transcript) -> str | None:
    spans = transcript.cds
    if transcript.contig in _ORGANELLES:
        return "gene_of_an_organelle"
    if not reads_standard_code(transcript):
        return "another_genetic_code"
    if transcript.incomplete:
        return "incomplete_cds"
    if any(left[1] > right[0] for left, right in itertools.pairwise(spans)):
        return "ribosome_slips"
    if spans[-1][1] > reference.contig_lengths_bp[transcript.contig]:
        return "cds_over_the_origin"
    cds = spliced(reference, transcript.contig, spans, transcript.strand)
    if len(cds) % 3:
        return "cds_not_in_frame"
    protein = translate(cds)
    if "*" in protein[:-1] or not protein.endswith("*"):
        return "stop_missing_or_inside"
    return "unknown_base_in_cds" if "X" in protein else None


def read_around(
    reference: Reference, exon: CodingExon, upstream_bp: int, downstream_bp: int
) -> tuple[str, Interval, int]:
    """Return the bases along the strand around an exon, in capitals, cut at the contig's ends.

    Returns:
        The bases; where they lie; and how many of them stand before the exon.
    """
    contig = exon.transcript.contig
    left_bp, right_bp = upstream_bp, downstream_bp
    if exon.strand == "-":
        left_bp, right_bp = right_bp, left_bp
    start = max(0, exon.start - left_bp)
    end = min(reference.contig_lengths_bp[contig], exon.end + right_bp)
    where = Interval(contig, start, end)
    bases = reference.fetch(where).upper()
    if exon.strand == "-":
        return reverse_complement(bases), where, end - exon.end
    return bases, where, exon.start - start


def columns_of(
    exon: CodingExon, where: Interval, before_bp: int, species: str
) -> dict[str, object]:
    """Return the columns of a row's place; 0-based and half-open."""
    return {
        "species": species,
        "chr": where.contig,
        "strand": exon.strand,
        "cds_genome_start": exon.start,
        "cds_genome_end": exon.end,
        "window_genome_start": where.start,
        "window_genome_end": where.end,
        "transcript_id": exon.transcript.transcript_id,
        "gene_id": exon.gene.gene_id,
        "gene_name": exon.gene.name,
        "exon_rank": exon.rank,
        "is_first_exon": int(exon.rank == 1),
        "frame": exon.skipped_bp,
        "cds_start_in_seq": before_bp,
        "cds_end_in_seq": before_bp + exon.length_bp,
        "cds_length": exon.length_bp,
    }
