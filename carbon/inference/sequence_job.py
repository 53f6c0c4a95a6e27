"""Compute a result for every sequence of a file, in one process or in blocks by workers.

Blocks can be resumed. Standard input and standard output are streams, so one process handles them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from carbon.parallel.driver import Job, in_blocks, run_job
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
        about: `settings`, which the output stores, and `identity` of the model.
    """

    about: dict[str, Any]

    def __init__(
        self,
        source: str,
        about: dict[str, Any],
        compute: Callable[[Iterator[str]], Iterator[T]],
        pack: Callable[[T], Any],
    ) -> None:
        """Store how results are computed.

        Args:
            source: the file, for messages.
            about: see above.
            compute: function from sequences to their results, lazily and in order.
            pack: function from a result to JSON.
        """
        self.about = about
        self._source, self._compute, self._pack = source, compute, pack

    def stream(self, records: Iterable[Sequence]) -> Rows[T]:
        """Yield each record with its result."""
        return _with_names(records, self._compute, self._source)

    def __call__(self, payload: list[Sequence]) -> list[Any]:
        """Return the packed result of each record."""
        return [self._pack(result) for _, _, result in self.stream(payload)]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceJob(Generic[T]):
    """The computation, its input and its output.

    Attributes:
        source: FASTA or FASTQ, or `-`.
        output: a file, None for standard output.
        make: makes a `SequenceWorker`.
        unpack: function from bases and a packed result to the result.
        inputs: further settings that the results depend on.
        resume: continue the journal of an earlier run.
    """

    source: str
    output: str | None
    make: MakeWorker
    unpack: Callable[[str, Any], T]
    inputs: dict[str, Any]
    resume: bool


def streaming_reason(source: str, output: str | None) -> str | None:
    """Return why a job must run in one process, or None."""
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
        options: engine and workers.
        job: the computation.
        records: the sequences; a stream is read once.
        write: takes the settings, and name, bases and result of each sequence.

    Returns:
        The return value of `write`.
    """
    from carbon.progress import track

    if is_streamed(options, streaming_reason(job.source, job.output)):
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

    digests = {"sequences": content_sha256(job.source)}
    return Job(
        description="sequences",
        output=Path(job.output or "-"),
        settings=about["settings"] | about["identity"] | job.inputs | digests,
        check=lambda: sum(1 for _ in read_sequences(job.source)),
        blocks=lambda: in_blocks(
            read_sequences(job.source), _BLOCK_SEQUENCES, _BLOCK_BP, lambda record: len(record[1])
        ),
        source=job.source,
        resume=job.resume,
    )


def _rows(job: SequenceJob[T], results: Iterator[tuple[list[Sequence], list[Any]]]) -> Rows[T]:
    for block, packed in results:
        for (name, bases), each in zip(block, packed, strict=True):
            yield name, bases, job.unpack(bases, each)


def _with_names(
    records: Iterable[tuple[str, str]], compute: Callable[[Iterator[str]], Iterator[T]], path: str
) -> Iterator[tuple[str, str, T]]:
    """Yield name, bases and result of each record.

    Only records whose result is pending are held in memory.

    Raises:
        ModelError: a result is not finite; the message names the record.
    """
    waiting: deque[tuple[str, str]] = deque()

    def sequences() -> Iterator[str]:
        for record in records:
            waiting.append(record)
            yield record[1]

    return _named(compute(sequences()), waiting, path)


def _named(
    results: Iterator[T], waiting: deque[tuple[str, str]], path: str
) -> Iterator[tuple[str, str, T]]:
    from carbon.inference.checks import NotFinite

    try:
        for result in results:
            yield *waiting.popleft(), result
    except NotFinite:
        raise NotFinite(f"{path}: record '{waiting[0][0]}'") from None
