"""The next 6-mer, against a whole stock forward and plain sums."""

import json
import math

import numpy as np
import pytest
import torch

from carbon.cli import main
from carbon.errors import UserError
from carbon.inference import all_kmers, kmer_index, near_misses
from carbon.losses import log_likelihoods, nucleotide_loss
from carbon.losses.objectives import CE, FNS
from carbon.model import save_model
from tests.helpers.files import random_bases
from tests.helpers.reference import INDEX, KMERS, marginal, mass, stock_distribution

CONTEXT = random_bases(30, seed=5)


def test_it_is_what_a_stock_forward_gives(model, network):
    token = model.next_token(CONTEXT)
    expected = stock_distribution(network, CONTEXT)
    np.testing.assert_allclose(token.probabilities, expected, rtol=1e-4, atol=1e-9)
    for place in range(6):
        for n, base in enumerate("ATCG"):
            of_base = marginal(expected.tolist(), place, base)
            assert token.marginals[place, n] == pytest.approx(of_base, rel=1e-4)


def test_the_6mer_begins_right_behind_a_context_of_any_length(model):
    expected = model.next_token(CONTEXT).probabilities
    for extra_bp in range(1, 6):
        longer = model.next_token("GATTC"[:extra_bp] + CONTEXT.lower())
        assert longer.context == CONTEXT
        assert np.array_equal(longer.probabilities, expected)


def test_the_end_of_a_long_context_is_read(model, network):
    long = random_bases(6 * 100 + 2, seed=6)
    token = model.next_token(long)
    assert token.context == long[-6 * 47 :]  # 48 positions, one for <dna>
    expected = stock_distribution(network, token.context)
    np.testing.assert_allclose(token.probabilities, expected, rtol=1e-4, atol=1e-9)
    tagged = model.next_token(long, tags=["<fungi_species>"])
    assert tagged.context == long[-6 * 46 :]


def test_without_context_and_with_unknown_bases(model, network):
    for context in ("", "ACGTNACGTACG"):
        expected = stock_distribution(network, context)
        token = model.next_token(context)
        np.testing.assert_allclose(token.probabilities, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("pattern", ["..TA..", "ACG.C.", "ACGTCG"])
def test_fixed_bases_against_explicit_sums(model, pattern):
    token = model.next_token(CONTEXT)
    p = token.probabilities.astype(float).tolist()
    wanted = pattern.replace(".", "?")
    whole = mass(p, wanted)
    given = token.given(pattern.lower())
    assert given.fixed == pattern and given.context == CONTEXT
    for kmer in [*KMERS[::37], pattern.replace(".", "A")]:
        agrees = all(w in (".", h) for w, h in zip(pattern, kmer, strict=True))
        expected = p[INDEX[kmer]] / whole if agrees else 0.0
        assert given.probabilities[INDEX[kmer]] == pytest.approx(expected, rel=1e-4, abs=1e-12)
    for place in range(6):
        for n, base in enumerate("ATCG"):
            both = wanted[:place] + base + wanted[place + 1 :]
            agrees = pattern[place] in (".", base)
            expected = mass(p, both) / whole if agrees else 0.0
            assert given.marginals[place, n] == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_fixing_one_by_one_is_fixing_at_once(model):
    token = model.next_token(CONTEXT)
    stepwise, at_once = token.given("A.....").given("...C.."), token.given("A..C..")
    assert stepwise.fixed == at_once.fixed == "A..C.."
    np.testing.assert_allclose(stepwise.probabilities, at_once.probabilities, rtol=1e-5)
    with pytest.raises(UserError, match="no 6-mer"):
        token.given("A.....").given("T.....")


def test_a_tail_conditions_as_in_generation(model):
    step = next(iter(model.stream(CONTEXT + "AC", 4, mode="chain")))
    given = model.next_token(CONTEXT).given("AC....")
    np.testing.assert_allclose(step.alternatives[0], given.marginals[2], rtol=1e-4)


def test_losses_are_those_of_training(model):
    token = model.next_token(CONTEXT)
    z = torch.from_numpy(token.log_probabilities)
    known = torch.ones(1, 6, dtype=torch.bool)
    for kmer in ["ACGTAC", *near_misses("ACGTAC")]:
        found = log_likelihoods(z[None], torch.tensor([INDEX[kmer]]))
        for objective, losses in ((CE, token.cross_entropy_nats), (FNS, token.fns_nats)):
            expected = nucleotide_loss(found, known, objective).nats_per_token.item()
            assert losses[INDEX[kmer]] == pytest.approx(expected, rel=1e-5)


def test_ranked_and_names(model):
    given = model.next_token(CONTEXT).given("A.C...")
    ranked = given.ranked()
    assert len(ranked) == 4**4 and sum(p for _, p in ranked) == pytest.approx(1, rel=1e-5)
    assert all(kmer[0] == "A" and kmer[2] == "C" for kmer, _ in ranked)
    assert [p for _, p in ranked] == sorted((p for _, p in ranked), reverse=True)
    assert all_kmers() == KMERS
    assert kmer_index("acgtac") == INDEX["ACGTAC"]
    near = list(near_misses("acgtac"))
    assert len(set(near)) == 18
    assert all(sum(a != b for a, b in zip(k, "ACGTAC", strict=True)) == 1 for k in near)


def test_what_is_no_context_6mer_or_pattern_is_refused(model):
    for fixed in ("A....", "A......", "N.....", "<b>..."):
        with pytest.raises(UserError, match="six letters"):
            model.next_token("").given(fixed)
    for wrong in ("ACGTA", "ACGTAN", ""):
        with pytest.raises(UserError, match="six letters, each one of ACGT"):
            kmer_index(wrong)
    with pytest.raises(UserError, match="'!'"):
        model.next_token("ACGT!")
    with pytest.raises(UserError, match="<dragon>"):
        model.next_token("ACGT", tags=["<dragon>"])


def test_the_command(model, tmp_path, capsys):
    save_model(model.model.network, tmp_path / "model")
    words = ["next", "--model", str(tmp_path / "model"), "--prompt", f"GA{CONTEXT}"]
    assert main(words) == 0
    settings, header, *rows = capsys.readouterr().out.splitlines()
    assert json.loads(settings[1:])["context"] == CONTEXT
    assert header.split("\t") == ["kmer", "probability", "cross_entropy_nats", "fns_nats"]
    assert len(rows) == 4096
    kmer, p, cross_entropy, _ = rows[0].split("\t")
    token = model.next_token(CONTEXT)
    assert kmer == KMERS[token.probabilities.argmax()]
    assert float(p) == pytest.approx(math.exp(-float(cross_entropy)), rel=1e-5)
    output = tmp_path / "next.tsv"
    assert main([*words, "--fixed", "AC...G", "--output", str(output)]) == 0
    rows = output.read_text().splitlines()[2:]
    given = token.given("AC...G")
    assert len(rows) == 64 and capsys.readouterr().out == ""
    for row in rows:
        kmer, p, _, fns = row.split("\t")
        assert float(p) == pytest.approx(float(given.probabilities[INDEX[kmer]]), rel=1e-5)
        assert float(fns) == pytest.approx(float(token.fns_nats[INDEX[kmer]]), rel=1e-5)
