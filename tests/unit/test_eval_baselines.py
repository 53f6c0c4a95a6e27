"""Baselines against dictionaries, and by hand."""

import numpy as np
import pytest

from carbon.genome import Reference, Variant
from eval.baselines import (
    VARIANT_BASELINES,
    CodonPeriodicModel,
    GcModel,
    MarkovModel,
    UniformModel,
)
from eval.contract import Reading
from eval.markov import Labelled, base_codes
from eval.windows import deltas_by_windows, windows_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.tasks import training_on

TRAIN = ["ACGTTGCAACGNTTACGACG" * 9, "GGGATTACAGGG" * 9, "acgt" * 40]


def test_gc_is_symmetric_and_by_share():
    share = (12 + 2) / (16 + 4)  # both strands, and each base once more
    (row,) = GcModel(training_on(0, ["GGGCGGAT"])).next_base([""])
    assert row == pytest.approx([(1 - share) / 2, share / 2, share / 2, (1 - share) / 2])


@pytest.mark.parametrize("order", [0, 4])
def test_likelihoods_are_those_of_the_next_bases(order, monkeypatch):
    """Of whole sequences, in blocks, and base by base."""
    monkeypatch.setattr("eval.baselines._BLOCK_BP", 7)
    model = MarkovModel(order, training_on(order, TRAIN))
    sequence = "ACGGTNACGTTGAacgttgca"
    prefixes = [sequence[:at] for at in range(len(sequence))]
    rows = np.log(model.next_base(prefixes))
    assert np.exp(rows).sum(axis=1) == pytest.approx(np.ones(len(rows)))
    expected = [
        0.0 if base not in "ACGT" else row["ACGT".index(base)]
        for base, row in zip(sequence.upper(), rows, strict=True)
    ]
    assert model.base_log_likelihoods([sequence])[0] == pytest.approx(expected)
    assert model.log_likelihoods([sequence, ""]) == pytest.approx([sum(expected), 0])


def test_markov_generates_the_likeliest_and_recalls_by_its_last_bases():
    model = MarkovModel(2, training_on(2, ["AAC" * 60]))
    assert model.generate(["TTAC", "CA"], 7) == ["AACAACA", "ACAACAA"]
    text, likelihoods = model.recall("T" * 50 + "AC", 3, ["AAC", "TTT"])
    whole = model.log_likelihoods(["T" * 50 + "AC" + end for end in ("AAC", "TTT", "")])
    assert text == "AAC" and likelihoods == pytest.approx(whole[:2] - whole[2])


def test_probabilities_of_words_are_products_of_next_bases():
    model = MarkovModel(3, training_on(3, [random_bases(3000, 4)]))
    sequence, words = random_bases(30, 5), ["TAA", "CTA"]
    found = model.word_probabilities(sequence, words)
    for at in (0, 1, 7, 29):
        for column, word in enumerate(words):
            rows = model.next_base([sequence[:at] + word[:n] for n in range(3)])
            expected = np.prod([row["ACGT".index(b)] for row, b in zip(rows, word, strict=True)])
            assert found[at, column] == pytest.approx(expected)


def test_the_codon_periodic_model_continues_its_own_likelihood():
    states = np.resize([0, 1, 2], 900).astype(np.int8)
    train = [Labelled(base_codes(random_bases(900, n)), states) for n in range(3)]
    model = CodonPeriodicModel(3, train)
    prompt = random_bases(60, 9)
    (row,) = model.next_base([prompt])
    both = model.log_likelihoods([prompt, *(prompt + base for base in "ACGT")])
    assert np.log(row) == pytest.approx(both[1:] - both[0])
    (text,) = model.generate([prompt], 5)
    expected = ""
    for _ in range(5):
        expected += "ACGT"[int(model.next_base([prompt + expected])[0].argmax())]
    assert text == expected


def test_chance_is_a_lot_that_does_not_change():
    model = UniformModel()
    prompts = [random_bases(50, n) for n in range(200)]
    assert model.generate(prompts, 30) == model.generate(prompts, 30, "base")
    hits = [a == b for n, t in enumerate(model.generate(prompts, 30)) for a, b in
            zip(t, random_bases(30, 1000 + n), strict=True)]  # fmt: skip
    assert np.mean(hits) == pytest.approx(0.25, abs=0.03)
    pairs = [(random_bases(60, n), random_bases(60, 500 + n)) for n in range(400)]
    differences = model.differences(pairs)
    assert np.all(differences != 0) and np.mean(differences > 0) == pytest.approx(0.5, abs=0.08)
    assert model.log_likelihoods(["ACGTN"]) == pytest.approx([-4 * np.log(4)], abs=1e-5)


BASES = random_bases(400, 9)


@pytest.fixture
def reference(tmp_path):
    with Reference(write_fasta(tmp_path / "r.fa", {"c": BASES})) as found:
        yield found


def test_transitions_and_cpg_by_hand(tmp_path):
    with Reference(write_fasta(tmp_path / "h.fa", {"c": "TTCGAACC"})) as reference:
        asked = {
            Variant("c", 2, "C", "T"): (0, 0),  # transition of the C of CG
            Variant("c", 3, "G", "A"): (0, 0),  # and of its G
            Variant("c", 2, "C", "A"): (-1, -1),
            Variant("c", 6, "C", "T"): (0, -1),  # transition outside CG
            Variant("c", 7, "C", "T"): (0, -1),  # at the very end
            Variant("c", 0, "T", "C"): (0, -1),
            Variant("c", 0, "T", "TA"): (-1, -1),
            Variant("c", 0, "T", "<DEL>"): (None, None),
        }
        for column, name in enumerate(("transition/transversion", "CpG")):
            model = VARIANT_BASELINES[name]()
            found = model.deltas(reference, list(asked), Reading("centered", 8, "forward"))
            assert found == [expected[column] for expected in asked.values()]
    markov = MarkovModel(1, training_on(1, [random_bases(300, 4)]))
    with Reference(write_fasta(tmp_path / "n.fa", {"c": "ACGTNACGTA"})) as reference:
        unknown, known = Variant("c", 4, "A", "C"), Variant("c", 6, "C", "A")
        deltas = markov.deltas(reference, [unknown, known], Reading("centered", 8, "forward"))
    assert [delta is None for delta in deltas] == [True, False]


STRANDS = {"+": "forward", "-": "reverse"}


@pytest.mark.parametrize(
    ("protocol", "strands"),
    [("centered", "forward"), ("right_end", "reverse"), ("centered", "both"), ("tiled", "both")],
)
def test_a_local_model_needs_no_more_than_its_order(reference, protocol, strands):
    model = MarkovModel(3, training_on(3, [random_bases(3000, 4)]))
    reading = Reading(protocol, 120, strands)
    variants = [
        Variant("c", at, BASES[at], alt) for at in range(0, 400, 29) for alt in "AC"
        if alt != BASES[at]
    ]  # fmt: skip
    variants.append(Variant("c", 50, BASES[50:53], "A"))
    for some in (variants[:-1], variants):
        fast = model.deltas(reference, some, reading)
        slow = deltas_by_windows(model, reference, some, reading)
        assert fast == pytest.approx(slow)
    (variant,) = [v for v in variants if v.position == 203][:1]
    expected = []
    for strand in {"forward": "+", "reverse": "-", "both": "+-"}[strands]:
        (window,) = windows_of(reference, variant, reading._replace(strands=STRANDS[strand]), 60)
        ref, alt = model.log_likelihoods([window.left + window.ref, window.left + window.alt])
        expected.append(alt - ref)
    (found,) = model.deltas(reference, [variant], reading)
    assert found == pytest.approx(np.mean(expected))
