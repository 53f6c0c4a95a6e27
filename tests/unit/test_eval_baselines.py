"""Baselines against dictionaries, and by hand."""

from collections import Counter

import numpy as np
import pytest

from carbon.errors import UserError
from carbon.genome import Reference, Variant, reverse_complement
from carbon.genome.normalize import normalize_variant
from eval.baselines import (
    CpgModel,
    GcModel,
    MarkovModel,
    TransitionModel,
    UniformModel,
    word_tables,
)
from eval.contract import Reading
from eval.windows import deltas_by_windows, windows_of
from tests.helpers.files import random_bases, write_fasta

TRAIN = ["ACGTTGCAACGNTTACGACG", "GGGATTACAGGG", "acgt" * 9]


def counts_of(length: int) -> Counter:
    counts: Counter = Counter()
    for sequence in TRAIN:
        for at in range(len(sequence) - length + 1):
            counts[sequence[at : at + length].upper()] += 1
    return counts


def by_dictionary(sequence: str, order: int) -> list[float]:
    """Probability of every base, the orders blended one after another; 1 where unknown."""
    top = counts_of(order + 1)
    found = []
    for at, base in enumerate(sequence.upper()):
        if base not in "ACGT":
            found.append(1.0)
            continue
        p = dict.fromkeys("ACGT", 0.25)
        for depth in range(order + 1):
            context = sequence[max(at - depth, 0) : at].upper()
            if len(context) < depth or not set(context) <= set("ACGT"):
                break
            # Counts of lower orders are those of the words of the highest order that end so.
            count = {
                b: sum(
                    n for w, n in top.items() if w.endswith(context + b) and set(w) <= set("ACGT")
                )
                for b in "ACGT"
            }
            total = sum(count.values())
            p = {b: (count[b] + 4 * p[b]) / (total + 4) for b in "ACGT"}
        found.append(p[base])
    return found


@pytest.mark.parametrize("order", [0, 1, 4])
def test_markov_against_a_dictionary(order):
    model = MarkovModel(order, word_tables(order, TRAIN))
    sequence = "ACGGTNACGTTGAacgttgca"
    expected = np.log(by_dictionary(sequence, order))
    assert model.base_log_likelihoods(sequence) == pytest.approx(expected)
    assert model.log_likelihoods([sequence, ""]) == pytest.approx([expected.sum(), 0])
    (row,) = model.next_base([sequence])
    for base, p in zip("ACGT", row, strict=True):
        assert p == pytest.approx(by_dictionary(sequence + base, order)[-1])
    assert row.sum() == pytest.approx(1)


def test_lower_orders_of_one_fit_are_those_of_a_fit_of_their_own():
    """But for the first few bases of each sequence, which end no word of the highest order."""
    sequences = [random_bases(5000, seed) for seed in range(3)]
    high, low = word_tables(6, sequences), word_tables(2, sequences)
    for ours, theirs in zip(high, low, strict=False):
        assert 0 <= theirs.astype(int).sum() - ours.astype(int).sum() <= 3 * 6
        assert ours.dtype == np.uint32
    # Four bytes a word: order 12 takes 358 MB with the orders below it.
    assert sum(table.nbytes for table in high) == sum(4 * 4**length for length in range(1, 8))


def test_words_are_counted_across_blocks(monkeypatch):
    sequence = random_bases(1000, 1)
    whole = word_tables(4, [sequence])
    monkeypatch.setattr("eval.markov._BLOCK_BP", 37)
    monkeypatch.setattr("eval.baselines._BLOCK_BP", 41)
    for ours, theirs in zip(whole, word_tables(4, [sequence]), strict=True):
        assert np.array_equal(ours, theirs)
    model = MarkovModel(4, whole)
    expected = [np.log(model.next_base([sequence[:n]])[0]["ACGT".index(b)])
                for n, b in enumerate(sequence[:100])]  # fmt: skip
    assert model.base_log_likelihoods(sequence[:100]) == pytest.approx(expected)


def test_markov_generates_the_likeliest_and_recalls_by_its_last_bases():
    model = MarkovModel(2, word_tables(2, ["ACGACGACGACG"]))
    assert model.generate(["TTAC", "GA"], 7) == ["GACGACG", "CGACGAC"]
    text, likelihoods = model.recall("T" * 50 + "AC", 3, ["GAC", "TTT"])
    whole = model.log_likelihoods(["T" * 50 + "AC" + end for end in ("GAC", "TTT", "")])
    assert text == "GAC" and likelihoods == pytest.approx(whole[:2] - whole[2])


def test_gc_is_symmetric_and_by_share():
    model = GcModel(word_tables(0, ["GGGCGGAT"]))
    row = model.next_base([""])[0]
    share = (6 + 2) / (8 + 4)  # each base once more
    assert row == pytest.approx([(1 - share) / 2, share / 2, share / 2, (1 - share) / 2])


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


@pytest.fixture
def reference(tmp_path):
    with Reference(write_fasta(tmp_path / "r.fa", {"c": random_bases(400, 9)})) as found:
        yield found


def snvs(reference):
    bases = reference.fetch(_whole(reference))
    return [
        Variant("c", at, bases[at], alt)
        for at in range(0, 400, 7)
        for alt in "ACGT"
        if alt != bases[at]
    ]


def _whole(reference):
    from carbon.genome import Interval

    return Interval("c", 0, reference.contig_lengths_bp["c"])


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
        for model, column in ((TransitionModel(), 0), (CpgModel(), 1)):
            found = model.deltas(reference, list(asked), Reading("centered", 8, "forward"))
            assert found == [expected[column] for expected in asked.values()]


STRANDS = {"+": "forward", "-": "reverse"}


@pytest.mark.parametrize(
    ("protocol", "strands"),
    [("centered", "forward"), ("right_end", "reverse"), ("centered", "both")],
)
def test_a_local_model_needs_no_more_than_its_order(reference, protocol, strands):
    model = MarkovModel(3, word_tables(3, [random_bases(3000, 4)]))
    reading = Reading(protocol, 120, strands)
    variants = [*snvs(reference), Variant("c", 50, reference_base(reference, 50, 3), "A")]
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


def test_a_ref_that_the_reference_does_not_know_has_no_delta(tmp_path):
    model = MarkovModel(1, word_tables(1, [random_bases(300, 4)]))
    with Reference(write_fasta(tmp_path / "n.fa", {"c": "ACGTNACGTA"})) as reference:
        variants = [Variant("c", 4, "A", "C"), Variant("c", 6, "C", "A")]
        unknown, known = model.deltas(reference, variants, Reading("centered", 8, "forward"))
    assert unknown is None and known is not None


def reference_base(reference, position, length_bp=1):
    from carbon.genome import Interval

    return reference.fetch(Interval("c", position, position + length_bp))


def test_windows_by_hand(reference):
    sequence = reference.fetch(_whole(reference))
    variant = Variant("c", 100, sequence[100], "ACGT"[("ACGT".index(sequence[100]) + 1) % 4])
    centered, right_end = Reading("centered", 8, "both"), Reading("right_end", 50, "forward")
    window, turned = windows_of(reference, variant, centered, 4)
    assert (window.left, window.ref) == (sequence[96:100], sequence[100:104])
    assert window.alt == variant.alt + sequence[101:104]
    assert turned.left + turned.ref == reverse_complement(window.left + window.ref)
    assert turned.left + turned.alt == reverse_complement(window.left + window.alt)
    deletion = Variant("c", 100, sequence[100:103], sequence[100])
    assert normalize_variant(reference, deletion) is deletion
    window = windows_of(reference, deletion, centered, 4)[0]
    assert window.ref == sequence[100:104]
    assert window.alt == sequence[100] + sequence[103:106]
    (edge,) = windows_of(reference, Variant("c", 2, sequence[2], variant.alt), right_end, 25)
    assert edge.left == sequence[:2] and len(edge.ref) == 1


def test_orders_out_of_range_and_nothing_to_fit_on_are_refused():
    for order, sequences, message in ((13, TRAIN, "order 13"), (5, ["ACGTNACG", ""], "no 6 known")):
        with pytest.raises(UserError, match=message):
            word_tables(order, sequences)
