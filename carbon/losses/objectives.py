"""Training objectives by name, with their weights in the loss of a token.

With p the probabilities of the 6-mers, y the true one, and S_j the sum of p over the 6-mers that
match y at base j, the loss of a token is

    token * -log p(y)  +  bases * the mean of -log S_j  +  uniform * the mean of -log p(v)

The second term is over the known bases; the others apply only if all six bases are known. The last
mean is over all 4,096 6-mers v. `carbon.losses` computes the loss.

Standard library only, so that configuration, reports and demo import the table without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """Weights of the loss at one step: three numbers from 0 to 1, which sum to one."""

    token: float = 0.0
    """Weight of the true 6-mer: cross-entropy (CE)."""
    bases: float = 0.0
    """Weight of its known bases by the marginals: factorized nucleotide supervision (FNS)."""
    uniform: float = 0.0
    """Weight of all 6-mers: s here and 1 - s on the token is CE with label smoothing s."""
    label: str = ""
    unit: str = ""
    """Unit of the loss."""

    def __post_init__(self) -> None:
        for name in ("token", "bases", "uniform"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} = {value}: give 0 to 1")


FnsWeight = tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseObjective:
    """An objective as a phase of a recipe names it, with its descriptions."""

    name: str
    """Name in a recipe and in `metrics.jsonl`."""
    label: str
    """Name in a sentence."""
    short: str
    """Name next to a curve."""
    meaning: str
    """Definition for readers new to it, to follow "is"."""
    unit: str
    """Unit of the loss."""
    over_phase: Callable[[int, int, FnsWeight], Objective]
    """Function from completed steps, all steps of the phase and its `fns_weight` to the weights;
    0 steps are completed at the first step, all at the last."""
    num_fns_weights: int = 0
    """Length of a phase's `fns_weight`, whose numbers are 0 to 1."""
    shade: str = ""
    """CSS background colour of its steps in a figure, if any."""

    def at(self, done: int = 0, of: int = 1, fns_weight: FnsWeight = ()) -> Objective:
        """Return the objective after `done` of `of` steps."""
        weights = self.over_phase(done, of, fns_weight)
        return replace(weights, label=self.label, unit=self.unit)


def _blend(done: int, of: int, fns_weight: FnsWeight) -> Objective:
    """Interpolate linearly from the first weight of FNS to the last."""
    first, last = fns_weight
    of_fns = first + (last - first) * done / of
    return Objective(token=1 - of_fns, bases=of_fns)


OBJECTIVES = {
    objective.name: objective
    for objective in (
        PhaseObjective(
            name="ce",
            label="cross-entropy",
            short="CE",
            meaning="cross-entropy over 6-mers",
            unit="nats per token",
            over_phase=lambda done, of, fns_weight: Objective(token=1.0),
        ),
        PhaseObjective(
            name="fns",
            label="factorized nucleotide supervision (FNS)",
            short="FNS",
            meaning="factorized nucleotide supervision, which trains the marginals of the six "
            "bases",
            unit="nats per base",
            over_phase=lambda done, of, fns_weight: Objective(bases=1.0),
            shade="rgba(0,114,178,0.1)",
        ),
        PhaseObjective(
            name="blend",
            label="a blend of cross-entropy and FNS",
            short="BLEND",
            meaning="a weighted sum of cross-entropy and factorized nucleotide supervision",
            unit="nats per token and base",
            over_phase=_blend,
            num_fns_weights=2,
            shade="rgba(230,159,0,0.14)",
        ),
    )
}
CE, FNS = (OBJECTIVES[name].at() for name in ("ce", "fns"))


def objective_named(name: str) -> PhaseObjective:
    """Return the named objective; for an unknown name, an entry with only that name.

    Runs of another version of Carbon may have such a name.
    """
    return OBJECTIVES.get(name) or PhaseObjective(
        name=name,
        label=name,
        short=name,
        meaning="",
        unit="",
        over_phase=lambda done, of, fns_weight: Objective(),
    )
