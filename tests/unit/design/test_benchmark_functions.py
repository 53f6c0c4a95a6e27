"""Benchmark functions against plain arithmetic; a search observed round by round."""

import math

import pytest

from carbon.design.benchmark_functions import (
    codon_adaptation,
    gc_window,
    motif_pair,
    yeast_codons,
)
from carbon.design.config import DesignConfig
from carbon.design.functions import running_functions
from carbon.design.search import rounds, run_search, search_of
from carbon.genome.codon_usage import codon_usage
from carbon.genome.genome import Genome
from carbon.pretrained import BUNDLED_MODELS
from demo.write_views import candidates_to_json
from tests.helpers.demo import write_genome


def test_a_gc_window():
    assert gc_window(["A" * 20 + "G" * 10 + "T" * 20]) == [1.0]
    assert gc_window(["G" * 20 + "A" * 10 + "C" * 20]) == [0.0]
    assert gc_window(["A" * 20 + "GGGGGAAAAA" + "T" * 20]) == [0.75]


def test_a_motif_pair_is_found_wherever_it_does_best():
    pair = "TGACTCA" + "A" * 20 + "CACGTG"
    assert motif_pair(["GG" + pair + "TTT", pair]) == [1.0, 1.0]
    (near,) = motif_pair([pair.replace("CACGTG", "CACGTT")])
    assert near == pytest.approx(12 / 13)
    assert motif_pair(["A"]) < [0.2]


def test_the_index_is_the_geometric_mean_of_shares():
    index = codon_adaptation({"AAA": 10, "AAG": 5, "GGT": 4, "GGC": 1})
    found = index(["AAAGGT", "AAGGGC", "AAA", "ATGAAGTGGTAA", "ATGTGG"])
    assert found == pytest.approx([1.0, math.sqrt(0.5 * 0.25), 1.0, 0.5, 0.0])


def test_a_codon_that_never_occurs_is_the_worst_of_its_amino_acid():
    """Also by frequencies: the least of them is 0.1, so that an absent codon has 0.05."""
    index = codon_adaptation({"GCT": 0.8, "GCC": 0.2, "GCA": 0.0, "AAA": 0.9, "AAG": 0.1})
    indices = index(["GCC", "GCA", "GCG", "AAG"])
    assert indices == pytest.approx([0.2 / 0.8, 0.05 / 0.8, 0.05 / 0.8, 0.1 / 0.9])
    assert codon_adaptation({"GCT": 8, "GCC": 2})(["GCA"]) == [0.5 / 8]


@pytest.mark.parametrize("strand", ["+", "-"])
def test_codons_are_counted_as_the_strand_reads_them(tmp_path, strand):
    usage = codon_usage(Genome.open(*write_genome(tmp_path, strand=strand)))
    assert usage["ATG"] == 1 and usage["TAA"] == 1 and sum(usage.values()) == 240


@pytest.mark.skipif(not BUNDLED_MODELS["yeast"].is_installed, reason="no bundled model")
def test_codons_of_yeast():
    liked, rare = yeast_codons(["GCTAGATTG", "GCGCGGCTC"])  # ALA ARG LEU
    assert liked == 1.0 and rare < 0.4


def test_rounds_are_those_of_the_search(model):
    task = DesignConfig(length_bp=60, calls=40, batch=8, seed=3)
    search = search_of(model.runner, task, 1)
    history, sizes = [], []
    with running_functions([gc_window], 60) as functions:
        for scored in rounds(search, functions, history):
            sizes.append(len(scored))
            assert history[-len(scored) :] == scored
        assert sum(sizes) == len(history) == 40 and len(sizes) >= 5
        assert history == run_search(search, functions)
    found = candidates_to_json(history)
    values = [each["value"] for each in found]
    assert values == sorted(gc_window([c.bases for c in history]), reverse=True)
    for each in found:
        beaten = any(
            o["value"] >= each["value"] and o["nats_per_base"] <= each["nats_per_base"]
            and (o["value"], -o["nats_per_base"]) != (each["value"], -each["nats_per_base"])
            for o in found
        )  # fmt: skip
        assert each["front"] == (not beaten)
