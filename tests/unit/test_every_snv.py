"""Every SNV of a stretch: deltas of the scan, consequences transcript by transcript."""

import numpy as np
import pytest

from carbon.genome import Interval, Variant, snv_effect
from carbon.genome.opened import Genome
from carbon.inference.scan.chunks import ScanChunk
from carbon.inference.variants.every_snv import UNTOLD, every_snv
from tests.helpers.demo import write_genome
from tests.helpers.files import write_fasta

PLACE = Interval("c1", 105, 512)
OUTSIDE = ("5_prime_UTR_variant", "3_prime_UTR_variant", "intron_variant", "intergenic_variant")


@pytest.fixture(params=["+", "-"])
def genome(request, tmp_path):
    return Genome.open(*write_genome(tmp_path, strand=request.param))


def scanned(genome, place=PLACE):
    random = np.random.default_rng(3)
    logs = np.log(random.dirichlet(np.ones(4), place.length_bp)).astype(np.float32)
    return ScanChunk(place, genome.reference.fetch(place).upper(), logs, 0)


def test_each_has_the_delta_of_the_scan_and_the_effect_on_the_one_transcript(genome):
    chunk = scanned(genome)
    found = every_snv(chunk, genome.reference, genome.annotation)
    assert len(found.snvs) == 3 * PLACE.length_bp
    (gene,) = genome.annotation.genes
    for at in range(0, PLACE.length_bp, 7):
        ref = chunk.bases[at]
        for column, alt in enumerate("ACGT"):
            variant = Variant("c1", PLACE.start + at, ref, alt)
            if ref == alt:
                assert variant not in found.snvs
                continue
            logs = chunk.log_probabilities[at]
            expected = logs[column] - logs["ACGT".index(ref)]
            effect = snv_effect(genome.reference, gene.transcripts[0], variant)
            assert found.snvs[variant].delta == pytest.approx(float(expected), abs=1e-6)
            told = found.snvs[variant].consequence
            assert told == effect.term if effect else told in OUTSIDE


def test_consequences_stand_in_the_order_of_severity_and_hold_all(genome):
    deltas = every_snv(scanned(genome), genome.reference, genome.annotation).deltas
    terms = list(deltas)
    known = [t for t in ("stop_gained", "missense_variant", "synonymous_variant") if t in terms]
    assert known == sorted(known, key=terms.index) and len(known) >= 2
    assert sum(map(len, deltas.values())) == 3 * PLACE.length_bp


def test_where_one_stands(genome):
    found = every_snv(scanned(genome), genome.reference, genome.annotation)
    for variant, own in list(found.snvs.items())[::50]:
        standing = found.standing(variant)
        like = np.array(found.deltas[own.consequence])
        assert standing.share_below == pytest.approx(float((like < own.delta).mean()))
    assert found.standing(Variant("c1", 5, "A", "T")) is None
    assert found.standing(Variant("c1", PLACE.start + 4, "A", "AT")) is None


def test_without_genes_nothing_is_told_and_unknown_bases_have_none(tmp_path):
    genome = Genome.open(write_fasta(tmp_path / "g.fa", {"c1": "ACGTNACGT"}), None)
    found = every_snv(scanned(genome, Interval("c1", 0, 9)), genome.reference, None)
    assert list(found.deltas) == [UNTOLD] and len(found.snvs) == 24
