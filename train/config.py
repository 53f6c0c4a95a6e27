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
    workers: int = 0
    """Processes that read ahead; with none, rows are read when they are needed, which costs about
    a tenth of a microsecond a token."""
    flip_strands: tuple[str, ...] = (
        "eukaryote",
        "eukaryote_concatenated",
        "prokaryote",
        "promoter",
        "eukaryote_generator",
        "prokaryote_evo2",
    )
    """Sources that are read on either strand, the last two by their names in the released corpus;
    transcripts have only one."""

    def __post_init__(self) -> None:
        check(
            self.microbatch_tokens >= 1,
            f"microbatch_tokens = {self.microbatch_tokens}: give 1 or more",
        )
        check(self.workers >= 0, f"workers = {self.workers}: give 0 or more")


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
    objective: Literal["ce", "fns", "blend"]
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
    schedule: Literal["constant", "linear", "cosine", "wsd"]
    """How it comes down after the warm-up: not at all, over the whole stage in a line or a cosine,
    or in a line over the last `decay_steps` (WSD)."""
    warmup_steps: int = 0
    decay_steps: int = 0
    final_learning_rate: float = 0.0
    """Where a falling schedule ends."""
    rope_theta: float = 500_000.0
    """Base of the rotary embedding's wavelengths; larger for longer contexts."""
    length_warmup: tuple[ShortRows, ...] = ()
    """The stage's first steps read shorter rows."""
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
        _check_context(self.context_tokens)
        check(self.batch_rows >= 1, f"batch_rows = {self.batch_rows}: give 1 or more")
        check(self.rope_theta > 1, f"rope_theta = {self.rope_theta}: give more than 1")
        self._check_length_warmup()
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
    def longest_context_tokens(self) -> int:
        """Longest row of any stage."""
        return max(stage.context_tokens for stage in self.stages)


def _check_context(tokens: int) -> None:
    check(tokens >= 16, f"context_tokens = {tokens}: give 16 or more")
