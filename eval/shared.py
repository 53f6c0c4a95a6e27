"""A run that several processes share, through the folder of blocks that `carbon.blocks` keeps.

A block is a piece of one task for one entrant, so that several can be at one model and one task,
and nobody waits between two tasks. When all are there, one process writes the records.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from carbon.__version__ import __version__
from carbon.blocks.crew import Crew
from carbon.blocks.journal import refuse_journal
from carbon.blocks.work import Results, Work, run_work
from carbon.errors import UserError
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
from eval.records import Json
from eval.suite import Memory, Part, Suite, check_output, parts_of, record_path


class _Record(NamedTuple):
    """A record to write, what it follows from, and the pieces of its examples."""

    path: Path
    part: Part
    job: Json
    pieces: list[range]


class _Piece(NamedTuple):
    record: _Record
    examples: range


class _Answer(NamedTuple):
    """What comes of a piece, as JSON holds it."""

    context_bp: int | None
    batches: list[Batch]


def shared_output(suite: Suite) -> Path:
    """Return the folder of the records, beside which that of the blocks lies."""
    return suite.output.resolve()


def run_shared(suite: Suite, crew: Crew | None) -> list[Path] | None:
    """Run everything that is not done, among others; return the records if it was us who wrote."""
    memory, output = Memory(suite), shared_output(suite)
    records = _records(suite, memory)
    pieces = [_Piece(record, piece) for record in records for piece in record.pieces]

    def check() -> int:
        check_output(suite)
        for record in records:
            if not is_written(record.path, record.job):
                refuse_journal(record.path)
        return len(pieces)

    work = Work(
        what="blocks of examples",
        output=output,
        job={"carbon": __version__} | {f"{r.part.task.name}/{r.path.stem}": r.job for r in records},
        check=check,
        blocks=lambda: ([piece] for piece in pieces),
        block_records=1,
        even=True,
        compute=lambda block: _answer(block[0], memory),
        resume=suite.resume,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    return run_work(work, crew, lambda results: _write(records, memory, results))


def _records(suite: Suite, memory: Memory) -> list[_Record]:
    parts = list(enumerate(parts_of(suite)))
    made: dict[int, _Record] = {}
    for task in suite.tasks:  # each is prepared but once
        prepared = memory.prepared(task)
        made |= {
            number: _Record(
                record_path(suite, part),
                part,
                job_of(prepared, part.entrant),
                pieces_of(part.entrant, prepared.examples),
            )
            for number, part in parts
            if part.task is task
        }
    return [made[number] for number, _ in parts]


def _answer(piece: _Piece, memory: Memory) -> _Answer | None:
    """Put the questions of a piece; None where their record is there."""
    path, part, job, _ = piece.record
    if is_written(path, job):
        return None
    prepared, contender = memory.prepared(part.task), memory.contender(part)
    context_bp = context_bp_of(contender)
    asked = fitting(prepared.examples[piece.examples.start : piece.examples.stop], context_bp)
    return _Answer(context_bp, list(answered(part, prepared, contender, [asked])))


def _write(
    records: Sequence[_Record], memory: Memory, results: Results[list[_Piece]]
) -> list[Path]:
    """Write the records that are not there: those that earlier runs have left, and a merge."""
    found = (answer for _, answer in results)
    for record in records:
        answers = list(islice(found, len(record.pieces)))
        if not is_written(record.path, record.job):
            _write_record(record, memory, answers)
    return [record.path for record in records]


def _write_record(record: _Record, memory: Memory, answers: Sequence[Any]) -> None:
    if None in answers:
        raise UserError(
            f"{record.path}: was there when the run began; give the command again, without --resume"
        )
    told = [_Answer(*answer) for answer in answers]
    batches = [batch for answer in told for batch in answer.batches]
    context_bp = next((answer.context_bp for answer in told), None)
    prepared = memory.prepared(record.part.task)
    write_answers(record.path, prepared, record.part.entrant, context_bp, batches)
