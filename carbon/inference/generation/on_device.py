"""Drawing 6-mers where the logits are, so that decoding on a GPU need not wait for every one.

It draws as `sampling.draw` does, from the same random numbers, where neither constraints nor
repetitions have a say. Exponentials of another library may differ in the last bit, which changes a
6-mer only where a random number falls on a border.
"""

import torch
from torch import Tensor

from carbon.inference.generation.sampling import SamplingRule
from carbon.tokenizer import K


def draw_on_device(logits: Tensor, rule: SamplingRule, uniform: Tensor) -> Tensor:
    """Draw a 6-mer a row: (N,) int64 on the device of the logits.

    Args:
        logits: (N, 4096) fp32.
        rule: how to draw; its penalty of repetitions is left out.
        uniform: (N, 6) fp64 in [0, 1), on the same device.
    """
    weights = (
        _shaped(logits, rule)
        if rule.draws_kmers
        else torch.exp(logits - logits.amax(1, keepdim=True))
    )
    by_place = _place_weights(weights) if rule.draws_by_marginals else None
    kmers = torch.zeros(len(weights), dtype=torch.int64, device=weights.device)
    for j in range(K):
        weights = weights.reshape(len(weights), 4, -1)
        shares = weights.sum(dim=2) if by_place is None else by_place[:, j]
        if not rule.draws_kmers and (rule.temperature != 1 or rule.cuts):
            shares = _shaped(shares.log(), rule)
        digits = _choose(shares, uniform[:, j])
        if by_place is None:
            at = digits[:, None, None].expand(-1, 1, weights.shape[2])
            weights = weights.gather(1, at).squeeze(1)
        kmers = 4 * kmers + digits
    return kmers


def _place_weights(weights: Tensor) -> Tensor:
    """Sum the weights of 6-mers over all places but one: (N, 6, 4)."""
    square = weights.reshape(-1, 64, 64)
    cubes = [half.reshape(-1, 4, 4, 4) for half in (square.sum(dim=2), square.sum(dim=1))]
    sums = [cube.sum(dim=dims) for cube in cubes for dims in ((2, 3), (1, 3), (1, 2))]
    return torch.stack(sums, dim=1)


def _shaped(log_weights: Tensor, rule: SamplingRule) -> Tensor:
    """Apply temperature and cuts along the last axis; return weights, of which the largest is 1."""
    top = log_weights.amax(-1, keepdim=True)
    if rule.temperature == 0:
        choices = torch.arange(log_weights.shape[-1], device=log_weights.device)
        best = torch.where(log_weights == top, choices, len(choices)).amin(-1, keepdim=True)
        return (choices == best).to(log_weights.dtype)
    weights = torch.exp((log_weights - top) * (1 / rule.temperature))
    if not rule.cuts:
        return weights
    ranked = weights.sort(dim=-1, descending=True).values
    if rule.top_k is not None:
        ranked[..., rule.top_k :] = 0
    if rule.top_p is not None and rule.top_p < 1:
        held = ranked.cumsum(dim=-1, dtype=torch.float64)
        ranked = torch.where(held - ranked >= rule.top_p * held[..., -1:], 0, ranked)
    least = torch.where(ranked > 0, ranked, torch.inf).amin(-1, keepdim=True)
    if rule.min_p is not None:
        least = torch.maximum(least, rule.min_p * ranked[..., :1])
    return torch.where(weights >= least, weights, 0)


def _choose(weights: Tensor, uniform: Tensor) -> Tensor:
    """Choose along the last axis in proportion: (N, 4) and uniform numbers (N,) to (N,)."""
    reached = weights.cumsum(dim=1)
    choices = torch.arange(3, device=weights.device)
    passed = reached[:, :3] <= uniform[:, None] * reached[:, -1:]
    return torch.where(passed, choices + 1, 0).amax(dim=1)
