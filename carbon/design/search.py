"""The search loop, the best candidates, and the nearest known records of designs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from carbon.corpus import read_manifest
from carbon.corpus.schema import parquet
from carbon.design.config import DesignConfig
from carbon.design.functions import ScoringFunction
from carbon.design.goals import Goal, best, fronts, goals_for
from carbon.design.proposals import Proposer
from carbon.design.rules import RuleChecker
from carbon.design.strategies import STRATEGIES, Candidate, Proposal, Search
from carbon.errors import UserError
from carbon.genome import read_sequences, reverse_complement
from carbon.genome.kmers import canonical_kmers
from carbon.inference.options import SamplingRule
from carbon.inference.runner import ModelRunner

NEAREST_K = 16
"""In 100 million bases, both strands, a given 16-mer occurs by chance with p = 1/20: 2e8 / 4^16."""


class Nearest(NamedTuple):
    """The record that shares most 16-mers with a design, on either strand.

    Attributes:
        record: its name.
        shared: share of the design's 16-mers that the record has.
        edits: edit distance from the design to the most similar stretch of the record.
    """

    record: str
    shared: float
    edits: int


def records_of(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield name and bases of the records of a FASTA, or of the training records of a corpus.

    Raises:
        CorpusError, GenomeError: the path is neither.
    """
    if not Path(path).is_dir():
        yield from read_sequences(path)
        return
    for name in sorted(read_manifest(path)["outputs"]):
        if "/train-" in name:
            with parquet(f"{path}/{name}") as source:
                for rows in source.iter_batches(256, columns=["record_id", "sequence"]):
                    columns = (column.to_pylist() for column in rows.columns)
                    yield from zip(*columns, strict=True)


def nearest_records(
    designs: Sequence[str], records: Iterable[tuple[str, str]]
) -> list[Nearest | None]:
    """Return the nearest record of each design; None if no record shares a 16-mer with it.

    Reads the records once. Keeps one in memory, and the nearest record of each design.
    """
    kmers = [np.unique(canonical_kmers(bases, NEAREST_K)) for bases in designs]
    sought, place = np.unique(np.concatenate([*kmers, []]).astype(np.uint64), return_inverse=True)
    owner = np.repeat(np.arange(len(designs)), [len(each) for each in kmers])
    most = np.zeros(len(designs))
    nearest: dict[int, tuple[str, str]] = {}
    for name, bases in records:
        is_shared = np.isin(sought, canonical_kmers(bases, NEAREST_K))
        shared = np.bincount(owner, is_shared[place], minlength=len(designs))
        for n in np.flatnonzero(shared > most).tolist():
            most[n], nearest[n] = shared[n], (name, bases)
    return [
        Nearest(nearest[n][0], most[n] / len(kmers[n]), edits_within(design, nearest[n][1]))
        if n in nearest
        else None
        for n, design in enumerate(designs)
    ]


def edits_within(design: str, record: str) -> int:
    """Return the edit distance to the most similar stretch of a record, on either strand."""
    return min(
        _distance(strand, record.upper(), "HW") for strand in (design, reverse_complement(design))
    )


def edits_between(first: str, second: str) -> int:
    """Return the edit distance: substitutions, insertions and deletions.

    >>> edits_between("ACGT", "AGGTT")
    2
    """
    return _distance(first, second, "NW")


def check_distances() -> None:
    """Raise UserError unless edit distances can be computed."""
    _distance("A", "A", "NW")


def _distance(query: str, target: str, mode: str) -> int:
    try:
        import edlib
    except ImportError:
        raise UserError("distances need edlib: pip install 'carbon-dna[design]'") from None
    return int(edlib.align(query, target, mode=mode, task="distance")["editDistance"])


_MAX_EMPTY_ROUNDS = 50  # in a row, without a new proposal

Store = Callable[[list[Any]], None]
"""Stores a scored round as values that JSON can represent."""


def _ignore(_: object) -> None:
    pass


def run_search(
    search: Search,
    checker: RuleChecker,
    functions: Sequence[ScoringFunction],
    stored: Iterable[list[Any]] = (),
    store: Store = _ignore,
    advance: Callable[[int], None] = _ignore,
) -> list[Candidate]:
    """Score sequences until the calls are used up, the strategy is done or nothing new is drawn.

    Args:
        search: options of the strategy.
        checker: of the rules.
        functions: one for each goal.
        stored: rounds of an earlier run, as passed to `store`.
        store: called with every scored round.
        advance: called with the number of new calls.

    Returns:
        All scored candidates, in order.

    Raises:
        UserError: a scoring function fails.
    """
    history = [_unpacked(packed) for block in stored for packed in block]
    for _ in rounds(search, checker, functions, history, store, advance):
        pass
    return history


def rounds(
    search: Search,
    checker: RuleChecker,
    functions: Sequence[ScoringFunction],
    history: list[Candidate],
    store: Store = _ignore,
    advance: Callable[[int], None] = _ignore,
) -> Iterator[list[Candidate]]:
    """Run or continue a search like `run_search`, and yield the candidates of each round.

    Appends each round to `history`, which holds the candidates scored so far.
    """
    seen = {candidate.bases for candidate in history}
    number, num_empty = (history[-1].round + 1 if history else 0), 0
    strategy = STRATEGIES[search.config.strategy]
    while len(history) < search.config.calls and not strategy.is_done(search, history):
        proposals = _new(strategy.propose(search, history, number), seen, checker)
        proposals = proposals[: search.config.calls - len(history)]
        num_empty = 0 if proposals else num_empty + 1
        if num_empty == _MAX_EMPTY_ROUNDS:
            break
        if proposals:
            scored = _scored(search, functions, proposals, len(history), number)
            store([list(astuple(candidate)) for candidate in scored])
            history += scored
            seen |= {candidate.bases for candidate in scored}
            advance(len(scored))
            yield scored
        number += 1


def candidates_to_json(history: Sequence[Candidate]) -> dict[str, Any]:
    """Return the candidates of a search with one scoring function for JSON, largest value first.

    Returns:
        `candidates`, each with `name`, `value`, `nats_per_base`, `round`, `parent`, `bases`, and
        `front`: whether no other candidate has both a larger value and a larger likelihood.
    """
    front = set(fronts(np.array([[c.values[0], -c.nats_per_base] for c in history]), 1)[0])
    candidates = [
        {
            "name": c.name,
            "value": c.values[0],
            "nats_per_base": c.nats_per_base,
            "round": c.round,
            "parent": c.parent,
            "front": n in front,
            "bases": c.bases,
        }
        for n, c in enumerate(history)
    ]
    return {"candidates": sorted(candidates, key=lambda candidate: -candidate["value"])}


def best_designs(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    """Return the best `search.config.num_designs` candidates that qualify, best first."""
    qualified = STRATEGIES[search.config.strategy].qualified(search, history)
    if not qualified:
        return []
    return [qualified[n] for n in best(search.gains(qualified), search.config.num_designs)]


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


def _unpacked(packed: Sequence[Any]) -> Candidate:
    number, round_number, parent, bases, values, nats = packed
    return Candidate(number, round_number, parent, bases, tuple(values), nats)


def goals_of(config: DesignConfig, num_functions: int) -> tuple[Goal, ...]:
    """Return a goal for each scoring function.

    Raises:
        UserError: the numbers of goals and functions differ, or the strategy needs other goals.
    """
    goals = goals_for(config.goals, num_functions)
    STRATEGIES[config.strategy].check(goals)
    return goals


def search_of(
    reader: ModelRunner, config: DesignConfig, num_functions: int
) -> tuple[Search, RuleChecker]:
    """Return the search that a config describes, and the checker of its rules.

    Raises:
        UserError: no sequence satisfies the rules, or an option does not fit the model or the
            number of scoring functions.
    """
    reader.vocabulary.prefix(tuple(config.tags))
    if config.start or config.records:
        check_distances()
    if config.records:
        next(records_of(config.records), None)  # an unreadable file is reported before the search
    goals = goals_of(config, num_functions)
    checker = RuleChecker(config.rules, config.prompt, config.bases_bp)
    start = config.start.upper() if config.start else None
    proposer = Proposer(
        reader=reader,
        prompt=config.prompt,
        length_bp=config.bases_bp,
        rule=SamplingRule(**config.sampling),
        constraints=config.rules.exact,
        seed=config.seed,
        tags=tuple(config.tags),
    )
    STRATEGIES[config.strategy].check_proposer(proposer)
    search = Search(
        config=config,
        proposer=proposer,
        goals=goals,
        start=start if start and checker.accepts(start) else None,
    )
    return search, checker
