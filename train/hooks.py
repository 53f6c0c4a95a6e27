"""What is done about a bad step."""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
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
from train.config import ComputeConfig, GuardConfig, PhaseConfig, TrainConfig
from train.distributed.mesh import Ranks
from train.models.spec import spec_of
from train.runs.record import HELDOUT_OF
from train.saved import RunState
from train.watch import STAGE_ENDS


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
        history: loss and gradient norm of the good steps before it, of the same stage.
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


def remember(
    state: RunState, guard: GuardConfig, stage: PhaseConfig, loss: float, norm: float
) -> None:
    """Add a good step to what is looked back on: the guard's window, or for a signal all."""
    state.history.append([loss, norm])
    if not STAGE_ENDS[stage.until].needs_all_norms:
        del state.history[: -guard.window_steps]


def signal_to_end(stage: PhaseConfig, state: RunState) -> str:
    """Return what says that the stage is to end before its tokens, nothing if it goes on."""
    end = STAGE_ENDS[stage.until]
    norms = [norm for _, norm in state.history[stage.warmup_steps :]]
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

    def measure(self, network: PreTrainedModel) -> dict[str, float]:
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
    """Return a stock network with these weights, of which one at a time is asked for."""
    with torch.device("meta"):
        network = spec_of(network_config.model_type).build(network_config)
    network.to_empty(device=device)
    rotary: Any = network.model.rotary_emb
    with device:
        network.model.rotary_emb = type(rotary)(network_config)
    network.tie_weights()
    with torch.no_grad():
        for name, parameter in network.named_parameters():  # tied ones once
            parameter.copy_(weights[name])
    network.eval()  # type: ignore[no-untyped-call]
    return network


class StepProfiler:
    """Traces the steps that `compute.profile_steps` names, of this process."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        """Prepare; nothing is traced before the first of the steps."""
        self._steps = config.compute.profile_steps
        self._path = Path(config.output) / "profile" / f"rank-{ranks.rank}.json"
        self._running: profile | None = None

    def step(self, done: int) -> None:
        """Say that so many steps are done; begins and ends the trace where it should."""
        if not self._steps:
            return
        first, last = self._steps
        if done == first - 1 and self._running is None:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._running = profile(activities=activities, with_flops=True)
            self._running.start()
        if done == last and self._running is not None:
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

        # Beyond the limit a layer would go on without being compiled, in silence.
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
