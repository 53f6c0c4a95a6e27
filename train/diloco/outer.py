"""The outer step of DiLoCo (arXiv 2311.08105): merging pseudo-gradients, and what follows.

Each worker trains its own copy of the weights. It sends a pseudo-gradient, the outer parameters
minus its own; the weighted mean of those is the gradient of `torch.optim.SGD` with Nesterov
momentum on the outer parameters.

Tensors are on a CPU, by name, whole ones or the shards of a process alike. All workers must reach
the same bits: means are summed in one order by operations of their own, and `outer_step_digest`
shows whether two processors round the optimizer's alike.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from train.codecs import CODECS, Tensors
from train.config import WorkersConfig
from train.diloco.rounds import Plan, PseudoGradient, RoundRecord
from train.diloco.streaming import fragments
from train.diloco.weights import Weights
from train.runs.record import Work

_START = -1
"""The number of the round before the first."""


def pseudo_gradient(outer: Mapping[str, Tensor], local: Mapping[str, Tensor]) -> Tensors:
    """Return `outer - local` for the names of `local`: a direction of descent."""
    return {name: outer[name] - weight for name, weight in local.items()}


def weighted_mean(gradients: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted mean of tensors, summed in the order given.

    A weight of 0 equals absence, to the bit, whatever the tensor holds.

    Args:
        gradients: one or more, of one shape and dtype.
        weights: of each, 0 or more, such as tokens. Its share of their sum is computed in fp64 and
            rounded once to the dtype of the tensor. If all are 0, so is the mean.
    """
    total, mean = math.fsum(weights), torch.zeros_like(gradients[0])
    for gradient, weight in zip(gradients, weights, strict=True):
        if weight:
            mean.add_(gradient * (weight / total))
    return mean


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of a round, over all weights that were synchronised.

    Attributes:
        norms: of each member's pseudo-gradient.
        cosines: between each member's pseudo-gradient and the mean; 0 where one of them is zero.
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
    gradients: Sequence[PseudoGradient],
    weights: Sequence[float],
    names: Sequence[str],
    counted: Collection[str],
) -> tuple[Tensors, Tensor]:
    """Return the weighted mean of pseudo-gradients, and sums of squares and products.

    A tensor of each is read at a time.

    Args:
        gradients: of the members, in their order.
        weights: of each.
        names: of the tensors.
        counted: names that the sums are over.

    Returns:
        The mean by name, and sums (2, members + 1) fp64: squares of each member's pseudo-gradient
        and of the mean; and products of each with the mean.
    """
    means: Tensors = {}
    sums = torch.zeros(2, len(weights) + 1, dtype=torch.float64)
    for name in names:
        tensors = [gradient[name] for gradient in gradients]
        means[name] = weighted_mean(tensors, weights)
        if name in counted:
            mean = means[name].double()
            for i, each in enumerate([*tensors, mean]):
                sums[0, i] += (each.double() * each.double()).sum()
                sums[1, i] += (each.double() * mean).sum()
    return means, sums


@dataclass(slots=True)
class OuterState:
    """What outer steps change, by the names of weights.

    Attributes:
        params: the outer parameters, which all workers share.
        momentum: of the outer optimizer; nothing if it has none.
    """

    params: Tensors
    momentum: Tensors = field(default_factory=dict)


def outer_step(state: OuterState, gradient: Tensors, learning_rate: float, momentum: float) -> None:
    """Take a step of `torch.optim.SGD` on the tensors that `gradient` names, in place.

    Args:
        state: with room for momentum, if there is any.
        gradient: the mean of pseudo-gradients.
        learning_rate: of the outer step.
        momentum: of Nesterov, from 0 to below 1.
    """
    if not gradient:
        return
    params = [state.params[name] for name in gradient]
    sgd = torch.optim.SGD(
        params, lr=learning_rate, momentum=momentum, nesterov=momentum > 0, foreach=False
    )
    for (name, grad), param in zip(gradient.items(), params, strict=True):
        param.grad = grad.to(param.dtype)
        if momentum:
            sgd.state[param]["momentum_buffer"] = state.momentum[name]
    sgd.step()
    sgd.zero_grad()


def outer_step_digest() -> str:
    """Return a digest of a step on fixed numbers, alike on processors that round alike.

    torch computes `add(x, alpha=a)` with one rounding or with two, as the processor has it.
    """
    numbers = torch.arange(1.0, 1001.0).reciprocal()
    state = OuterState({"w": numbers.clone()}, {"w": numbers.sqrt()})
    outer_step(state, {"w": numbers.square()}, 0.7, 0.9)
    return hashlib.sha256(state.params["w"].numpy().data).hexdigest()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the outer parameters.

    Attributes:
        round: the round after which it was taken.
        digests: of the newest rounds, that one among them.
        state: of the outer optimizer.
        merged: training of all workers that is in it, added up over fragments.
    """

    round: int
    digests: Mapping[int, str]
    state: OuterState
    merged: Work


class OuterParams:
    """The outer parameters that this process keeps, and the newest plans.

    Attributes:
        newest: the newest round that is applied.
        is_over: whether that was the last of the run.
        state: of the outer optimizer.
        residuals: unsent parts of this worker's pseudo-gradients, for codecs with error feedback.
        digests: of the newest rounds, each with all before it.
        plans: of the rounds that a worker may be in.
        num_plans: how many those are.
        merged: training of all workers that is in it, added up over fragments.
    """

    def __init__(self, config: WorkersConfig, weights: Weights) -> None:
        """Prepare; `begin` or `expect` follows.

        Raises:
            ConfigError: there are more fragments than weights.
        """
        self._config, self._weights = config, weights
        self._fragments = fragments(weights.sizes, config.fragments)
        self.names = [name for names in self._fragments for name in names]
        self.newest, self.is_over = _START, False
        self.state = OuterState({})
        self.residuals: Tensors = {}
        self.digests: dict[int, str] = {}
        self.plans = [Plan.first(config.count, config.period_steps)]
        self.num_plans = config.rounds_ahead + 2
        self.merged = Work()

    def begin(self) -> None:
        """Start from the present weights."""
        self._make_room()
        self.digests = {_START: self._digest(self.names, "")}

    def _make_room(self) -> None:
        params = self._weights.read(self.names)

        def zeros(is_needed: bool) -> Tensors:
            return {n: torch.zeros_like(p) for n, p in params.items()} if is_needed else {}

        self.state = OuterState(params, zeros(self._config.momentum > 0))
        self.residuals = zeros(CODECS[self._config.codec].feedback is not None)

    def names_of(self, numbers: Sequence[int]) -> list[str]:
        """Return the weights of fragments."""
        return [name for number in numbers for name in self._fragments[number]]

    def held(self, numbers: Sequence[int]) -> list[str]:
        """Return the weights of fragments that this process keeps."""
        return [name for name in self.names_of(numbers) if name in self.state.params]

    def plan(self, round_: int) -> Plan:
        """Return the newest plan that is of a round or of one before it."""
        return next(plan for plan in reversed(self.plans) if plan.round <= round_)

    def base(self, round_: int) -> str:
        """Return the digest of the last round that all members of a round have applied."""
        return self.digests[max(_START, round_ - max(1, self._config.rounds_ahead))]

    def step(self, record: RoundRecord, gradient: Tensors) -> None:
        """Take the outer step of a round."""
        outer_step(self.state, gradient, self._config.learning_rate, self._config.momentum)
        digest = self._digest(self.names_of(record.fragments), self.digests[self.newest])
        self.digests = dict([*self.digests.items(), (record.round, digest)][-self.num_plans :])
        self.plans = [*self.plans, record.plan][-self.num_plans :]
        self.newest, self.is_over = record.round, record.is_last
        # A pseudo-gradient of weight 0 brings no training into the outer parameters.
        self.merged = sum((each.work for each in record.members if each.tokens), self.merged)

    def trained(self) -> Work:
        """Return the training that is in the outer parameters: of fragments, their mean."""
        return self.merged.times(1 / self._config.fragments)

    def snapshot(self) -> Snapshot:
        """Return a copy that shares its tensors."""
        return Snapshot(self.newest, dict(self.digests), self.state, self.merged)

    def take(self, snapshot: Snapshot, records: Sequence[RoundRecord]) -> None:
        """Go to a later snapshot, whose last rounds are these, its own among them."""
        self.newest, self.digests = snapshot.round, dict(snapshot.digests)
        self.state, self.merged = snapshot.state, snapshot.merged
        first = Plan.first(self._config.count, self._config.period_steps)
        self.plans = [first, *(record.plan for record in records)]
        self.is_over = any(record.is_last for record in records)

    def _digest(self, names: Sequence[str], before: str) -> str:
        """Return the sha256 of the previous digest and of these weights, with their momentum."""
        digest = hashlib.sha256(before.encode())
        for name in names:
            for tensors in (self.state.params, self.state.momentum):
                if name in tensors:
                    digest.update(tensors[name].contiguous().numpy().data)
        return digest.hexdigest()

    def progress(self) -> tuple[Any, ...]:
        """Return where it stands, for processes that keep no weights."""
        return self.newest, self.is_over, self.plans, self.digests, self.merged

    def follow(self, progress: tuple[Any, ...]) -> None:
        """Take what `progress` gave on another process."""
        self.newest, self.is_over, self.plans, self.digests, self.merged = progress

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "newest": self.newest,
            "is_over": self.is_over,
            "plans": [plan.to_table() for plan in self.plans],
            "digests": {str(number): digest for number, digest in self.digests.items()},
            "merged": asdict(self.merged),
            "trained": asdict(self.trained()),
        }

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave, and make room for the tensors."""
        self._make_room()
        self.newest, self.is_over = table["newest"], table["is_over"]
        self.merged = Work(**table["merged"])
        self.plans = [Plan.from_table(plan) for plan in table["plans"]]
        self.digests = {int(number): digest for number, digest in table["digests"].items()}

    def tensors(self) -> dict[str, Tensors]:
        """Return its tensors in a checkpoint, by kind."""
        return {
            "outer_params": self.state.params,
            "momentum": self.state.momentum,
            "residual": self.residuals,
        }
