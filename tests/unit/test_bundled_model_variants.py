"""The variants that the demo shows of the bundled chromosome: what the page opens on."""

import pytest

import carbon
from carbon.genome.genome import Genome
from demo.lab import Lab
from demo.panels.variant import VariantEffect
from demo.variant_views import title_of
from tests.helpers.bundled_model import real_entry
from tests.helpers.demo import visited

ROWS = {  # consequence, lowest and highest delta in nats
    "E52* of ENO2": ("stop_gained", -40, -15),
    "E52K of ENO2": ("missense_variant", -10, 0),
    "E52E of ENO2": ("synonymous_variant", -10, 0),
}


@pytest.fixture(scope="module")
def panel(tmp_path_factory):
    entry = real_entry("yeast")
    genome = Genome.open(entry.genome, entry.annotation)
    runs = tmp_path_factory.mktemp("runs")
    return VariantEffect(Lab(carbon.load("yeast"), "yeast", genome, runs, entry.known_genes))


@pytest.mark.nightly
def test_the_page_opens_on_a_stop_that_the_model_finds_unlikely(panel):
    _, result, shown = visited(panel)
    rows = {title_of(row): row for row in result["alleles"]}
    assert next(iter(rows)) == "E52* of ENO2" and rows.keys() == ROWS.keys()
    for name, (term, low, high) in ROWS.items():
        assert rows[name]["effects"][0]["term"] == term and low < rows[name]["delta"] < high
    assert rows["E52* of ENO2"]["delta"] == min(row["delta"] for row in rows.values())
    assert "times less likely" in shown["verdict"]
