"""Held-out genes with their codon adaptation index."""

import re
from collections import Counter
from collections.abc import Iterable
from math import isnan
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.genome import GENETIC_CODE, Reference
from carbon.genome.alphabet import adaptation_index, adaptation_weights
from carbon.genome.codon_usage import read_codon_usage
from eval.contract import BuildReport
from eval.tasks.common.building import write_dataset
from eval.tasks.common.held_out import CodingGene, HeldOutGenes

_ABSENT = 0.5  # the count of a codon that the reference genes never use (Bulmer 1988)


def build(
    output: Path,
    *,
    corpus: Path,
    reference: Path,
    annotation: Path,
    codon_usage: Path | None = None,
    finetuned_genes: str | None = None,
    contigs: str | None = None,
    genetic_code: str | None = None,
) -> BuildReport:
    """Write the coding genes of the held-out regions with their codon adaptation index.

    Args:
        output: Parquet to write.
        corpus: folder of a corpus with held-out regions.
        reference: FASTA that the corpus was made from.
        annotation: GFF3, GTF or BED of it.
        codon_usage: table of codon usage of highly expressed genes.
        finetuned_genes: or the genes outside the held-out regions whose codons are counted, by a
            regular expression for the start of their names, such as 'RP[LS]'.
        contigs: table of contig names, or chr, where the annotation has other names.
        genetic_code: NCBI translation table where the annotation states none.

    Raises:
        UserError: neither or both of usage and genes are given, or no gene has such a name.
        GenomeError: the annotation is not of the reference, or the reference not of the corpus.
    """
    if (codon_usage is None) == (finetuned_genes is None):
        raise UserError("codon_adaptation: give --codon-usage or --finetuned-genes")
    with Reference(reference) as fasta:
        genes = HeldOutGenes(corpus, fasta, annotation, contigs, genetic_code)
        usage = (
            read_codon_usage(codon_usage)
            if codon_usage
            else usage_of(_named(genes, finetuned_genes or ""))
        )
        weights = adaptation_weights(usage)
        every: list[dict[str, Any]] = [
            {"gene_id": gene.gene_id, "cds": gene.cds, "index": adaptation_index(gene.cds, weights)}
            for gene in genes.coding()
        ]
        dropped = genes.not_coding()
    rows = [row for row in every if not isnan(row["index"])]
    dropped["gene_without_a_synonymous_codon"] = len(every) - len(rows)
    inputs = [reference, annotation, corpus / "manifest.json"]
    settings = {"task": "codon_adaptation", "finetuned_genes": finetuned_genes}
    return write_dataset(output, rows, dropped, [*inputs, *filter(None, [codon_usage])], settings)


def usage_of(genes: Iterable[CodingGene]) -> dict[str, float]:
    """Count the codons of genes; a codon that occurs in none of them counts a half."""
    counts = Counter(gene.cds[at : at + 3] for gene in genes for at in range(0, len(gene.cds), 3))
    return {codon: float(counts[codon] or _ABSENT) for codon in GENETIC_CODE}


def _named(genes: HeldOutGenes, pattern: str) -> list[CodingGene]:
    """Return the coding genes outside the held-out regions whose names begin with a pattern."""
    try:
        named = re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"--finetuned-genes {pattern}: is no regular expression ({error})"
        ) from None
    chosen = [gene for gene in genes.coding_outside() if named.match(gene.name)]
    if not chosen:
        raise UserError(
            f"--finetuned-genes {pattern}: no coding gene outside of the held-out regions has a "
            "name that begins so"
        )
    return chosen
