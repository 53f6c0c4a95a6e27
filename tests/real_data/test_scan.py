"""Scans of real genomes: the end of a chromosome, and a whole genome."""

import numpy as np
import pytest

from carbon.genome import Interval, Reference
from carbon.inference import join_chunks


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
