"""What a model makes of every sequence of a file, by one process or by several."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from carbon.blocks.crew import Crew
from carbon.verbs.common import read_named

T = TypeVar("T")
R = TypeVar("R")
Sequence = tuple[str, str]
"""Name and bases."""

_BLOCK_SEQUENCES, _BLOCK_BP = 64, 400_000  # that one of several processes takes at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceJob(Generic[T]):
    """What is made of every sequence.

    Attributes:
        source: FASTA or FASTQ, or `-`.
        output: a file, None for standard output.
        job: everything that follows from the command, and of what model.
        read: from sequences to what is made of each.
        packed: that, as JSON holds it.
        unpacked: from bases and what is packed.
        resume: go on with what several processes have left.
    """

    source: str
    output: str | None
    job: dict[str, Any]
    read: Callable[[Iterator[str]], Iterator[T]]
    packed: Callable[[T], Any]
    unpacked: Callable[[str, Any], T]
    resume: bool


def why_alone(source: str, output: str | None) -> str | None:
    """Say why several processes cannot share a job, or None."""
    if source == "-":
        return "standard input is read by one process; save it as a file"
    return None if output else "standard output is written by one process; give --output"


def run_sequence_job(
    job: SequenceJob[T],
    records: Iterable[Sequence],
    crew: Crew | None,
    write: Callable[[Iterator[tuple[str, str, T]]], R],
) -> R | None:
    """Have something made of every sequence, and written by one process, in order.

    Args:
        job: what is made.
        records: name and bases; of one process they are read once, as of a pipe.
        crew: the processes that share it; None for this one alone.
        write: takes name, bases and what was made.

    Returns:
        What `write` returns; None where another process writes.
    """
    from carbon.blocks.work import Work, is_shared, run_work
    from carbon.console import track
    from carbon.genome import read_sequences
    from carbon.sums import content_sha256

    output = Path(job.output or "-")
    if why_alone(job.source, job.output) or not is_shared(crew, output):
        return write(track(read_named(records, job.read, job.source), "sequences"))
    work = Work(
        what="sequences",
        output=output,
        job=job.job | {"sequences": content_sha256(job.source)},
        check=lambda: sum(1 for _ in read_sequences(job.source)),
        blocks=lambda: _blocks(read_sequences(job.source)),
        block_records=_BLOCK_SEQUENCES,
        even=False,
        compute=lambda block: [
            job.packed(found) for _, _, found in read_named(block, job.read, job.source)
        ],
        resume=job.resume,
    )
    return run_work(work, crew, lambda results: write(_each(job, results)))


def _each(
    job: SequenceJob[T], results: Iterator[tuple[list[Sequence], list[Any]]]
) -> Iterator[tuple[str, str, T]]:
    for block, packed in results:
        for (name, bases), each in zip(block, packed, strict=True):
            yield name, bases, job.unpacked(bases, each)


def _blocks(records: Iterable[Sequence]) -> Iterator[list[Sequence]]:
    block: list[Sequence] = []
    block_bp = 0
    for record in records:
        block.append(record)
        block_bp += len(record[1])
        if len(block) == _BLOCK_SEQUENCES or block_bp >= _BLOCK_BP:
            yield block
            block, block_bp = [], 0
    if block:
        yield block
