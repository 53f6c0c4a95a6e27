"""Codon usage of the coding exons that datasets are built from, of yeast and E. coli."""

from collections import Counter

import numpy as np
import pytest

from carbon.genome import (
    GENETIC_CODE,
    Reference,
    read_annotation,
    spliced,
)
from carbon.genome.codon_usage import favourites, read_codon_usage
from eval.tasks.common.coding import coding_exons

YEAST = "yeast/Saccharomyces_cerevisiae.R64-1-1"
ECOLI = "ecoli_k12/GCF_000005845.2_ASM584v2_genomic"
SOURCES = {
    "fng": (f"{YEAST}.dna.toplevel.fa.gz", f"{YEAST}.96.gtf.gz"),
    "pro": (f"{ECOLI}.fna.gz", f"{ECOLI}.gff.gz"),
}


@pytest.mark.parametrize(
    ("group", "table"),
    [
        pytest.param("fng", "s_cerevisiae_4932", marks=pytest.mark.nightly),
        ("pro", "e_coli_316407"),
    ],
)
def test_codon_tables_agree_with_genomes(real_data, group, table):
    """Usage counted here from the CDS that the builders take, against Kazusa's."""
    usage = read_codon_usage(real_data / f"codon_usage/{table}.csv")
    counts: Counter[str] = Counter()
    fasta, annotation = (real_data / name for name in SOURCES[group])
    with Reference(fasta) as reference:
        genes = {}
        for exon in coding_exons(reference, read_annotation(annotation, reference), Counter()):
            genes[exon.gene.gene_id] = exon.transcript
        for transcript in genes.values():
            cds = spliced(reference, transcript.contig, transcript.cds, transcript.strand)
            counts.update(cds[at : at + 3] for at in range(0, len(cds), 3))
    totals: Counter[str] = Counter()
    for codon, count in counts.items():
        totals[GENETIC_CODE[codon]] += count
    here = [counts[codon] / totals[amino_acid] for codon, amino_acid in GENETIC_CODE.items()]
    assert np.corrcoef(here, [usage[codon] for codon in GENETIC_CODE])[0, 1] > 0.99
    counted = favourites({codon: float(counts[codon]) for codon in GENETIC_CODE})
    assert sum(counted[a] == codon for a, codon in favourites(usage).items()) >= 19
