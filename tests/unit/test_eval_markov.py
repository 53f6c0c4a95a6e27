"""Interpolated Markov models, and the codon-periodic one, against slow independent paths."""

import itertools
import math

import numpy as np
import pytest

from carbon.errors import UserError
from carbon.genome import reverse_complement
from eval.markov import (
    NONCODING,
    NUM_STATES,
    TURNED,
    CodonPeriodic,
    Interpolated,
    Labelled,
    base_codes,
    contexts_of,
    forward,
    states_of,
)
from tests.helpers.files import random_bases
from tests.helpers.tasks import training_on

TRAIN = ["ACGTTGCAACGNTTACGACG" * 3, "GGGATTACAGGGTTTACCAGAT" * 4, "acgt" * 20]


def log_likelihoods(model, sequence):
    codes = base_codes(sequence)
    rows = model.probabilities(contexts_of(codes))
    return np.log(rows[np.arange(len(codes)), codes % 4])


def words_by_hand(order, sequences, piece_bp):
    """Count words of a highest order, on both strands of the pieces that training is cut into."""
    counts = {}
    pieces = [s[at : at + piece_bp] for s in sequences for at in range(0, len(s), piece_bp)]
    for piece in pieces:
        for text in (piece.upper(), reverse_complement(piece.upper())):
            for at in range(order, len(text)):
                word = text[at - order : at + 1]
                if "N" not in word:
                    counts[word] = counts.get(word, 0) + 1
    return counts


@pytest.mark.parametrize(("highest", "dense_order"), [(3, 12), (5, 2)])
def test_counts_of_every_order_against_a_dictionary(highest, dense_order, monkeypatch):
    """By table and by sorting."""
    monkeypatch.setattr("eval.markov._DENSE_ORDER", dense_order)
    total_bp = sum(map(len, TRAIN))
    counts = training_on(highest, TRAIN).counts
    by_hand = words_by_hand(highest, TRAIN, total_bp // 20)
    assert counts.of_bases().tolist() == [
        sum(n for word, n in by_hand.items() if word[-1] == base) for base in "ACGT"
    ]
    for text in ("ACG", "TTA", "GGG", "CCC", "ACGTACGTACGTACGTACGT"):
        last = contexts_of(base_codes(text + "A")).at(slice(-1, None))
        for order, seen in enumerate(counts.seen(last, highest)):
            tail = text[len(text) - order :]
            wanted = np.array([
                sum(n for word, n in by_hand.items() if word.endswith(tail + base))
                for base in "ACGT"
            ])  # fmt: skip
            if len(text) < order:
                wanted[:] = 0
            assert seen.shares[0] == pytest.approx(wanted / max(wanted.sum(), 1))
            assert (seen.buckets[0] == 0) == (wanted.sum() == 0)


def test_orders_out_of_range_and_nothing_to_fit_on_are_refused():
    with pytest.raises(UserError, match="order 17"):
        training_on(17, TRAIN)
    with pytest.raises(UserError, match="no 6 known"):
        training_on(5, ["ACGTNACG", ""])


def test_an_unknown_base_ends_the_context():
    assert contexts_of(base_codes("ACNGT")).depths.tolist() == [0, 1, 2, 0, 1]
    long = contexts_of(base_codes("C" * 20))
    assert long.depths.tolist() == [*range(16), 16, 16, 16, 16]
    # C is 01: sixteen of them are 0x55555555; one is in the highest two bits.
    assert long.keys[-1] == 0x55555555 and long.keys[1] == 0x40000000
    assert contexts_of(base_codes("")).keys.shape == (0,)


@pytest.mark.parametrize("order", [0, 16])
def test_probabilities_sum_to_one_in_every_state(order):
    model = CodonPeriodic(order, [labelled(random_bases(1500, 4), 30, 1200)])
    contexts = contexts_of(base_codes(random_bases(200, 5) + "NNACGTN" + TRAIN[0]))
    for each in model._models:
        rows = each.probabilities(contexts)
        assert rows.sum(axis=1) == pytest.approx(np.ones(len(rows)))
        assert (rows > 0).all()


def labelled(sequence, start, end):
    return Labelled(base_codes(sequence), states_of(len(sequence), [("+", [(start, end)], 0)]))


def test_interpolation_finds_what_single_orders_cannot():
    """A long word comes back: high orders know it; random bases between are a quarter each."""
    word = random_bases(200, 1)
    train = [random_bases(4000, n) + word for n in range(2, 22)]
    model = Interpolated(16, training_on(16, train))
    found = log_likelihoods(model, random_bases(4000, 99) + word)
    assert -found[4020:].mean() < 0.2
    assert -found[:4000].mean() == pytest.approx(math.log(4), abs=0.06)
    turned = log_likelihoods(model, reverse_complement(word))
    assert -turned[20:].mean() < 0.2


def test_weights_come_from_pieces_that_the_counts_lack():
    """Of random bases nothing can be learned: weights of high orders must be near zero."""
    model = Interpolated(8, training_on(8, [random_bases(10_000, 3)]))
    contexts = contexts_of(base_codes(random_bases(10_000, 3)))
    rows = model.probabilities(contexts)
    # Seen before, base for base: who trusted the counts would give the true base more than 0.9.
    truth = rows[np.arange(len(rows)), base_codes(random_bases(10_000, 3))]
    assert truth.mean() < 0.35


def test_forward_against_all_paths():
    random = np.random.default_rng(0)
    start = random.dirichlet(np.ones(3))
    transitions = random.dirichlet(np.ones(3), size=3)
    emissions = random.random((5, 3))
    found, states = forward(start, transitions, emissions)
    assert states.sum() == pytest.approx(1)
    totals = []
    for length in range(1, 6):
        total = 0.0
        for path in itertools.product(range(3), repeat=length):
            p = start[path[0]] * emissions[0, path[0]]
            for at in range(1, length):
                p *= transitions[path[at - 1], path[at]] * emissions[at, path[at]]
            total += p
        totals.append(total)
    assert np.cumprod(found) == pytest.approx(totals)


def test_states_of_both_strands_and_of_introns():
    states = states_of(20, [("+", [(1, 3), (5, 9)], 0), ("-", [(10, 16)], 1)])
    # Codons of the first: 1 2 5, 6 7 8. The second is read from 15 down; 15 is before its codon.
    assert states.tolist() == [6, 0, 1, 6, 6, 2, 0, 1, 2, 6, 4, 3, 5, 4, 3, 5, 6, 6, 6, 6]
    assert TURNED[TURNED].tolist() == list(range(NUM_STATES)) and TURNED[NONCODING] == NONCODING


def coding(num_codons, seed):
    """Return codons whose three places hold different bases."""
    random = np.random.default_rng(seed)
    places = [random.choice(list(bases), num_codons) for bases in ("AG", "CT", "ACGT")]
    return "".join(map("".join, zip(*places, strict=True)))


def test_the_frame_is_inferred():
    """Codons of known pattern: two of three bases cost ln 2, wherever the frame begins."""
    train = []
    for seed in range(12):
        text = random_bases(300, seed) + coding(400, seed) + random_bases(300, seed + 50)
        train.append(labelled(text, 300, 1500))
    model = CodonPeriodic(4, train)
    wanted = (2 * math.log(2) + math.log(4)) / 3
    for shift in range(3):
        text = coding(400, 99)[shift:]
        for strand in (text, reverse_complement(text)):
            assert -model.base_log_likelihoods(base_codes(strand))[60:].mean() == pytest.approx(
                wanted, abs=0.06
            )
    assert -model.base_log_likelihoods(base_codes(random_bases(900, 77))).mean() < 1.42
    found = model.base_log_likelihoods(base_codes("ACNGT"))
    assert (found == 0).tolist() == [False, False, True, False, False]
    assert model.states_after(base_codes("ACGT")).sum() == pytest.approx(1)
