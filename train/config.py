"""What a training run is: one TOML file, read into these values."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from carbon.config import OneOf, check, check_choices, check_given
from carbon.corpus import SHARE_UNITS
from carbon.objectives import OBJECTIVES
from train.choices.computing import ACTIVATION_CHECKPOINTINGS
from train.choices.guard_policies import GUARD_POLICIES
from train.choices.pipeline_schedules import PIPELINE_SCHEDULES, Pipe, PipelineSchedule
from train.choices.rate_schedules import RATE_SCHEDULES
from train.choices.stage_ends import STAGE_ENDS
from train.choices.trackers import TRACKERS
from train.compute_config import ComputeConfig
from train.learners_config import LearnersConfig
from train.model_config import ModelConfig

_REPLAY = "replay_"
_MOST_TIMEOUT_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """What is read, by all stages."""

    corpus: str
    """Folder made by `python -m data_pipeline build`, or of the released layout; or the URL of one
    that fsspec opens."""
    microbatch_tokens: int
    """Most tokens that one process reads at once, a row at least; the rest of its share of a batch
    is accumulated."""
    cache: str = ""
    """Where sources are prepared for random access, a byte a base. Beside the corpus if empty,
    or in the user's cache where that cannot be written to."""
    replay_corpus: str = ""
    """A second corpus, such as the one that `model.start` was trained on: its source `mrna` is
    `replay_mrna` in mixtures and probes."""
    workers: int = 0
    """Processes that read ahead; with none, rows are read when they are needed, which costs about
    a fifth of a microsecond a token."""
    GONE: ClassVar[dict[str, str]] = {
        "flip_strands": "which sources are read on both strands stands in the manifest of the "
        "corpus (docs/training.md)",
    }

    def __post_init__(self) -> None:
        check_given(self, "corpus", *(["cache"] if self.cache else []))
        check(
            self.microbatch_tokens >= 1,
            f"microbatch_tokens = {self.microbatch_tokens}: give 1 or more",
        )
        check(0 <= self.workers <= 1024, f"workers = {self.workers}: give 0 to 1024")

    def place_of(self, name: str) -> tuple[str, str]:
        """Return the corpus that a source of the mixtures lies in, and its name there."""
        if self.replay_corpus and name.startswith(_REPLAY):
            return self.replay_corpus, name.removeprefix(_REPLAY)
        return self.corpus, name


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW; the defaults are those of the released models."""

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    """On matrices; norms have none."""
    clip_norm: float = 1.0
    """Largest norm of the gradient over all parameters and processes."""

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            check(0 <= value < 1, f"{name} = {value}: give 0 or more and less than 1")
        check(self.epsilon > 0, f"epsilon = {self.epsilon}: give more than 0")
        check(self.weight_decay >= 0, f"weight_decay = {self.weight_decay}: give 0 or more")
        check(self.clip_norm > 0, f"clip_norm = {self.clip_norm}: give more than 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortRows:
    """A part of a length warm-up."""

    context_tokens: int
    """A divisor of the stage's own; a batch has as many more rows, so its tokens stay the same."""
    steps: int

    def __post_init__(self) -> None:
        _check_context(self.context_tokens)
        check(self.steps >= 1, f"steps = {self.steps}: give 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageConfig:
    """One stretch of the run; the optimizer's state goes on from stage to stage."""

    name: str
    objective: Annotated[str, OneOf(OBJECTIVES)]
    tokens: int
    """Rounded up to whole batches."""
    mixture: dict[str, float]
    """Share of rows of each source; the shares sum to one."""
    context_tokens: int
    """Length of a row."""
    batch_rows: int
    """Rows of a global batch, over all processes."""
    learning_rate: float
    """Peak."""
    schedule: Annotated[str, OneOf(RATE_SCHEDULES)]
    """How it comes down after the warm-up: not at all, over the whole stage in a line or a cosine,
    or in a line over the last `decay_steps` (WSD)."""
    warmup_steps: int = 0
    decay_steps: int = 0
    final_learning_rate: float = 0.0
    """Where a falling schedule ends."""
    rope_theta: float = 500_000.0
    """Base of the rotary embedding's wavelengths; larger for longer contexts."""
    until: Annotated[str, OneOf(STAGE_ENDS)] = "tokens"
    """What ends the stage: its tokens; or before them a persistent rise of the gradient's norm, or
    a widening gap between sequence recovery in fp32 and in bf16, as the probes see it."""
    length_warmup: tuple[ShortRows, ...] = ()
    """The stage's first steps read shorter rows."""
    fns_weight: tuple[float, ...] = ()
    """Of a blend: the weight of FNS at the first step and at the last, in a line between them."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_given(self, "name")
        self._check_objective()
        check(self.tokens >= 1, f"tokens = {self.tokens}: give 1 or more")
        _check_context(self.context_tokens)
        check(1 <= self.batch_rows < 2**31, f"batch_rows = {self.batch_rows}: give 1 to 2^31 - 1")
        check(self.rope_theta > 1, f"rope_theta = {self.rope_theta}: give more than 1")
        self._check_length_warmup()
        check(self.tokens < 2**62, f"tokens = {self.tokens}: give less than 2^62")
        total = sum(self.mixture.values())
        check(abs(total - 1) < 1e-9, f"mixture sums to {total!r}, not 1")
        for source, share in self.mixture.items():
            units = share * SHARE_UNITS
            check(
                share > 0 and abs(units - round(units)) < 1e-6,
                f"mixture.{source} = {share}: give a positive multiple of 1/{SHARE_UNITS}",
            )
        self._check_schedule()

    def _check_objective(self) -> None:
        wanted = OBJECTIVES[self.objective].num_fns_weights
        check(
            len(self.fns_weight) == wanted and all(0 <= w <= 1 for w in self.fns_weight),
            f"fns_weight = {list(self.fns_weight)} with objective {self.objective!r}: give "
            f"{_fns_weights_wanted()}, and none to the others",
        )

    def _check_schedule(self) -> None:
        check(
            0 < self.learning_rate < math.inf,
            f"learning_rate = {self.learning_rate}: give more than 0",
        )
        for name in ("warmup_steps", "decay_steps"):
            value = getattr(self, name)
            check(value >= 0, f"{name} = {value}: give 0 or more")
        check(
            0 <= self.final_learning_rate <= self.learning_rate,
            f"final_learning_rate = {self.final_learning_rate}: give 0 to learning_rate = "
            f"{self.learning_rate}",
        )
        with_them = [repr(name) for name, each in RATE_SCHEDULES.items() if each.has_decay_steps]
        check(
            self.decay_steps == 0 or RATE_SCHEDULES[self.schedule].has_decay_steps,
            f"decay_steps = {self.decay_steps}: only the schedule {' or '.join(with_them)} has "
            "them",
        )
        check(
            self.warmup_steps + self.decay_steps <= self.num_steps,
            f"warmup_steps + decay_steps = {self.warmup_steps + self.decay_steps}, and the whole "
            f"stage has {self.num_steps} steps",
        )

    def _check_length_warmup(self) -> None:
        for part in self.length_warmup:
            check(
                part.context_tokens < self.context_tokens
                and self.context_tokens % part.context_tokens == 0,
                f"length_warmup: {part.context_tokens} tokens: give a divisor of context_tokens = "
                f"{self.context_tokens} that is less",
            )
        steps = sum(part.steps for part in self.length_warmup)
        check(
            steps < self.num_steps,
            f"length_warmup takes {steps} steps and the whole stage has {self.num_steps}",
        )

    @property
    def batch_tokens(self) -> int:
        """Tokens of a global batch."""
        return self.batch_rows * self.context_tokens

    @property
    def num_steps(self) -> int:
        """Optimizer steps."""
        return -(-self.tokens // self.batch_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """When the run is saved."""

    every_steps: int = 1000
    every_minutes: float = 1.0
    """Saved by the clock as well, so that no more work than this, a step, and what is being written
    can be lost; less often where writing would take more than a twentieth of the time. 0 goes by
    steps alone. What is trained does not depend on it."""
    keep: int = 2
    """Newest checkpoints of `every_steps` to keep; of those between them, the newest is kept."""
    milestone_steps: int = 0
    """Checkpoints at multiples of this are kept for good; 0 keeps none."""
    background: bool = True
    """Write while the run goes on; the state is copied to memory first."""

    def __post_init__(self) -> None:
        check(self.every_steps >= 1, f"every_steps = {self.every_steps}: give 1 or more")
        check(
            0 <= self.every_minutes < math.inf,
            f"every_minutes = {self.every_minutes}: give 0 or more",
        )
        check(self.keep >= 1, f"keep = {self.keep}: give 1 or more")
        check(
            self.milestone_steps >= 0 and self.milestone_steps % self.every_steps == 0,
            f"milestone_steps = {self.milestone_steps}: give a multiple of every_steps = "
            f"{self.every_steps}, or 0",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelConfig:
    """How the processes share the work; none of it changes what is computed, but for rounding."""

    pipeline: int = 1
    """Processes that the layers are divided over."""
    replicate: int = 1
    """Copies of the sharded network; of the processes beside pipeline and replicate, each holds a
    shard."""
    context: int = 1
    """Processes that share each row, of those that share the weights."""
    schedule: Annotated[str, OneOf(PIPELINE_SCHEDULES)] = "1f1b"
    """The order of forward and backward in a pipeline."""
    stages_a_rank: int = 2
    """Pieces of the network that a process of an interleaved pipeline holds; `zbv` has two, `gpipe`
    and `1f1b` one."""
    reshard_after_forward: bool = True
    """Free gathered weights between forward and backward; a pipeline keeps them."""
    reduce_each_microbatch: bool = False
    """Divide gradients among the processes after each microbatch: less memory, more on the network;
    else, and in a pipeline, after the last."""
    timeout_seconds: int = 600
    """How long a process waits for another before it gives up, and with it the run."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("pipeline", "replicate", "context"):
            value = getattr(self, name)
            check(value >= 1, f"{name} = {value}: give 1 or more")
        check(
            1 <= self.timeout_seconds <= _MOST_TIMEOUT_SECONDS,
            f"timeout_seconds = {self.timeout_seconds}: give 1 to {_MOST_TIMEOUT_SECONDS}",
        )
        check(self.stages_a_rank >= 2, f"stages_a_rank = {self.stages_a_rank}: give 2 or more")

    def check_context(self, shard: int) -> None:
        """Refuse rows that are shared by others than so many processes that share weights."""
        check(
            shard % self.context == 0,
            f"parallel.context = {self.context}: {shard} processes share the weights (those beside "
            "pipeline x replicate), which are no multiple of it; change one of them",
        )

    @property
    def pipeline_schedule(self) -> PipelineSchedule:
        """What is known of the schedule."""
        return PIPELINE_SCHEDULES[self.schedule]

    @property
    def pieces_a_rank(self) -> int:
        """Pieces of the network that a process holds."""
        if self.pipeline == 1:
            return 1
        return self.pipeline_schedule.pieces_a_rank or self.stages_a_rank

    def pipe(self, num_microbatches: int) -> Pipe:
        """Return a pipeline of the run with so many microbatches in it."""
        return Pipe(self.pipeline, self.pieces_a_rank, num_microbatches)


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardConfig:
    """What happens at a step whose loss or gradient is not finite, or jumps."""

    policy: Annotated[str, OneOf(GUARD_POLICIES)] = "skip"
    """Leave the step out; go back to the last checkpoint and leave out all steps since; or stop."""
    spike_factor: float = 0.0
    """A step is bad as well if its loss or its gradient's norm is more than this many times the
    median of the steps before it; 0 looks at finiteness alone."""
    window_steps: int = 100
    """Steps that the median is taken over."""
    most_bad_steps: int = 20
    """The run stops at one more."""

    def __post_init__(self) -> None:
        check_choices(self)
        check(
            self.spike_factor == 0 or self.spike_factor > 1,
            f"spike_factor = {self.spike_factor}: give more than 1, or 0",
        )
        check(self.window_steps >= 2, f"window_steps = {self.window_steps}: give 2 or more")
        check(self.most_bad_steps >= 0, f"most_bad_steps = {self.most_bad_steps}: give 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeConfig:
    """What is measured on held-out records while the run goes on."""

    every_steps: int = 0
    """0 measures nothing."""
    source: str = "eukaryote"
    """Source that the records are of."""
    also: tuple[str, ...] = ()
    """More sources of which held-out nats per base are measured, such as `replay_eukaryote`: so it
    is seen what is forgotten."""
    heldout_bp: int = 50_000
    """Bases of held-out records, the same each time, for nats per base."""
    sites: int = 64
    """Places where 30 bases are continued, for sequence recovery in fp32 and in bf16."""

    def __post_init__(self) -> None:
        check_given(self, "source")
        check(self.every_steps >= 0, f"every_steps = {self.every_steps}: give 0 or more")
        check(self.heldout_bp >= 1, f"heldout_bp = {self.heldout_bp}: give 1 or more")
        check(self.sites >= 1, f"sites = {self.sites}: give 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """A whole run."""

    output: str
    """Run folder: config.toml, metrics.jsonl, checkpoints/, export/."""
    seed: int
    model: ModelConfig
    data: DataConfig
    stages: tuple[StageConfig, ...]
    optimizer: OptimizerConfig = OptimizerConfig()
    parallel: ParallelConfig = ParallelConfig()
    compute: ComputeConfig = ComputeConfig()  # noqa: RUF009  # frozen
    checkpoint: CheckpointConfig = CheckpointConfig()
    guard: GuardConfig = GuardConfig()
    probe: ProbeConfig = ProbeConfig()
    learners: LearnersConfig = LearnersConfig()  # noqa: RUF009
    tracker: Annotated[str, OneOf(TRACKERS)] = "none"
    """Where metrics go beside `metrics.jsonl`."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_given(self, "output")
        check(self.seed >= 0, f"seed = {self.seed}: give 0 or more")
        check(bool(self.stages), "stages: a run needs at least one [[stages]]")
        names = [stage.name for stage in self.stages]
        check(len(set(names)) == len(names), f"stages: two have one name, of {', '.join(names)}")
        self._check_backward()
        self.compute.check_float8(self.model.tune, self._rows_tokens)
        self.learners.check_run(self.guard.policy, [stage.until for stage in self.stages])
        for stage in self.stages:
            check(
                not STAGE_ENDS[stage.until].needs_probes or self.probe.every_steps > 0,
                f"stage {stage.name!r} ends on what probes see: set probe.every_steps",
            )

    def _check_backward(self) -> None:
        parallel = self.parallel
        if parallel.pipeline == 1 or not parallel.pipeline_schedule.takes_backward_apart:
            return
        # Backward for inputs comes first, that for weights later, a group of them at a time:
        # compiled layers and selective checkpointing do not allow that, and with full
        # checkpointing each layer would be computed anew ten times.
        checkpointing = ACTIVATION_CHECKPOINTINGS[self.compute.activation_checkpointing]
        check(
            not (self.compute.compile or self.compute.float8 or checkpointing.computes_anew),
            f"parallel.schedule = {parallel.schedule!r} takes backward apart, which goes neither "
            "with compute.compile or compute.float8 nor with activation checkpointing; use "
            "'interleaved_1f1b', or none of them",
        )

    @property
    def _rows_tokens(self) -> list[int]:
        """Tokens of a row that a process reads, of every stage and warm-up."""
        warmups = [part.context_tokens for stage in self.stages for part in stage.length_warmup]
        whole = [*(stage.context_tokens for stage in self.stages), *warmups]
        return [tokens // self.parallel.context for tokens in whole]

    @property
    def longest_context_tokens(self) -> int:
        """Longest row of any stage."""
        return max(stage.context_tokens for stage in self.stages)


def _fns_weights_wanted() -> str:
    words = {1: "one number", 2: "two numbers"}
    counts = {name: entry.num_fns_weights for name, entry in OBJECTIVES.items()}
    return ", ".join(
        f"{words.get(count, f'{count} numbers')} from 0 to 1 to a {name}"
        for name, count in counts.items()
        if count
    )


def _check_context(tokens: int) -> None:
    check(16 <= tokens < 2**31, f"context_tokens = {tokens}: give 16 to 2^31 - 1")
