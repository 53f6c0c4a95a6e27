"""The long coding genes of the held-out regions."""

from pathlib import Path

from carbon.genome import Reference
from eval.contract import BuildReport
from eval.tasks.common.building import write_dataset
from eval.tasks.common.held_out import HeldOutGenes


def build(
    output: Path,
    *,
    corpus: Path,
    reference: Path,
    annotation: Path,
    contigs: str | None = None,
    genetic_code: str | None = None,
    least_codons: int = 300,
) -> BuildReport:
    """Write the coding genes of the held-out regions that have more codons than a number.

    Args:
        output: Parquet to write.
        corpus: folder of a corpus with held-out regions.
        reference: FASTA that the corpus was made from.
        annotation: GFF3, GTF or BED of it.
        contigs: table of contig names, or chr, where the annotation has other names.
        genetic_code: NCBI translation table where the annotation states none.
        least_codons: genes have more codons than this.

    Raises:
        UserError: no gene is long enough.
        GenomeError: the annotation is not of the reference, or the reference not of the corpus.
    """
    with Reference(reference) as fasta:
        genes = HeldOutGenes(corpus, fasta, annotation, contigs, genetic_code)
        coding = genes.coding()
        dropped = genes.not_coding()
    long = [gene for gene in coding if len(gene.cds) > 3 * least_codons]
    dropped[f"not_more_than_{least_codons}_codons"] = len(coding) - len(long)
    return write_dataset(
        output,
        [{"gene_id": gene.gene_id, "cds": gene.cds} for gene in long],
        dropped,
        [reference, annotation, corpus / "manifest.json"],
        {"task": "gene_frames", "least_codons": least_codons},
    )
