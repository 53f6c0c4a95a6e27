"""Scans of real genomes: genes by name, SNVs of people, ends of chromosomes."""

from itertools import islice

import numpy as np
import pytest

from carbon.genome import Interval, Reference, VcfReader
from carbon.inference import join_chunks

YEAST = "yeast/Saccharomyces_cerevisiae.R64-1-1"
ECOLI = "ecoli_k12/GCF_000005845.2_ASM584v2_genomic"


@pytest.mark.nightly
def test_snvs_of_people(real_data, model):
    """With equal contexts a look-up in a scan is what `right_end` gives, one by one."""
    folder = real_data / "variants_chr20"
    how = {"combine": "token_start", "window_bp": 102, "least_context_bp": 96}
    with Reference(folder / "GRCh37.chr20_1M_2M.fa.gz") as reference:
        rows = VcfReader(folder / "1000G_phase3.chr20_1M_2M.vcf.gz", reference)
        variants = [v for row in islice(rows, 5000, 5300) for v in row.variants]
        snvs = [v for v in variants if len(v.ref) == len(v.alt) == 1][:200]
        first, last = snvs[0].position, snvs[-1].position
        where = Interval(snvs[0].contig, first, last + 1)
        scan = join_chunks(model.scan(reference, where, **how))
        alone = {"protocol": "right_end", "window_bp": 96, "strands": "forward"}
        scores = model.score_variants(reference, snvs, **alone)
        deltas = [score.delta for score in scores]
    found = [scan.deltas[v.position - first, "ACGT".index(v.alt)] for v in snvs]
    assert len(snvs) == 200
    np.testing.assert_allclose(found, deltas, atol=1e-4)
    # <dna> and 16 6-mers a base, which `right_end` reads for each of its three SNVs.
    assert scan.tokens_read == pytest.approx(17 * where.length_bp, rel=0.01)


def test_the_end_of_a_chromosome(real_data, model):
    """Chromosome 9 begins with 10,000 N; soft-masked repeats follow."""
    with Reference(real_data / "human_chr9/GRCh38.chr9_1_1000000.fa.gz") as reference:
        (contig,) = reference.contig_lengths_bp
        scan = join_chunks(model.scan(reference, Interval(contig, 9_500, 10_700), strands="both"))
    assert scan.bases[:500] == "N" * 500 and set(scan.bases[500:]) <= set("ACGT")
    assert np.isnan(scan.deltas[:500]).all() and np.isfinite(scan.deltas[500:]).all()
    assert np.isfinite(scan.log_probabilities).all()


@pytest.mark.nightly
@pytest.mark.parametrize("strands", ["forward", "reverse"])
def test_a_whole_genome(real_data, model, strands, monkeypatch):
    """Bacteriophage lambda, 48,502 bases: every one once, in order."""
    monkeypatch.setattr("carbon.inference.scan.windows.BLOCK_TOKENS", 2**12)  # several blocks
    with Reference(real_data / "small_genomes/lambda_virus.fa") as reference:
        ((contig, length_bp),) = reference.contig_lengths_bp.items()
        chunks = list(model.scan(reference, Interval(contig, 0, length_bp), strands=strands))
        bases = reference.fetch(Interval(contig, 0, length_bp))
    assert length_bp == 48_502 and len(chunks) > 1
    scan = join_chunks(chunks)
    assert scan.bases == bases and len(scan.log_probabilities) == length_bp
    # The first window is one sequence; from then on half of a window is scored.
    assert scan.tokens_read == pytest.approx(length_bp / 6 * 2, rel=0.02)
