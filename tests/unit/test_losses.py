"""The objectives against brute force over the 6-mers, finite differences and torch's own CE."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.losses import chain, log_likelihoods, marginals, nucleotide_loss
from tests.helpers.reference import KMERS, marginal, mass, softmax

NUM_TOKENS = 4


@pytest.fixture(scope="module")
def case():
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(NUM_TOKENS, 4096, generator=generator)
    kmers = torch.tensor([0, 4095, 1234, 77])
    known = torch.tensor(
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0]]
    ).bool()
    return logits, kmers, known


def test_marginals_against_brute_force(case):
    logits, _, _ = case
    found = marginals(logits).exp()
    for token in range(NUM_TOKENS):
        p = softmax(logits[token].tolist())
        for place in range(6):
            for number, base in enumerate("ATCG"):
                assert found[token, place, number].item() == pytest.approx(
                    marginal(p, place, base), rel=1e-4
                )


def test_likelihoods_against_brute_force(case):
    logits, kmers, _ = case
    found = log_likelihoods(logits, kmers)
    for token in range(NUM_TOKENS):
        p = softmax(logits[token].tolist())
        truth = KMERS[kmers[token]]
        assert found.token[token].item() == pytest.approx(math.log(p[kmers[token]]), rel=1e-5)
        for place in range(6):
            expected = math.log(marginal(p, place, truth[place]))
            assert found.bases[token, place].item() == pytest.approx(expected, rel=1e-4)


def test_chain_against_brute_force(case):
    logits, kmers, known = case
    found = chain(logits, kmers, known)
    for token in range(NUM_TOKENS):
        p = softmax(logits[token].tolist())
        pattern = before = "??????"
        for place in range(6):
            expected = 0.0
            if known[token, place]:
                base = KMERS[kmers[token]][place]
                pattern = before[:place] + base + before[place + 1 :]
                expected = math.log(mass(p, pattern) / mass(p, before))
                before = pattern
            assert found[token, place].item() == pytest.approx(expected, abs=1e-4)


def test_the_chain_multiplies_to_the_token(case):
    logits, kmers, _ = case
    everything = torch.ones(NUM_TOKENS, 6, dtype=torch.bool)
    sums = chain(logits, kmers, everything).sum(dim=1)
    torch.testing.assert_close(sums, log_likelihoods(logits, kmers).token)


def test_ce_is_that_of_torch(case):
    logits, kmers, _ = case
    everything = torch.ones(NUM_TOKENS, 6, dtype=torch.bool)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = nucleotide_loss(log_likelihoods(mine, kmers), everything, 0.0)
    expected = torch.nn.functional.cross_entropy(theirs, kmers, reduction="sum")
    torch.testing.assert_close(loss.loss, expected)
    assert loss.num_tokens == NUM_TOKENS
    loss.loss.backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_gradient_against_finite_differences(case, weight):
    """Central differences of the brute-force loss in float64, along random directions."""
    logits, kmers, known = case
    mine = logits.clone().requires_grad_()
    nucleotide_loss(log_likelihoods(mine, kmers), known, weight).loss.backward()

    def slow_loss(z: torch.Tensor) -> float:
        total = 0.0
        for token in range(NUM_TOKENS):
            p = z[token].double().softmax(0).view(4, 4, 4, 4, 4, 4)
            digits = [int(kmers[token]) // 4 ** (5 - j) % 4 for j in range(6)]
            places = [j for j in range(6) if known[token, j]]
            if len(places) == 6:
                total -= (1 - weight) * math.log(p[tuple(digits)])
            for j in places:
                total -= weight * math.log(p.select(j, digits[j]).sum()) / len(places)
        return total

    generator = torch.Generator().manual_seed(2)
    for _ in range(4):
        direction = torch.randn(NUM_TOKENS, 4096, generator=generator, dtype=torch.float64)
        h = 1e-4
        slope = (slow_loss(logits + h * direction) - slow_loss(logits - h * direction)) / (2 * h)
        assert (mine.grad.double() * direction).sum().item() == pytest.approx(slope, rel=2e-3)


def test_masks_choose_what_is_trained(case):
    logits, kmers, known = case
    likelihoods = log_likelihoods(logits, kmers)
    ce, fns = (nucleotide_loss(likelihoods, known, weight) for weight in (0.0, 1.0))
    assert (ce.num_tokens, fns.num_tokens) == (1, 3)
    torch.testing.assert_close(ce.loss, -likelihoods.token[0])
    # Rows 0, 1 and 2 have 6, 3 and 4 known bases.
    expected = sum(-likelihoods.bases[row][known[row]].mean() for row in range(3))
    torch.testing.assert_close(fns.loss, expected)


def test_what_is_unknown_gets_no_gradient(case):
    logits, kmers, known = case
    mine = logits.clone().requires_grad_()
    nucleotide_loss(log_likelihoods(mine, kmers), known, 1.0).loss.backward()
    assert mine.grad[3].abs().max() == 0
    # Token 1 knows its first three bases: only the 64 sums of the last three matter.
    by_prefix = (mine.grad[1] / logits[1].softmax(0)).view(64, 64)
    torch.testing.assert_close(by_prefix, by_prefix[:, :1].expand(64, 64), atol=1e-3, rtol=1e-3)


@given(st.floats(100, 3e4))
@settings(max_examples=20)
def test_hopeless_tokens_keep_their_gradient(height):
    """A probability that underflows in fp32 has a finite loss and pushes with full force."""
    logits = torch.zeros(2, 4096)
    logits[:, 0] = height
    logits.requires_grad_()
    likelihoods = log_likelihoods(logits, torch.tensor([4095, 1]))
    # 1,024 of 4,096 6-mers share a base with GGGGGG and not one of them is AAAAAA.
    expected = math.log(1024) - height
    assert likelihoods.bases[0].tolist() == pytest.approx([expected] * 6, rel=1e-5)
    assert likelihoods.bases[1, :5].tolist() == pytest.approx([0.0] * 5, abs=1e-5)
    loss = nucleotide_loss(likelihoods, torch.ones(2, 6, dtype=torch.bool), 1.0)
    loss.loss.backward()
    # dL/dz_0 = p_0 - 0 for the first token, where no base of AAAAAA is right.
    assert logits.grad[0, 0].item() == pytest.approx(1.0, abs=1e-5)
    assert logits.grad[0, 4095].item() == pytest.approx(-1 / 1024, rel=1e-4)
    # In the second token AAAAAA is wrong at the last base only: 1 - 5/6.
    assert logits.grad[1, 0].item() == pytest.approx(1 / 6, abs=1e-5)


def test_uniform_logits_know_nothing():
    likelihoods = log_likelihoods(torch.zeros(1, 4096), torch.tensor([1365]))
    assert likelihoods.bases.tolist() == [pytest.approx([math.log(0.25)] * 6)]


def test_bf16_logits_are_summed_in_fp32(case):
    logits, kmers, known = case
    rounded = logits.bfloat16()
    low = rounded.clone().requires_grad_()
    likelihoods = log_likelihoods(low, kmers)
    assert likelihoods.bases.dtype == torch.float32
    torch.testing.assert_close(likelihoods.bases, log_likelihoods(rounded.float(), kmers).bases)
    nucleotide_loss(likelihoods, known, 1.0).loss.backward()
    assert low.grad.dtype == torch.bfloat16
