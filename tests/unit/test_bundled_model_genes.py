"""What the bundled model has learned, on genes of the held-out chromosome."""

import itertools

import numpy as np
import pytest

import carbon
from carbon.genome import Consequences, Interval, Reference, Variant, read_annotation
from tests.helpers.bundled_model import real_entry

pytestmark = (
    pytest.mark.nightly
)  # test_bundled_model_yeast has that a gene is likelier than it backwards
ENO2 = Interval("VIII", 451_326, 452_640)
STOPS = {"TAA", "TAG", "TGA"}


@pytest.fixture(scope="module")
def yeast():
    return carbon.load("yeast")


@pytest.fixture(scope="module")
def genome():
    with Reference(real_entry("yeast").genome) as reference:
        yield reference


def snvs_of_codons(genome, first: int, last: int) -> list[Variant]:
    """Every SNV of the codons `first` to `last` of ENO2, which has one exon and lies forward."""
    start, end = ENO2.start + 3 * first, ENO2.start + 3 * last
    bases = genome.fetch(Interval("VIII", start, end))
    return [
        Variant("VIII", start + i, ref, alt)
        for i, ref in enumerate(bases)
        for alt in "ACGT"
        if alt != ref
    ]


def test_new_stop_codons_are_less_likely_than_synonymous_changes(yeast, genome):
    annotation = read_annotation(real_entry("yeast").annotation, genome)
    consequences = Consequences(genome, annotation)
    kinds: dict[str, list[Variant]] = {"stop_gained": [], "synonymous_variant": []}
    for variant in snvs_of_codons(genome, 100, 160):
        kind = consequences.of(variant).consequence
        kinds.get(kind, []).append(variant)
    means = {}
    for kind, variants in kinds.items():
        assert len(variants) >= 10
        scored = yeast.score_variants(genome, variants, strands="both", window_bp=1024)
        means[kind] = np.mean([each.delta for each in scored])
    assert means["stop_gained"] < means["synonymous_variant"] - 1


def test_what_it_writes_behind_a_gene_keeps_the_frame(yeast, genome):
    """In the frame of the prompt there are fewer stop codons than beside it."""
    prompt = genome.fetch(Interval("VIII", ENO2.start, ENO2.start + 600))
    written = yeast.generate([prompt] * 24, 240, seed=1)
    counts = [0, 0, 0]
    for text, frame in itertools.product(written, range(3)):
        codons = {i: text[i : i + 3] for i in range(frame, 240 - 2, 3)}
        counts[frame] += sum(codon in STOPS for codon in codons.values())
    assert counts[0] < 0.6 * min(counts[1:]), counts


def test_exons_are_likelier_than_what_lies_between_genes(yeast, genome):
    annotation = read_annotation(real_entry("yeast").annotation, genome)
    genes = [gene.interval for gene in annotation.genes if gene.interval.length_bp > 1200][20:60]
    inside = [genome.fetch(Interval("VIII", g.start + 100, g.start + 1100)) for g in genes]
    shuffled = [text[::-1] for text in inside]
    real, backwards = (
        np.mean([score.nats_per_base for score in yeast.score(texts)])
        for texts in (inside, shuffled)
    )
    assert real < backwards - 0.02
