"""Genetic code of each CDS of an annotation, and checks for CDS whose code is unknown."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from carbon.genome.alphabet import (
    STANDARD_TABLE,
    GeneticCode,
    check_contigs,
    genetic_code,
    table_for,
    tables_chosen,
)
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Gene, Transcript, coding_bases

_CODON_BP = 3


def code_of(transcript: Transcript) -> GeneticCode | None:
    """Return the genetic code of a transcript: the annotated table, else the standard code.

    None for a mitochondrial transcript without a table, because mitochondrial codes differ.
    """
    if transcript.genetic_code is not None:
        return genetic_code(transcript.genetic_code)
    return None if transcript.is_mitochondrial else genetic_code(STANDARD_TABLE)


def reads_standard_code(transcript: Transcript) -> bool:
    """Return whether codons are translated as in the standard code, as in tables 1 and 11."""
    code = code_of(transcript)
    return code is not None and code.amino_acids == genetic_code(STANDARD_TABLE).amino_acids


def with_genetic_code(
    annotation: Annotation, choice: str | int | None, contig_lengths_bp: Mapping[str, int]
) -> Annotation:
    """Return an annotation with a genetic code for each transcript that lacks one.

    Args:
        annotation: genetic codes that it states are kept.
        choice: text for `tables_chosen`, with contigs of the reference.
        contig_lengths_bp: contigs of the reference.

    Raises:
        GenomeError: the choice is malformed or names an unknown table or contig.
    """
    tables = tables_chosen(choice)
    if not tables:
        return annotation
    check_contigs(tables, contig_lengths_bp)

    def of_gene(gene: Gene) -> Gene:
        table = table_for(tables, gene.interval.contig)
        transcripts = (
            each if each.genetic_code or not each.cds else replace(each, genetic_code=table)
            for each in gene.transcripts
        )
        return replace(gene, transcripts=tuple(transcripts))

    return replace(annotation, genes=tuple(map(of_gene, annotation.genes)))


def has_unexplained_stop(reference: Reference, transcript: Transcript) -> bool:
    """Return whether a CDS without a stated genetic code has an internal stop codon.

    The standard code, which is assumed for such a CDS, may then be the wrong one.
    """
    if transcript.genetic_code is not None or transcript.has_recoded_codon:
        return False
    code = code_of(transcript)
    phase_bp, length_bp, leftover_bp = whole_frame(transcript)
    if code is None or phase_bp is None:
        return False
    coding = coding_bases(reference, transcript, (0, length_bp))
    # The last whole codon may be the stop codon of the CDS if no base follows it.
    last = len(coding) - (leftover_bp or _CODON_BP)
    codons = {coding[at : at + _CODON_BP] for at in range(phase_bp, last, _CODON_BP)}
    return not codons.isdisjoint(code.stops)


def whole_frame(transcript: Transcript) -> tuple[int | None, int, int]:
    """Return phase, length and leftover after the last codon of the whole CDS, in bp.

    For a part of a trans-spliced transcript, the whole CDS includes the other parts.
    """
    if whole := transcript.trans_spliced:
        leftover_bp = (whole.length_bp - (whole.phase_bp or 0)) % _CODON_BP
        return whole.phase_bp, whole.length_bp, leftover_bp
    return transcript.phase_bp, transcript.cds_length_bp, transcript.leftover_bp


def cds_of_unknown_code(reference: Reference, annotation: Annotation) -> dict[str, int]:
    """Count CDS without a stated genetic code for which the standard code is doubtful.

    Returns:
        `stop_codon_inside`: CDS with an internal stop codon in the standard code.
        `mitochondrion`: CDS on a contig with the name of a mitochondrion. Zeros are omitted.
    """
    coding = [
        each
        for gene in annotation.genes
        for each in gene.transcripts
        # Each part of a trans-spliced transcript carries the whole CDS, which is counted once.
        if each.cds and not (each.trans_spliced and each.trans_spliced.before_bp)
    ]
    counts = {
        "stop_codon_inside": sum(has_unexplained_stop(reference, each) for each in coding),
        "mitochondrion": sum(code_of(each) is None for each in coding),
    }
    return {reason: number for reason, number in counts.items() if number}


def unknown_code_warnings(path: Path | None, counts: Mapping[str, int]) -> list[str]:
    """Return a warning for each count of `cds_of_unknown_code`, with the path of the annotation."""
    lines = {
        "stop_codon_inside": "CDS with a stop codon inside and no genetic code stated: "
        "stop_gained, stop_lost and stop_retained_variant in them are written as "
        "coding_sequence_variant; give --genetic-code (1 where they are selenocysteine)",
        "mitochondrion": "CDS of a mitochondrion with no genetic code stated: variants in their "
        "codons are written as coding_sequence_variant; give --genetic-code CONTIG=N (2 for "
        "vertebrates, 3 for yeast, 5 for invertebrates)",
    }
    return [f"{path}: {number} {lines[reason]}" for reason, number in counts.items()]
