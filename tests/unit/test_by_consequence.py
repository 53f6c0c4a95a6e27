"""The SNVs of a stretch: deltas of the scan, consequences by the one transcript there is."""

import numpy as np
import pytest

from carbon.genome import Interval, Variant, snv_effect
from carbon.genome.genome import Genome
from carbon.inference.scan.score import ScanChunk
from demo.neighbouring_snvs import (
    UNTOLD,
    SnvsByConsequence,
    consequences_in,
    deltas_in,
    some_of_each,
)
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


def snvs_of(genome):
    terms = consequences_in(genome.reference, PLACE, genome.annotation)
    return SnvsByConsequence(terms, deltas_in(scanned(genome)))


def test_each_has_the_delta_of_the_scan_and_the_effect_on_the_one_transcript(genome):
    chunk, found = scanned(genome), snvs_of(genome)
    assert set(found.consequences) == set(found.deltas)
    assert len(found.deltas) == 3 * PLACE.length_bp
    (gene,) = genome.annotation.genes
    for at in range(0, PLACE.length_bp, 7):
        ref = chunk.bases[at]
        for column, alt in enumerate("ACGT"):
            variant = Variant("c1", PLACE.start + at, ref, alt)
            if ref == alt:
                assert variant not in found.deltas
                continue
            logs = chunk.log_probabilities[at]
            expected = logs[column] - logs["ACGT".index(ref)]
            effect = snv_effect(genome.reference, gene.transcripts[0], variant)
            assert found.deltas[variant] == pytest.approx(float(expected), abs=1e-6)
            told = found.consequences[variant]
            assert told == effect.term if effect else told in OUTSIDE


def test_consequences_stand_in_the_order_of_severity_and_hold_all(genome):
    deltas = snvs_of(genome).by_consequence
    terms = list(deltas)
    known = [t for t in ("stop_gained", "missense_variant", "synonymous_variant") if t in terms]
    assert known == sorted(known, key=terms.index) and len(known) >= 2
    assert sum(map(len, deltas.values())) == 3 * PLACE.length_bp


def test_where_one_stands(genome):
    found = snvs_of(genome)
    for variant, term in list(found.consequences.items())[::50]:
        standing = found.standing(variant, -0.5)
        like = [found.deltas[each] for each, own in found.consequences.items() if own == term]
        assert standing.share_below == pytest.approx(np.mean(np.array(like) < -0.5))
    assert found.standing(Variant("c1", 5, "A", "T"), -0.5) is None
    assert found.standing(Variant("c1", PLACE.start + 4, "A", "AT"), -0.5) is None


def test_some_are_drawn_of_each(genome):
    terms = consequences_in(genome.reference, PLACE, genome.annotation)
    drawn = some_of_each(terms, 5, seed=1)
    assert drawn == some_of_each(terms, 5, seed=1) != some_of_each(terms, 5, seed=2)
    assert len(set(drawn)) == len(drawn)
    for term in set(terms.values()):
        there = sum(own == term for own in terms.values())
        assert sum(terms[variant] == term for variant in drawn) == min(5, there)


def test_without_genes_nothing_is_told_and_unknown_bases_have_none(tmp_path):
    genome = Genome.open(write_fasta(tmp_path / "g.fa", {"c1": "ACGTNACGT"}), None)
    place = Interval("c1", 0, 9)
    terms = consequences_in(genome.reference, place, None)
    assert set(terms.values()) == {UNTOLD} and len(terms) == 24
    assert set(deltas_in(scanned(genome, place))) == set(terms)
