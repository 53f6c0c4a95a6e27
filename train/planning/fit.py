"""Whether a plan fits the memory of a GPU, and what to change where it does not."""

from collections.abc import Callable

from carbon.errors import ConfigError
from carbon.io.config import check
from train.config import TrainConfig
from train.planning.planner import Plan

# What the planner does not count: the CUDA context, NCCL, and what the allocator cannot use.
_SHARE_LEFT_FREE = 0.1
_BYTES_LEFT_FREE = 2e9
_MOST_TIMES_PROCESSES = 64

Planned = Callable[[TrainConfig, int], Plan]
"""From settings and a number of processes to their plan."""


def check_fits(planned: Planned, config: TrainConfig, processes: int, gpu_bytes: float) -> None:
    """Refuse a run that takes more memory than a GPU has.

    Args:
        planned: makes plans; a ConfigError says that processes and settings do not go together.
        config: of the run.
        processes: one to a GPU.
        gpu_bytes: memory of a GPU; a tenth and 2 GB stay free for what no plan counts.

    Raises:
        ConfigError: it does not fit.
    """
    check(gpu_bytes > 0, f"a GPU of {_gb(gpu_bytes)} GB: give more than 0")
    room = gpu_bytes * (1 - _SHARE_LEFT_FREE) - _BYTES_LEFT_FREE
    plan = planned(config, processes)
    if plan.peak_bytes <= room:
        return
    fullest = max(plan.spans, key=lambda span: max(memory.peak for memory in span.memory))
    raise ConfigError(
        f"stage {fullest.stage!r} takes {_gb(plan.peak_bytes)} GB of a GPU that has "
        f"{_gb(gpu_bytes)}, of which {_gb(room)} can be planned for (docs/plan.md); "
        f"{_remedy(planned, config, processes, plan, room)}"
    )


def _remedy(planned: Planned, config: TrainConfig, processes: int, plan: Plan, room: float) -> str:
    """Return what makes a plan fit: settings that change no number, then more processes."""
    changed: dict[str, str] = {}
    for key, value in _savings(config):
        table, _, name = key.partition(".")
        try:
            tried = config.replace(**{table: getattr(config, table).replace(**{name: value})})
            found = planned(tried, processes)
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
            fits = planned(config, processes).peak_bytes <= room
        except ConfigError:
            continue
        if fits:
            return " and ".join([f"give {processes} GPUs", *changed.values()])
    return "give larger GPUs, or train less of the network (model.tune)"


def _savings(config: TrainConfig) -> list[tuple[str, object]]:
    """Return settings that take less memory, from what costs the least time on."""
    least = min(stage.context_tokens for stage in config.stages)
    return [
        ("data.microbatch_tokens", least),
        ("compute.activation_checkpointing", "selective"),
        ("compute.activation_checkpointing", "full"),
        ("parallel.reduce_each_microbatch", True),
        ("parallel.reshard_after_forward", True),
    ]


def _gb(count: float) -> str:
    return f"{count / 1e9:,.0f}"
