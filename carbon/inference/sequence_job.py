"""Results for every sequence of a file: streamed by one process, or computed in blocks by workers.

A file is computed in blocks and can be resumed. Standard input is read once and standard output is
written at once, so there one process streams.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from carbon.parallel.driver import Job, run_job
from carbon.parallel.engines import MakeWorker
from carbon.parallel.options import WorkerOptions, is_streamed, workers_of

T = TypeVar("T")
R = TypeVar("R")
Sequence = tuple[str, str]
"""Name and bases."""
Rows = Iterator[tuple[str, str, T]]
"""Name and bases of each sequence, with its result."""

_BLOCK_SEQUENCES, _BLOCK_BP = 64, 400_000


class SequenceWorker(Generic[T]):
    """Computes a result for each sequence.

    Attributes:
        about: `settings`, which the output holds, and `identity` of the model.
    """

    about: dict[str, Any]

    def __init__(
        self,
        source: str,
        about: dict[str, Any],
        read: Callable[[Iterator[str]], Iterator[T]],
        pack: Callable[[T], Any],
    ) -> None:
        """Take how results are computed.

        Args:
            source: the file, for messages.
            about: see above.
            read: from sequences to the result of each.
            pack: a result as JSON holds it.
        """
        self.about = about
        self._source, self._read, self._pack = source, read, pack

    def stream(self, records: Iterable[Sequence]) -> Rows[T]:
        """Yield each record with its result."""
        return _read_named(records, self._read, self._source)

    def __call__(self, payload: list[Sequence]) -> list[Any]:
        """Return the packed result of each record."""
        return [self._pack(result) for _, _, result in self.stream(payload)]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceJob(Generic[T]):
    """What to compute for every sequence.

    Attributes:
        source: FASTA or FASTQ, or `-`.
        output: a file, None for standard output.
        make: makes a `SequenceWorker`.
        unpack: from bases and what a worker packed to the result.
        asked: what else the results follow from.
        resume: continue the journal of an earlier run.
    """

    source: str
    output: str | None
    make: MakeWorker
    unpack: Callable[[str, Any], T]
    asked: dict[str, Any]
    resume: bool


def why_streamed(source: str, output: str | None) -> str | None:
    """Return why one process has to compute a job, or None."""
    if source == "-":
        return "standard input is read by one process"
    return None if output else "standard output is written by one process"


def run_sequence_job(
    options: WorkerOptions,
    job: SequenceJob[T],
    records: Iterable[Sequence],
    write: Callable[[dict[str, Any], Rows[T]], R],
) -> R:
    """Compute a result for every sequence, and write the results in order.

    Args:
        options: that choose the engine.
        job: what to compute.
        records: the sequences, which a stream reads once.
        write: takes the settings, and name, bases and result of each sequence.

    Returns:
        What `write` returns.
    """
    from carbon.progress import track

    if is_streamed(options, why_streamed(job.source, job.output)):
        worker: Any = job.make()
        return write(worker.about["settings"], track(worker.stream(records), "sequences"))
    with workers_of(options, job.make) as workers:
        about = workers.about()
        blocks = _job_of(job, about)
        return run_job(
            blocks, workers, lambda results: write(about["settings"], _rows(job, results))
        )


def _job_of(job: SequenceJob[T], about: dict[str, Any]) -> Job[list[Sequence]]:
    from carbon.genome import read_sequences
    from carbon.io.files import content_sha256

    inputs = {"sequences": content_sha256(job.source)}
    return Job(
        description="sequences",
        output=Path(job.output or "-"),
        settings=about["settings"] | about["identity"] | job.asked | inputs,
        check=lambda: sum(1 for _ in read_sequences(job.source)),
        blocks=lambda: _blocks(read_sequences(job.source)),
        source=job.source,
        resume=job.resume,
    )


def _rows(job: SequenceJob[T], results: Iterator[tuple[list[Sequence], list[Any]]]) -> Rows[T]:
    for block, packed in results:
        for (name, bases), each in zip(block, packed, strict=True):
            yield name, bases, job.unpack(bases, each)


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


def _read_named(
    records: Iterable[tuple[str, str]], read: Callable[[Iterator[str]], Iterator[T]], path: str
) -> Iterator[tuple[str, str, T]]:
    """Return the name and the bases of each record, with what `read` makes of its bases.

    Only what is read and not yet answered is in memory.

    Raises:
        ModelError: the model says nothing finite of a record, whose name is told.
    """
    waiting: deque[tuple[str, str]] = deque()

    def sequences() -> Iterator[str]:
        for record in records:
            waiting.append(record)
            yield record[1]

    return _named(read(sequences()), waiting, path)


def _named(
    results: Iterator[T], waiting: deque[tuple[str, str]], path: str
) -> Iterator[tuple[str, str, T]]:
    from carbon.inference.checks import NotFinite

    try:
        for result in results:
            yield *waiting.popleft(), result
    except NotFinite:
        raise NotFinite(f"{path}: record '{waiting[0][0]}'") from None
