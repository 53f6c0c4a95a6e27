"""Options of a design run, checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from carbon.design.rules import Rules
from carbon.errors import UserError
from carbon.genome.alphabet import IUPAC_DNA, translate
from carbon.inference.options import (
    Constraints,
    RuleOptions,
    SamplingKeywords,
    SamplingRule,
    SearchOptions,
    StrategyName,
    check_choice,
)

_MAX_CALLS = 10**6


class DesignOptions(SamplingKeywords, total=False):
    """The options of `carbon design` as keyword arguments; omitted keys take the defaults.

    They are the fields of `DesignConfig`, `SamplingRule`, `Constraints` and `RuleOptions`.
    """

    strategy: StrategyName
    calls: int
    batch: int
    width: int
    initial_temperature: float
    final_temperature: float
    within: float
    length_bp: int | None
    start: str | None
    prompt: str
    goals: Sequence[str | float]
    num_designs: int
    seed: int
    tags: Sequence[str]
    records: str | Path | None
    timeout_seconds: float
    forbid: tuple[str, ...]
    require: tuple[str, ...]
    gc: tuple[float, float] | None
    gc_window_bp: int | None
    no_stop_frame: Literal[0, 1, 2] | None
    protein: str | None
    sites: tuple[str, ...]
    most_run_bp: int | None
    most_repeat_bp: int | None
    least_kcal: float | None
    least_edits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DesignConfig(SearchOptions):
    """Options of a design run; one call is one sequence, however many scoring functions there are.

    Attributes:
        length_bp: length of a design; the length of `start` or of the protein if None.
        start: a sequence that lineages begin from, if it satisfies the rules.
        prompt: DNA before every design, which conditions it.
        goals: for each scoring function `maximize`, `minimize` or a target number; `maximize` for
            all if empty.
        num_designs: number of designs to return.
        seed: seed of the random numbers.
        tags: metadata tags to condition on.
        rules: satisfied by every design.
        sampling: how whole sequences are drawn.
        records: FASTA, or folder of a corpus, to find the nearest record in.
        timeout_seconds: seconds for a batch, and for the start of a scoring function's process.

    Raises:
        UserError: a value is invalid, or contradicts another one.
    """

    length_bp: int | None = None
    start: str | None = None
    prompt: str = ""
    goals: Sequence[str | float] = ()
    num_designs: int = 10
    seed: int = 0
    tags: Sequence[str] = ()
    rules: Rules = field(default_factory=Rules)
    sampling: SamplingKeywords = field(default_factory=SamplingKeywords)
    records: str | Path | None = None
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.records is not None:
            object.__setattr__(self, "records", str(self.records))  # outputs name it
        check_choice("strategy", self.strategy, get_args(StrategyName))
        for name in ("calls", "batch", "width", "num_designs"):
            if not 1 <= (number := getattr(self, name)) <= _MAX_CALLS:
                raise UserError(f"{name} {number}: give 1 to {_MAX_CALLS:,}")
        if wrong := set(self.prompt.upper()) - set(IUPAC_DNA):
            raise UserError(f"the prompt: {min(wrong)!r} is not a letter of DNA")
        if self.start is not None and (not self.start or set(self.start.upper()) - set("ACGT")):
            raise UserError("the start: give only bases A, C, G and T")
        if not self.within >= 0:
            raise UserError(f"within {self.within}: give 0 or more")
        if not self.timeout_seconds > 0:
            raise UserError(f"timeout {self.timeout_seconds}: give more than 0 seconds")
        for temperature in (self.initial_temperature, self.final_temperature):
            SamplingRule(temperature=temperature)
        self.bases_bp  # noqa: B018 - report contradicting lengths now

    @property
    def bases_bp(self) -> int:
        """Return the length of a design.

        Raises:
            UserError: lengths contradict one another, or none is given.
        """
        protein = self.rules.constraints.protein
        lengths_bp = {
            "the length": self.length_bp,
            "the start": len(self.start) if self.start else None,
            "the protein": 3 * len(protein) if protein else None,
        }
        known = {name: length_bp for name, length_bp in lengths_bp.items() if length_bp is not None}
        if not known:
            raise UserError("no length: give one, or a start or a protein to take it from")
        if len(set(known.values())) > 1:
            listed = ", ".join(f"{name} has {length_bp}" for name, length_bp in known.items())
            raise UserError(f"lengths in bases do not fit: {listed}")
        length_bp = next(iter(known.values()))
        if length_bp < 1:
            raise UserError(f"length {length_bp}: give 1 base or more")
        return length_bp


def config_of(options: DesignOptions) -> DesignConfig:
    """Return the configuration that options describe; an empty protein is the start's translation.

    Raises:
        TypeError: there is no such option.
        UserError: a value is invalid, or contradicts another one.
    """
    others: dict[str, Any] = {**options}
    sampling, limits, rules = (
        _taken(others, kind) for kind in (SamplingRule, Constraints, RuleOptions)
    )
    if limits.get("protein") == "":
        if not (start := others.get("start")):
            raise UserError("--protein: give its letters, or a --start to translate")
        limits["protein"] = translate(start)
    constraints = Constraints(**limits)
    keywords: Any = sampling
    return DesignConfig(**others, rules=Rules(constraints=constraints, **rules), sampling=keywords)


def _taken(options: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Remove and return the options that are fields of a dataclass."""
    return {each.name: options.pop(each.name) for each in fields(kind) if each.name in options}
