"""Datasets built from real genomes: yeast, E. coli, worm, fly, cress, human 9, 20 and 21."""

from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest

from carbon.genome import (
    GENETIC_CODE,
    Interval,
    Reference,
    read_annotation,
    reverse_complement,
    spliced,
)
from carbon.genome.codon_usage import favourites, read_codon_usage
from eval.baselines import MarkovModel
from eval.contract import Options
from eval.tasks import TASKS
from eval.tasks.common.building import Source
from eval.tasks.common.coding import coding_exons
from tests.helpers.tasks import training_on

YEAST = "yeast/Saccharomyces_cerevisiae.R64-1-1"
ECOLI = "ecoli_k12/GCF_000005845.2_ASM584v2_genomic"
SOURCES = {
    "fng": (f"{YEAST}.dna.toplevel.fa.gz", f"{YEAST}.96.gtf.gz"),
    "pro": (f"{ECOLI}.fna.gz", f"{ECOLI}.gff.gz"),
    "inv": tuple(f"invertebrates_and_cress/C.elegans.{end}.gz" for end in ("fa", "gff")),
    "fly": tuple(f"invertebrates_and_cress/D.melanogaster.{end}.gz" for end in ("fa", "gff")),
    "pln": tuple(f"invertebrates_and_cress/A.thaliana.{end}.gz" for end in ("fa", "gff")),
    "mam": (
        "human_chr9/GRCh38.chr9_1_1000000.fa.gz",
        "human_chr9/GRCh38.91.chr9_1_1000000.gtf.gz",
    ),
}


def source(real_data: Path, group: str) -> Source:
    return Source(group, *(real_data / name for name in SOURCES[group]))


def rows_of(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.nightly
def test_recovery_of_six_groups(real_data, tmp_path):
    task = TASKS["sequence_recovery"]
    output = tmp_path / "r.parquet"
    sources = [source(real_data, group) for group in SOURCES]
    report = task.build(output, sources=sources, num_examples=20)
    rows = rows_of(output)
    assert Counter(row["type"] for row in rows) == dict.fromkeys(SOURCES, 20)
    assert len(report.inputs) == 12
    for row in rows[::7]:
        with Reference(real_data / SOURCES[row["type"]][0]) as reference:
            label = reference.fetch(Interval(row["record_id"], row["start"], row["end"])).upper()
        assert row["label"] == (label if row["strand"] == "+" else reverse_complement(label))
        assert len(row["sequence"]) == 6144
    # Read again as the published dataset is, and asked of a Markov model: better than chance.
    table = task.read(output)
    with Reference(sources[0].fasta) as reference:
        bases = reference.fetch(Interval("IV", 0, 1_500_000))
    markov = MarkovModel(6, training_on(6, [bases]))
    results = list(task.run(markov, task.examples(table, Options())))
    summary = task.summarise(results)
    assert set(summary.groups["group"]) == set(SOURCES) and summary.value.value > 0.26


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
    _, fasta, annotation = source(real_data, group)
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
