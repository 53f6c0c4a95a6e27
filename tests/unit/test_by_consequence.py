"""The SNVs of a region, with consequences by its one transcript."""

import pytest

from carbon.genome import Interval, snv_effect
from carbon.genome.genome import Genome
from demo.coding import snvs_in
from demo.neighbouring_snvs import NO_CONSEQUENCE, by_consequence, consequences_in, some_of_each
from tests.helpers.demo import write_genome
from tests.helpers.files import write_fasta

PLACE = Interval("c1", 105, 512)
OUTSIDE = ("5_prime_UTR_variant", "3_prime_UTR_variant", "intron_variant", "intergenic_variant")


@pytest.fixture(params=["+", "-"])
def genome(request, tmp_path):
    return Genome.open(*write_genome(tmp_path, strand=request.param))


def test_each_snv_has_the_effect_on_the_one_transcript(genome):
    terms = consequences_in(genome.reference, PLACE, genome.annotation)
    assert list(terms) == list(snvs_in(genome.reference, PLACE))
    assert len(terms) == 3 * PLACE.length_bp
    (gene,) = genome.annotation.genes
    for variant, term in list(terms.items())[::7]:
        assert genome.reference.fetch(variant.interval).upper() == variant.ref != variant.alt
        effect = snv_effect(genome.reference, gene.transcripts[0], variant)
        assert term == effect.term if effect else term in OUTSIDE


def test_consequences_stand_in_the_order_of_severity_and_hold_all(genome):
    terms = consequences_in(genome.reference, PLACE, genome.annotation)
    deltas = by_consequence(terms, {variant: float(n) for n, variant in enumerate(terms)})
    known = [t for t in ("stop_gained", "missense_variant", "synonymous_variant") if t in deltas]
    assert known == sorted(known, key=list(deltas).index) and len(known) >= 2
    assert sorted(d for values in deltas.values() for d in values) == list(range(len(terms)))


def test_some_are_drawn_of_each(genome):
    terms = consequences_in(genome.reference, PLACE, genome.annotation)
    drawn = some_of_each(terms, 5, seed=1)
    assert drawn == some_of_each(terms, 5, seed=1) != some_of_each(terms, 5, seed=2)
    assert len(set(drawn)) == len(drawn)
    for term in set(terms.values()):
        there = sum(own == term for own in terms.values())
        assert sum(terms[variant] == term for variant in drawn) == min(5, there)


def test_without_genes_there_is_no_consequence_and_unknown_bases_have_no_snv(tmp_path):
    genome = Genome.open(write_fasta(tmp_path / "g.fa", {"c1": "ACGTNACGT"}), None)
    terms = consequences_in(genome.reference, Interval("c1", 0, 9), None)
    assert set(terms.values()) == {NO_CONSEQUENCE} and len(terms) == 24
