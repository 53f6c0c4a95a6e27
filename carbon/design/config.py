"""What is asked for, checked, and the search that follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from carbon.design.goals import Goal, goals_for
from carbon.design.proposals import Proposer
from carbon.design.rules import Judge, Rules
from carbon.design.search import check_distances, records_of
from carbon.design.strategies import WAYS, Search
from carbon.errors import UserError
from carbon.genome.alphabet import IUPAC_DNA
from carbon.inference.generate.prompts import SamplingRule
from carbon.inference.options import SamplingOptions, SearchOptions, check_choice
from carbon.inference.runner import ModelRunner

_MOST_CALLS = 10**6


class DesignOptions(SearchOptions, total=False):
    """The fields of `DesignTask`, as keyword arguments; what is not given has its default."""

    length_bp: int | None
    start: str | None
    prompt: str
    goals: Sequence[str | float]
    num_designs: int
    seed: int
    tags: Sequence[str]
    rules: Rules
    sampling: SamplingOptions
    records: str | None
    timeout_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DesignTask:
    """What is asked for.

    Attributes:
        length_bp: of a design; that of `start` or of the protein if None.
        start: a sequence that lineages begin from, if it keeps to the rules.
        prompt: DNA before every design, which conditions it.
        goals: of each oracle `most`, `least` or a number to aim at; the most of all if there are
            none.
        way: one of `WAYS`.
        calls: most sequences to measure; one call is one sequence, whatever the number of oracles.
        batch: most sequences that an oracle is asked for at once, which is a round.
        width: lineages of a beam, or of `infill`.
        hot: temperature of their first round.
        cold: temperature when the calls are spent.
        within: how far from its target a value may be that is not rejected.
        num_designs: that are wanted.
        seed: of the random numbers.
        tags: metadata tags to condition on.
        rules: that every design keeps to.
        sampling: how whole sequences are drawn.
        records: FASTA, or folder of a corpus, of which the nearest record is sought.
        timeout_seconds: for a batch, and for the start of an oracle's process.

    Raises:
        UserError: a value makes no sense, or does not fit another.
    """

    length_bp: int | None = None
    start: str | None = None
    prompt: str = ""
    goals: Sequence[str | float] = ()
    way: str = "beam"
    calls: int = 1000
    batch: int = 16
    width: int = 4
    hot: float = 1.2
    cold: float = 0.8
    within: float = 0.0
    num_designs: int = 10
    seed: int = 0
    tags: Sequence[str] = ()
    rules: Rules = field(default_factory=Rules)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    records: str | None = None
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        check_choice("way", self.way, WAYS)
        least = {"calls": self.calls, "batch": self.batch, "width": self.width}
        for name, number in (least | {"num_designs": self.num_designs}).items():
            if not 1 <= number <= _MOST_CALLS:
                raise UserError(f"{name} {number}: give 1 to {_MOST_CALLS:,}")
        if wrong := set(self.prompt.upper()) - set(IUPAC_DNA):
            raise UserError(f"the prompt: {min(wrong)!r} is no letter of DNA")
        if self.start is not None and (not self.start or set(self.start.upper()) - set("ACGT")):
            raise UserError("the start: give bases A, C, G and T alone")
        if not self.within >= 0:
            raise UserError(f"within {self.within}: give 0 or more")
        if not self.timeout_seconds > 0:
            raise UserError(f"timeout {self.timeout_seconds}: give more than 0 seconds")
        for temperature in (self.hot, self.cold):
            SamplingRule(temperature=temperature)
        self.bases_bp  # noqa: B018 - what does not fit is told at once

    @property
    def bases_bp(self) -> int:
        """Return the length of a design.

        Raises:
            UserError: lengths do not fit one another, or none is known.
        """
        protein = self.rules.constraints.protein
        known = {
            "the length": self.length_bp,
            "the start": len(self.start) if self.start else None,
            "the protein": 3 * len(protein) if protein else None,
        }
        given = {name: length_bp for name, length_bp in known.items() if length_bp is not None}
        if not given:
            raise UserError("no length: give one, or a start or a protein to take it from")
        if len(set(given.values())) > 1:
            told = ", ".join(f"{name} has {length_bp}" for name, length_bp in given.items())
            raise UserError(f"lengths in bases do not fit: {told}")
        length_bp = next(iter(given.values()))
        if length_bp < 1:
            raise UserError(f"length {length_bp}: give 1 base or more")
        return length_bp

    def goals_for(self, num_oracles: int) -> tuple[Goal, ...]:
        """Return a goal for each oracle.

        Raises:
            UserError: there are others than oracles, or the way does not go by them.
        """
        goals = goals_for(self.goals, num_oracles)
        WAYS[self.way].check(goals)
        return goals


def search_of(reader: ModelRunner, task: DesignTask, num_oracles: int) -> tuple[Search, Judge]:
    """Return the search of a task, and who tells what keeps to its rules.

    Raises:
        UserError: nothing keeps to the rules, or something does not fit the model or the oracles.
    """
    reader.vocabulary.prefix(tuple(task.tags))
    if task.start or task.records:
        check_distances()
    if task.records:
        next(records_of(task.records), None)  # what cannot be read is told before the search
    goals = task.goals_for(num_oracles)
    judge = Judge(task.rules, task.prompt, task.bases_bp)
    start = task.start.upper() if task.start else None
    proposer = Proposer(
        reader=reader,
        prompt=task.prompt,
        length_bp=task.bases_bp,
        rule=SamplingRule(**task.sampling),
        constraints=task.rules.exact,
        seed=task.seed,
        tags=tuple(task.tags),
    )
    WAYS[task.way].check_proposer(proposer)
    search = Search(
        way=task.way,
        proposer=proposer,
        goals=goals,
        calls=task.calls,
        batch=task.batch,
        start=start if start and judge.keeps(start) else None,
        width=task.width,
        hot=task.hot,
        cold=task.cold,
        within=task.within,
        wanted=task.num_designs,
    )
    return search, judge
