"""Sample the next 6-mer from logits, with torch on any device.

There are three modes. `token` samples one of the 4,096 6-mers. `base` samples each base from its
marginal, as if the six were independent. `chain` samples one base after another, each from its
conditional distribution given the bases before it. Temperature and cuts apply to the sampled unit:
the 4,096 6-mers, or four bases. With temperature 1 and no cut, `chain` equals `token`.

`draw` does not synchronise with the device, so that a CUDA graph may capture it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from carbon.inference.checks import check_finite
from carbon.inference.generate.prompts import GeneratedRow, repetitions
from carbon.inference.options import SamplingRule
from carbon.tokenizer import K


def draw(
    logits: Tensor, rule: SamplingRule, uniform: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """Sample a 6-mer for each row: (N,) int64.

    The 6-mer is sampled base by base with one uniform number each, so that rounding of the logits
    hardly ever changes it: a number can hit 18 boundaries instead of 4,095. All arguments are on
    one device. A row does not depend on the others.

    Args:
        logits: (N, 4096) fp32, finite.
        rule: sampling rule; `repetition_penalty` is not applied here.
        uniform: (N, 6) fp64, in [0, 1).
        allowed: (N, 4096) bool, at least one 6-mer for each row; None allows all.
    """
    weights = _kmer_weights(logits, rule, allowed)
    if rule.draws_kmers:
        return walk(weights, uniform)
    by_place = _place_weights(weights) if rule.draws_by_marginals else None
    kmers = torch.zeros(len(weights), dtype=torch.int64, device=weights.device)
    for j in range(K):
        weights = weights.reshape(len(weights), 4, -1)
        if by_place is not None and allowed is None:
            shares = by_place[:, j]
        else:
            shares = _base_weights(weights.sum(dim=2), by_place, j)
        digits = _choose(_shaped_bases(shares, rule), uniform[:, j])
        weights = _narrowed(weights, digits)
        kmers = 4 * kmers + digits
    return kmers


def walk(weights: Tensor, uniform: Tensor) -> Tensor:
    """Sample 6-mers, (N,), in proportion to weights (N, 4096), with uniform numbers (N, 6)."""
    kmers = torch.zeros(len(weights), dtype=torch.int64, device=weights.device)
    for j in range(K):
        weights = weights.reshape(len(weights), 4, -1)
        digits = _choose(weights.sum(dim=2), uniform[:, j])
        weights = _narrowed(weights, digits)
        kmers = 4 * kmers + digits
    return kmers


def distribution(logits: Tensor, rule: SamplingRule, allowed: Tensor | None = None) -> Tensor:
    """Return the distribution of `draw`: (N, 4096) fp64, each row summing to 1.

    Args:
        logits: (N, 4096) fp32, finite.
        rule: sampling rule, as for `draw`.
        allowed: (N, 4096) bool, or None.
    """
    weights = _kmer_weights(logits, rule, allowed)
    if rule.draws_kmers:
        return weights / weights.sum(dim=1, keepdim=True, dtype=torch.float64)
    by_place = _place_weights(weights) if rule.draws_by_marginals else None
    shares = torch.ones(len(weights), 1, dtype=torch.float64, device=weights.device)
    for j in range(K):
        masses = weights.reshape(len(weights), 4**j, 4, -1).sum(dim=3)
        bases = _shaped_bases(_base_weights(masses, by_place, j), rule)
        total = bases.sum(dim=2, keepdim=True)
        bases = torch.where(total > 0, bases / total, 0)
        shares = (shares[:, :, None] * bases).reshape(len(weights), -1)
    return shares


def _kmer_weights(logits: Tensor, rule: SamplingRule, allowed: Tensor | None) -> Tensor:
    """Return weights of 6-mers, (N, 4096), with temperature and cuts applied in mode `token`."""
    if allowed is not None:
        logits = torch.where(allowed, logits, -torch.inf)
    if rule.draws_kmers:
        return _shaped(logits, rule)
    return torch.exp(logits - logits.amax(dim=1, keepdim=True))


def _place_weights(weights: Tensor) -> Tensor:
    """Sum the weights of 6-mers over all positions but one: (N, 6, 4)."""
    square = weights.reshape(-1, 64, 64)
    # The first three bases, and the last three.
    cubes = [half.reshape(-1, 4, 4, 4) for half in (square.sum(dim=2), square.sum(dim=1))]
    sums = [cube.sum(dim=dims) for cube in cubes for dims in ((2, 3), (1, 3), (1, 2))]
    return torch.stack(sums, dim=1)


def _base_weights(masses: Tensor, by_place: Tensor | None, j: int) -> Tensor:
    """Return the weights of the four bases at position j, (N, ..., 4).

    `masses` are the summed weights of the 6-mers that extend the bases before. In mode `chain` they
    are the weights; in mode `base` they only exclude bases.
    """
    if by_place is None:
        return masses
    at_place = by_place[:, j].reshape(len(masses), *[1] * (masses.ndim - 2), 4)
    return torch.where(masses > 0, at_place, 0)


def _shaped_bases(weights: Tensor, rule: SamplingRule) -> Tensor:
    """Apply temperature and cuts to weights of bases."""
    if rule.temperature == 1 and not rule.cuts:
        return weights
    return _shaped(weights.log(), rule)


def _shaped(log_weights: Tensor, rule: SamplingRule) -> Tensor:
    """Apply temperature and cuts along the last axis; return weights with a maximum of 1.

    Weights that are all zero stay zero.
    """
    top = log_weights.amax(dim=-1, keepdim=True)
    if rule.temperature == 0:
        choices = torch.arange(log_weights.shape[-1], device=log_weights.device)
        best = torch.where(log_weights == top, choices, len(choices)).amin(dim=-1, keepdim=True)
        return ((choices == best) & (top > -torch.inf)).to(log_weights.dtype)
    finite_top = torch.where(top > -torch.inf, top, 0)
    weights = torch.exp((log_weights - finite_top) * (1 / rule.temperature))
    if not rule.cuts:
        return weights
    ranked = _descending(weights)
    if rule.top_k is not None:
        ranked[..., rule.top_k :] = 0
    if rule.top_p is not None and rule.top_p < 1:
        cumulative = ranked.cumsum(dim=-1, dtype=torch.float64)
        is_cut = cumulative - ranked >= rule.top_p * cumulative[..., -1:]
        ranked = torch.where(is_cut, 0, ranked)
    least = torch.where(ranked > 0, ranked, torch.inf).amin(dim=-1, keepdim=True)
    if rule.min_p is not None:
        least = torch.maximum(least, rule.min_p * ranked[..., :1])
    return torch.where(weights >= least, weights, 0)


def _descending(weights: Tensor) -> Tensor:
    """Sort along the last axis, on a CPU by numpy, which is 50 times faster than torch there."""
    if weights.device.type == "cpu":
        return torch.from_numpy(np.sort(weights.numpy(), axis=-1)[..., ::-1].copy())
    return weights.sort(dim=-1, descending=True).values


def _choose(weights: Tensor, uniform: Tensor) -> Tensor:
    """Sample along the last axis in proportion: (N, 4) and uniform numbers (N,) to (N,)."""
    cumulative = weights.cumsum(dim=1)
    choices = torch.arange(3, device=weights.device)
    is_passed = cumulative[:, :3] <= uniform[:, None] * cumulative[:, -1:]
    return torch.where(is_passed, choices + 1, 0).amax(dim=1)


def _narrowed(weights: Tensor, digits: Tensor) -> Tensor:
    """Return the weights of the 6-mers with these bases: (N, 4, M) and (N,) to (N, M)."""
    index = digits[:, None, None].expand(-1, 1, weights.shape[2])
    return weights.gather(1, index).squeeze(1)


def conditioned(rows: Sequence[GeneratedRow], logits: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return penalised logits and allowed 6-mers, (N, 4096), or None if all are allowed.

    Args:
        rows: N rows of one task.
        logits: (N, 4096) fp32, on any device.
    """
    for row, total in zip(rows, logits.sum(dim=1).tolist(), strict=True):
        check_finite(total, f"prompt {row.number}", row.number)
    rule = rows[0].task.rule
    if rule.repetition_penalty:
        digits = [row.recent_digits(rule.repetition_window_bp) for row in rows]
        counts = torch.from_numpy(np.stack([repetitions(recent) for recent in digits]))
        logits = logits - rule.repetition_penalty * counts.to(logits)
    masks = [row.allowed() for row in rows]
    if all(mask is None for mask in masks):
        return logits, None
    everything = np.ones(logits.shape[1], dtype=bool)
    stacked = np.stack([everything if mask is None else mask for mask in masks])
    return logits, torch.from_numpy(stacked).to(logits.device)
