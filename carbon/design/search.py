"""The record of a corpus that a design is most like: by shared k-mers, then by edit distance."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from carbon.corpus import read_manifest
from carbon.corpus.schema import parquet
from carbon.design.functions import Oracle
from carbon.design.goals import best, fronts
from carbon.design.rules import Judge
from carbon.design.strategies import WAYS, Candidate, Proposal, Search
from carbon.errors import UserError
from carbon.genome import read_sequences, reverse_complement
from carbon.genome.kmers import canonical_kmers

NEAREST_K = 16
"""Of 100 million bases on both strands one in 20 has a given one by chance: 2e8 / 4^16."""


class Nearest(NamedTuple):
    """The record that shares most 16-mers with a design, of either strand.

    Attributes:
        record: its name.
        shared: which part of the design's 16-mers it has.
        edits: fewest substitutions, insertions and deletions from the design to a stretch of it.
    """

    record: str
    shared: float
    edits: int


def records_of(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield name and bases of what stands in a FASTA, or of the training records of a corpus.

    Raises:
        CorpusError, GenomeError: it is neither.
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
    """Return the nearest record of each design; None where none shares a 16-mer with it.

    The records are read once, one in memory at a time beside those that are nearest so far.
    """
    kmers = [np.unique(canonical_kmers(bases, NEAREST_K)) for bases in designs]
    sought, place = np.unique(np.concatenate([*kmers, []]).astype(np.uint64), return_inverse=True)
    owner = np.repeat(np.arange(len(designs)), [len(each) for each in kmers])
    most = np.zeros(len(designs))
    found: dict[int, tuple[str, str]] = {}
    for name, bases in records:
        is_there = np.isin(sought, canonical_kmers(bases, NEAREST_K))
        shared = np.bincount(owner, is_there[place], minlength=len(designs))
        for n in np.flatnonzero(shared > most).tolist():
            most[n], found[n] = shared[n], (name, bases)
    return [
        Nearest(found[n][0], most[n] / len(kmers[n]), edits_within(design, found[n][1]))
        if n in found
        else None
        for n, design in enumerate(designs)
    ]


def edits_within(design: str, record: str) -> int:
    """Return the edit distance from a design to the nearest stretch of a record, either strand."""
    return min(
        _distance(strand, record.upper(), "HW") for strand in (design, reverse_complement(design))
    )


def edits_between(one: str, other: str) -> int:
    """Return how many substitutions, insertions and deletions make one sequence the other.

    >>> edits_between("ACGT", "AGGTT")
    2
    """
    return _distance(one, other, "NW")


def check_distances() -> None:
    """Raise UserError unless edit distances can be computed."""
    _distance("A", "A", "NW")


def _distance(query: str, target: str, mode: str) -> int:
    try:
        import edlib
    except ImportError:
        raise UserError("distances need edlib: pip install 'carbon-dna[design]'") from None
    return int(edlib.align(query, target, mode=mode, task="distance")["editDistance"])


_MOST_EMPTY = 50  # rounds in a row that propose nothing new

Keep = Callable[[list[Any]], None]


def run_search(
    search: Search,
    judge: Judge,
    oracles: Sequence[Oracle],
    kept: Iterable[list[Any]] = (),
    keep: Keep = lambda measured: None,
    advance: Callable[[int], None] = lambda calls: None,
) -> list[Candidate]:
    """Measure sequences until the calls are spent, or the way has enough, or nothing new comes.

    Args:
        search: what the way goes by.
        judge: tells what keeps to the rules.
        oracles: one for each goal.
        kept: rounds of an earlier run, as `keep` got them.
        keep: gets every round when it is measured, as JSON holds it.
        advance: is told of calls.

    Returns:
        All that was measured, in order.

    Raises:
        UserError: an oracle fails.
    """
    history = [_unpacked(each) for block in kept for each in block]
    for _ in rounds(search, judge, oracles, history, keep, advance):
        pass
    return history


def rounds(
    search: Search,
    judge: Judge,
    oracles: Sequence[Oracle],
    history: list[Candidate],
    keep: Keep = lambda measured: None,
    advance: Callable[[int], None] = lambda calls: None,
) -> Iterator[list[Candidate]]:
    """Go on with a search as `run_search` does, and yield what each round has measured.

    Args:
        search: what the way goes by.
        judge: tells what keeps to the rules.
        oracles: one for each goal.
        history: what was measured so far, to which every round is added.
        keep: gets every round when it is measured, as JSON holds it.
        advance: is told of calls.
    """
    seen = {candidate.bases for candidate in history}
    number, num_empty = (history[-1].round + 1 if history else 0), 0
    way = WAYS[search.way]
    while len(history) < search.calls and not way.is_done(search, history):
        proposals = _new(way.propose(search, history, number), seen, judge)
        proposals = proposals[: search.calls - len(history)]
        num_empty = 0 if proposals else num_empty + 1
        if num_empty == _MOST_EMPTY:
            break
        if proposals:
            measured = _measured(search, oracles, proposals, len(history), number)
            keep([_packed(each) for each in measured])
            history += measured
            seen |= {each.bases for each in measured}
            advance(len(measured))
            yield measured
        number += 1


def found_so_far(history: Sequence[Candidate]) -> dict[str, Any]:
    """Return what was measured by one oracle, ready for JSON: the largest values first.

    Returns:
        `candidates`, each with `name`, `value`, `nats_per_base`, `round`, `parent`, `bases`, and
        `front`: whether no other has both a larger value and a larger likelihood.
    """
    front = set(fronts(np.array([[c.values[0], -c.nats_per_base] for c in history]), 1)[0])
    found = [
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
    return {"candidates": sorted(found, key=lambda each: -each["value"])}


def chosen(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    """Return the designs that are wanted, the best first, as many as there are."""
    counted = WAYS[search.way].counted(search, history)
    if not counted:
        return []
    return [counted[n] for n in best(search.gains(counted), search.wanted)]


def _new(proposals: Sequence[Proposal], seen: set[str], judge: Judge) -> list[Proposal]:
    once = {proposal.bases: proposal for proposal in reversed(proposals)}
    first = [each for each in proposals if once[each.bases] is each]
    return [each for each in first if each.bases not in seen and judge.keeps(each.bases)]


def _measured(
    search: Search,
    oracles: Sequence[Oracle],
    proposals: Sequence[Proposal],
    num_before: int,
    round_number: int,
) -> list[Candidate]:
    texts = [proposal.bases for proposal in proposals]
    names = [f"design_{num_before + n}" for n in range(1, len(texts) + 1)]
    values = zip(*(oracle.values(names, texts) for oracle in oracles), strict=True)
    surprises = search.proposer.nats_per_base(texts)
    return [
        Candidate(num_before + n, round_number, proposal.parent, proposal.bases, found, nats)
        for n, (proposal, found, nats) in enumerate(
            zip(proposals, values, surprises, strict=True), start=1
        )
    ]


def _packed(candidate: Candidate) -> list[Any]:
    return [
        candidate.number,
        candidate.round,
        candidate.parent,
        candidate.bases,
        candidate.values,
        candidate.nats_per_base,
    ]


def _unpacked(packed: Sequence[Any]) -> Candidate:
    number, round_number, parent, bases, values, nats = packed
    return Candidate(number, round_number, parent, bases, tuple(values), nats)
