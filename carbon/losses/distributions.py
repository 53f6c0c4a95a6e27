"""Marginal and conditional likelihoods of the bases of a k-mer, from its logits."""

import torch
from torch import Tensor


def marginals(logits: Tensor) -> Tensor:
    """Return log P_j(b), the marginal distribution of each base of the next k-mer.

    Args:
        logits: (..., 4**k), any float type.

    Returns:
        (..., k, 4) fp32, bases in the order ATCG.
    """
    k = (logits.shape[-1].bit_length() - 1) // 2
    log_p = torch.log_softmax(logits.float(), dim=-1).view(-1, *[4] * k)
    if k == 1:
        return log_p.view(*logits.shape[:-1], 1, 4)
    places = range(1, k + 1)
    rows = [log_p.logsumexp(dim=[d for d in places if d != j]) for j in places]
    return torch.stack(rows, dim=1).view(*logits.shape[:-1], k, 4)


def chain(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
    """Return log p(b_j | known bases before j) of the true bases; zero where unknown.

    It is a ratio of two masses: k-mers that match the known bases up to j, over k-mers that match
    them up to j - 1; an unknown base is summed over. The sum of a row is the log-likelihood of the
    token's known bases, and log p(y) if all are known.

    Args:
        logits: (..., 4**k), any float type.
        kmers: (...) int64, the true k-mers.
        known: (..., k) bool.

    Returns:
        (..., k) fp32.
    """
    k = known.shape[-1]
    flat, targets, mask = logits.reshape(-1, 4**k), kmers.reshape(-1), known.reshape(-1, k)
    remaining = torch.log_softmax(flat.float(), dim=-1)
    mass = torch.zeros(len(flat), device=logits.device)
    steps = []
    for j in range(k):
        remaining = remaining.view(len(flat), 4, remaining.shape[1] // 4)
        chosen = _matching(remaining, targets, k, j)
        if bool(mask[:, j].all()):
            remaining = chosen
        else:
            remaining = torch.where(mask[:, j, None], chosen, remaining.logsumexp(dim=1))
        narrowed = remaining.logsumexp(dim=1)
        steps.append(torch.where(mask[:, j], narrowed - mass, 0.0))
        mass = narrowed
    return torch.stack(steps, dim=1).view(*kmers.shape, k)


def marginal(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
    """Return log P_j(b_j) of the true bases, from the marginals; zero where unknown.

    Takes the same arguments and shapes as `chain`.
    """
    places = 4 ** torch.arange(known.shape[-1] - 1, -1, -1, device=kmers.device)
    digits = kmers[..., None] // places % 4
    chosen = marginals(logits).gather(-1, digits[..., None])[..., 0]
    return torch.where(known, chosen, 0.0)


def chain_conditionals(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
    """Return log p(b | known bases before it) of every base b at every position of the k-mer.

    If the true base is known, its entry equals the output of `chain`.

    Args:
        logits: (..., 4**k), any float type.
        kmers: (...) int64, the true k-mers.
        known: (..., k) bool.

    Returns:
        (..., k, 4) fp32, bases in the order ATCG.
    """
    k = known.shape[-1]
    flat, targets, mask = logits.reshape(-1, 4**k), kmers.reshape(-1), known.reshape(-1, k)
    remaining = torch.log_softmax(flat.float(), dim=-1)
    steps = []
    for j in range(k):
        remaining = remaining.view(len(flat), 4, remaining.shape[1] // 4)
        steps.append(torch.log_softmax(remaining.logsumexp(dim=2), dim=1))
        chosen = _matching(remaining, targets, k, j)
        if not bool(mask[:, j].all()):
            chosen = torch.where(mask[:, j, None], chosen, remaining.logsumexp(dim=1))
        remaining = chosen
    return torch.stack(steps, dim=1).view(*kmers.shape, k, 4)


_SMALLEST_MASS = 1e-30  # below this a sum of fp32 probabilities has lost its digits


def chain_probabilities(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
    """Return p(b | known bases before it) of every base b at every position of the k-mer.

    These are the exponentials of `chain_conditionals` to rounding, in a fraction of the time: sums
    of probabilities, unless the known bases are so unlikely that the sums lose their digits.

    Args:
        logits: (N, 4**k), any float type.
        kmers: (N,) int64, the true k-mers.
        known: (N, k) bool.

    Returns:
        (N, k, 4) fp32, bases in the order ATCG.
    """
    k = known.shape[1]
    rows = torch.arange(len(kmers), device=logits.device)
    remaining = torch.softmax(logits.float(), dim=1)
    steps = []
    for j in range(k):
        remaining = remaining.view(len(kmers), 4, -1)
        steps.append(remaining.sum(dim=2))
        chosen = remaining[rows, kmers // 4 ** (k - 1 - j) % 4]
        if not bool(known[:, j].all()):
            chosen = torch.where(known[:, j, None], chosen, remaining.sum(dim=1))
        remaining = chosen
    sums = torch.stack(steps, dim=1)
    mass = sums.sum(dim=2, keepdim=True)
    p = sums / mass
    hard = (mass < _SMALLEST_MASS).flatten(1).any(dim=1).nonzero()[:, 0]
    if len(hard):
        p[hard] = chain_conditionals(logits[hard], kmers[hard], known[hard]).exp()
    return p


def _matching(remaining: Tensor, kmers: Tensor, k: int, j: int) -> Tensor:
    """Return the entries that share base j with the k-mers: (N, 4, M) and (N,) to (N, M)."""
    digits = (kmers // 4 ** (k - 1 - j)) % 4
    return remaining.gather(1, digits.view(-1, 1, 1).expand(-1, 1, remaining.shape[2]))[:, 0]
