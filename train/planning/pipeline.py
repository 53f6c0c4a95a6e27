"""The order of forward and backward in a pipeline: torch's schedules, and what each one takes.

The formulas and their sources are in docs/developers/planner.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carbon.errors import ConfigError
from train.config import ParallelConfig, TrainConfig
from train.schedule import Span


class Pipe(NamedTuple):
    """A pipeline and its microbatches.

    Attributes:
        ranks: processes that the layers are divided over.
        pieces: of the network, that a rank holds.
        microbatches: of a batch.
    """

    ranks: int
    pieces: int
    microbatches: int

    @property
    def missing(self) -> int:
        """How many microbatches there are less than ranks."""
        return max(0, self.ranks - self.microbatches)

    @property
    def rounds(self) -> int:
        """Consecutive groups of microbatches in an interleaved pipeline."""
        return max(1, self.microbatches // self.ranks)


def _interleaved(pipe: Pipe, rank: int) -> Sequence[int]:
    return range(rank, pipe.ranks * pipe.pieces, pipe.ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSchedule:
    """All that is known of a schedule.

    Attributes:
        torch_name: what `torch.distributed.pipelining` calls it.
        stages_per_rank: pieces of the network that a rank holds; None: set by the recipe.
        stages_of_rank: which they are, in the order of the layers.
        problem: why a number of microbatches cannot be taken, nothing if it can.
        waiting: how long a rank waits in a step, in times of a piece: of its forward and backward,
            or of its forward alone if backward is taken apart.
        in_flight: the most microbatches, times pieces, whose activations a rank holds.
        held_for_weights: the most, of a rank, that have had their backward for inputs and not the
            one for weights; None: backward is not taken apart.
    """

    torch_name: str
    stages_per_rank: int | None
    stages_of_rank: Callable[[Pipe, int], Sequence[int]] = _interleaved
    problem: Callable[[Pipe], str] = lambda pipe: ""
    waiting: Callable[[Pipe], int]
    in_flight: Callable[[Pipe, int], int]
    held_for_weights: Callable[[int], int] | None = None

    @property
    def splits_backward(self) -> bool:
        """Whether backward is one for inputs and a later one for weights."""
        return self.held_for_weights is not None

    def idle_share(self, pipe: Pipe) -> float:
        """Return the share of a step that a rank waits.

        Pieces take as long as one another, backward for inputs and backward for weights as long as
        forward, and transfers no time. All ranks end a step together, with the gradient's norm.
        """
        waiting, working = self.waiting(pipe), pipe.pieces * pipe.microbatches
        if self.splits_backward:
            working *= 3
        return waiting / (waiting + working)


def _fill_and_drain(pipe: Pipe) -> int:
    return pipe.ranks - 1


def _few_for_1f1b(pipe: Pipe) -> str:
    if not pipe.missing:
        return ""
    return f"1f1b needs as many microbatches as its {pipe.ranks} ranks, and has {pipe.microbatches}"


def _uneven_rounds(pipe: Pipe) -> str:
    if pipe.microbatches % pipe.rounds == 0:
        return ""
    return (
        f"{pipe.microbatches} microbatches are not divided by the schedule's {pipe.rounds} rounds"
    )


def _interleaved_in_flight(pipe: Pipe, ahead: int) -> int:
    of_round = pipe.microbatches // pipe.rounds
    return min(pipe.pieces * pipe.microbatches, (pipe.pieces - 1) * of_round + ahead)


def _interleaved_zero_bubble_waiting(pipe: Pipe) -> int:
    lacking = max(0, pipe.ranks - 2 * pipe.microbatches)
    return pipe.ranks - 1 + pipe.pieces * pipe.missing + (pipe.pieces - 1) * lacking


PIPELINE_SCHEDULES = {
    "gpipe": PipelineSchedule(
        torch_name="GPipe",
        stages_per_rank=1,
        waiting=_fill_and_drain,
        in_flight=lambda pipe, rank: pipe.microbatches,
    ),
    "1f1b": PipelineSchedule(
        torch_name="1F1B",
        stages_per_rank=1,
        problem=_few_for_1f1b,
        waiting=_fill_and_drain,
        in_flight=lambda pipe, rank: min(pipe.microbatches, pipe.ranks - rank),
    ),
    "interleaved_1f1b": PipelineSchedule(
        torch_name="Interleaved1F1B",
        stages_per_rank=None,
        problem=_uneven_rounds,
        waiting=lambda pipe: pipe.ranks - 1 + (pipe.pieces - 1) * pipe.missing,
        in_flight=lambda pipe, rank: _interleaved_in_flight(pipe, 2 * (pipe.ranks - rank) - 1),
    ),
    "interleaved_zero_bubble": PipelineSchedule(
        torch_name="InterleavedZeroBubble",
        stages_per_rank=None,
        problem=_uneven_rounds,
        waiting=_interleaved_zero_bubble_waiting,
        in_flight=lambda pipe, rank: _interleaved_in_flight(pipe, pipe.ranks),
        held_for_weights=lambda rank: rank + 1,
    ),
    "zbv": PipelineSchedule(
        torch_name="ZBVZeroBubble",
        stages_per_rank=2,
        # Down the ranks and up again.
        stages_of_rank=lambda pipe, rank: (rank, 2 * pipe.ranks - 1 - rank),
        waiting=lambda pipe: max(pipe.ranks - 1, 4 * pipe.ranks - 2 * pipe.microbatches - 2),
        in_flight=lambda pipe, rank: min(
            2 * pipe.microbatches, 2 * pipe.ranks, pipe.microbatches + rank + 1
        ),
        held_for_weights=lambda rank: 2 * rank + 1,
    ),
}


def schedule_of(parallel: ParallelConfig) -> PipelineSchedule:
    """Return the entry of a run's schedule."""
    return PIPELINE_SCHEDULES[parallel.schedule]


def stages_per_rank(parallel: ParallelConfig) -> int:
    """Return how many pieces of the network a process holds."""
    if parallel.pipeline == 1:
        return 1
    return schedule_of(parallel).stages_per_rank or parallel.stages_per_rank


def pipe_of(parallel: ParallelConfig, num_microbatches: int) -> Pipe:
    """Return a pipeline of the run with a number of microbatches."""
    return Pipe(parallel.pipeline, stages_per_rank(parallel), num_microbatches)


def microbatch_rows(config: TrainConfig, context_tokens: int) -> int:
    """Return how many rows of a length one reader reads at once, which may be many processes."""
    return max(1, config.data.microbatch_tokens * config.parallel.context // context_tokens)


def num_microbatches(parallel: ParallelConfig, span: Span, dp_size: int, at_once: int) -> int:
    """Return the microbatches of a data-parallel rank, checked against the pipeline schedule.

    Args:
        parallel: how processes share the work.
        span: whose batches they are.
        dp_size: groups of processes that read rows of their own.
        at_once: rows of a microbatch.

    Raises:
        ConfigError: a pipeline cannot take them.
    """
    rows = span.batch_rows // dp_size
    count = -(-rows // at_once)
    if parallel.pipeline == 1:
        return count
    problem = schedule_of(parallel).problem(pipe_of(parallel, count))
    if rows % at_once:
        problem = f"microbatches of {at_once} rows do not divide {rows} rows per rank"
    if problem:
        raise ConfigError(
            f"phases.{span.number} ('{span.phase.name}'): {problem}; change microbatch_tokens, "
            "batch_rows or the number of processes"
        )
    return count
