"""Score sequences: log-likelihoods of whole sequences and of every base, and their tables."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.inference.checks import check_finite, checked_names
from carbon.inference.options import STRANDS_READ, By, ScoreOptions, Strands, check_choice
from carbon.inference.passages import Passage, continuation_of, prefix_of
from carbon.io.tables import Columns

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

_WINDOWS_PER_GROUP = 512  # sorted into batches by length together
# Part of a stream of sequences that is in memory.
T = TypeVar("T")

_BLOCK_SEQUENCES, _BLOCK_BP = 256, 4_000_000


class SequenceScore(NamedTuple):
    """The score of a sequence; by the chain, the log-likelihood of the sequence itself.

    Attributes:
        length_bp: bases of the sequence.
        num_known_bases: number of ACGT bases; only these are scored.
        log_likelihood: natural logarithm, summed in float64 over known bases.
        bases: (length_bp,) float32, log-likelihood of each base, 0 where unknown.
    """

    length_bp: int
    num_known_bases: int
    log_likelihood: float
    bases: NDArray[np.float32]

    @property
    def nats_per_base(self) -> float:
        """Return the mean surprise of a known base, NaN without known bases.

        A uniform distribution over the four bases has 1.386.
        """
        return -self.log_likelihood / self.num_known_bases if self.num_known_bases else math.nan


def score_sequences(
    runner: "ModelRunner", sequences: Iterable[str], options: ScoreOptions
) -> Iterator[SequenceScore]:
    """Return an iterator over the score of each sequence, in order.

    Raises:
        UserError: a choice is invalid, or the tags leave no room.
    """
    check_choice("by", options.by, get_args(By))
    check_choice("strands", options.strands, STRANDS_READ)
    tags = checked_names("tags", options.tags)
    window_room_bp(runner, tags)  # reports invalid tags before the first result
    return _scored(runner, sequences, options.by, options.strands, tags)


def _scored(
    runner: "ModelRunner", sequences: Iterable[str], by: By, strands: Strands, tags: tuple[str, ...]
) -> Iterator[SequenceScore]:
    number = 0
    for block in blocks(sequences):
        values = _base_values(runner, block, tags, by, strands)
        for sequence, bases in zip(block, values, strict=True):
            number += 1
            num_known_bases = sum(map(sequence.upper().count, "ACGT"))
            total = float(bases.sum(dtype=np.float64))
            check_finite(total, f"sequence {number}", number)
            yield SequenceScore(len(sequence), num_known_bases, total, bases)


def blocks(sequences: Iterable[T], bases_of: Callable[[T], int] = len) -> Iterator[list[T]]:  # type: ignore[assignment]
    """Split a stream into blocks of a bounded number of sequences and of bases."""
    return in_blocks(sequences, _BLOCK_SEQUENCES, _BLOCK_BP, bases_of)


def base_log_likelihoods(
    runner: "ModelRunner",
    sequences: Sequence[str],
    tags: tuple[str, ...] = (),
    *,
    by: By = "chain",
    strands: Strands = "forward",
) -> list[NDArray[np.float32]]:
    """Return the log-likelihood of every base: one (bases,) array a sequence.

    By the chain it is log p(base | all bases before it), by marginals log P_j(base) at its position
    in its token. With `strands` `both` it is the mean over both strands. Unknown bases get 0. A
    sequence that exceeds the context is split into windows that overlap by half; a base takes its
    value from the first window that holds it.

    Raises:
        UserError: the tags leave no room.
        NotFinite: the log-likelihood of a sequence is not finite.
    """
    totals = _base_values(runner, sequences, tags, by, strands)
    for number, total in enumerate(totals, start=1):
        check_finite(total.sum(dtype=np.float64), f"sequence {number}", number)
    return totals


def _base_values(
    runner: "ModelRunner", sequences: Sequence[str], tags: tuple[str, ...], by: By, strands: Strands
) -> list[NDArray[np.float32]]:
    read_strands = STRANDS_READ[strands]
    totals = [np.zeros(len(sequence), dtype=np.float32) for sequence in sequences]
    for strand in read_strands:
        oriented = sequences if strand == "+" else [reverse_complement(s) for s in sequences]
        for total, values in zip(totals, _one_strand(runner, oriented, tags, by), strict=True):
            total += values if strand == "+" else values[::-1]
    for total in totals:
        total /= len(read_strands)
    return totals


def _one_strand(
    runner: "ModelRunner", sequences: Sequence[str], tags: tuple[str, ...], by: By
) -> list[NDArray[np.float32]]:
    prefix = prefix_of("", runner.vocabulary, tags)
    context_bp, k = window_room_bp(runner, tags), runner.vocabulary.k
    results = [np.zeros(len(sequence), dtype=np.float32) for sequence in sequences]
    jobs = (
        (number, start, scored_from)
        for number, sequence in enumerate(sequences)
        for start, scored_from in overlapping_windows(len(sequence), context_bp, k)
    )
    for group in in_blocks(jobs, _WINDOWS_PER_GROUP):
        windows = [sequences[number][start : start + context_bp] for number, start, _ in group]
        passages = [Passage(prefix, (continuation_of(w, runner.vocabulary),)) for w in windows]
        measured = runner.likelihoods(passages, by)
        for (number, start, scored_from), (steps,) in zip(group, measured, strict=True):
            values = steps.reshape(-1)[: len(sequences[number]) - start]
            results[number][scored_from : start + len(values)] = values[scored_from - start :]
    return results


def window_room_bp(runner: "ModelRunner", tags: tuple[str, ...], close: bool = False) -> int:
    """Return the bases that fit into the context next to tags and `<dna>`, and `</dna>` if `close`.

    Raises:
        UserError: fewer than two k-mers fit, so that windows could not overlap by half.
    """
    num_kmers = runner.context_tokens - len(runner.vocabulary.prefix(tags)) - close
    if num_kmers < 2:
        raise UserError(f"the tags leave no room in a context of {runner.context_tokens} tokens")
    return num_kmers * runner.vocabulary.k


def overlapping_windows(length_bp: int, context_bp: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield `(start, scored_from)` of windows that cover a sequence; starts keep the k-mer grid."""
    stride = context_bp // 2 // k * k
    start = scored_from = 0
    while start == 0 or scored_from < length_bp:
        yield start, scored_from
        start, scored_from = start + stride, start + context_bp


Row = tuple[Any, ...]


class ScoreTable(NamedTuple):
    """A table of scores.

    Attributes:
        columns: name and type of each column.
        rows: function from name, bases and score of a sequence to its rows.
    """

    columns: Columns
    rows: Callable[[str, str, SequenceScore], Iterator[Row]]


def _sequence_row(name: str, sequence: str, score: SequenceScore) -> Iterator[Row]:
    numbers: Row = (None, None)
    if score.num_known_bases:
        numbers = (score.log_likelihood, score.nats_per_base)
    yield (name, score.length_bp, score.num_known_bases, *numbers)


def _base_rows(name: str, sequence: str, score: SequenceScore) -> Iterator[Row]:
    """Yield one row a base, with its 1-based position."""
    for position, (base, value) in enumerate(zip(sequence, score.bases, strict=True), start=1):
        yield name, position, base, float(value) if base in "ACGTacgt" else None


PER_SEQUENCE = ScoreTable(
    {
        "name": str,
        "bases": int,
        "known_bases": int,
        "log_likelihood": float,
        "nats_per_base": float,
    },
    _sequence_row,
)
PER_BASE = ScoreTable(
    {"name": str, "position": int, "base": str, "log_likelihood": float}, _base_rows
)
