"""What a run will take, from its settings alone: layout, memory, idle time, hours.

The formulas, their sources, and what is left out are in docs/plan.md.
"""

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from carbon.config import check
from carbon.console import TableRow, text_table
from carbon.errors import ConfigError
from carbon.tokenizer import NUM_KMERS
from train.config import ParallelConfig, TrainConfig
from train.planning.course import Course, Span
from train.planning.memory import TWO_BACKWARDS, Memory, Process, Sizes, memory_of

if TYPE_CHECKING:
    from transformers import LlamaConfig


@dataclass(frozen=True, slots=True)
class Layout:
    """How processes share a network.

    Attributes:
        pipeline: processes that the layers are divided over.
        replicate: copies of the sharded network.
        shard: processes that a weight is divided over.
        pieces: the layers of each piece of the network.
        of_rank: the pieces of each rank of a pipeline.
    """

    pipeline: int
    replicate: int
    shard: int
    pieces: tuple[range, ...]
    of_rank: tuple[tuple[int, ...], ...]

    @property
    def readers(self) -> int:
        """Groups of processes, a pipeline each, that read rows of their own."""
        return self.replicate * self.shard


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """Steps over which rows have one length.

    Attributes:
        reader_rows: rows of a batch that a reader reads.
        microbatch_rows: of them at once.
        idle_share: of a step, that a process of a pipeline waits.
        flops: operations of all processes, those of activations computed anew among them.
        seconds: expected; None where the device's peak is not known.
        memory: of a process of each pipeline rank.
    """

    stage: str
    context_tokens: int
    batch_rows: int
    reader_rows: int
    microbatch_rows: int
    num_microbatches: int
    num_steps: int
    num_tokens: int
    idle_share: float
    flops: int
    seconds: float | None
    memory: tuple[Memory, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run; `parameters_of_rank` are those of each pipeline rank, before sharding."""

    world_size: int
    layout: Layout
    dtype: str
    num_parameters: int
    parameters_of_rank: tuple[int, ...]
    spans: tuple[SpanPlan, ...]

    @property
    def peak_bytes(self) -> int:
        """Memory of the fullest process."""
        return max(memory.peak for span in self.spans for memory in span.memory)

    @property
    def seconds(self) -> float | None:
        """Expected time; None where the device's peak is not known."""
        times = [span.seconds for span in self.spans if span.seconds is not None]
        return sum(times) if times else None


def plan_of(
    config: TrainConfig,
    course: Course,
    world_size: int,
    *,
    peak_flops: float | None = None,
    mfu: float = 0.4,
    on_gpu: bool | None = None,
    flash_attention: bool = False,
) -> Plan:
    """Return the plan of a run; neither a corpus nor a device is needed.

    Args:
        config: of the run.
        course: its spans.
        world_size: processes, one to a device.
        peak_flops: operations a second of a device; without them no time is expected.
        mfu: share of the peak that a device reaches while it does not wait.
        on_gpu: what `compute.dtype = "auto"` and the head go by; True if the peak is given.
        flash_attention: whether attention goes without a mask.

    Raises:
        ConfigError: the processes cannot share the network or a batch.
    """
    from train.loop.data import check_batches
    from train.network.parts import llama_config

    check(peak_flops is None or peak_flops > 0, f"peak_flops = {peak_flops}: give more than 0")
    check(0 < mfu <= 1, f"mfu = {mfu}: give more than 0, and 1 at most")
    llama = llama_config(config)
    layout = layout_of(config, llama, world_size)
    check_batches(course, layout.readers)
    on_gpu = peak_flops is not None if on_gpu is None else on_gpu
    dtype = config.compute.dtype
    if dtype == "auto":
        dtype = "bfloat16" if on_gpu else "float32"
    processes = _processes(config, llama, layout, dtype, on_gpu, flash_attention)
    flops_a_second = None if peak_flops is None else peak_flops * mfu * world_size
    copies = sum(process.num_parameters for process in processes)
    tied_twice = layout.pipeline > 1 and llama.tie_word_embeddings
    return Plan(
        world_size=world_size,
        layout=layout,
        dtype=dtype,
        num_parameters=copies - tied_twice * llama.vocab_size * llama.hidden_size,
        parameters_of_rank=tuple(process.num_parameters for process in processes),
        spans=tuple(
            _plan_of_span(config, llama, span, processes, flops_a_second) for span in course.spans
        ),
    )


def _processes(
    config: TrainConfig,
    llama: "LlamaConfig",
    layout: Layout,
    dtype: str,
    on_gpu: bool,
    flash_attention: bool,
) -> list[Process]:
    """Return a process of each pipeline rank."""
    return [
        Process(
            Sizes.of(llama),
            config.parallel,
            rank,
            tuple(layout.pieces[i] for i in pieces),
            layout.shard,
            config.compute.activation_checkpointing,
            4 if dtype == "float32" else 2,
            on_gpu,
            not flash_attention,
        )
        for rank, pieces in enumerate(layout.of_rank)
    ]


def _plan_of_span(
    config: TrainConfig,
    llama: "LlamaConfig",
    span: Span,
    processes: list[Process],
    flops_a_second: float | None,
) -> SpanPlan:
    from train.loop.data import microbatch_rows
    from train.network.parts import flops_a_token

    readers = processes[0].shard * config.parallel.replicate
    at_once = min(microbatch_rows(config, span.context_tokens), span.batch_rows // readers)
    num_microbatches = _num_microbatches(config.parallel, span, readers, at_once)
    idle = idle_share(config.parallel, num_microbatches)
    num_tokens = span.num_steps * span.stage.batch_tokens
    forward = flops_a_token(llama, span.context_tokens) // 3
    again = config.compute.activation_checkpointing == "full"
    flops = num_tokens * forward * (3 + again)
    return SpanPlan(
        stage=span.stage.name,
        context_tokens=span.context_tokens,
        batch_rows=span.batch_rows,
        reader_rows=span.batch_rows // readers,
        microbatch_rows=at_once,
        num_microbatches=num_microbatches,
        num_steps=span.num_steps,
        num_tokens=num_tokens,
        idle_share=idle,
        flops=flops,
        seconds=None if flops_a_second is None else flops / flops_a_second / (1 - idle),
        memory=tuple(
            memory_of(process, span.context_tokens, at_once, num_microbatches)
            for process in processes
        ),
    )


def _num_microbatches(parallel: ParallelConfig, span: Span, readers: int, at_once: int) -> int:
    """Return those of a reader; a pipeline's are of one size, and as many as its schedule takes."""
    rows = span.batch_rows // readers
    count, ranks = -(-rows // at_once), parallel.pipeline
    if ranks == 1:
        return count
    problem = ""
    if rows % at_once:
        problem = f"microbatches of {at_once} rows do not divide {rows} rows of a reader"
    elif parallel.schedule == "1f1b" and count < ranks:
        problem = f"1f1b needs as many microbatches as its {ranks} ranks, and has {count}"
    elif parallel.schedule.startswith("interleaved") and count % max(1, count // ranks):
        rounds = count // ranks
        problem = f"{count} microbatches are not divided by the schedule's {rounds} rounds"
    if problem:
        raise ConfigError(
            f"stages.{span.number} ('{span.stage.name}'): {problem}; change microbatch_tokens, "
            "batch_rows or the number of processes"
        )
    return count


def layout_of(config: TrainConfig, llama: "LlamaConfig", world_size: int) -> Layout:
    """Divide the processes, and the layers over the ranks of a pipeline.

    Raises:
        ConfigError: they cannot be divided so.
    """
    parallel = config.parallel
    shard, left = divmod(world_size, parallel.pipeline * parallel.replicate)
    if left or not shard:
        raise ConfigError(
            f"parallel: {world_size} processes are no multiple of pipeline x replicate = "
            f"{parallel.pipeline} x {parallel.replicate}; change one of them"
        )
    num_pieces = parallel.pipeline * parallel.pieces_a_rank
    pieces = pieces_of(llama, config.longest_context_tokens, num_pieces)
    of_rank = tuple(tuple(pieces_of_rank(parallel, rank)) for rank in range(parallel.pipeline))
    return Layout(parallel.pipeline, parallel.replicate, shard, tuple(pieces), of_rank)


def pieces_of(llama: "LlamaConfig", context_tokens: int, num_pieces: int) -> list[range]:
    """Cut a network into consecutive pieces that take as long; return the layers of each.

    The costs are multiplications a token: of a layer its weights and attention over the context,
    of the head its 4,096 rows; the embedding, a look-up, counts as its width.

    Raises:
        ConfigError: there are fewer layers than pieces.
    """
    sizes = Sizes.of(llama)
    if num_pieces > sizes.num_layers:
        raise ConfigError(
            f"parallel: {num_pieces} pieces of {sizes.num_layers} layers; give a smaller pipeline "
            "or stages_a_rank"
        )
    costs = [sizes.layer_parameters + sizes.query * context_tokens] * sizes.num_layers
    costs[0] += sizes.hidden
    costs[-1] += NUM_KMERS * sizes.hidden
    return balanced(costs, num_pieces)


def pieces_of_rank(parallel: ParallelConfig, pipeline_rank: int) -> list[int]:
    """Return which pieces a rank of a pipeline holds, in the order of the layers."""
    ranks = parallel.pipeline
    if ranks > 1 and parallel.schedule == "zbv":  # down the ranks and up again
        return [pipeline_rank, 2 * ranks - 1 - pipeline_rank]
    return [pipeline_rank + ranks * i for i in range(parallel.pieces_a_rank)]


def balanced(costs: Sequence[float], parts: int) -> list[range]:
    """Divide costs into so many consecutive parts, none empty, with the least largest sum.

    Of all such divisions it is one with the least sum of squares, which is the most even; what is
    still alike has the longer parts first.
    """
    sums = [0.0, *itertools.accumulate(costs)]
    largest, _ = _division(len(costs), parts, lambda i, j: sums[j] - sums[i], max)

    def square(i: int, j: int) -> float:
        cost = sums[j] - sums[i]
        return cost * cost if cost <= largest else math.inf

    _, ranges = _division(len(costs), parts, square, lambda a, b: a + b)
    return ranges


def _division(
    count: int,
    parts: int,
    price: Callable[[int, int], float],
    join: Callable[[float, float], float],
) -> tuple[float, list[range]]:
    """Return the least joined price of dividing `range(count)`, and the division."""
    best: dict[int, tuple[float, list[range]]] = {0: (0.0, [])}
    for _ in range(parts):
        ends = range(min(best) + 1, count + 1)
        best = {
            end: min(
                (
                    (join(value, price(start, end)), [*ranges, range(start, end)])
                    # From the last start on: of equal ones, `min` takes the first.
                    for start, (value, ranges) in reversed(best.items())
                    if start < end
                ),
                key=lambda found: found[0],
            )
            for end in ends
        }
    return best[count]


def idle_share(parallel: ParallelConfig, num_microbatches: int) -> float:
    """Return the share of a step that a process of a pipeline waits.

    Pieces take as long as one another, backward for inputs and backward for weights as long as
    forward, and transfers no time. All ranks end a step together, with the gradient's norm.
    """
    ranks, pieces = parallel.pipeline, parallel.pieces_a_rank
    missing = max(0, ranks - num_microbatches)
    waiting, working = ranks - 1, pieces * num_microbatches  # in times of a piece, both ways
    if parallel.schedule == "interleaved_1f1b":
        waiting += (pieces - 1) * missing
    elif parallel.schedule in TWO_BACKWARDS and ranks > 1:
        working *= 3  # in times of a piece's forward
        if parallel.schedule == "zbv":
            waiting = max(waiting, 4 * ranks - 2 * num_microbatches - 2)
        else:
            waiting += pieces * missing + (pieces - 1) * max(0, ranks - 2 * num_microbatches)
    return waiting / (waiting + working)


def print_plan(plan: Plan) -> None:
    """Print a plan as TOML comments."""
    layout = plan.layout
    mib = plan.peak_bytes < 2**30
    lines = [
        f"{plan.world_size} processes: pipeline {layout.pipeline} x replicate {layout.replicate} x "
        f"shard {layout.shard}; {plan.dtype}",
        f"{plan.num_parameters:,} parameters",
        "",
        *_rank_table(plan),
        "",
        *_span_table(plan),
        "",
        f"{'MiB' if mib else 'GiB'} of the fullest process:",
        *_memory_table(plan, 2**20 if mib else 2**30),
    ]
    sys.stdout.write("".join(f"# {line}".rstrip() + "\n" for line in lines))


def _rank_table(plan: Plan) -> list[str]:
    layout = plan.layout
    rows: list[TableRow] = [("rank", "parameters", "of a shard", "layers")]
    for rank, count in enumerate(plan.parameters_of_rank):
        layers = [layout.pieces[i] for i in layout.of_rank[rank]]
        names = ", ".join(f"{piece.start} to {piece.stop - 1}" for piece in layers)
        rows.append((rank, count, -(-count // layout.shard), names))
    return text_table(rows).splitlines()


def _span_table(plan: Plan) -> list[str]:
    rows: list[TableRow] = [
        (
            *("stage", "context", "batch rows", "rows a reader", "microbatch", "microbatches"),
            *("steps", "tokens", "FLOP", "idle %", "hours", "device-hours"),
        )
    ]
    for span in plan.spans:
        hours: TableRow = ("", "")
        if span.seconds is not None:
            hours = (span.seconds / 3600, span.seconds * plan.world_size / 3600)
        rows.append(
            (
                *(span.stage, span.context_tokens, span.batch_rows, span.reader_rows),
                *(span.microbatch_rows, span.num_microbatches, span.num_steps, span.num_tokens),
                *(f"{span.flops:.3g}", 100 * span.idle_share, *hours),
            )
        )
    return text_table(rows).splitlines()


def _memory_table(plan: Plan, unit: int) -> list[str]:
    names = [field.name for field in fields(Memory)]
    rows: list[TableRow] = [("stage", "rank", *(name.replace("_", " ") for name in names), "peak")]
    for span in plan.spans:
        rank, memory = max(enumerate(span.memory), key=lambda found: found[1].peak)
        sizes = [getattr(memory, name) / unit for name in (*names, "peak")]
        rows.append((f"{span.stage} {span.context_tokens}", rank, *sizes))
    return text_table(rows).splitlines()
