"""Inside: tokens, one distribution against plain sums, and what clicks change."""

import math

import pytest

from carbon.genome import Interval
from carbon.genome.genome import Genome
from carbon.inference import load
from demo.lab import Lab
from demo.panels.inside import Inside
from tests.helpers.bundled_model import real_entry
from tests.helpers.demo import answered, make_lab, values_of, visited
from tests.helpers.reference import INDEX, KMERS, marginal, mass, stock_distribution

CONTEXT = "ACGTTGCATTAGCATGAC" * 4
GIVEN = {"input": CONTEXT + "TTGACA", "fixed": "G..A.."}


@pytest.fixture(scope="module")
def panel(tmp_path_factory, model):
    return Inside(make_lab(tmp_path_factory.mktemp("lab"), model))


def test_numbers_against_a_stock_forward(panel, network):
    result = answered(panel, GIVEN)
    p = stock_distribution(network, result["context"]).tolist()
    assert result["probabilities"] == pytest.approx(p, rel=1e-4, abs=1e-9)
    chosen = mass(p, "G??A??")
    for v in range(0, 4096, 41):
        agrees = KMERS[v][0] == "G" and KMERS[v][3] == "A"
        expected = p[v] / chosen if agrees else 0.0
        assert result["conditional_probabilities"][v] == pytest.approx(
            expected, rel=1e-4, abs=1e-12
        )
    for loss in result["losses"]:
        bases = enumerate(loss["kmer"])
        fns = -sum(math.log(marginal(p, place, base)) for place, base in bases) / 6
        assert loss["fns_nats"] == pytest.approx(fns, rel=1e-4)
        expected = -math.log(p[INDEX[loss["kmer"]]])
        assert loss["cross_entropy_nats"] == pytest.approx(expected, rel=1e-4)
    assert len(result["losses"]) == 19 and result["losses"][0]["kmer"] == "TTGACA"
    assert result["rank"] == 1 + sum(q > p[INDEX["TTGACA"]] for q in p)
    assert len(result["top"]) == 10
    assert result["conditional_marginals"][0] == pytest.approx([0, 0, 0, 1])


def test_the_defaults_are_coding_bases_and_what_follows_them(panel):
    result = answered(panel, {})
    assert result["sequence"].startswith("ATGTACCAATTAGGAGCA") and len(result["sequence"]) == 372
    assert result["sequence"][:-6].endswith(result["context"])
    assert result["kmer"] == ("ATG" + "TACCAATTAGGAGCA" * 25)[366:372]
    assert result["conditional_probabilities"] == pytest.approx(result["probabilities"], rel=1e-5)
    label, first = panel.examples()[0].label, panel.examples()[0].values
    assert label == "An intron begins" and answered(panel, first)["kmer"].startswith("GT")


def test_a_context_is_cut_from_the_left(panel):
    exact, longer = (answered(panel, {"input": c}) for c in ("ACGTTGAAAAAA", "TTACGTTGAAAAAA"))
    assert longer["context"] == exact["context"] == "ACGTTG"
    assert longer["probabilities"] == exact["probabilities"]


def test_clicks(panel):
    values = values_of(panel, **GIVEN)
    shown = panel.show(values, answered(panel, GIVEN))
    picks = {pick.view: pick.set for pick in panel.picks()}
    heat = shown["map"]["data"][0]
    assert [kmer for row in heat["customdata"] for kmer in row] == KMERS
    assert len(heat["z"]) == len(heat["z"][0]) == 64
    assert heat["z"][0][0] is None  # AAAAAA has no G first
    assert picks["map"]("ACGTAC", values) == {"kmer": "ACGTAC"}
    assert picks["losses"]("ACGTAC", values) == {"kmer": "ACGTAC"}
    bar = shown["marginals"]["data"][0]
    assert bar["customdata"][5] == [1, "C"]
    assert picks["marginals"]([1, "C"], values) == {"fixed": "GC.A.."}
    assert picks["marginals"]([0, "G"], values) == {"fixed": "...A.."}
    assert picks["marginals"]([0, "T"], {**values, "fixed": ""}) == {"fixed": "T....."}
    value = answered(panel, GIVEN)["conditional_marginals"][1][2]  # C is the third of ATCG
    assert bar["y"][5] == pytest.approx(value)


def test_a_preview_names_the_fixed_bases(panel):
    for fixed, start in (("......", "The model expects"), ("G..A..", "Given G..A.., the model")):
        values, result, _ = visited(panel, **GIVEN | {"fixed": fixed})
        assert panel.card(values, result).sentence.startswith(start)


def test_the_bundled_model_opens_on_a_6mer_that_its_model_expects():
    entry = real_entry("yeast")
    genome = Genome.open(str(entry.genome), str(entry.annotation))
    lab = Lab(load("yeast"), "yeast", genome, entry.folder, entry.known_genes)
    panel = Inside(lab)
    result = answered(panel, {})
    assert result["kmer"] == "GCTGCT" and result["rank"] == 1


def ids(result, name, column):
    (reading,) = [r for r in result["readings"] if r["name"] == name]
    return [token[column] for token in reading["tokens"]]


def test_ids_mask_and_places(panel):
    # ACGTAC is 0 2 3 1 0 2 in digits: 2*256 + 3*64 + 16 + 2 = 722.
    result = answered(panel, {"input": "ACGTACGTNACGACGTAC"})
    tokens = result["readings"][0]["tokens"]
    assert [t["native id"] for t in tokens][::3] == [2, 722 + 128]
    assert [t["hybrid id"] for t in tokens][::3] == [151_669, 722 + 151_672]
    assert [t["known"] for t in tokens] == ["", "111111", "110111", "111111"]
    assert [t["bases"] for t in tokens] == ["", "1-6", "7-12", "13-18"]
    assert ids(result, "reverse strand", "token")[1] == "GTACGT"


def test_a_variant_is_where_the_6mer_begins(panel):
    reference = panel.lab.genome.reference
    bases = reference.fetch(Interval("c1", 0, 700))
    change = f"c1:651 {bases[650]}>{'A' if bases[650] != 'A' else 'C'}"
    result = answered(panel, {"input": change})
    assert result["kmer"] == bases[650:656] and result["sequence"] == bases[278:656]
