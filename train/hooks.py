"""Hooks of the training loop: guard, meter, profiler, evaluator, checkpointer.

Each sees the trainer as a `Run` and is called after every step; the loop itself is in `trainer.py`.
"""

import enum
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedConfig, PreTrainedModel

from carbon.corpus import read_source
from carbon.errors import CorpusError
from carbon.inference import Model, base_log_likelihoods
from carbon.inference.held_out import (
    MOST_PROMPT_BP,
    TARGET_BP,
    choose_records,
    choose_sites,
    measured_bases,
    recovered_shares,
)
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE, K
from train.checkpoint import Checkpoints
from train.config import ComputeConfig, GuardConfig, PhaseConfig, TrainConfig
from train.diloco.sync import OuterSync
from train.distributed.mesh import Ranks
from train.models.network import flops_a_token, stock_network
from train.planning.time import peak_flops
from train.runs.log import Metrics, RunLog
from train.runs.record import HELDOUT_OF
from train.saved import RunState
from train.schedule import Schedule, Span
from train.signals import StopSignals
from train.watch import PHASE_ENDS


class Run(Protocol):
    """What hooks see of a trainer."""

    config: TrainConfig
    ranks: Ranks
    schedule: Schedule
    state: RunState

    def is_time_for(self, every_steps: int) -> bool:
        """Return whether something periodic is due after the last step."""

    def gathered(self) -> PreTrainedModel | None:
        """Return the whole network on the first process."""


class Hook(Protocol):
    """Called after each step of a run."""

    def after_step(self, metrics: Metrics) -> None:
        """Act on a step and its metrics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardPolicy:
    """A bad step does not change the weights, and more may follow.

    Attributes:
        stops: the run ends.
        goes_back: to the last checkpoint, and all steps since are left out as well.
    """

    stops: bool = False
    goes_back: bool = False


GUARD_POLICIES = {
    "skip": GuardPolicy(),
    "rollback": GuardPolicy(goes_back=True),
    "stop": GuardPolicy(stops=True),
}


def check_step(
    guard: GuardConfig, history: Sequence[Sequence[float]], loss: float, norm: float
) -> str:
    """Return why a step is not to change the weights, nothing if it may.

    Args:
        guard: what counts as a spike.
        history: loss and gradient norm of the good steps before it, of the same phase.
        loss: nats per token of the step.
        norm: of its gradient, before clipping.
    """
    for name, value in (("loss", loss), ("gradient norm", norm)):
        if not math.isfinite(value):
            return f"the {name} is {value}"
    recent = history[-guard.window_steps :]
    if not guard.spike_factor or len(recent) < guard.window_steps:
        return ""
    for name, value, before in zip(
        ("loss", "gradient norm"), (loss, norm), zip(*recent, strict=True), strict=True
    ):
        median = statistics.median(before)
        if value > guard.spike_factor * median:
            return f"the {name} is {value:.4g}, {value / median:.1f} times the median before it"
    return ""


class Guard:
    """Checks each step, and skips it, rolls back or stops the run if it is bad."""

    def __init__(self, config: GuardConfig, checkpoints: Checkpoints) -> None:
        """Prepare; a rollback loads from `checkpoints`."""
        self._config, self._checkpoints = config, checkpoints

    @property
    def goes_back(self) -> bool:
        """Whether a bad step loads a checkpoint."""
        return GUARD_POLICIES[self._config.policy].goes_back

    def check(self, state: RunState, metrics: Metrics) -> str:
        """Return the reason to skip a step, or an empty string."""
        loss, norm = metrics["loss"], metrics["gradient_norm"]
        return check_step(self._config, state.history, loss, norm)

    def accept(self, state: RunState, phase: PhaseConfig, metrics: Metrics) -> None:
        """Remember a good step: the guard's window, or all of them for a phase ended by norms."""
        state.updates += 1
        state.history.append([metrics["loss"], metrics["gradient_norm"]])
        if not PHASE_ENDS[phase.until].needs_all_norms:
            del state.history[: -self._config.window_steps]

    def reject(self, state: RunState, reason: str, log: RunLog) -> RunState:
        """Apply the policy to a bad step; return the state to continue from.

        Raises:
            FloatingPointError: the policy is to stop, or too many steps were bad.
        """
        bad, policy = state.step, self._config.policy
        message = f"step {bad + 1}: {reason}"
        if GUARD_POLICIES[policy].stops:
            raise FloatingPointError(
                f"{message}; the checkpoints are untouched: start another run with a lower "
                "learning rate, or set guard.policy"
            )
        first, skipped = bad, state.skipped
        if self.goes_back:
            before = state
            state = self._checkpoints.roll_back(state)
            first = state.step
            state.ended = before.ended  # rows follow from where phases have ended
        state.skipped = [*skipped, [first, bad]]
        state.step = bad
        done = f"left out {bad - first + 1} steps" if self.goes_back else "left out"
        log.event(bad + 1, policy, f"{message}; {done}")
        if len(state.skipped) > self._config.most_bad_steps:
            raise FloatingPointError(
                f"{message}; it is bad step number {len(state.skipped)}, and "
                f"guard.most_bad_steps = {self._config.most_bad_steps}; start another run with a "
                "lower learning rate"
            )
        return state


class Meter:
    """Throughput of a step, and its share of the GPUs' peak."""

    def __init__(self, ranks: Ranks, network: PreTrainedConfig) -> None:
        """Look up the peak of this process's GPU."""
        self._network, self._peak = network, None
        if ranks.device.type == "cuda":
            peak = peak_flops(torch.cuda.get_device_name(ranks.device))
            self._peak = peak and peak * ranks.world_size

    def measure(self, span: Span, seconds: float) -> Metrics:
        """Return tokens a second and model FLOPs utilisation; None where the peak is unknown."""
        speed = span.phase.batch_tokens / seconds
        flops = flops_a_token(self._network, span.context_tokens)
        return {
            "tokens_per_second": speed,
            "mfu": speed * flops / self._peak if self._peak else None,
        }


def signal_to_end(phase: PhaseConfig, state: RunState) -> str:
    """Return the reason to end a phase before its tokens, or an empty string."""
    end = PHASE_ENDS[phase.until]
    norms = [norm for _, norm in state.history[phase.warmup_steps :]]
    return end.reason if end.is_seen(norms, state.gaps) else ""


class Evaluator:
    """The held-out records of a run, the same bases and sites each time."""

    def __init__(self, config: TrainConfig) -> None:
        """Read the test split of each source.

        Raises:
            CorpusError: there is none, or it has nothing to measure.
        """
        self._also = {name: _chosen(config, _held_out(config, name)) for name in config.probe.also}
        records = _held_out(config, config.probe.source)
        context_bp = (config.longest_context_tokens - 1) * K
        prompt_bp = min(MOST_PROMPT_BP, context_bp - TARGET_BP)
        self._records = _chosen(config, records)
        self._sites = choose_sites(records, config.probe.sites, prompt_bp, config.seed)
        self._seed = config.seed
        if not self._records or not self._sites or not all(self._also.values()):
            raise CorpusError(
                f"{config.data.corpus}: has nothing held out to probe; hold a contig out, or set "
                "probe.every_steps=0"
            )

    def measure(self, network: Any) -> dict[str, float]:
        """Return nats per base of the records, and sequence recovery in fp32 and in bf16.

        The network is in bf16 afterwards: a copy of it may have no room.
        """
        model = Model(LoadedModel(network, NATIVE))
        of_others = {
            f"{HELDOUT_OF}{name}": _nats_per_base(model, records)
            for name, records in self._also.items()
        }
        exact = {
            "heldout_nats_per_base": _nats_per_base(model, self._records),
            **of_others,
            "recovery": self._recovery(model),
        }
        rough = Model(LoadedModel(network.bfloat16(), NATIVE))
        return exact | {"recovery_bf16": self._recovery(rough)}

    def _recovery(self, model: Model) -> float:
        return float(recovered_shares(model, self._sites, "token", self._seed).mean())


class Evaluation:
    """Periodic evaluation on held-out records, by the first process while the others wait."""

    def __init__(self, run: Run, sync: OuterSync, evaluator: Evaluator | None, log: RunLog) -> None:
        """Evaluate the outer parameters of workers, or else the weights.

        The first process has the evaluator.
        """
        self._run, self._sync, self._evaluator, self._log = run, sync, evaluator, log

    def after_step(self, metrics: Metrics) -> None:
        """Evaluate if it is due."""
        if self._run.is_time_for(self._run.config.probe.every_steps):
            self.evaluate()

    def evaluate(self) -> None:
        """Evaluate now, write the measures, and remember the gap between fp32 and bf16."""
        run = self._run
        with self._sync.outer_params_loaded():
            network = run.gathered()
        measures: list[Any] = [None]
        if self._evaluator and network is not None:
            measures = [self._evaluator.measure(network)]
        dist.broadcast_object_list(measures, group=run.ranks.group, group_src=0)
        run.state.gaps.append(measures[0]["recovery"] - measures[0]["recovery_bf16"])
        step = run.state.step
        tokens = run.schedule.at(step - 1).tokens_by(step) if step else 0
        self._log.probe(step, tokens, measures[0])


class StopRequest(enum.IntEnum):
    """A process's request between two steps; the largest request of all is carried out."""

    GO_ON = 0
    SAVE = 1
    STOP = 2


class Checkpointer:
    """Saves periodically, by the clock, and on a stop request.

    Attributes:
        agreed: what all processes have agreed on in the last step.
    """

    def __init__(self, run: Run, checkpoints: Checkpoints, signals: StopSignals) -> None:
        """Take the signals that ask the run to stop."""
        self._run, self._checkpoints, self._signals = run, checkpoints, signals
        self.agreed = StopRequest.GO_ON

    def request(self) -> StopRequest:
        """Return this process's request; all follow the clock of the first process."""
        if self._signals.name:
            return StopRequest.STOP
        return StopRequest(self._run.ranks.is_first and self._checkpoints.are_due())

    def after_step(self, metrics: Metrics) -> None:
        """Save if it is due; a run that stops saves when it has left its loop."""
        every = self._run.config.checkpoint.every_steps
        if self.agreed == StopRequest.SAVE or (
            self.agreed == StopRequest.GO_ON and self._run.is_time_for(every)
        ):
            self._checkpoints.save(self._run.state)

    def stop(self, log: RunLog) -> None:
        """Save, and write why the run stops."""
        self._checkpoints.save(self._run.state)
        self._checkpoints.finish()
        name = self._signals.name or "a signal to another process"
        log.event(self._run.state.step, "stop", f"{name}: saved; continue with --resume auto")


def _held_out(config: TrainConfig, source: str) -> list[str]:
    corpus, name = config.data.place_of(source)
    found: list[str] = read_source(corpus, name, "test", ["sequence"])["sequence"].to_pylist()
    return found


def _chosen(config: TrainConfig, records: list[str]) -> list[str]:
    return choose_records(records, config.probe.heldout_bp, config.seed)


def _nats_per_base(model: Model, records: list[str]) -> float:
    nats = bases = 0.0
    for record in records:
        (likelihoods,) = base_log_likelihoods(model.runner, [record])
        measured = measured_bases(record)
        nats -= float(likelihoods[measured].sum(dtype="float64"))
        bases += int(measured.sum())
    return nats / bases if bases else math.nan


def assembled(
    network_config: PreTrainedConfig, weights: Mapping[str, Tensor], device: torch.device
) -> PreTrainedModel:
    """Return a stock network with these weights, which are requested one at a time."""
    with torch.device("meta"):
        network = stock_network(network_config)
    network.to_empty(device=device)
    with device:
        network.model.rotary_emb = type(network.model.rotary_emb)(network_config)
    network.tie_weights()
    with torch.no_grad():
        for name, parameter in network.named_parameters():  # tied ones once
            parameter.copy_(weights[name])
    evaluated: PreTrainedModel = network.eval()
    return evaluated


class StepProfiler:
    """Traces the steps that `compute.profile_steps` names, of this process."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        """Prepare; `step` begins with the steps that are finished already."""
        self._steps = config.compute.profile_steps
        self._path = Path(config.output) / "profile" / f"rank-{ranks.rank}.json"
        self._running: profile | None = None

    def after_step(self, metrics: Metrics) -> None:
        """Begin the trace before the first of the steps, and write it after the last."""
        self.step(metrics["step"])

    def step(self, done: int) -> None:
        """Record the number of finished steps, which may jump."""
        if not self._steps:
            return
        first, last = self._steps
        if first - 1 <= done < last and self._running is None:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._running = profile(activities=activities, with_flops=True)
            self._running.start()
        if done >= last and self._running is not None:
            self._running.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._running.export_chrome_trace(str(self._path))
            self._running = None


_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_GRAPHS_A_LENGTH = 4
"""Of a compiled layer: whole microbatches and the rest of a share, with gradients and without."""


def set_up(compute: ComputeConfig, num_lengths: int) -> None:
    """Let this process compute as a run asks.

    Args:
        compute: of the run.
        num_lengths: how many lengths its rows have.
    """
    if compute.deterministic:
        os.environ.setdefault(_CUBLAS, ":4096:8")  # which cuBLAS reads when it is first used
        torch.use_deterministic_algorithms(True)
    if compute.compile:
        from torch._dynamo import config as dynamo

        # Beyond the limit a layer would silently run without being compiled.
        enough = _GRAPHS_A_LENGTH * num_lengths
        dynamo.recompile_limit = max(dynamo.recompile_limit, enough)
    if compute.deterministic and compute.compile:
        from torch._inductor import config as inductor

        inductor.deterministic = True  # kernels are chosen by rule, and not by timing them


class CompiledGraphs:
    """Counts the graphs that layers of this process are compiled into.

    Attributes:
        total: since this was made.
    """

    def __init__(self, compute: ComputeConfig) -> None:
        """Begin to count."""
        self._compiles = compute.compile
        self._before = self._now()
        self.total = 0

    def new(self) -> int:
        """Return how many there are since this was last asked."""
        before, self.total = self.total, self._now() - self._before
        return self.total - before

    def _now(self) -> int:
        if not self._compiles:
            return 0
        from torch._dynamo.utils import counters

        return counters["stats"]["unique_graphs"]
