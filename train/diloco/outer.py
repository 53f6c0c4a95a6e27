"""The outer step of DiLoCo: merging pseudo-gradients and updating the shared weights.

Each learner trains its own copy of the weights. It sends an outer gradient, the shared
weights (the anchor) minus its own; the mean of those is the gradient of an ordinary optimizer of
the anchor, SGD with Nesterov momentum (arXiv 2311.08105).

Everything here is a function of tensors by name, whole ones or the shards of a process alike, on a
CPU. Products and sums are operations of their own: a library may compute `add(x, alpha=a)` with one
rounding on one machine and with two on another, and all learners must reach the same bits.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from carbon.errors import ConfigError
from train.diloco.rounds import Change

Tensors = dict[str, Tensor]


def outer_gradient(anchor: Mapping[str, Tensor], local: Mapping[str, Tensor]) -> Tensors:
    """Return `anchor - local` for the names of `local`: a direction of descent."""
    return {name: anchor[name] - weight for name, weight in local.items()}


def merged(deltas: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Tensors:
    """Return the weighted mean of outer gradients, summed in the order given.

    A weight of 0 equals absence, to the bit, whatever the tensors hold.

    Args:
        deltas: one or more, all of the same names, shapes and dtypes.
        weights: of each, 0 or more, such as tokens. Its share of their sum is computed in fp64 and
            rounded once to the dtype of the tensor. If all are 0, so is the mean.
    """
    total = math.fsum(weights)
    present = [
        (delta, weight / total) for delta, weight in zip(deltas, weights, strict=True) if weight
    ]
    means = {name: torch.zeros_like(delta) for name, delta in deltas[0].items()}
    for name, mean in means.items():
        for delta, share in present:
            mean.add_(delta[name] * share)
    return means


def mixed(local: Mapping[str, Tensor], anchor: Mapping[str, Tensor], alpha: float) -> Tensors:
    """Return the weights that a worker continues with: `alpha` local, the rest of the anchor.

    With `alpha` 0 that is a copy of the anchor, to the bit, whatever `local` holds.
    """
    if not alpha:
        return {name: anchor[name].clone() for name in local}
    return {name: weight * alpha + anchor[name] * (1 - alpha) for name, weight in local.items()}


@dataclass(slots=True)
class OuterState:
    """What outer steps change, in the dtype of the anchor; a name enters when it is first needed.

    Attributes:
        anchor: the weights that all learners share.
        momentum: of the outer optimizer; none of it if that has no momentum.
        pending: outer gradients that the momentum has not taken yet, summed; none of them if it
            takes each at once.
        steps: outer steps so far.
    """

    anchor: Tensors
    momentum: Tensors
    pending: Tensors
    steps: dict[str, int]


@dataclass(frozen=True, slots=True)
class OuterStep:
    """SGD with Nesterov momentum, as `torch.optim.SGD(nesterov=True)`; or with a delayed one.

    With `momentum_every` = N above 1 it is delayed Nesterov (arXiv 2401.09135, Algorithm 3, with
    c = 0), for outer gradients that are applied one by one as they arrive. Each moves the anchor by
    its Nth part, and every Nth brings the momentum, which takes the mean of the last N.

    Attributes:
        learning_rate: of the outer step.
        momentum: the share of it that is kept, from 0 to below 1.
        momentum_every: outer gradients after which the momentum is renewed and applied.
    """

    learning_rate: float
    momentum: float
    momentum_every: int = 1

    def step(self, state: OuterState, delta: Mapping[str, Tensor]) -> None:
        """Take an outer step on those tensors of `state` that `delta` names, in place."""
        for name, gradient in delta.items():
            anchor = state.anchor[name]
            gradient = gradient.to(anchor.dtype)
            state.steps[name] = state.steps.get(name, 0) + 1
            update = gradient / self.momentum_every
            if self.momentum:
                self._collect(state, name, gradient)
                if state.steps[name] % self.momentum_every == 0:
                    update = update + self._renewed(state, name, gradient) * self.momentum
            anchor.sub_(update * self.learning_rate)

    def _collect(self, state: OuterState, name: str, gradient: Tensor) -> None:
        if self.momentum_every > 1:
            _held(state.pending, name, gradient).add_(gradient)

    def _renewed(self, state: OuterState, name: str, gradient: Tensor) -> Tensor:
        """Return the momentum, updated by the mean of the pending gradients."""
        mean = gradient
        if self.momentum_every > 1:
            mean = state.pending[name] / self.momentum_every
            state.pending[name].zero_()
        return _held(state.momentum, name, gradient).mul_(self.momentum).add_(mean)


def _held(tensors: Tensors, name: str, like: Tensor) -> Tensor:
    if name not in tensors:
        tensors[name] = torch.zeros_like(like)
    return tensors[name]


def fragments(sizes: Mapping[str, int], count: int) -> tuple[tuple[str, ...], ...]:
    """Divide tensors into fragments of about the same size, the same for any order of `sizes`.

    The largest goes first, each into the fragment that has least; the fullest has at most 4/3 of
    its load in the best division (Graham, SIAM J. Appl. Math. 17, 1969).

    Args:
        sizes: parameters by name.
        count: of fragments, 1 or more.

    Raises:
        ConfigError: there are fewer tensors than fragments.
    """
    if len(sizes) < count:
        raise ConfigError(
            f"learners.fragments = {count}: the weights are {len(sizes)} tensors, which are not "
            "divided; give at most so many"
        )
    found: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = min(range(count), key=lambda i: (loads[i], len(found[i])))
        found[least].append(name)
        loads[least] += sizes[name]
    return tuple(map(tuple, found))


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Return the scalar product over all tensors of `a`, in fp64; of shards, a part of a sum."""
    return math.fsum(float((x.double() * b[name].double()).sum()) for name, x in a.items())


def norm(a: Mapping[str, Tensor]) -> float:
    """Return the Euclidean norm of all tensors together, in fp64."""
    return math.sqrt(dot(a, a))


def cosine(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Return the cosine of the angle between two, in fp64; 0 where one of them is zero."""
    norms = norm(a) * norm(b)
    return dot(a, b) / norms if norms else 0.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of a meeting, over all weights that met.

    Attributes:
        norms: of each member's change.
        cosines: between each member's change and the mean; 0 where one of them is zero.
        mean_norm: of the mean.
    """

    norms: list[float]
    cosines: list[float]
    mean_norm: float

    @classmethod
    def of(cls, sums: Tensor) -> "Agreement":
        """Return it from the sums that `mean_of` gives, added up over processes."""
        squares, products = sums[0, :-1].tolist(), sums[1, :-1].tolist()
        norms, mean_norm = [math.sqrt(square) for square in squares], math.sqrt(float(sums[0, -1]))
        pairs = zip(products, norms, strict=True)
        cosines = [dot / (norm * mean_norm) if norm * mean_norm else 0.0 for dot, norm in pairs]
        return cls(norms, cosines, mean_norm)


def mean_of(
    changes: Sequence[Change],
    weights: Sequence[float],
    names: Sequence[str],
    counted: Collection[str],
) -> tuple[Tensors, Tensor]:
    """Return the weighted mean of changes, and sums of squares and products.

    A tensor of each is read at a time.

    Args:
        changes: of the members, in their order.
        weights: of each.
        names: of the tensors.
        counted: names that the sums are over.

    Returns:
        The mean by name, and sums (2, members + 1) fp64: squares of each member's change and of the
        mean; and products of each with the mean.
    """
    mean: Tensors = {}
    sums = torch.zeros(2, len(weights) + 1, dtype=torch.float64)
    for name in names:
        ones = [{name: change[name]} for change in changes]
        of_all = merged(ones, weights)
        mean |= of_all
        if name in counted:
            for i, one in enumerate([*ones, of_all]):
                sums[0, i] += dot(one, one)
                sums[1, i] += dot(one, of_all)
    return mean, sums
