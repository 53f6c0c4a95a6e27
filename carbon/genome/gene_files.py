"""The genes of an annotation in any of the formats that are read here."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.annotation import read_annotation
from carbon.genome.cds_codes import with_genetic_code
from carbon.genome.fasta import Reference
from carbon.genome.genbank import is_genbank, unpack_genbank
from carbon.genome.genes import MITOCHONDRIA, Annotation, Gene
from carbon.io.files import scratch_folder


def read_gene_file(
    path: str | Path,
    reference: Reference,
    contig_names: Mapping[str, str] | None = None,
    genetic_code: str | int | None = None,
) -> Annotation:
    """Read a GFF3, GTF, BED or GenBank, plain or gzip, and check it against the reference.

    Of a GenBank file that is the names and lengths of its records; where the records lie is not
    compared base by base.

    Args:
        path: the annotation.
        reference: sequences of the same assembly.
        contig_names: what the annotation calls a contig, and what the reference does.
        genetic_code: NCBI translation table of the CDS for which the file states none, as for
            `read_annotation`.

    Raises:
        GenomeError: as `read_annotation` and `unpack_genbank` do, or a record of a GenBank is no
            contig of the reference.
    """
    path = Path(path)
    if not path.is_file() or not is_genbank(path):
        return read_annotation(
            path, reference, contig_names=contig_names, genetic_code=genetic_code
        )
    with scratch_folder("genbank") as folder:
        fasta = folder / "records.fa"
        names = contig_names or {}
        annotation = _renamed(unpack_genbank(path, fasta).annotation, names)
        with Reference(fasta) as records:
            lengths_bp = {names.get(c, c): bp for c, bp in records.contig_lengths_bp.items()}
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


def _renamed(annotation: Annotation, names: Mapping[str, str]) -> Annotation:
    """Give contigs the names that the reference has for them."""

    def of_gene(gene: Gene) -> Gene:
        contig = names.get(gene.interval.contig, gene.interval.contig)
        transcripts = tuple(
            replace(
                each,
                contig=contig,
                is_mitochondrial=each.is_mitochondrial or contig in MITOCHONDRIA,
            )
            for each in gene.transcripts
        )
        return replace(
            gene, interval=replace(gene.interval, contig=contig), transcripts=transcripts
        )

    genes = sorted(map(of_gene, annotation.genes), key=lambda gene: (gene.interval, gene.gene_id))
    circular = frozenset(names.get(contig, contig) for contig in annotation.circular)
    left_out = tuple(
        replace(
            each,
            intervals=tuple(
                replace(place, contig=names.get(place.contig, place.contig))
                for place in each.intervals
            ),
        )
        for each in annotation.left_out
    )
    return replace(annotation, genes=tuple(genes), left_out=left_out, circular=circular)
