"""The uniform part of an objective, and label smoothing by it, against torch's own autograd."""

import pytest
import torch

from carbon.losses import head_loss, log_likelihoods, nucleotide_loss
from carbon.losses.objectives import Objective
from tests.helpers.objectives import ALL_THREE, random_head, smoothed

N, D, FIRST_KMER = 24, 12, 32
UNIFORM = Objective(uniform=1.0)


@pytest.fixture(scope="module")
def case():
    hidden, weight, kmers, known = random_head(N, D)
    known[:8], known[8] = True, False
    return hidden, weight, kmers, known


def plain_loss(logits, kmers, known, objective, support):
    """Compute the loss as the definition reads, token by token."""
    if support == "kmers":
        log_p = logits[:, FIRST_KMER : FIRST_KMER + 4096].log_softmax(dim=1)
    else:
        log_p = logits.log_softmax(dim=1)[:, FIRST_KMER : FIRST_KMER + 4096]
    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4
    total = 0.0
    for row, kmer, mask in zip(log_p, kmers, known, strict=True):
        places = [j for j in range(6) if mask[j]]
        if len(places) == 6:
            total = total - objective.token * row[kmer] - objective.uniform * row.sum() / 4096
        for j in places:
            agreeing = row[digits[:, j] == digits[kmer, j]]
            total = total - objective.bases * agreeing.exp().sum().log() / len(places)
    return total


def with_gradients(loss_of, case, *arguments):
    hidden, weight = (part.clone().requires_grad_() for part in case[:2])
    loss = loss_of(hidden, weight, *case[2:], *arguments)
    loss.backward()
    return loss.detach(), hidden.grad, weight.grad


def plain(hidden, weight, kmers, known, objective, support):
    return plain_loss(hidden @ weight.T, kmers, known, objective, support)


def of_likelihoods(hidden, weight, kmers, known, objective, support):
    likelihoods = log_likelihoods(
        hidden @ weight.T, kmers, first_kmer=FIRST_KMER, support=support, uniform=True
    )
    return nucleotide_loss(likelihoods, known, objective).loss


def fused(chunk_tokens):
    def loss(hidden, weight, kmers, known, objective, support):
        options = {"first_kmer": FIRST_KMER, "support": support, "chunk_tokens": chunk_tokens}
        return head_loss(hidden, weight, kmers, known, objective, **options).loss

    return loss


@pytest.mark.parametrize(
    ("objective", "support"),
    [(UNIFORM, "kmers"), (smoothed(0.1), "vocabulary"), (ALL_THREE, "kmers")],
)
def test_loss_and_gradients_against_autograd(case, objective, support):
    expected = with_gradients(plain, case, objective, support)
    for form in (of_likelihoods, fused(7), fused(None)):
        found = with_gradients(form, case, objective, support)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_it_is_the_label_smoothing_of_torch(case, share):
    hidden, weight, kmers, _ = case
    whole = (kmers, torch.ones(N, 6, dtype=torch.bool))
    rows = weight[FIRST_KMER : FIRST_KMER + 4096]

    def of_torch(h, w, targets, _):
        logits = h @ w.T
        smoothing = {"label_smoothing": share, "reduction": "sum"}
        return torch.nn.functional.cross_entropy(logits, targets, **smoothing)

    def ours(h, w, targets, known):
        return head_loss(h, w, targets, known, smoothed(share)).loss

    found, expected = (with_gradients(form, (hidden, rows, *whole)) for form in (ours, of_torch))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("height", [75.0, 200.0])
def test_where_marginals_underflow(height):
    """In fp32, where S_j is lost and the gradient of a token is computed anew."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(3, 4096, generator=generator)
    logits[:, 0] += height
    kmers, known = torch.tensor([4095, 1, 64]), torch.ones(3, 6, dtype=torch.bool)
    z = logits.clone().requires_grad_()
    likelihoods = log_likelihoods(z, kmers, uniform=True)
    nucleotide_loss(likelihoods, known, ALL_THREE).loss.backward()
    exact = logits.double().requires_grad_()
    padded = torch.nn.functional.pad(exact, (FIRST_KMER, 0))
    plain_loss(padded, kmers, known, ALL_THREE, "kmers").backward()
    torch.testing.assert_close(z.grad.double(), exact.grad, atol=1e-7, rtol=2e-4)


def test_what_has_no_weight_is_not_computed(case):
    """Nor asked for in vain."""
    hidden, weight, kmers, known = case
    likelihoods = log_likelihoods(hidden @ weight.T, kmers)
    assert likelihoods.uniform is None
    with pytest.raises(ValueError, match=r"use log_likelihoods\(uniform=True\)"):
        nucleotide_loss(likelihoods, known, smoothed(0.1))
