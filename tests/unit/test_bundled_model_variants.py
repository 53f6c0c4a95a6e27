"""The variants that the demo shows of the bundled chromosome: what is told of each is so."""

import pytest

import carbon
from carbon.genome import Consequences, Reference, Variant, read_annotation
from carbon.genome.genome import Genome
from demo.lab import Lab
from demo.panels.variant import VariantEffect
from tests.helpers.bundled_model import real_entry
from tests.helpers.demo import answered

CODONS = {  # consequence, codons, lowest and highest delta in nats
    "A stop codon gained": ("stop_gained", "TGG/TAG", -20, -2),
    "A synonymous change": ("synonymous_variant", "GTT/GTC", -0.09, 0.09),
    "A splice donor lost, and missed": ("splice_donor_variant", None, 0.1, 1),
}


@pytest.fixture(scope="module")
def panel(tmp_path_factory):
    entry = real_entry("yeast")
    genome = Genome.open(entry.genome, entry.annotation)
    told = entry.explained_variants
    return VariantEffect(
        Lab(carbon.load("yeast"), "yeast", genome, tmp_path_factory.mktemp("runs"),
            entry.known_genes, explained_variants=told)
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("label", CODONS)
def test_what_is_told_is_so(panel, label):
    entry = real_entry("yeast")
    text, sentence = entry.explained_variants[label]
    consequence, codons, low, high = CODONS[label]
    with Reference(entry.genome) as genome:
        found = Consequences(genome, read_annotation(entry.annotation, genome)).of(
            Variant.parse(text)
        )
    assert found.consequence == consequence and (codons is None or found.codons == codons)
    assert found.gene in sentence and (codons is None or f"Codon {found.codon} " in sentence)
    result = answered(panel, {"variant": text, "window_bp": 6})
    assert low < result["delta"] < high and result["unsure"] is False
    assert ("The model is right" in sentence) != ("The model is wrong" in sentence)
    facts = panel.show({"genome": [], "protocol": "centered"}, result)["facts"]
    assert sentence in facts and "To the model, ALT is about" in facts


def test_they_are_the_examples(panel):
    assert (
        panel.fields[0].default == real_entry("yeast").explained_variants["A stop codon gained"][0]
    )
    assert CODONS.keys() == real_entry("yeast").explained_variants.keys()
