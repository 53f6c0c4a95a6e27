"""The objectives against brute force over the 6-mers, finite differences and torch's own CE."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.losses import (
    LogLikelihoods,
    chain,
    chain_conditionals,
    chain_probabilities,
    log_likelihoods,
    marginals,
    nucleotide_loss,
)
from carbon.losses import marginal as marginal_of
from carbon.losses.objectives import CE, FNS
from carbon.tokenizer import encode, known_bases
from tests.helpers.objectives import blend
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


def test_conditionals_against_brute_force(case):
    """Every base at every place, given the known bases before it."""
    logits, kmers, known = case
    found = chain_conditionals(logits, kmers, known)
    probabilities = chain_probabilities(logits, kmers, known)
    for token in range(NUM_TOKENS):
        p = softmax(logits[token].tolist())
        before = "??????"
        for place in range(6):
            for number, base in enumerate("ATCG"):
                pattern = before[:place] + base + before[place + 1 :]
                expected = math.log(mass(p, pattern) / mass(p, before))
                assert found[token, place, number].item() == pytest.approx(expected, abs=1e-4)
                probability = probabilities[token, place, number].item()
                assert probability == pytest.approx(math.exp(expected), rel=1e-4)
            if known[token, place]:
                before = before[:place] + KMERS[kmers[token]][place] + before[place + 1 :]


def test_probabilities_of_bases_after_impossible_ones(case):
    logits, kmers, known = case
    found = chain_probabilities(60 * logits, kmers, known)
    assert chain(60 * logits, kmers, known).min() < -100  # exponentials underflow
    torch.testing.assert_close(found, chain_conditionals(60 * logits, kmers, known).exp())


def test_true_bases_of_conditionals_and_marginals(case):
    logits, kmers, known = case
    digits = kmers[:, None] // 4 ** torch.arange(5, -1, -1) % 4
    conditionals = chain_conditionals(logits, kmers, known).gather(2, digits[..., None])[..., 0]
    expected = torch.where(known, conditionals, 0.0)
    torch.testing.assert_close(chain(logits, kmers, known), expected)
    expected = torch.where(known, log_likelihoods(logits, kmers).bases, 0.0)
    torch.testing.assert_close(marginal_of(logits, kmers, known), expected)


def test_ce_is_that_of_torch(case):
    logits, kmers, _ = case
    everything = torch.ones(NUM_TOKENS, 6, dtype=torch.bool)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = nucleotide_loss(log_likelihoods(mine, kmers), everything, CE)
    expected = torch.nn.functional.cross_entropy(theirs, kmers, reduction="sum")
    torch.testing.assert_close(loss.loss, expected)
    assert loss.num_tokens == NUM_TOKENS
    loss.loss.backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-5)


def test_gradient_against_finite_differences(case):
    """Central differences of the brute-force loss in float64, along random directions."""
    logits, kmers, known = case
    weight = 0.3
    mine = logits.clone().requires_grad_()
    nucleotide_loss(log_likelihoods(mine, kmers), known, blend(weight)).loss.backward()

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
    ce, fns = (nucleotide_loss(likelihoods, known, objective) for objective in (CE, FNS))
    assert (ce.num_tokens, fns.num_tokens) == (1, 3)
    torch.testing.assert_close(ce.loss, -likelihoods.token[0])
    # Rows 0, 1 and 2 have 6, 3 and 4 known bases.
    expected = sum(-likelihoods.bases[row][known[row]].mean() for row in range(3))
    torch.testing.assert_close(fns.loss, expected)


def test_what_is_unknown_gets_no_gradient(case):
    logits, kmers, known = case
    mine = logits.clone().requires_grad_()
    nucleotide_loss(log_likelihoods(mine, kmers), known, FNS).loss.backward()
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
    loss = nucleotide_loss(likelihoods, torch.ones(2, 6, dtype=torch.bool), FNS)
    loss.loss.backward()
    # dL/dz_0 = p_0 - 0 for the first token, where no base of AAAAAA is right.
    assert logits.grad[0, 0].item() == pytest.approx(1.0, abs=1e-5)
    assert logits.grad[0, 4095].item() == pytest.approx(-1 / 1024, rel=1e-4)
    # In the second token AAAAAA is wrong at the last base only: 1 - 5/6.
    assert logits.grad[1, 0].item() == pytest.approx(1 / 6, abs=1e-5)


def test_bf16_logits_are_summed_in_fp32(case):
    logits, kmers, known = case
    rounded = logits.bfloat16()
    low = rounded.clone().requires_grad_()
    likelihoods = log_likelihoods(low, kmers)
    assert likelihoods.bases.dtype == torch.float32
    torch.testing.assert_close(likelihoods.bases, log_likelihoods(rounded.float(), kmers).bases)
    nucleotide_loss(likelihoods, known, FNS).loss.backward()
    assert low.grad.dtype == torch.bfloat16


def autograd_likelihoods(logits, kmers, first_kmer=0, support="kmers"):
    """The same by torch's own autograd: six masked sums over a plain softmax."""
    if support == "kmers":
        logits, first_kmer = logits[:, first_kmer : first_kmer + 4096], 0
    log_p = logits.log_softmax(dim=1)[:, first_kmer : first_kmer + 4096]
    places = 4 ** torch.arange(5, -1, -1)
    same = torch.arange(4096)[:, None] // places % 4 == (kmers[:, None] // places % 4)[:, None, :]
    inside = torch.where(same, log_p[:, :, None], -torch.inf)
    return log_p.gather(1, kmers[:, None])[:, 0], inside.logsumexp(dim=1)


@pytest.mark.parametrize(
    ("support", "first_kmer"), [("kmers", 0), ("kmers", 300), ("vocabulary", 128)]
)
def test_gradient_against_autograd(support, first_kmer):
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(5, 4096 + 2 * first_kmer, generator=generator, dtype=torch.float64)
    kmers = torch.randint(4096, (5,), generator=generator)
    forces = torch.randn(5, generator=generator), torch.randn(5, 6, generator=generator)
    grads = []
    for form in (log_likelihoods, autograd_likelihoods):
        z = logits.clone().requires_grad_()
        token, bases = form(z, kmers, first_kmer=first_kmer, support=support)[:2]
        ((token * forces[0]).sum() + (bases * forces[1]).sum()).backward()
        grads.append((token.detach(), bases.detach(), z.grad))
    torch.testing.assert_close(*grads, atol=1e-12, rtol=1e-9)


def test_sums_and_counts(case):
    logits, kmers, known = case
    likelihoods = log_likelihoods(logits, kmers)
    for weight in (0.0, 0.25, 1.0):
        sums = nucleotide_loss(likelihoods, known, blend(weight))
        assert (sums.num_chain_bases, sums.num_marginal_bases) == (6, 13)
        assert sums.num_tokens == (1 if weight == 0 else 3)
        torch.testing.assert_close(sums.nats_per_base, -likelihoods.token[0] / 6)
        expected = -likelihoods.bases[known].sum() / 13
        torch.testing.assert_close(sums.marginal_nats_per_base, expected)
        torch.testing.assert_close(sums.nats_per_token, sums.loss / sums.num_tokens)
    ce, fns, both = (nucleotide_loss(likelihoods, known, blend(w)).loss for w in (0.0, 1.0, 0.25))
    torch.testing.assert_close(both, 0.75 * ce + 0.25 * fns)


def test_nothing_to_train_is_zero_not_nan(case):
    logits, kmers, _ = case
    mine = logits.clone().requires_grad_()
    sums = nucleotide_loss(log_likelihoods(mine, kmers), torch.zeros(4, 6, dtype=torch.bool), FNS)
    sums.loss.backward()
    assert (sums.loss, sums.num_tokens, sums.nats_per_token, sums.nats_per_base) == (0, 0, 0, 0)
    assert mine.grad.abs().max() == 0


# The traps that public code falls into; see "Objectives" in docs/objectives.md.


def test_trap_rows_that_are_no_kmers_belong_to_no_base():
    """With half of the probability on other rows, every base loses half, A as much as G."""
    logits = torch.zeros(2, 128 + 4096)
    logits[:, :128] = math.log(4096 / 128)
    likelihoods = log_likelihoods(
        logits, torch.tensor([0, 4095]), first_kmer=128, support="vocabulary"
    )
    assert likelihoods.bases.flatten().tolist() == pytest.approx([math.log(1 / 8)] * 12)
    assert likelihoods.token.tolist() == pytest.approx([math.log(0.5 / 4096)] * 2)


def test_trap_the_padding_of_a_tail_is_not_trained():
    """Of the tail ACG only three bases count: what comes after them has no say."""
    encoding = encode("ACG")
    kmers = torch.from_numpy(encoding.kmers[1:])
    known = torch.from_numpy(known_bases(encoding.known[1:]))
    logits = torch.zeros(1, 4096, requires_grad=True)
    nucleotide_loss(log_likelihoods(logits, kmers), known, FNS).loss.backward()
    # Every 6-mer that begins with ACG is pushed alike, ACGAAA no more than ACGTTT.
    begins = [i for i, kmer in enumerate(KMERS) if kmer.startswith("ACG")]
    torch.testing.assert_close(logits.grad[0, begins], logits.grad[0, begins[:1]].expand(64))
    assert nucleotide_loss(log_likelihoods(logits, kmers), known, CE).num_tokens == 0


@pytest.mark.parametrize("height", [69.0, 88.0, 200.0])
def test_trap_marginals_below_the_smallest_float(height):
    """Where fp32 has lost S_j, or a clamp would, the gradient is that of fp64 all the same."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(3, 4096, generator=generator)
    logits[:, 0] += height
    kmers, known = torch.tensor([4095, 1, 64]), torch.ones(3, 6, dtype=torch.bool)
    grads = []
    for dtype, form in ((torch.float32, log_likelihoods), (torch.float64, autograd_likelihoods)):
        z = logits.to(dtype, copy=True).requires_grad_()
        token, bases = form(z, kmers)[:2]
        nucleotide_loss(LogLikelihoods(token, bases), known, blend(0.5)).loss.backward()
        grads.append(z.grad.double())
    torch.testing.assert_close(*grads, atol=1e-7, rtol=2e-4)


@pytest.mark.parametrize("shape", [(0,), (2, 3)])
def test_distributions_take_any_leading_shape(shape):
    generator = torch.Generator().manual_seed(6)
    logits = torch.randn(*shape, 4096, generator=generator)
    kmers = torch.randint(4096, shape, generator=generator)
    known = torch.rand(*shape, 6, generator=generator) < 0.7
    flat = chain(logits.view(-1, 4096), kmers.view(-1), known.view(-1, 6))
    torch.testing.assert_close(chain(logits, kmers, known), flat.view(*shape, 6))
    torch.testing.assert_close(
        marginals(logits), marginals(logits.view(-1, 4096)).view(*shape, 6, 4)
    )
    assert marginals(logits).exp().sum(dim=-1).flatten().tolist() == pytest.approx(
        [1.0] * (6 * kmers.numel())
    )
