"""Read genes and transcripts from GFF3, GTF, BED and GenBank files, with their genetic codes.

All formats yield the same values, and the order of lines does not matter. In a GTF the CDS excludes
the stop codon, so `stop_codon` features are added to it.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.alphabet import (
    STANDARD_TABLE,
    GeneticCode,
    check_contigs,
    genetic_code,
    table_for,
    tables_chosen,
)
from carbon.genome.bed import is_bed, read_bed_features
from carbon.genome.fasta import Reference
from carbon.genome.genbank import is_genbank, unpack_genbank
from carbon.genome.gene_building import GeneBuilder
from carbon.genome.gene_tables import GeneTables
from carbon.genome.genes import (
    MITOCHONDRIA,
    Annotation,
    Gene,
    LeftOut,
    Transcript,
    coding_bases,
    report_left_out,
)
from carbon.genome.gff import read_features
from carbon.io.files import scratch_folder, why_no_file

_NEW_OBJECTS = 200_000  # Python's own threshold is 700


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for unreachable cycles rarely, while many objects without any are made.

    Genes and records are such objects, and looking through them again and again takes a fifth of
    the time of a build.
    """
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@rare_collections()
def read_annotation(
    path: str | Path,
    reference: Reference,
    *,
    contig_names: Mapping[str, str] | None = None,
    offset_bp: int = 0,
    genetic_code: str | int | None = None,
) -> Annotation:
    """Read a GFF3, GTF or BED, plain or gzip, and check it against the reference.

    The result lists the features that are left out, and one line on stderr counts them by reason.

    Args:
        path: annotation file; a BED is recognised by the ending .bed, .bed.gz or .bed.bgz.
        reference: sequences of the same assembly.
        contig_names: the reference's name of each contig that the annotation names differently.
        offset_bp: start of the reference in the coordinates of the annotation, if the reference is
            a part of a chromosome; genes outside of that part are left out.
        genetic_code: NCBI translation table for CDS without a `transl_table` in the file, such as
            `4`, or `1,Mito=3` with contigs of the reference.

    Raises:
        GenomeError: the file is missing or malformed, shares no contig with the reference, or has a
            gene, exon or CDS past the end of a linear contig; or NCBI has no such translation
            table.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: {why_no_file(path)}; give a GFF3, GTF or BED, plain or gzip")
    tables = GeneTables(reference.contig_lengths_bp, cut=offset_bp != 0)
    absent = sorted(_gather(path, tables, contig_names or {}, offset_bp))
    if absent and not tables.num_added:
        raise GenomeError(f"{path}: {reference.explain_missing(absent)}")
    if outside := tables.first_past_end():
        length_bp = reference.contig_lengths_bp[outside.contig]
        raise GenomeError(
            f"{outside.where}: {outside.kind} ends at {outside.end}, but contig "
            f"'{outside.contig}' of {reference.path} has {length_bp} bases; are both of the same "
            "assembly? A part of a chromosome needs annotation_offset_bp"
        )
    genes = GeneBuilder(tables).genes()
    if not genes:
        raise GenomeError(
            f"{path}: has no gene, exon or CDS on the contigs of {reference.path}; "
            f"{_why_no_gene(tables.left_out)}"
        )
    left_out = tables.left_out + [LeftOut(contig, "contig_not_in_fasta") for contig in absent]
    report_left_out(path, left_out)
    annotation = Annotation(path, tuple(genes), tuple(left_out), frozenset(tables.circular))
    return with_genetic_code(annotation, genetic_code, reference.contig_lengths_bp)


def _gather(
    path: Path, tables: GeneTables, contig_names: Mapping[str, str], offset_bp: int
) -> set[str]:
    """Add the features of a file to the tables; return the contigs that the reference lacks."""
    absent: set[str] = set()
    name_in_file: str | None = None  # contig of the previous line
    contig = ""  # name of the same contig in the reference
    num_features = 0
    for feature in read_bed_features(path) if is_bed(path) else read_features(path):
        num_features += 1
        if feature.contig != name_in_file:
            name_in_file = feature.contig
            contig = contig_names.get(name_in_file, name_in_file)
            if not MITOCHONDRIA.isdisjoint((name_in_file, contig)):
                tables.mitochondria.add(contig)
            if contig not in tables.contig_lengths_bp:
                absent.add(contig)
        if contig in absent:
            continue
        if offset_bp or contig != name_in_file:
            start, end = feature.start - offset_bp, feature.end - offset_bp
            feature = feature._replace(contig=contig, start=start, end=end)
        tables.add(feature)
    if not num_features:
        raise GenomeError(f"{path}: has no feature; give a GFF3, GTF or BED with genes")
    return absent


def _why_no_gene(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return "check its third column"
    first = left_out[0]
    return f"'{first.name}' and {len(left_out) - 1} more are left out: {first.reason}"


def read_gene_file(
    path: str | Path,
    reference: Reference,
    contig_names: Mapping[str, str] | None = None,
    genetic_code: str | int | None = None,
) -> Annotation:
    """Read a GFF3, GTF, BED or GenBank, plain or gzip, and check it against the reference.

    For a GenBank file, the names and lengths of the records are compared with the contigs, but not
    their bases.

    Args:
        path: annotation file.
        reference: sequences of the same assembly.
        contig_names: the reference's name of each contig that the annotation names differently.
        genetic_code: NCBI translation table for CDS without one in the file, as for
            `read_annotation`.

    Raises:
        GenomeError: as in `read_annotation` and `unpack_genbank`, or the reference lacks a record
            of a GenBank file.
    """
    path = Path(path)
    if not path.is_file() or not is_genbank(path):
        return read_annotation(
            path, reference, contig_names=contig_names, genetic_code=genetic_code
        )
    with scratch_folder("genbank") as folder:
        genbank = unpack_genbank(path, folder / "records.fa", contig_names)
    here = reference.contig_lengths_bp
    if absent := sorted(set(genbank.contig_lengths_bp) - set(here)):
        raise GenomeError(f"{path}: {reference.explain_missing(absent)}")
    for contig, length_bp in genbank.contig_lengths_bp.items():
        if here[contig] != length_bp:
            raise GenomeError(
                f"{path}: record '{contig}' has {length_bp} bases, and {here[contig]} in "
                f"{reference.path}; are both of the same assembly?"
            )
    return with_genetic_code(genbank.annotation, genetic_code, here)


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
