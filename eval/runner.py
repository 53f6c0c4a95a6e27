"""Models and baselines through the tasks, one record each, as one job whose blocks workers share.

A block is a piece of one task for one entrant, so several workers can work on one model and one
task, and no worker waits between two tasks. Each record is written as soon as its blocks are
computed. A record that exists is left alone.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from carbon.__version__ import __version__
from carbon.errors import UserError
from carbon.io.locks import locked_folder
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import InProcess
from eval import cost
from eval.answers import (
    Batch,
    answered,
    fitting,
    is_written,
    job_of,
    pieces_of,
    write_answers,
)
from eval.records import Json
from eval.suite import Memory, Part, Suite, check_output, check_suite, parts_of, record_path


class _Record(NamedTuple):
    """A record to write, everything it follows from, and the pieces of its examples."""

    number: int
    path: Path
    part: Part
    job: Json
    pieces: list[range]


class _Piece(NamedTuple):
    record: _Record
    examples: range


class _Answer(NamedTuple):
    """The result of a piece, as JSON holds it."""

    context_bp: int | None
    batches: list[Batch]
    hardware: Json


class Answerer:
    """A worker: pieces of tasks in, the answers of an entrant out; holds one model at a time.

    Attributes:
        about: version of Carbon, and the identity of every entrant.
    """

    def __init__(self, suite: Suite) -> None:
        """Store the suite; models are loaded when the first of their pieces comes."""
        self._memory, self._parts = Memory(suite), parts_of(suite)
        entrants = {part.entrant.shown_as: part.entrant.identity for part in self._parts}
        self.about = {"carbon": __version__, "entrants": entrants}

    def __call__(self, payload: tuple[int, int, int]) -> _Answer:
        """Answer the examples from one number up to another, for a part of the suite."""
        number, start, stop = payload
        part = self._parts[number]
        prepared, model = self._memory.prepared(part.task), self._memory.model(part)
        asked = fitting(prepared.examples[start:stop], model.context_bp)
        batches = list(answered(part, prepared, model, asked))
        return _Answer(model.context_bp, batches, cost.hardware())


def run_suite(suite: Suite, workers: Workers | None = None) -> list[Path]:
    """Run everything that is not done.

    Args:
        suite: tasks, models and options.
        workers: each an `Answerer` of this suite; None for this process alone.

    Returns:
        The records, baselines first.

    Raises:
        UserError: there are records and no wish to resume, or they are of something else; a dataset
            is missing or of another task; another run writes to the folder.
    """
    check_suite(suite)
    workers = workers or Workers(InProcess(partial(Answerer, suite)), resume=suite.resume)
    with locked_folder(suite.output):
        check_output(suite)
        return _run(suite, workers)


def _run(suite: Suite, workers: Workers) -> list[Path]:
    memory = Memory(suite)
    records = _records(suite, memory)
    pieces = [_Piece(record, piece) for record in records for piece in record.pieces]
    there = {record.path for record in records if is_written(record.path, record.job)}
    if len(there) < len(records):
        workers.about(piece for piece in pieces if piece.record.path not in there)
    job = Job(
        description="blocks of examples",
        output=suite.output.resolve(),
        settings={"carbon": __version__}
        | {f"{r.part.task.name}/{r.path.stem}": r.job for r in records},
        check=lambda: len(pieces),
        blocks=lambda: ([piece] for piece in pieces),
        payload=_payload,
        needed=lambda block: block[0].record.path not in there,
        name=_name,
    )
    return run_job(job, workers, lambda results: _write(records, memory, results))


def _name(block: list[_Piece]) -> str:
    record, examples = block[0]
    who = f"{record.part.task.name}, {record.part.entrant.shown_as}"
    return f"{who}: examples {examples.start + 1}-{examples.stop}"


def _payload(block: list[_Piece]) -> tuple[int, int, int]:
    record, examples = block[0]
    return record.number, examples.start, examples.stop


def _records(suite: Suite, memory: Memory) -> list[_Record]:
    parts = list(enumerate(parts_of(suite)))
    made: dict[int, _Record] = {}
    for task in suite.tasks:  # each is prepared only once
        prepared = memory.prepared(task)
        made |= {
            number: _Record(
                number,
                record_path(suite, part),
                part,
                job_of(prepared, part.entrant),
                pieces_of(part.entrant, prepared.examples),
            )
            for number, part in parts
            if part.task is task
        }
    return [made[number] for number, _ in parts]


def _write(
    records: Sequence[_Record], memory: Memory, results: Iterator[tuple[list[_Piece], Any]]
) -> list[Path]:
    """Write the records that do not exist, each when its last piece is there."""
    answers = (answer for _, answer in results)
    for record in records:
        found = list(islice(answers, len(record.pieces)))
        if not is_written(record.path, record.job):
            _write_record(record, memory, found)
    return [record.path for record in records]


def _write_record(record: _Record, memory: Memory, answers: Sequence[Any]) -> None:
    if None in answers:
        raise UserError(
            f"{record.path}: was there when the run began; give the command again with --resume"
        )
    told = [_Answer(*answer) for answer in answers]
    batches = [batch for answer in told for batch in answer.batches]
    context_bp = next((answer.context_bp for answer in told), None)
    hardware = told[0].hardware if told else cost.hardware()
    prepared = memory.prepared(record.part.task)
    write_answers(record.path, prepared, record.part.entrant, context_bp, batches, hardware)
