"""Weights of soft-masked bases: the definition as a loop over bases, in fp64."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from carbon.errors import UserError
from carbon.losses import head_loss, log_likelihoods, nucleotide_loss
from carbon.losses.objectives import CE, FNS
from carbon.losses.soft_mask import SoftMask, bits_of_bases, soft_mask_counts
from tests.helpers.objectives import ALL_THREE, blend, random_head, smoothed
from train.distributed.pipeline import Pipeline
from train.saved import check_settings

N, D = 40, 16
OBJECTIVES = (CE, FNS, blend(0.4), smoothed(0.9), ALL_THREE)


@pytest.fixture(scope="module")
def case():
    """States, head, 6-mers, known bases, and bases in lower case, known or not."""
    hidden, weight, kmers, known = random_head(N, D)
    known[:12], known[12] = True, False
    masked = torch.rand(N, 6, generator=torch.Generator().manual_seed(1)) < 0.45
    masked[0], masked[1] = True, False
    return hidden, weight[32 : 32 + 4096], kmers, known, masked


def slow_loss(logits, kmers, known, masked, objective, w):
    """Return the mean of a batch: each term a sum over tokens, divided by its own sum."""
    sums, divisors = dict.fromkeys("tbu", 0.0), dict.fromkeys("tbu", 0.0)
    for n in range(len(logits)):
        log_p = logits[n].log_softmax(0)
        p = log_p.exp().view(4, 4, 4, 4, 4, 4)
        digits = [int(kmers[n]) // 4 ** (5 - j) % 4 for j in range(6)]
        weights = [w if masked[n, j] else 1.0 for j in range(6)]
        places = [j for j in range(6) if known[n, j]]
        for j in places:
            nats = -math.log(p.select(j, digits[j]).sum())
            sums["b"] += weights[j] * nats / len(places)
            divisors["b"] += weights[j] / len(places)
        if len(places) == 6:
            mean = sum(weights) / 6
            sums["t"] -= mean * float(log_p[kmers[n]])
            sums["u"] -= mean * float(log_p.mean())
            divisors["t"] += mean
            divisors["u"] += mean
    shares = {"t": objective.token, "b": objective.bases, "u": objective.uniform}
    return sum(shares[k] * sums[k] / divisors[k] for k in shares if shares[k])


def both_forms(case, objective, w, support="kmers"):
    """Return loss, sums and gradients of the plain and of the fused head."""
    for fused in (False, True):
        hidden, weight = (part.clone().requires_grad_() for part in case[:2])
        kmers, known, masked = case[2:]
        factors = SoftMask(w, soft_mask_counts(known, masked)).factors(known, masked, objective)
        if fused:
            options = {"factors": factors, "support": support, "chunk_tokens": 7}
            sums = head_loss(hidden, weight, kmers, known, objective, **options)
        else:
            uniform = objective.uniform > 0
            logits = hidden @ weight.T
            likelihoods = log_likelihoods(logits, kmers, support=support, uniform=uniform)
            sums = nucleotide_loss(likelihoods, known, objective, factors)
        sums.nats_per_token.backward()
        yield [part.detach().double() for part in sums], hidden.grad, weight.grad


@pytest.mark.parametrize(
    ("objective", "w"), [*((objective, 0.1) for objective in OBJECTIVES), (ALL_THREE, 0.01)]
)
def test_it_is_the_definition_and_the_fused_head_agrees(case, objective, w):
    hidden, weight, kmers, known, masked = case
    plain, fused = both_forms(case, objective, w)
    expected = slow_loss(hidden @ weight.T, kmers, known, masked, objective, w)
    assert float(plain[0][0] / plain[0][1]) == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-10)
    # What reports say does not depend on the weight.
    likelihoods = log_likelihoods(hidden @ weight.T, kmers, uniform=objective.uniform > 0)
    unweighted = nucleotide_loss(likelihoods, known, objective)
    torch.testing.assert_close(plain[0][1:], [part.double() for part in unweighted[1:]])


def test_over_the_whole_vocabulary_the_fused_head_agrees(case):
    plain, fused = both_forms(case, ALL_THREE, 0.1, "vocabulary")
    torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("objective", [FNS, ALL_THREE])
def test_gradient_against_finite_differences_of_the_definition(case, objective):
    hidden, weight, kmers, known, masked = (part[:14] for part in case)
    weight = case[1]
    (_, grad, _), _ = both_forms((hidden, weight, kmers, known, masked), objective, 0.1)
    generator = torch.Generator().manual_seed(2)
    direction = torch.randn(hidden.shape, generator=generator, dtype=torch.float64)
    h = 1e-5
    ends = [
        slow_loss((hidden + step * direction) @ weight.T, kmers, known, masked, objective, 0.1)
        for step in (h, -h)
    ]
    slope = (ends[0] - ends[1]) / (2 * h)
    assert float((grad * direction).sum()) == pytest.approx(slope, rel=1e-6)


def test_counts_of_parts_add_up_to_those_of_the_batch(case):
    """So that divisors are the same bit for bit in any division among processes."""
    known, masked = case[3:]
    packed = (torch.cat([known, masked], dim=1) << torch.arange(12)).sum(dim=1).short()
    assert torch.equal(bits_of_bases(packed), known)
    assert torch.equal(bits_of_bases(packed, 6), masked)
    whole = soft_mask_counts(known, masked)
    parts = [soft_mask_counts(known[at : at + 9], masked[at : at + 9]) for at in range(0, N, 9)]
    assert torch.equal(torch.stack(parts).sum(dim=0), whole)
    assert whole.dtype == torch.int64


@pytest.mark.parametrize("num_known", [0, 3])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_batch_without_whole_tokens_is_finite(objective, num_known):
    known = torch.arange(6).expand(3, 6) < num_known
    factors = SoftMask(0.1, soft_mask_counts(known, known)).factors(known, known, objective)
    assert all(bool(part.isfinite().all()) for part in factors)
    logits = torch.randn(3, 4096, requires_grad=True)
    kmers = torch.zeros(3, dtype=torch.int64)
    likelihoods = log_likelihoods(logits, kmers, uniform=objective.uniform > 0)
    loss = nucleotide_loss(likelihoods, known, objective, factors).loss
    loss.backward()
    assert bool(logits.grad.isfinite().all())
    assert (float(loss) == 0) == (num_known == 0 or objective.bases == 0)


def test_a_run_does_not_go_on_with_another_weight():
    before, now = ({"data.soft_mask_weight": weight} for weight in (1.0, 0.1))
    with pytest.raises(UserError, match=r"soft_mask_weight was 1.0, is 0.1; give"):
        check_settings(Path("run/checkpoints/00000001"), before, now, True)


def test_a_weight_of_one_has_no_factors():
    """So the loss is that of a run without weights, bit for bit."""
    pipeline = SimpleNamespace(_config=SimpleNamespace(data=SimpleNamespace(soft_mask_weight=1.0)))
    assert Pipeline._soft_mask(pipeline, []) is None
