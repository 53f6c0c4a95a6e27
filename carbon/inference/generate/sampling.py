"""From logits over the 6-mers to the next 6-mer, in numpy, so that text depends on no device.

There are three ways to draw six bases. `token` draws one of the 4,096 6-mers. `base` draws each
base from its marginal, as if the six were independent. `chain` draws one base after the other, each
from its conditional under the bases before it. Temperature and cuts act on whatever is drawn: the
4,096 6-mers, or four bases. With temperature 1 and no cut, `chain` is `token`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.errors import UserError
from carbon.inference.options import MODES, Mode
from carbon.tokenizer import NUM_KMERS, K

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

_LEAST_TEMPERATURE = 1e-6  # far less, and its inverse is no number of fp32


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How the next 6-mer is sampled from its distribution.

    The fields apply in this order: penalty, mask of constraints, temperature, top-k, top-p of the
    remaining choices, min-p. Choices as likely as the last one that passes a cut also pass.

    Attributes:
        mode: unit of sampling: a 6-mer (`token`), a base by its marginal (`base`), or a base given
            the bases before it (`chain`).
        temperature: 0 takes the most likely, 1 samples from the model; otherwise 1e-6 to 100.
        top_k: sample only from the `k` most likely choices.
        top_p: sample only from the fewest choices that together have probability `p` (Holtzman et
            al. 2020, arXiv 1904.09751); 1 cuts nothing.
        min_p: sample only from choices at least `p` times as likely as the most likely (Nguyen et
            al. 2024, arXiv 2407.01082).
        repetition_penalty: nats subtracted from a 6-mer's log-probability for each occurrence in
            the last `repetition_window_bp` bases, at any offset.
        repetition_window_bp: bases in which repetitions count, the prompt included.

    Raises:
        UserError: a value is out of range.
    """

    mode: Mode = "token"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 0.0
    repetition_window_bp: int = 1200

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UserError(f"mode '{self.mode}': give {', '.join(MODES)}")
        if self.temperature != 0 and not _LEAST_TEMPERATURE <= self.temperature <= 100:
            raise UserError(f"temperature {self.temperature}: give 0 (greedy) or 1e-6 to 100")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k {self.top_k}: give 1 or more")
        for name, share in (("top_p", self.top_p), ("min_p", self.min_p)):
            if share is not None and not 0 < share <= 1:
                raise UserError(f"{name} {share}: give a probability above 0, at most 1")
        if not 0 <= self.repetition_penalty <= 100:
            raise UserError(f"repetition_penalty {self.repetition_penalty}: give 0 to 100 nats")
        if self.repetition_window_bp < K:
            raise UserError(f"repetition_window_bp {self.repetition_window_bp}: give {K} or more")

    @property
    def draws_kmers(self) -> bool:
        """Whether 6-mers are sampled, not bases."""
        return MODES[self.mode].whole_kmers

    @property
    def draws_by_marginals(self) -> bool:
        """Whether bases are sampled independently, by their marginals."""
        return MODES[self.mode].by_marginals

    @property
    def cuts(self) -> bool:
        """Whether some choices are excluded by top-k, top-p or min-p."""
        return not (self.top_k is None and self.top_p in (None, 1) and self.min_p is None)


def draw(
    logits: Floats, rule: SamplingRule, uniform: Floats, allowed: Bools | None
) -> NDArray[np.int64]:
    """Draw a 6-mer a row.

    A row's 6-mer is found base by base, by a uniform number each, so that what rounding does to the
    logits hardly ever changes it: there are 18 borders that a number can fall on and not 4,095.

    Args:
        logits: (N, 4096), fp32.
        rule: how to draw.
        uniform: (N, 6), in [0, 1).
        allowed: (N, 4096), at least one 6-mer a row; None allows all.
    """
    weights = _kmer_weights(logits, rule, allowed)
    if rule.draws_kmers:
        return walk(weights, uniform)
    by_place = _place_weights(weights) if rule.draws_by_marginals else None
    rows = np.arange(len(weights))
    kmers = np.zeros(len(weights), dtype=np.int64)
    for j in range(K):
        if by_place is not None and allowed is None:
            shares = by_place[:, j]
        else:
            weights = weights.reshape(len(rows), 4, -1)
            shares = _base_weights(weights.sum(axis=2), by_place, j)
        digits = _choose(_shaped_bases(shares, rule), uniform[:, j])
        if by_place is None or allowed is not None:
            weights = weights[rows, digits]
        kmers = 4 * kmers + digits
    return kmers


def walk(weights: Floats, uniform: Floats) -> NDArray[np.int64]:
    """Draw a 6-mer a row, (N,), in proportion to weights (N, 4096), by uniform numbers (N, 6)."""
    rows = np.arange(len(weights))
    kmers = np.zeros(len(weights), dtype=np.int64)
    for j in range(K):
        weights = weights.reshape(len(rows), 4, -1)
        digits = _choose(weights.sum(axis=2), uniform[:, j])
        weights = weights[rows, digits]
        kmers = 4 * kmers + digits
    return kmers


def distribution(logits: Floats, rule: SamplingRule, allowed: Bools | None) -> Floats:
    """Return the probability with which `draw` draws each 6-mer: (N, 4096), each row summing to 1.

    Args:
        logits: (N, 4096), fp32.
        rule: how `draw` draws.
        allowed: (N, 4096) or None.
    """
    weights = _kmer_weights(logits, rule, allowed)
    if rule.draws_kmers:
        normed: Floats = weights / weights.sum(axis=1, keepdims=True, dtype=np.float64)
        return normed
    by_place = _place_weights(weights) if rule.draws_by_marginals else None
    shares = np.ones((len(weights), 1))
    for j in range(K):
        masses = weights.reshape(len(weights), 4**j, 4, -1).sum(axis=3)
        bases = _shaped_bases(_base_weights(masses, by_place, j), rule)
        total = bases.sum(axis=2, keepdims=True)
        bases = np.divide(bases, total, out=np.zeros_like(bases), where=total > 0)
        shares = (shares[:, :, None] * bases).reshape(len(weights), -1)
    return shares


def _kmer_weights(logits: Floats, rule: SamplingRule, allowed: Bools | None) -> Floats:
    """Return weights of 6-mers, (N, 4096): shaped by the rule in token mode, else as they are."""
    if allowed is not None:
        logits = np.where(allowed, logits, np.float32(-np.inf))
    if rule.draws_kmers:
        return _shaped(logits, rule)
    weights: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights


def _place_weights(weights: Floats) -> Floats:
    """Sum the weights of 6-mers over all places but one: (N, 6, 4)."""
    square = weights.reshape(-1, 64, 64)
    halves = (square.sum(axis=2), square.sum(axis=1))  # the first three bases, the last three
    cubes = [half.reshape(-1, 4, 4, 4) for half in halves]
    sums = [cube.sum(axis=axes) for cube in cubes for axes in ((2, 3), (1, 3), (1, 2))]
    return np.stack(sums, axis=1)


def _base_weights(masses: Floats, by_place: Floats | None, j: int) -> Floats:
    """Return the weights of the four bases at place j, (N, ..., 4).

    `masses` are those of the 6-mers that go on from the bases before: by the chain they are what is
    wanted, by place they tell which bases have any.
    """
    if by_place is None:
        return masses
    at_place = by_place[:, j].reshape(len(masses), *[1] * (masses.ndim - 2), 4)
    return np.where(masses > 0, at_place, 0.0)


def _shaped_bases(weights: Floats, rule: SamplingRule) -> Floats:
    """Apply temperature and cuts to weights of bases."""
    if rule.temperature == 1 and not rule.cuts:
        return weights
    with np.errstate(divide="ignore"):
        return _shaped(np.log(weights), rule)


def _shaped(log_weights: Floats, rule: SamplingRule) -> Floats:
    """Apply temperature and cuts along the last axis; return weights, of which the largest is 1.

    Where nothing has any weight there is none afterwards.
    """
    top = log_weights.max(axis=-1, keepdims=True)
    if rule.temperature == 0:
        choices = np.arange(log_weights.shape[-1])
        first = choices == log_weights.argmax(axis=-1)[..., None]
        best: Floats = (first & (top > -np.inf)).astype(log_weights.dtype)
        return best
    scale = log_weights.dtype.type(1 / rule.temperature)
    weights: Floats = np.exp((log_weights - np.where(top > -np.inf, top, 0)) * scale)
    if not rule.cuts:
        return weights
    ranked = np.sort(weights, axis=-1)[..., ::-1].copy()
    if rule.top_k is not None:
        ranked[..., rule.top_k :] = 0
    if rule.top_p is not None and rule.top_p < 1:
        held = np.cumsum(ranked, axis=-1, dtype=np.float64)
        ranked[held - ranked >= rule.top_p * held[..., -1:]] = 0
    least = np.where(ranked > 0, ranked, np.inf).min(axis=-1, keepdims=True)
    if rule.min_p is not None:
        least = np.maximum(least, rule.min_p * ranked[..., :1])
    return np.where(weights >= least, weights, 0)


def _choose(weights: Floats, uniform: Floats) -> NDArray[np.int64]:
    """Choose along the last axis in proportion: (N, 4) and uniform numbers (N,) to (N,).

    Raises:
        FloatingPointError: a row has nothing to choose from, as where the logits are no numbers.
    """
    reached = np.cumsum(weights, axis=1)
    total = reached[:, -1:]
    if not (np.isfinite(total) & (total > 0)).all():
        raise FloatingPointError("the next 6-mer has no probabilities: the logits are no numbers")
    choices: NDArray[np.int64] = (reached > uniform[:, None] * total).argmax(axis=1)
    return choices


def repetitions(digits: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Count the occurrences of each 6-mer in a sequence, at any offset: (4096,).

    Args:
        digits: (bases,), 0 to 3; negative where unknown. 6-mers with an unknown base do not count.
    """
    if len(digits) < K:
        return np.zeros(NUM_KMERS, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(digits, K)
    known = windows[(windows >= 0).all(axis=1)]
    return np.bincount(known @ 4 ** np.arange(K - 1, -1, -1), minlength=NUM_KMERS)


def draw_on_device(logits: Tensor, rule: SamplingRule, uniform: Tensor) -> Tensor:
    """Draw a 6-mer a row: (N,) int64 on the device of the logits.

    Args:
        logits: (N, 4096) fp32.
        rule: how to draw; its penalty of repetitions is left out.
        uniform: (N, 6) fp64 in [0, 1), on the same device.
    """
    weights = (
        _shaped_on_device(logits, rule)
        if rule.draws_kmers
        else torch.exp(logits - logits.amax(1, keepdim=True))
    )
    by_place = _place_weights_on_device(weights) if rule.draws_by_marginals else None
    kmers = torch.zeros(len(weights), dtype=torch.int64, device=weights.device)
    for j in range(K):
        weights = weights.reshape(len(weights), 4, -1)
        shares = weights.sum(dim=2) if by_place is None else by_place[:, j]
        if not rule.draws_kmers and (rule.temperature != 1 or rule.cuts):
            shares = _shaped_on_device(shares.log(), rule)
        digits = _choose_on_device(shares, uniform[:, j])
        if by_place is None:
            at = digits[:, None, None].expand(-1, 1, weights.shape[2])
            weights = weights.gather(1, at).squeeze(1)
        kmers = 4 * kmers + digits
    return kmers


def _place_weights_on_device(weights: Tensor) -> Tensor:
    """Sum the weights of 6-mers over all places but one: (N, 6, 4)."""
    square = weights.reshape(-1, 64, 64)
    cubes = [half.reshape(-1, 4, 4, 4) for half in (square.sum(dim=2), square.sum(dim=1))]
    sums = [cube.sum(dim=dims) for cube in cubes for dims in ((2, 3), (1, 3), (1, 2))]
    return torch.stack(sums, dim=1)


def _shaped_on_device(log_weights: Tensor, rule: SamplingRule) -> Tensor:
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


def _choose_on_device(weights: Tensor, uniform: Tensor) -> Tensor:
    """Choose along the last axis in proportion: (N, 4) and uniform numbers (N,) to (N,)."""
    reached = weights.cumsum(dim=1)
    choices = torch.arange(3, device=weights.device)
    passed = reached[:, :3] <= uniform[:, None] * reached[:, -1:]
    return torch.where(passed, choices + 1, 0).amax(dim=1)
