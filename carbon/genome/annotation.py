"""Read genes and transcripts from GFF3, GTF, BED and GenBank files.

All formats yield the same values, and the order of lines does not matter. In a GTF the CDS excludes
the stop codon, so `stop_codon` features are added to it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.bed import is_bed, read_bed_features
from carbon.genome.cds_codes import with_genetic_code
from carbon.genome.fasta import Reference
from carbon.genome.genbank import is_genbank, unpack_genbank
from carbon.genome.gene_building import GeneBuilder
from carbon.genome.gene_tables import GeneTables
from carbon.genome.genes import MITOCHONDRIA, Annotation, LeftOut, report_left_out
from carbon.genome.gff import read_features
from carbon.io.files import scratch_folder, why_no_file


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
        fasta = folder / "records.fa"
        annotation = unpack_genbank(path, fasta, contig_names).annotation
        with Reference(fasta) as records:
            lengths_bp = records.contig_lengths_bp
    here = reference.contig_lengths_bp
    if absent := sorted(set(lengths_bp) - set(here)):
        raise GenomeError(f"{path}: {reference.explain_missing(absent)}")
    for contig, length_bp in lengths_bp.items():
        if here[contig] != length_bp:
            raise GenomeError(
                f"{path}: record '{contig}' has {length_bp} bases, and {here[contig]} in "
                f"{reference.path}; are both of the same assembly?"
            )
    return with_genetic_code(annotation, genetic_code, here)
