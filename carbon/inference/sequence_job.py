"""Compute a result for every sequence of a file, in one process or in blocks by workers.

Blocks can be resumed. Standard input and standard output are streams, so one process handles them.
"""

import base64
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.inference.checks import NotFinite
from carbon.inference.embed import Float32s
from carbon.inference.identity import checksums_of, identity_of
from carbon.inference.jobs import EmbedJob, ScoreJob, model_worker, workers_for
from carbon.inference.score import PER_BASE, PER_SEQUENCE, SequenceScore
from carbon.io import vectors as vector_files
from carbon.io.files import atomic_file, check_no_input, content_sha256, output_path
from carbon.io.tables import chosen_by_ending, write_parquet, write_tsv
from carbon.parallel.driver import Job, run_job
from carbon.parallel.options import WorkerOptions, device_here
from carbon.progress import say, track

if TYPE_CHECKING:
    from carbon.inference.model import Model

T = TypeVar("T")
R = TypeVar("R")
Sequence = tuple[str, str]
"""Name and bases."""
Rows = Iterator[tuple[str, str, T]]
"""Name and bases of each sequence, with its result."""

_BLOCK_SEQUENCES, _BLOCK_BP = 64, 400_000


class SequenceWorker(ABC, Generic[T]):
    """A worker that computes a result for each sequence of a file.

    Attributes:
        model: the loaded model.
        job: the job.
        about: `settings`, which the output stores, and `identity` of the model.
    """

    def __init__(self, source: str, model: "Model", job: Any) -> None:
        """Describe the model and the method; `source` is the file, for messages."""
        self.model, self.job, self._source = model, job, source
        named = {"model": job.loading.model, "yarn": model.yarn, **asdict(job.method)}
        identity = identity_of(model.runner, job.loading.model)
        self.about: dict[str, Any] = {
            "settings": named | {"dtype": model.dtype} | self.facts() | checksums_of(identity),
            "identity": identity,
        }

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return further settings that the output stores."""

    @abstractmethod
    def compute(self, sequences: Iterator[str]) -> Iterator[T]:
        """Yield the result of each sequence, lazily and in order."""

    @abstractmethod
    def pack(self, result: T) -> Any:
        """Return a result as JSON, without rounding."""

    @staticmethod
    @abstractmethod
    def unpack(bases: str, packed: Any) -> T:
        """Return the result of a sequence from JSON."""

    def stream(self, records: Iterable[Sequence]) -> Rows[T]:
        """Yield each record with its result; only records without a result are held in memory.

        Raises:
            ModelError: a result is not finite; the message names the record.
        """
        waiting: deque[Sequence] = deque()

        def sequences() -> Iterator[str]:
            for record in records:
                waiting.append(record)
                yield record[1]

        try:
            for result in self.compute(sequences()):
                yield *waiting.popleft(), result
        except NotFinite:
            raise NotFinite(f"{self._source}: record '{waiting[0][0]}'") from None

    def __call__(self, payload: list[Sequence]) -> list[Any]:
        """Return the packed result of each record."""
        return [self.pack(result) for _, _, result in self.stream(payload)]


def streaming_reason(source: str, output: Path | None) -> str | None:
    """Return why a job must run in one process, or None."""
    if source == "-":
        return "standard input is read by one process"
    return None if output else "standard output is written by one process"


def is_streamed(options: WorkerOptions, reason: str | None) -> bool:
    """Return whether one process must compute; report the reason if options have no effect.

    Raises:
        UserError: such a run is to be resumed.
    """
    if reason and options.resume:
        raise UserError(f"--resume: {reason}, without a journal; give files or leave it out")
    if reason and (options.address or options.processes):
        say(f"{reason}; --processes, --ray and RAY_ADDRESS have no effect")
    return bool(reason)


def run_sequence_job(
    source: str,
    job: Any,
    kind: type[SequenceWorker[T]],
    options: WorkerOptions,
    write: Callable[[dict[str, Any], Rows[T]], R],
    **inputs: Any,
) -> R:
    """Compute a result for every sequence of a file, and write the results in order.

    Args:
        source: FASTA or FASTQ, or `-`.
        job: `loading`, `method` and `output`, which is None for standard output.
        kind: class of the workers.
        options: engine and workers.
        write: takes the settings, and name, bases and result of each sequence.
        **inputs: further settings that the results depend on.

    Returns:
        The return value of `write`.
    """
    if job.output:
        output_path(job.output)
        check_no_input(job.output, source)
    records = read_sequences(source)
    make = partial(kind, source)
    if is_streamed(options, streaming_reason(source, job.output)):
        worker: Any = model_worker(job, make, device_here(options))
        return write(worker.about["settings"], track(worker.stream(records), "sequences"))

    def blocks() -> Iterator[list[Sequence]]:
        records = read_sequences(source)
        return in_blocks(records, _BLOCK_SEQUENCES, _BLOCK_BP, lambda record: len(record[1]))

    with workers_for(job, make, options) as workers:
        about = workers.about(blocks())
        digests = {"sequences": content_sha256(source)}
        work = Job(
            description="sequences",
            output=job.output,
            settings=about["settings"] | about["identity"] | inputs | digests,
            check=lambda: sum(1 for _ in read_sequences(source)),
            blocks=blocks,
            source=source,
        )
        return run_job(
            work, workers, lambda results: write(about["settings"], _rows(kind, results))
        )


def _rows(
    kind: type[SequenceWorker[T]], results: Iterator[tuple[list[Sequence], list[Any]]]
) -> Rows[T]:
    for block, packed in results:
        for (name, bases), each in zip(block, packed, strict=True):
            yield name, bases, kind.unpack(bases, each)


class ScoreWorker(SequenceWorker[SequenceScore]):
    """A worker that computes the likelihoods of sequences; `bases` is kept only `per_base`."""

    def facts(self) -> dict[str, Any]:
        """Return the unit of the log-likelihoods."""
        return {"unit": "nats"}

    def compute(self, sequences: Iterator[str]) -> Iterator[SequenceScore]:
        """Yield the score of each sequence."""
        return self.model.score(sequences, **asdict(self.job.method))

    def pack(self, score: SequenceScore) -> list[Any]:
        """Return a score as JSON."""
        values = score.bases.tobytes() if self.job.per_base else b""
        return [score.num_known_bases, score.log_likelihood, base64.b64encode(values).decode()]

    @staticmethod
    def unpack(bases: str, packed: list[Any]) -> SequenceScore:
        """Return a score from JSON; `bases` is empty unless it was kept."""
        num_known_bases, log_likelihood, text = packed
        values = np.frombuffer(base64.b64decode(text), dtype=np.float32)
        return SequenceScore(len(bases), num_known_bases, log_likelihood, values)


def run_score_job(
    source: str, job: ScoreJob, options: WorkerOptions, rows_file: Path | None = None
) -> None:
    """Score the sequences of a file into a table, or as TSV on standard output.

    Args:
        source: FASTA or FASTQ, or `-`.
        job: the job.
        options: engine and workers.
        rows_file: Parquet file to write the rows to as well.

    Raises:
        UserError: an option, an ending or a record is invalid.
    """
    writer = chosen_by_ending(job.output, "table") if job.output else write_tsv
    table = PER_BASE if job.per_base else PER_SEQUENCE

    def write(settings: dict[str, Any], scores: Rows[SequenceScore]) -> None:
        with (
            atomic_file(job.output) if job.output else nullcontext(Path("-")) as path,
            ExitStack() as sinks,
        ):
            writes = [sinks.enter_context(writer(path, table.columns, settings))]
            if rows_file:
                rows = write_parquet(rows_file, table.columns, settings)
                writes.append(sinks.enter_context(rows))
            for name, bases, score in scores:
                for row in table.rows(name, bases, score):
                    for write_row in writes:
                        write_row(row)

    run_sequence_job(source, job, ScoreWorker, options, write, per_base=job.per_base)


class EmbedWorker(SequenceWorker[Float32s]):
    """A worker that computes the embeddings of sequences."""

    def facts(self) -> dict[str, Any]:
        """Return the length of the vectors."""
        return {"width": self.model.model.network.config.hidden_size}

    def compute(self, sequences: Iterator[str]) -> Iterator[Float32s]:
        """Yield the embedding of each sequence."""
        return self.model.embed(sequences, **asdict(self.job.method))

    def pack(self, vector: Float32s) -> str:
        """Return a vector as JSON."""
        return base64.b64encode(vector.tobytes()).decode()

    @staticmethod
    def unpack(bases: str, packed: str) -> Float32s:
        """Return a vector from JSON."""
        return np.frombuffer(base64.b64decode(packed), dtype=np.float32)


def run_embed_job(
    source: str, job: EmbedJob, options: WorkerOptions, rows_file: Path | None = None
) -> dict[str, Any]:
    """Embed the sequences of a file; return the summary.

    Args:
        source: FASTA or FASTQ, or `-`.
        job: the job.
        options: engine and workers.
        rows_file: Parquet file to write the rows to as well.

    Raises:
        UserError: an option, an ending or a record is invalid.
    """
    write_vectors = chosen_by_ending(job.output, "embeddings")

    def write(settings: dict[str, Any], vectors: Rows[Float32s]) -> dict[str, Any]:
        written = {name: value for name, value in settings.items() if name != "width"}
        without = 0

        def counted() -> Iterator[vector_files.Row]:
            nonlocal without
            for name, bases, vector in vectors:
                without += bool(np.isnan(vector).all())
                yield name, len(bases), vector

        rows = counted()
        if rows_file:
            vector_files.write_parquet(rows_file, rows, settings["width"], written)
            rows = vector_files.read_parquet(rows_file)
        with atomic_file(job.output) as path:
            num_rows = write_vectors(path, rows, settings["width"], written)
        if without:
            say(f"warning: {without} sequences have no known base, and no embedding")
        counts = {"sequences": num_rows, "without": without}
        return counts | {"width": settings["width"], **written}

    return run_sequence_job(source, job, EmbedWorker, options, write)
