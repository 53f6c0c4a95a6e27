"""Models and baselines through the tasks, one record each; stopped at any moment, it goes on.

What one process has done of a task is kept in a journal beside its record, a line a second or so,
and is not done again. A record that is there is left alone.
"""

from collections.abc import Iterator
from pathlib import Path

from carbon.__version__ import __version__
from carbon.blocks.crew import Crew
from carbon.blocks.journal import Journal
from carbon.blocks.work import is_shared
from carbon.console import progress
from carbon.locks import locked_folder
from eval.answers import (
    Batch,
    answered,
    context_bp_of,
    fitting,
    is_written,
    job_of,
    pieces_of,
    write_answers,
)
from eval.contract import Example
from eval.entrants import Contender, Entrant
from eval.shared import run_shared, shared_output
from eval.suite import (
    Memory,
    Part,
    Prepared,
    Suite,
    check_output,
    check_suite,
    parts_of,
    record_path,
)


def run_suite(suite: Suite, crew: Crew | None = None) -> list[Path] | None:
    """Run everything that is not done.

    Args:
        suite: what is run.
        crew: the processes that share it; None for this one alone.

    Returns:
        The records, baselines first; None where another process writes them.

    Raises:
        UserError: there are records and no wish to resume, or they are of something else; a dataset
            is missing or not that of its task; another run writes to the folder.
    """
    check_suite(suite)
    if is_shared(crew, shared_output(suite)):
        return run_shared(suite, crew)
    with locked_folder(suite.output):
        check_output(suite)
        memory = Memory(suite)
        return [_measure(part, suite, memory) for part in parts_of(suite)]


def _measure(part: Part, suite: Suite, memory: Memory) -> Path:
    """Put the questions to an entrant and write its record, unless it is there."""
    path, prepared = record_path(suite, part), memory.prepared(part.task)
    job = job_of(prepared, part.entrant)
    if is_written(path, job):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    contender = memory.contender(part)
    journal = Journal(path, job | {"carbon": __version__}, resume=suite.resume)
    try:
        _ask(part, prepared, contender, journal)
        batches = list(journal.kept())
        write_answers(path, prepared, part.entrant, context_bp_of(contender), batches)
    except BaseException:
        journal.say_what_is_kept()
        raise
    journal.remove()
    return path


def _ask(part: Part, prepared: Prepared, contender: Contender, journal: Journal) -> None:
    """Put the questions that are left, and keep what is answered."""
    kept: Iterator[Batch] = journal.kept()
    num_kept = sum(len(batch["results"]) for batch in kept)
    num_fitting = len(fitting(prepared.examples, context_bp_of(contender)))
    left = _left(part.entrant, prepared, context_bp_of(contender), num_kept)
    what = f"{part.task.name}: {part.entrant.shown_as}"
    with progress(what, num_fitting, num_kept) as advance:
        for batch in answered(part, prepared, contender, left):
            journal.add(batch)
            advance(len(batch["results"]))


def _left(
    entrant: Entrant, prepared: Prepared, context_bp: int | None, num_done: int
) -> Iterator[list[Example]]:
    """Yield the questions behind those that are done, a piece at a time."""
    for piece in pieces_of(entrant, prepared.examples):
        asked = fitting(prepared.examples[piece.start : piece.stop], context_bp)
        if left := asked[num_done:]:
            yield left
        num_done = max(0, num_done - len(asked))
