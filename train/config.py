"""What a training run is: one TOML file, read into these values."""

from dataclasses import dataclass
from typing import Literal

from carbon.config import check
from carbon.corpus import SHARE_UNITS


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The network."""

    preset: Literal["tiny", "mini", "500m", "3b", "8b"]
    """A size of `carbon.model.presets`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """What is read, and in what portions; the same for all stages."""

    corpus: str
    """Folder made by `python -m data_pipeline build`, or of the released layout; or the URL of one
    that fsspec opens."""
    context_tokens: int
    """Length of a row."""
    batch_rows: int
    """Rows of a global batch, over all processes."""
    microbatch_rows: int
    """Most rows that one process reads at once; the rest is accumulated."""
    cache: str = ""
    """Where sources are prepared for random access, a byte a base. Beside the corpus if empty,
    or in the user's cache where that cannot be written to."""
    flip_strands: tuple[str, ...] = (
        "eukaryote",
        "eukaryote_concatenated",
        "prokaryote",
        "promoter",
    )
    """Sources that are read on either strand; transcripts have only one."""

    def __post_init__(self) -> None:
        check(self.context_tokens >= 16, f"context_tokens = {self.context_tokens}: give 16 or more")
        check(self.batch_rows >= 1, f"batch_rows = {self.batch_rows}: give 1 or more")
        check(
            self.microbatch_rows >= 1, f"microbatch_rows = {self.microbatch_rows}: give 1 or more"
        )


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
class StageConfig:
    """One stretch of the run; the optimizer's state goes on from stage to stage."""

    name: str
    objective: Literal["ce", "fns", "blend"]
    tokens: int
    """Rounded up to whole batches."""
    mixture: dict[str, float]
    """Share of rows of each source; the shares sum to one."""
    learning_rate: float
    """Peak."""
    schedule: Literal["constant", "linear", "cosine", "wsd"]
    """How it comes down after the warm-up: not at all, over the whole stage in a line or a cosine,
    or in a line over the last `decay_steps` (WSD)."""
    warmup_steps: int = 0
    decay_steps: int = 0
    final_learning_rate: float = 0.0
    """Where a falling schedule ends."""
    fns_weight: tuple[float, ...] = ()
    """Of a blend: the weight of FNS at the first step and at the last, in a line between them."""

    def __post_init__(self) -> None:
        blends = self.objective == "blend"
        check(
            len(self.fns_weight) == 2 * blends and all(0 <= w <= 1 for w in self.fns_weight),
            f"fns_weight = {list(self.fns_weight)} with objective {self.objective!r}: give two "
            "numbers from 0 to 1 to a blend, and none to the others",
        )
        check(self.tokens >= 1, f"tokens = {self.tokens}: give 1 or more")
        total = sum(self.mixture.values())
        check(abs(total - 1) < 1e-9, f"mixture sums to {total:g}, not 1")
        for source, share in self.mixture.items():
            units = share * SHARE_UNITS
            check(
                share > 0 and abs(units - round(units)) < 1e-6,
                f"mixture.{source} = {share}: give a positive multiple of 1/{SHARE_UNITS}",
            )
        check(self.learning_rate > 0, f"learning_rate = {self.learning_rate}: give more than 0")
        for name in ("warmup_steps", "decay_steps", "final_learning_rate"):
            value = getattr(self, name)
            check(value >= 0, f"{name} = {value}: give 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """When the run is saved."""

    every_steps: int = 1000
    keep: int = 2
    """Newest checkpoints to keep."""

    def __post_init__(self) -> None:
        check(self.every_steps >= 1, f"every_steps = {self.every_steps}: give 1 or more")
        check(self.keep >= 1, f"keep = {self.keep}: give 1 or more")


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
    checkpoint: CheckpointConfig = CheckpointConfig()

    def __post_init__(self) -> None:
        check(bool(self.stages), "stages: a run needs at least one [[stages]]")

    @property
    def batch_tokens(self) -> int:
        """Tokens of a global batch."""
        return self.data.batch_rows * self.data.context_tokens

    def stage_steps(self, stage: StageConfig) -> int:
        """Return the optimizer steps of a stage."""
        return -(-stage.tokens // self.batch_tokens)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the run."""
        return sum(self.stage_steps(stage) for stage in self.stages)

    def stage_at(self, step: int) -> tuple[StageConfig, int]:
        """Return the stage that step `step` (from 0) belongs to, and its number within it."""
        for stage in self.stages:
            if step < self.stage_steps(stage):
                return stage, step
            step -= self.stage_steps(stage)
        raise IndexError("the run has ended")
