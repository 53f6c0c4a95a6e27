"""What training minimises: the objectives by name, and what each weighs in the loss of a token.

With p the probabilities of the 6-mers, y the true one, and S_j the sum of p over the 6-mers that
agree with y at base j, the loss of a token is

    token * -log p(y)  +  bases * the mean of -log S_j  +  uniform * the mean of -log p(v)

where the second term is over the known bases, and the others are only where all six bases are
known; the mean of the last is over all 4,096 6-mers v. `carbon.losses` computes it.

Standard library only, so that configuration, reports and demo read the table without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What is minimised at one step: three weights from 0 to 1, which sum to one."""

    token: float = 0.0
    """Of the true 6-mer: cross-entropy (CE)."""
    bases: float = 0.0
    """Of its known bases through the marginals: factorized nucleotide supervision (FNS)."""
    uniform: float = 0.0
    """Of all 6-mers alike: with s here and 1 - s on the token, CE with labels smoothed by s."""
    label: str = ""
    unit: str = ""
    """Of the loss."""

    def __post_init__(self) -> None:
        for name in ("token", "bases", "uniform"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} = {value}: give 0 to 1")


FnsWeight = tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageObjective:
    """An objective as a stage of a recipe names it, with all that is said of it."""

    name: str
    """In a recipe and in `metrics.jsonl`."""
    label: str
    """In a sentence."""
    short: str
    """Beside a curve."""
    meaning: str
    """For a reader who has never heard of it, after "is"."""
    unit: str
    """Of the loss."""
    over_stage: Callable[[int, int, FnsWeight], Objective]
    """Gives the weights by how much of the stage is done, so many steps of so many, and by the
    stage's `fns_weight`: none of them at its first step, all at its last."""
    num_fns_weights: int = 0
    """How many numbers from 0 to 1 a stage's `fns_weight` holds."""
    shade: str = ""
    """CSS colour behind its steps in a figure, if any."""

    def at(self, done: int = 0, of: int = 1, fns_weight: FnsWeight = ()) -> Objective:
        """Return what is minimised when so many steps of so many are done."""
        weights = self.over_stage(done, of, fns_weight)
        return replace(weights, label=self.label, unit=self.unit)


def _blend(done: int, of: int, fns_weight: FnsWeight) -> Objective:
    """Go from the first weight of FNS to the last in a line."""
    first, last = fns_weight
    of_fns = first + (last - first) * done / of
    return Objective(token=1 - of_fns, bases=of_fns)


OBJECTIVES = {
    objective.name: objective
    for objective in (
        StageObjective(
            name="ce",
            label="cross-entropy",
            short="CE",
            meaning="cross-entropy over 6-mers",
            unit="nats per token",
            over_stage=lambda done, of, fns_weight: Objective(token=1.0),
        ),
        StageObjective(
            name="fns",
            label="factorized nucleotide supervision (FNS)",
            short="FNS",
            meaning="factorized nucleotide supervision, which trains the marginals of the six "
            "bases",
            unit="nats per base",
            over_stage=lambda done, of, fns_weight: Objective(bases=1.0),
            shade="rgba(0,114,178,0.1)",
        ),
        StageObjective(
            name="blend",
            label="a blend of cross-entropy and FNS",
            short="BLEND",
            meaning="a weighted sum of cross-entropy and factorized nucleotide supervision",
            unit="nats per token and base",
            over_stage=_blend,
            num_fns_weights=2,
            shade="rgba(230,159,0,0.14)",
        ),
    )
}
CE, FNS = (OBJECTIVES[name].at() for name in ("ce", "fns"))


def objective_named(name: str) -> StageObjective:
    """Return what is said of an objective; of a name that the table lacks, that name alone.

    A run that another version of Carbon trained may hold such a name.
    """
    return OBJECTIVES.get(name) or StageObjective(
        name=name,
        label=name,
        short=name,
        meaning="",
        unit="",
        over_stage=lambda done, of, fns_weight: Objective(),
    )
