"""The plan of a run from its settings alone: layout, memory, bubble, hours.

docs/developers/planner.md has the formulas, their sources, and their limits.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carbon.errors import ConfigError
from carbon.io.config import check
from train.config import ParallelConfig, TrainConfig
from train.models.network import Sizes, flops_a_token, network_config, tuned_parameters
from train.optim import OPTIMIZERS
from train.planning.compute import (
    ACTIVATION_CHECKPOINTINGS,
    ATTENTIONS,
    DTYPE_BYTES,
    attention_of,
    dtype_of,
)
from train.planning.memory import Memory, Process, memory_of
from train.planning.mesh import Layout, check_batches, layout_of
from train.planning.pipeline import (
    microbatch_rows,
    num_microbatches,
    pipe_of,
    schedule_of,
)
from train.schedule import Schedule, Span

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """Steps over which rows have one length.

    Attributes:
        rank_rows: rows of a batch of one data-parallel rank.
        microbatch_rows: of them at once.
        idle_share: of a step, that a process of a pipeline waits.
        flops: operations of all processes, including recomputation.
        seconds: expected; None where the device's peak is not known.
        memory: of a process of each pipeline rank.
    """

    phase: str
    context_tokens: int
    batch_rows: int
    rank_rows: int
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
    """A whole run; `parameters_of_rank` has one number for each pipeline rank, before sharding.

    `num_trained` counts the trained parameters.
    """

    world_size: int
    layout: Layout
    dtype: str
    num_parameters: int
    parameters_of_rank: tuple[int, ...]
    spans: tuple[SpanPlan, ...]
    num_trained: int

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
    schedule: Schedule,
    world_size: int,
    *,
    peak_flops: float | None = None,
    mfu: float = 0.4,
    on_gpu: bool | None = None,
) -> Plan:
    """Return the plan of a run; neither a corpus nor a device is needed.

    Args:
        config: of the run.
        schedule: its spans.
        world_size: processes, one to a device.
        peak_flops: operations a second of a device; without them no time is expected.
        mfu: share of the peak that a device reaches while it does not wait.
        on_gpu: what attention, the head and `compute.dtype = "auto"` go by; True if the peak is
            given.

    Raises:
        ConfigError: the processes cannot share the network or a batch.
    """
    check(peak_flops is None or peak_flops > 0, f"peak_flops = {peak_flops}: give more than 0")
    check(0 < mfu <= 1, f"mfu = {mfu}: give more than 0, and 1 at most")
    network = network_config(config)
    layout = layout_of(config, Sizes.of(network), world_size)
    check_batches(schedule, layout.mesh)
    on_gpu = peak_flops is not None if on_gpu is None else on_gpu
    dtype = dtype_of(config.compute.dtype, on_gpu=on_gpu)
    processes = _processes(config, network, layout, dtype, on_gpu)
    speed = None if peak_flops is None else peak_flops * mfu * world_size
    spans = tuple(_plan_of_span(config, network, span, processes, speed) for span in schedule.spans)
    of_rank = tuple(process.num_parameters for process in processes)
    tied_twice = layout.mesh.pipeline > 1 and network.tie_word_embeddings
    num_parameters = sum(of_rank) - tied_twice * network.vocab_size * network.hidden_size
    frozen = sum(process.frozen for process in processes)
    num_trained = sum(of_rank) - frozen if frozen else num_parameters
    return Plan(world_size, layout, dtype, num_parameters, of_rank, spans, num_trained)


def _processes(
    config: TrainConfig,
    network: "PreTrainedConfig",
    layout: Layout,
    dtype: str,
    on_gpu: bool,
) -> list[Process]:
    """Return a process of each pipeline rank."""
    sizes = Sizes.of(network)
    attention = attention_of(config.compute.attention, dtype, on_gpu=on_gpu)
    probes = config.probe.every_steps > 0
    whole = sizes.num_layers * sizes.layer_parameters + sizes.end_parameters(True, True)
    return [
        Process(
            sizes,
            config.parallel,
            layout.mesh,
            rank,
            tuple(layout.stages[i] for i in stages),
            config.compute.activation_checkpointing,
            DTYPE_BYTES[dtype],
            on_gpu,
            ATTENTIONS[attention].has_mask,
            OPTIMIZERS[config.optimizer.name],
            *tuned_parameters(config.model, sizes, [layout.stages[i] for i in stages]),
            probed=whole if probes and rank == 0 else 0,
        )
        for rank, stages in enumerate(layout.of_rank)
    ]


def _plan_of_span(
    config: TrainConfig,
    network: "PreTrainedConfig",
    span: Span,
    processes: list[Process],
    flops_a_second: float | None,
) -> SpanPlan:
    parallel = config.parallel
    readers = processes[0].mesh.dp_size
    at_once = min(microbatch_rows(config, span.context_tokens), span.batch_rows // readers)
    count = num_microbatches(parallel, span, readers, at_once)
    idle = idle_share(parallel, count)
    num_tokens = span.num_steps * span.phase.batch_tokens
    forward = flops_a_token(network, span.context_tokens) // 3
    checkpointing = ACTIVATION_CHECKPOINTINGS[config.compute.activation_checkpointing]
    flops = num_tokens * forward * (3 + checkpointing.repeats_forward)
    return SpanPlan(
        phase=span.phase.name,
        context_tokens=span.context_tokens,
        batch_rows=span.batch_rows,
        rank_rows=span.batch_rows // readers,
        microbatch_rows=at_once,
        num_microbatches=count,
        num_steps=span.num_steps,
        num_tokens=num_tokens,
        idle_share=idle,
        flops=flops,
        seconds=None if flops_a_second is None else flops / flops_a_second / (1 - idle),
        memory=tuple(
            memory_of(process, span.context_tokens, at_once, count) for process in processes
        ),
    )


def idle_share(parallel: ParallelConfig, num_microbatches: int) -> float:
    """Return the share of a step that a process of a pipeline waits."""
    return schedule_of(parallel).idle_share(pipe_of(parallel, num_microbatches))


# Memory that the planner does not count: the CUDA context, NCCL, fragmentation.
_SHARE_LEFT_FREE = 0.1
_BYTES_LEFT_FREE = 2e9
_MOST_TIMES_PROCESSES = 64


def check_fits(config: TrainConfig, processes: int, gpu_bytes: float) -> None:
    """Refuse a run that takes more memory than a GPU has.

    Args:
        config: of the run.
        processes: one to a GPU.
        gpu_bytes: memory of a GPU; a tenth and 2 GB stay free for what no plan counts.

    Raises:
        ConfigError: it does not fit.
    """
    check(gpu_bytes > 0, f"a GPU of {_gb(gpu_bytes)} GB: give more than 0")
    room = gpu_bytes * (1 - _SHARE_LEFT_FREE) - _BYTES_LEFT_FREE
    plan = _plan_on_gpus(config, processes)
    if plan.peak_bytes <= room:
        return
    fullest = max(plan.spans, key=lambda span: max(memory.peak for memory in span.memory))
    raise ConfigError(
        f"phase {fullest.phase!r} takes {_gb(plan.peak_bytes)} GB of a GPU that has "
        f"{_gb(gpu_bytes)}, of which {_gb(room)} can be planned for (docs/plan.md); "
        f"{_remedy(config, processes, plan, room)}"
    )


def _plan_on_gpus(config: TrainConfig, processes: int) -> Plan:
    """Return a plan, or raise ConfigError if processes and settings do not go together."""
    return plan_of(config, Schedule(config), processes, on_gpu=True)


def _remedy(config: TrainConfig, processes: int, plan: Plan, room: float) -> str:
    """Return what makes a plan fit: settings that change no number, then more processes."""
    changed: dict[str, str] = {}
    for key, value in _savings(config):
        table, _, name = key.partition(".")
        try:
            tried = config.replace(**{table: getattr(config, table).replace(**{name: value})})
            found = _plan_on_gpus(tried, processes)
        except ConfigError:  # a schedule or a batch does not go with it
            continue
        if found.peak_bytes < plan.peak_bytes:
            config, plan = tried, found
            written = str(value).lower() if isinstance(value, bool) else repr(value)  # as in TOML
            changed[key] = f"{key} = {written}"
        if plan.peak_bytes <= room:
            return f"set {' and '.join(changed.values())}"
    while (processes := 2 * processes) <= _MOST_TIMES_PROCESSES * plan.world_size:
        try:
            fits = _plan_on_gpus(config, processes).peak_bytes <= room
        except ConfigError:
            continue
        if fits:
            return " and ".join([f"give {processes} GPUs", *changed.values()])
    return "give larger GPUs, or train less of the network (model.tune)"


def _savings(config: TrainConfig) -> list[tuple[str, object]]:
    """Return settings that take less memory, from what costs the least time on."""
    least = min(phase.context_tokens for phase in config.phases)
    return [
        ("data.microbatch_tokens", least),
        ("compute.activation_checkpointing", "selective"),
        ("compute.activation_checkpointing", "full"),
        ("parallel.reduce_each_microbatch", True),
        ("parallel.reshard_after_forward", True),
        ("probe.every_steps", 0),
    ]


def _gb(count: float) -> str:
    return f"{count / 1e9:,.0f}"
