"""A training run as one TOML file, read into these values; layouts for numbers of processes.

The recipe holds names only. The tables that they name stand next to their use; a test compares
the names, and the facts about them that the rules here need, with the tables.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from carbon.io.config import Name, NotEmpty, Recipe, check, read_table, with_overrides
from carbon.model.architectures import RELEASED, ArchitectureName

PresetName = Literal["tiny", "3m", "5m", "mini", "500m", "3b", "8b"]
KmerInitName = Literal["independent", "bases"]
TuningName = Literal["whole", "lora", "last"]
Linear = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OptimizerName = Literal["adamw", "muon"]
ObjectiveName = Literal["ce", "fns", "blend"]
RateScheduleName = Literal["constant", "linear", "cosine", "wsd"]
PhaseEndName = Literal["tokens", "gradient_norm", "precision_gap"]
PipelineScheduleName = Literal[
    "gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv"
]
DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16"]
AttentionName = Literal["auto", "sdpa", "varlen", "flash_attention_2", "flash_attention_3"]
CheckpointingName = Literal["none", "selective", "full"]
GuardPolicyName = Literal["skip", "rollback", "stop"]
CodecName = Literal["fp32", "bf16", "int8", "top2"]
SyncName = Literal["diloco", "sparta"]
TrackerName = Literal["none", "tensorboard", "trackio", "wandb"]

# Facts about names that decide which keys go together.
NUM_FNS_WEIGHTS: dict[ObjectiveName, int] = {"ce": 0, "fns": 0, "blend": 2}
WITH_DECAY_STEPS: tuple[RateScheduleName, ...] = ("wsd",)
ENDED_BY_PROBES: tuple[PhaseEndName, ...] = ("precision_gap",)
SPLIT_BACKWARD: tuple[PipelineScheduleName, ...] = ("interleaved_zero_bubble", "zbv")
GOING_BACK: tuple[GuardPolicyName, ...] = ("rollback",)
LINEARS: tuple[Linear, ...] = get_args(Linear)
"""The matrices of a layer. Embedding and head are none of them: where they are tied, an adapter on
one would take the two apart."""
SHARE_UNITS = 10_000
"""Shares of a mixture are multiples of one over this, as the order of samples counts them."""
FLOAT8_SIDE = 16
"""What the sides of factors in float8 are multiples of, by the kernel (`torch._scaled_mm`)."""

_KEYS_OF_TUNING: dict[str, TuningName] = {
    "lora_rank": "lora",
    "lora_alpha": "lora",
    "lora_targets": "lora",
    "last_layers": "last",
}
_REPLAY = "replay_"

ContextTokens = Annotated[int, Field(ge=16, lt=2**31)]


class ModelConfig(Recipe):
    """The network: random weights, or a starting checkpoint."""

    preset: Literal[PresetName, ""] = ""
    """Size of the network; with `start`, its own size holds."""
    architecture: ArchitectureName = RELEASED
    """Decoder: as in the released models, or with normalised queries and keys."""
    kmer_init: KmerInitName = "independent"
    """Initialisation of the rows of 6-mers: independent random vectors, as published, or sums of
    vectors of the six bases, with which small models learn sooner."""
    start: str = ""
    """Folder of a model to initialise from, native or of the released layout; random weights if
    empty. Its sizes, vocabulary, tags and RoPE theta hold for the run."""
    tune: TuningName = "whole"
    """Weights of `start` to train: all, low-rank adapters, or the last layers."""
    lora_rank: int = Field(default=16, ge=1)
    """Rank of the adapters."""
    lora_alpha: float = Field(default=32.0, gt=0)
    """Scale of the adapters, multiplied by 1 / `lora_rank`."""
    lora_targets: Annotated[tuple[Linear, ...], NotEmpty] = LINEARS
    """Matrices of every layer that get an adapter."""
    last_layers: int = Field(default=0, ge=0)
    """Number of last layers to train, with the final norm."""

    RENAMED: ClassVar = {"kmer_rows": "kmer_init"}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield keys that do not go together."""
        if not (self.preset or self.start):
            sizes = ", ".join(get_args(PresetName))
            yield "preset", f"is missing; give one of {sizes}, or start, a model's folder"
        if self.tune != "whole" and not self.start:
            yield "tune", f"{self.tune!r} needs start, the folder of a model to go on from"
        if self.start and self.kmer_init != "independent":
            yield (
                "kmer_init",
                f"{self.kmer_init!r}: rows are those of start = {self.start!r}; leave one of the "
                "two out",
            )
        for key, tuning in _KEYS_OF_TUNING.items():
            value = getattr(self, key)
            if tuning != self.tune and value != type(self).model_fields[key].default:
                yield key, f"{value!r}: only tune = {tuning!r} has that; leave it out"
        if len(set(self.lora_targets)) < len(self.lora_targets):
            yield "lora_targets", f"{list(self.lora_targets)} names one twice; keep one"
        if self.tune == "last" and not self.last_layers:
            yield "last_layers", "0 trains nothing; give 1 or more"


class DataConfig(Recipe):
    """Data that all phases read."""

    corpus: Name
    """Folder of `carbon corpus build` or of the released layout, or a URL that fsspec opens."""
    microbatch_tokens: int = Field(ge=1)
    """Maximum tokens that one process reads at once, at least one row; the rest of a batch is
    accumulated."""
    cache: str = ""
    """Folder for prepared sources, one byte a base; if empty, next to the corpus, or in the user's
    cache if the corpus is read-only."""
    replay_corpus: str = ""
    """A second corpus, such as the training corpus of `model.start`: its source `mrna` is
    `replay_mrna` in mixtures and evaluations."""
    soft_mask_weight: float = Field(default=1.0, gt=0, le=1)
    """Weight of soft-masked (lower-case) bases in the loss, at most 1; other bases have 1."""
    workers: int = Field(default=0, ge=0, le=1024)
    """Processes that read ahead; 0 reads rows when they are needed, which costs about a fifth of a
    microsecond a token."""
    REMOVED: ClassVar = {
        "flip_strands": "which sources are read on both strands stands in the manifest of the "
        "corpus (docs/training.md)",
    }

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a cache that is named by blanks."""
        if self.cache and not self.cache.strip():
            yield "cache", f"expected a name or nothing, got {self.cache!r}"

    def place_of(self, name: str) -> tuple[str, str]:
        """Return the corpus that a source of the mixtures lies in, and its name there."""
        if self.replay_corpus and name.startswith(_REPLAY):
            return self.replay_corpus, name.removeprefix(_REPLAY)
        return self.corpus, name


class OptimizerConfig(Recipe):
    """How gradients become updates; the defaults are the values of the released models."""

    name: OptimizerName = "adamw"
    """AdamW; or Muon for the matrices of layers, with AdamW for embedding, head and norms."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean gradient."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the mean squared gradient."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Constant in the denominator of an update."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled weight decay of matrices, embedding and head included; norms have none."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Maximum norm of the gradient over all parameters and processes."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """Momentum of Muon."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a momentum that the optimizer does not have."""
        if self.name != "muon" and self.momentum != type(self).model_fields["momentum"].default:
            yield "momentum", f"{self.momentum}: only name = 'muon' has one; leave it out"


class ShortRows(Recipe):
    """A part of a length warm-up."""

    context_tokens: ContextTokens
    """Length of a row, a divisor of the phase's; a batch has as many more rows."""
    steps: int = Field(ge=1)

    """Steps with this length."""


class PhaseConfig(Recipe):
    """One phase of the run; the optimizer's state is kept from phase to phase."""

    name: Name
    """Name, unique in the recipe."""
    objective: ObjectiveName
    """Cross-entropy, FNS, or a blend of both."""
    tokens: int = Field(ge=1, lt=2**62)
    """Tokens of the phase, rounded up to complete batches."""
    mixture: dict[str, Annotated[float, Field(gt=0)]]
    """Share of rows of each source, multiples of 1/10,000 that sum to 1."""
    context_tokens: ContextTokens
    """Length of a row."""
    batch_rows: int = Field(ge=1, lt=2**31)
    """Rows of a batch, over all processes."""
    learning_rate: float = Field(gt=0)
    """Peak learning rate."""
    schedule: RateScheduleName
    """Learning rate after the warm-up: constant, linear or cosine decay over the phase, or linear
    decay over the last `decay_steps` (WSD)."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from 0."""
    decay_steps: int = Field(default=0, ge=0)
    """Last steps, over which the schedule `wsd` decays."""
    final_learning_rate: float = Field(default=0.0, ge=0)
    """Learning rate at the end of a decay, at the step after the last."""
    rope_theta: float = Field(default=500_000.0, gt=1)
    """Base of the rotary embedding's wavelengths; larger for longer contexts."""
    until: PhaseEndName = "tokens"
    """End of the phase: its tokens; or earlier a persistent rise of the gradient norm, or a
    widening gap between sequence recovery in fp32 and bf16."""
    length_warmup: tuple[ShortRows, ...] = ()
    """Shorter rows in the first steps."""
    fns_weight: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Weight of FNS in a blend at the first and the last step, linear between them."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an objective, a mixture or a schedule that does not go with the rest."""
        wanted = NUM_FNS_WEIGHTS[self.objective]
        if len(self.fns_weight) != wanted:
            numbers = f"{wanted} numbers from 0 to 1" if wanted else "none"
            yield (
                "fns_weight",
                f"{list(self.fns_weight)} with objective {self.objective!r}; give it {numbers}",
            )
        total = sum(self.mixture.values())
        if abs(total - 1) >= 1e-9:
            yield "mixture", f"sums to {total!r}; give shares that sum to 1"
        for source, share in self.mixture.items():
            units = share * SHARE_UNITS
            if abs(units - round(units)) >= 1e-6:
                yield f"mixture.{source}", f"{share}: give a multiple of 1/{SHARE_UNITS}"
        yield from self._problems_of_schedule()
        yield from self._problems_of_length_warmup()

    def _problems_of_schedule(self) -> Iterator[tuple[str, str]]:
        if self.final_learning_rate > self.learning_rate:
            yield (
                "final_learning_rate",
                f"{self.final_learning_rate}: give 0 to learning_rate = {self.learning_rate}",
            )
        if self.decay_steps and self.schedule not in WITH_DECAY_STEPS:
            yield (
                "decay_steps",
                f"{self.decay_steps}: only the schedule {' or '.join(map(repr, WITH_DECAY_STEPS))} "
                "has them; leave them out",
            )
        if self.warmup_steps + self.decay_steps > self.num_steps:
            yield (
                "warmup_steps",
                f"{self.warmup_steps} and decay_steps {self.decay_steps} are more than the "
                f"{self.num_steps} steps of the whole phase; give less of them, or more tokens",
            )

    def _problems_of_length_warmup(self) -> Iterator[tuple[str, str]]:
        for i, part in enumerate(self.length_warmup):
            is_less = part.context_tokens < self.context_tokens
            if not is_less or self.context_tokens % part.context_tokens:
                yield (
                    f"length_warmup.{i}.context_tokens",
                    f"{part.context_tokens}: give a divisor of context_tokens = "
                    f"{self.context_tokens} that is less",
                )
        steps = sum(part.steps for part in self.length_warmup)
        if self.length_warmup and steps >= self.num_steps:
            yield (
                "length_warmup",
                f"takes {steps} steps and the whole phase has {self.num_steps}; give it fewer",
            )

    @property
    def batch_tokens(self) -> int:
        """Tokens of a global batch."""
        return self.batch_rows * self.context_tokens

    @property
    def num_steps(self) -> int:
        """Optimizer steps."""
        return -(-self.tokens // self.batch_tokens)


class ParallelConfig(Recipe):
    """How the processes share the work, which changes results only by rounding."""

    pipeline: int = Field(default=1, ge=1)
    """Pipeline stages of consecutive layers."""
    replicate: int = Field(default=1, ge=1)
    """Copies of the sharded network (HSDP); the other processes hold shards."""
    context: int = Field(default=1, ge=1)
    """Processes that share each row (context parallelism)."""
    tensor: int = Field(default=1, ge=1)
    """Processes that divide each matrix of a layer, and the rows of embedding and head."""
    schedule: PipelineScheduleName = "1f1b"
    """Pipeline schedule."""
    stages_per_rank: int = Field(default=2, ge=2)
    """Stages of a process in an interleaved schedule; `zbv` has two, `gpipe` and `1f1b` one."""
    reshard_after_forward: bool = True
    """Free gathered weights between forward and backward; a pipeline keeps them."""
    reduce_each_microbatch: bool = False
    """Reduce gradients after each microbatch: less memory, more traffic; if false, and in a
    pipeline, after the last one."""
    timeout_seconds: int = Field(default=600, ge=1, le=30 * 24 * 3600)
    """Time that a process waits for another before the run stops."""


class ComputeConfig(Recipe):
    """How a process computes."""

    device: DeviceName = "auto"
    """`auto` uses GPUs if there are any, and stops if a GPU is present and unusable."""
    dtype: DtypeName = "auto"
    """Of products and activations; `auto` is bf16 on a GPU and fp32 on a CPU. Weights, gradient
    sums and optimizer are fp32."""
    attention: AttentionName = "auto"
    """Attention inside packed segments; `auto` is PyTorch's `varlen` kernel on a GPU in bf16, else
    SDPA with a mask."""
    activation_checkpointing: CheckpointingName = "none"
    """Activation recomputation: none; `selective` keeps results of matrix products and attention;
    `full` recomputes each layer."""
    compile: bool = False
    """`torch.compile` of each layer."""
    float8: bool = False
    """Float8 products in the layers, scaled by rows (torchao); not in embedding and head."""
    deterministic: bool = False
    """Use GPU operations that give the same bits each time; some are slower."""
    profile_steps: tuple[int, ...] = ()
    """First and last step to trace, into `profile/` of the run folder."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield float8 in fp32, and steps that are not a range."""
        if self.float8 and self.dtype == "float32":
            yield "float8", "true with dtype = 'float32': all else is in bf16 then; leave dtype out"
        steps = self.profile_steps
        if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            yield "profile_steps", f"{list(steps)}: give the first step and the last"


class CheckpointConfig(Recipe):
    """When the run is saved."""

    every_steps: int = Field(default=1000, ge=1)
    """Steps between periodic checkpoints."""
    every_minutes: float = Field(default=1.0, ge=0)
    """Minutes between additional checkpoints, rarer if writing takes more than a twentieth of the
    time; 0: none. They do not change what is trained."""
    keep: int = Field(default=2, ge=1)
    """Newest periodic checkpoints on disk, next to the newest additional one."""
    milestone_steps: int = Field(default=0, ge=0)
    """Checkpoints at multiples of this are never removed; 0: none."""
    background: bool = True
    """Write while the run continues, from a copy in CPU memory."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield milestones at steps that are not saved."""
        if self.milestone_steps % self.every_steps:
            yield (
                "milestone_steps",
                f"{self.milestone_steps}: give a multiple of every_steps = {self.every_steps}, "
                "or 0",
            )


class GuardConfig(Recipe):
    """What happens at a step whose loss or gradient is not finite, or jumps."""

    policy: GuardPolicyName = "skip"
    """Skip the step; roll back to the last periodic checkpoint and skip all steps since; or
    stop."""
    spike_factor: float = 0.0
    """A step is also bad if its loss or gradient norm exceeds this many times the median of earlier
    steps; 0 checks only for finite values."""
    window_steps: int = Field(default=100, ge=2)
    """Steps of the median."""
    most_bad_steps: int = Field(default=20, ge=0)
    """Maximum bad steps; one more stops the run."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a factor that every step exceeds."""
        if self.spike_factor != 0 and self.spike_factor <= 1:
            yield "spike_factor", f"{self.spike_factor}: give more than 1, or 0"


class ProbeConfig(Recipe):
    """Periodic evaluation on held-out records."""

    every_steps: int = Field(default=0, ge=0)
    """Steps between evaluations; 0: none."""
    source: Name = "eukaryote"
    """Source of the held-out records."""
    also: tuple[str, ...] = ()
    """More sources for held-out nats per base, such as `replay_eukaryote`, to measure
    forgetting."""
    heldout_bp: int = Field(default=50_000, ge=1)
    """Bases of held-out records for nats per base, the same each time."""
    sites: int = Field(default=64, ge=1)
    """Places where 30 bases are continued, for sequence recovery in fp32 and bf16."""


Steps = Annotated[int, Field(ge=1, le=1_000_000)]
StepsOrNone = Annotated[int, Field(ge=0, le=1_000_000)]


class WorkersConfig(Recipe):
    """Workers train apart, and synchronise now and then (docs/low-communication.md).

    In a round of DiLoCo (arXiv 2311.08105) the mean pseudo-gradient of all workers is the gradient
    of an outer optimizer, SGD with Nesterov momentum, whose weights, the outer parameters, are the
    model.
    """

    RENAMED: ClassVar = {"mailbox": "store", "anchor_every": "snapshot_rounds"}

    count: int = Field(default=0, ge=0, le=1024)
    """Workers that begin together; 0: an ordinary run. Each has a separate run folder in
    `output`."""
    store: str = ""
    """Folder, or URL that fsspec opens, through which workers of separate launches synchronise; if
    empty, all workers are processes of one launch."""
    number: int = Field(default=0, ge=0, le=1023)
    """With a store: number of this worker, from 0; a worker that joins later takes any unused
    number."""
    method: SyncName = "diloco"
    """Rounds of DiLoCo; or sparse parameter averaging (SPARTA), in which the workers of one launch
    average a random share of their parameters after each step."""
    share: float = Field(default=0.01, gt=0, le=1)
    """Share of the parameters that SPARTA averages in each step."""
    every_steps: Steps = 100
    """Steps of a worker between two rounds over the same weight."""
    learning_rate: float = Field(default=0.7, ge=1e-6, le=10)
    """Learning rate of the outer step; published optima are about 0.4 for one worker and 0.8 for
    eight."""
    momentum: float = Field(default=0.9, ge=0, le=0.9999)
    """Nesterov momentum of the outer step."""
    fragments: Steps = 1
    """Parts of the weights that synchronise in different rounds (arXiv 2501.18512)."""
    delay_steps: StepsOrNone = 0
    """Steps that a worker takes while its pseudo-gradient is in transit."""
    alpha: float = Field(default=0.0, ge=0, le=0.9999)  # with 1 workers would never synchronise
    """Share of local weights that a worker keeps after a round; 0 takes the outer parameters."""
    codec: CodecName = "int8"
    """Compression of pseudo-gradients."""
    quorum: int = Field(default=0, ge=0, le=1024)
    """Fewest workers of a round; 0: more than half of `count`. Fewer workers train alone."""
    grace_seconds: float = Field(default=60.0, ge=0, le=30 * 24 * 3600)
    """Time that a quorum waits for other workers."""
    by_speed: bool = False
    """Slow workers take fewer steps in a round, so that all are ready together."""
    snapshot_rounds: Steps = 10
    """Rounds between two copies of the outer parameters in the store, with which workers can join;
    pseudo-gradients that are older than the last but one are removed there."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield rounds that cannot take place, and settings of the other method."""
        every, count = self.every_steps, self.count
        fields = type(self).model_fields
        of_diloco = fields.keys() - {"count", "method", "share"}
        for name in ["share"] if self.method == "diloco" else sorted(of_diloco):
            if (value := getattr(self, name)) != fields[name].default:
                yield name, f"{value!r}: does nothing with method = {self.method!r}; leave it out"
        if every % self.fragments:
            yield "every_steps", f"{every}: give a multiple of fragments = {self.fragments}"
        if self.delay_steps > every:
            yield "delay_steps", f"{self.delay_steps}: give every_steps = {every} at most"
        if self.quorum > max(count, 1):
            yield "quorum", f"{self.quorum}: give count = {count} at most, or 0"
        if not self.store and (self.number or self.by_speed):
            yield (
                "number" if self.number else "by_speed",
                "is for workers with a store; in one launch all take as many steps",
            )
        if not count and (self.store or self.number or self.method != "diloco"):
            yield "count", "0: give how many workers begin together"

    def alike(self) -> "WorkersConfig":
        """Return the settings that all workers of a run must have alike."""
        store = "store" if self.store else ""
        grace_seconds = type(self).model_fields["grace_seconds"].default
        return self.replace(store=store, number=0, grace_seconds=grace_seconds)

    def folder(self, output: str, in_launch: int | None = None) -> str:
        """Return the run folder of a worker, or of the run if there is one worker.

        Args:
            output: of the recipe, or of the record of it in a worker's folder.
            in_launch: which worker of this launch; None: the one of the record, else the first.
        """
        if self.count <= 1 and not self.store:
            return output
        recorded = re.fullmatch(r"worker-(\d+)", Path(output).name)
        of_run = Path(output).parent if recorded else Path(output)
        if in_launch is None:
            in_launch = int(recorded[1]) if recorded else 0
        return f"{of_run}/worker-{self.number if self.store else in_launch}"

    @property
    def in_one_launch(self) -> int:
        """Workers of this launch."""
        return 1 if self.store else max(self.count, 1)

    def processes_of_each(self, world_size: int) -> int:
        """Return how many of a launch's processes a worker has.

        Raises:
            ConfigError: they cannot be divided.
        """
        processes, left = divmod(world_size, self.in_one_launch)
        check(
            not left,
            f"workers.count = {self.count}: {world_size} processes are no multiple of it; change "
            "one of them",
        )
        return processes

    @property
    def min_workers(self) -> int:
        """Fewest workers of a round."""
        return self.quorum or self.count // 2 + 1

    @property
    def period_steps(self) -> int:
        """Steps of a round: between two synchronisations of any fragment."""
        return self.every_steps // self.fragments

    @property
    def rounds_ahead(self) -> int:
        """Rounds that a worker begins before it has applied an earlier one."""
        return -(-self.delay_steps // self.period_steps)


class TrainConfig(Recipe):
    """A whole run."""

    output: Name
    """Run folder: config.toml, metrics.jsonl, checkpoints/, export/."""
    seed: int = Field(ge=0)
    """Seed of weights and data order."""
    model: ModelConfig
    """The network."""
    data: DataConfig
    """Corpus and what one process reads at once."""
    phases: Annotated[tuple[PhaseConfig, ...], NotEmpty]
    """Phases of the training schedule, in order."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW or Muon."""
    parallel: ParallelConfig = ParallelConfig()
    """Division of the work among processes."""
    compute: ComputeConfig = ComputeConfig()
    """Device, dtype and kernels."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Times of checkpoints."""
    guard: GuardConfig = GuardConfig()
    """Bad steps."""
    probe: ProbeConfig = ProbeConfig()
    """Periodic evaluation."""
    workers: WorkersConfig = WorkersConfig()
    """Low-communication training."""
    tracker: TrackerName = "none"
    """Tracker of the metrics, in addition to `metrics.jsonl`."""

    RENAMED: ClassVar = {"stages": "phases", "learners": "workers"}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield tables that do not go together."""
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            yield "phases", f"two have one name, of {', '.join(names)}; rename one"
        for i, phase in enumerate(self.phases):
            if phase.until in ENDED_BY_PROBES and not self.probe.every_steps:
                yield (
                    f"phases.{i}.until",
                    f"{phase.until!r} ends phase {phase.name!r} by what probes see; set "
                    "probe.every_steps",
                )
        yield from self._problems_of_backward()
        yield from self._problems_of_float8()
        yield from self._problems_of_workers()
        yield from self._problems_of_tensor()

    def _problems_of_tensor(self) -> Iterator[tuple[str, str]]:
        """Yield settings that do not work with divided matrices."""
        if self.parallel.tensor == 1:
            return
        problems = {
            "compute.float8": self.compute.float8,
            "compute.compile": self.compute.compile,
            "model.tune = 'lora'": self.model.tune == "lora",
            "optimizer.name = 'muon'": self.optimizer.name == "muon",
            "workers of one launch": self.workers.in_one_launch > 1,
        }
        if names := [name for name, is_set in problems.items() if is_set]:
            yield (
                "parallel.tensor",
                f"{self.parallel.tensor}: does not go with {' or '.join(names)}; leave one out",
            )

    def _problems_of_backward(self) -> Iterator[tuple[str, str]]:
        """Yield a schedule that the layers cannot be computed in.

        Backward for inputs comes first, that for weights later, a group of them at a time: compiled
        layers and selective checkpointing do not allow that, and with full checkpointing each layer
        would be recomputed ten times.
        """
        parallel, compute = self.parallel, self.compute
        if parallel.pipeline == 1 or parallel.schedule not in SPLIT_BACKWARD:
            return
        if compute.compile or compute.float8 or compute.activation_checkpointing != "none":
            yield (
                "parallel.schedule",
                f"{parallel.schedule!r} takes backward apart, which goes neither with "
                "compute.compile or compute.float8 nor with activation checkpointing; use "
                "'interleaved_1f1b', or none of them",
            )

    def _problems_of_float8(self) -> Iterator[tuple[str, str]]:
        if not self.compute.float8:
            return
        if self.model.tune != "whole":
            yield (
                "compute.float8",
                f"does not go with model.tune = {self.model.tune!r}; leave one out",
            )
        warmups = [part.context_tokens for phase in self.phases for part in phase.length_warmup]
        rows = [*(phase.context_tokens for phase in self.phases), *warmups]
        shares = [tokens // self.parallel.context for tokens in rows]
        if odd := [tokens for tokens in shares if tokens % FLOAT8_SIDE]:
            yield (
                "compute.float8",
                f"processes read {odd} tokens of a row (context_tokens over parallel.context); "
                f"give multiples of {FLOAT8_SIDE}",
            )

    def _problems_of_workers(self) -> Iterator[tuple[str, str]]:
        """Yield what one worker would do without the others."""
        if not self.workers.count:
            return
        if self.guard.policy in GOING_BACK:
            yield (
                "guard.policy",
                f"{self.guard.policy!r}: a worker cannot go back to before a round; give 'skip' or "
                "'stop'",
            )
        for i, phase in enumerate(self.phases):
            if phase.until != "tokens":
                yield (
                    f"phases.{i}.until",
                    f"{phase.until!r}: workers end a phase at the same place; set 'tokens'",
                )

    @property
    def longest_context_tokens(self) -> int:
        """Longest row of any phase."""
        return max(phase.context_tokens for phase in self.phases)


class _Compute(Recipe):
    activation_checkpointing: CheckpointingName = "none"
    compile: bool = False


class _Data(Recipe):
    microbatch_tokens: int = 1


class _Layout(Recipe):
    """The keys that a layout may have, by the tables of a recipe."""

    parallel: ParallelConfig = ParallelConfig()
    compute: _Compute = _Compute()
    data: _Data = _Data()


class _Layouts(Recipe):
    layouts: dict[str, _Layout]

    def problems(self) -> Iterator[tuple[str, str]]:
        for number in self.layouts:
            if not number.isdecimal() or str(int(number)) != number:
                yield (
                    f"layouts.{number}",
                    "name a layout by a number of processes, such as 8",
                )


def read_recipe(
    path: str | Path, overrides: Sequence[str] = (), num_processes: int = 1
) -> dict[str, Any]:
    """Read a recipe's table for a number of processes; overrides take precedence over layouts.

    Raises:
        ConfigError: the file is absent or not TOML, a layout holds what none may, or an override
            does not fit.
    """
    table = read_table(path)
    layouts = table.pop("layouts", {})
    _Layouts.from_table({"layouts": layouts}, str(path))
    return with_overrides(_laid_out(table, layouts, num_processes), overrides)


def _laid_out(
    table: Mapping[str, Any], layouts: Mapping[str, Mapping[str, Any]], num_processes: int
) -> dict[str, Any]:
    """Return a table with the layout of the most processes that are not more than these."""
    fitting = [int(number) for number in layouts if int(number) <= num_processes]
    chosen = layouts[str(max(fitting))] if fitting else {}
    return {**table, **{name: _above(table.get(name, {}), part) for name, part in chosen.items()}}


def _above(settings: Any, part: Mapping[str, Any]) -> Any:
    return {**settings, **part} if isinstance(settings, Mapping) else settings
