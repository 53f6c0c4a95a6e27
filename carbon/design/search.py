"""The search: propose, check and score sequences, round by round."""

from collections.abc import Iterator, Sequence

from carbon.design.config import DesignConfig
from carbon.design.designs import records_of
from carbon.design.distances import check_distances, far_apart
from carbon.design.functions import ScoringFunction
from carbon.design.goals import Goal, best, goals_for
from carbon.design.proposals import Proposer
from carbon.design.rules import RuleChecker
from carbon.design.strategies import STRATEGIES, Candidate, Proposal, Search
from carbon.inference.options import SamplingRule
from carbon.inference.runner import ModelRunner

_MAX_EMPTY_ROUNDS = 50  # in a row, without a new proposal


def search_of(runner: ModelRunner, config: DesignConfig, num_functions: int) -> Search:
    """Return the search that a config describes.

    Raises:
        UserError: no sequence satisfies the rules, or an option does not fit the model or the
            number of scoring functions.
    """
    runner.six_mers.prefix(tuple(config.tags))
    if config.start or config.records or config.rules.least_edits:
        check_distances()
    if config.records:
        next(records_of(config.records), None)  # an unreadable file is reported before the search
    goals = goals_of(config, num_functions)
    checker = RuleChecker(config.rules, config.prompt, config.bases_bp)
    start = config.start.upper() if config.start else None
    proposer = Proposer(
        runner=runner,
        prompt=config.prompt,
        length_bp=config.bases_bp,
        rule=SamplingRule(**config.sampling),
        constraints=config.rules.exact,
        seed=config.seed,
        tags=tuple(config.tags),
    )
    STRATEGIES[config.strategy].check_proposer(proposer)
    return Search(
        config=config,
        proposer=proposer,
        goals=goals,
        checker=checker,
        start=start if start and checker.accepts(start) else None,
    )


def goals_of(config: DesignConfig, num_functions: int) -> tuple[Goal, ...]:
    """Return a goal for each scoring function.

    Raises:
        UserError: the numbers of goals and functions differ, or the strategy needs other goals.
    """
    goals = goals_for(config.goals, num_functions)
    STRATEGIES[config.strategy].check(goals)
    return goals


def run_search(search: Search, functions: Sequence[ScoringFunction]) -> list[Candidate]:
    """Return all candidates of `rounds`, in order."""
    return [candidate for scored in rounds(search, functions, []) for candidate in scored]


def rounds(
    search: Search, functions: Sequence[ScoringFunction], history: list[Candidate]
) -> Iterator[list[Candidate]]:
    """Score sequences until the calls are used up, the strategy is done or nothing new is drawn.

    Args:
        search: options of the strategy.
        functions: one for each goal.
        history: candidates of an earlier run, if any; each round is appended to it.

    Yields:
        The candidates of each round.

    Raises:
        UserError: a scoring function fails.
    """
    seen = {candidate.bases for candidate in history}
    number, num_empty = (history[-1].round + 1 if history else 0), 0
    strategy = STRATEGIES[search.config.strategy]
    while len(history) < search.config.calls and not strategy.is_done(search, history):
        proposals = _new(strategy.propose(search, history, number), seen, search.checker)
        proposals = proposals[: search.config.calls - len(history)]
        num_empty = 0 if proposals else num_empty + 1
        if num_empty == _MAX_EMPTY_ROUNDS:
            break
        if proposals:
            scored = _scored(search, functions, proposals, len(history), number)
            history += scored
            seen |= {candidate.bases for candidate in scored}
            yield scored
        number += 1


def _new(proposals: Sequence[Proposal], seen: set[str], checker: RuleChecker) -> list[Proposal]:
    distinct = {proposal.bases: proposal for proposal in reversed(proposals)}
    first = [each for each in proposals if distinct[each.bases] is each]
    return [each for each in first if each.bases not in seen and checker.accepts(each.bases)]


def _scored(
    search: Search,
    functions: Sequence[ScoringFunction],
    proposals: Sequence[Proposal],
    num_before: int,
    round_number: int,
) -> list[Candidate]:
    sequences = [proposal.bases for proposal in proposals]
    names = [f"design_{num_before + n}" for n in range(1, len(sequences) + 1)]
    values = zip(*(function.values(names, sequences) for function in functions), strict=True)
    nats_per_base = search.proposer.nats_per_base(sequences)
    return [
        Candidate(num_before + n, round_number, proposal.parent, proposal.bases, scores, nats)
        for n, (proposal, scores, nats) in enumerate(
            zip(proposals, values, nats_per_base, strict=True), start=1
        )
    ]


def best_designs(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    """Return the best `search.config.num_designs` candidates that qualify, best first.

    A candidate that is too near a better one is passed over.
    """
    qualified = STRATEGIES[search.config.strategy].qualified(search, history)
    if not qualified:
        return []
    wanted, least_edits = search.config.num_designs, search.config.rules.least_edits
    gained = search.gains(qualified)
    num_ranked = wanted
    while True:
        ranked = [qualified[n] for n in best(gained, num_ranked)]
        chosen = far_apart((candidate.bases for candidate in ranked), least_edits, wanted)
        if len(chosen) == wanted or len(ranked) == len(qualified):
            return [ranked[n] for n in chosen]
        num_ranked *= 2
