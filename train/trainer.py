"""The training loop."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.tensor import DTensor
from transformers import LlamaForCausalLM

from carbon.config import to_toml
from carbon.console import progress, say
from carbon.errors import UserError
from carbon.files import atomic_file, atomic_folder
from carbon.losses import LossSums
from carbon.model import save_model
from train.checkpoint import Checkpoints
from train.config import TrainConfig
from train.course import Course
from train.data import Batch, batches, check_batches, open_rows
from train.network import (
    TrainedNetwork,
    build_network,
    build_optimizer,
    flops_a_token,
    llama_config,
    set_rope_theta,
)
from train.ranks import Ranks
from train.schedule import fns_weight, learning_rate

# Peak dense bf16 operations a second, by a part of the GPU's name (NVIDIA data sheets).
_PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}

Metrics = dict[str, float | int | str | None]


class Trainer:
    """A run: its rows, network and optimizer, and the folder it is written to."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        """Open the corpus and build the network.

        Raises:
            UserError: the configuration, the corpus and the processes do not fit.
        """
        self.config = config
        self.course = Course(config)
        self.ranks = ranks
        check_batches(self.course, ranks.world_size)
        self.rows = open_rows(config, self.course)
        self.network = build_network(config, ranks)
        self.optimizer = build_optimizer(config, self.network)
        self.checkpoints = Checkpoints(config, self.rows, ranks)
        self._folder = Path(config.output)

    def run(self, resume: bool, accept_data_change: bool = False) -> None:
        """Train to the end of the last stage, then export."""
        step = self._start(resume, accept_data_change)
        total = self.course.total_steps
        with self._metrics_log(step) as write, self._progress(total, step) as advance:
            for metrics in self.steps(step):
                write(metrics)
                step += 1
                advance(1)
                if step % self.config.checkpoint.every_steps == 0 or step == total:
                    self.checkpoints.save(step, self.network, self.optimizer)
        self.export(self._folder / "export")

    def steps(self, first_step: int) -> Iterator[Metrics]:
        """Take one optimizer step after the other, from `first_step` on, and return its metrics.

        Raises:
            FloatingPointError: the gradient is not finite; nothing was updated.
        """
        read = batches(self.rows, self.config, self.course, self.ranks, first_step)
        for step in range(first_step, self.course.total_steps):
            start = time.perf_counter()
            metrics = self._step(step, next(read))
            span = self.course.at(step)
            speed = span.stage.batch_tokens / (time.perf_counter() - start)
            mfu = self._mfu(speed, span.context_tokens)
            yield metrics | {"tokens_per_second": speed, "mfu": mfu}

    def _step(self, step: int, microbatches: list[Batch]) -> Metrics:
        span = self.course.at(step)
        stage, step_in_stage = span.stage, span.step_in_stage + step - span.first_step
        rate = learning_rate(stage, step_in_stage)
        set_rope_theta(self.network.llama, stage.rope_theta)
        sums = accumulate(self.network, microbatches, fns_weight(stage, step_in_stage))
        norm = mean_gradient(self.network, float(sums.num_tokens), self.config.optimizer.clip_norm)
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"step {step + 1}: the gradient is not finite; the checkpoints are untouched: "
                "start another run with a lower learning rate"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {
            "step": step + 1,
            "tokens": span.tokens_by(step + 1),
            "stage": stage.name,
            "objective": stage.objective,
            "loss": float(sums.nats_per_token),
            "nats_per_base": float(sums.nats_per_base),
            "marginal_nats_per_base": float(sums.marginal_nats_per_base),
            "learning_rate": rate,
            "gradient_norm": norm,
        }

    def export(self, folder: Path) -> None:
        """Write the network as a stock model folder, in the place of an earlier export."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.network, options=options)
        if self.ranks.is_first:
            llama = LlamaForCausalLM(llama_config(self.config))
            llama.load_state_dict({k.removeprefix("llama."): v for k, v in state.items()})
            shutil.rmtree(folder, ignore_errors=True)
            with atomic_folder(folder) as temporary:
                save_model(llama, temporary)
            say(f"exported {folder}")
        dist.barrier()

    def _start(self, resume: bool, accept_data_change: bool) -> int:
        """Return the step to begin with: that of the newest whole checkpoint, or 0."""
        if self.checkpoints.exist() and not resume:
            raise UserError(
                f"{self._folder}: holds checkpoints already; go on with --resume auto, or name "
                "another output"
            )
        step = self.checkpoints.load_newest(
            self.network, self.optimizer, accept_data_change=accept_data_change
        )
        if self.ranks.is_first:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "config.toml").write_text(to_toml(self.config), encoding="utf-8")
            say(f"training from step {step} to {self.course.total_steps}")
        return step

    @contextmanager
    def _metrics_log(self, step: int) -> Iterator[Callable[[Metrics], None]]:
        """Open metrics.jsonl; on a resume, lines past the checkpoint are taken back first."""
        if not self.ranks.is_first:
            yield lambda metrics: None
            return
        path = self._folder / "metrics.jsonl"
        kept = path.read_text().splitlines(keepends=True)[:step] if path.exists() else []
        with atomic_file(path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")
        with path.open("a", encoding="utf-8") as sink:
            yield lambda metrics: print(json.dumps(metrics), file=sink, flush=True)

    def _progress(self, total: int, done: int) -> AbstractContextManager[Callable[[int], None]]:
        if self.ranks.is_first:
            return progress("training", total, done)
        return nullcontext(lambda n: None)

    def _mfu(self, tokens_per_second: float, context_tokens: int) -> float | None:
        """Return the share of the GPUs' peak that is used; None where the peak is not known."""
        if self.ranks.device.type != "cuda":
            return None
        name = torch.cuda.get_device_name(self.ranks.device)
        peak = next((flops for part, flops in _PEAK_FLOPS.items() if part in name), None)
        if peak is None:
            return None
        flops = flops_a_token(llama_config(self.config), context_tokens)
        return tokens_per_second * flops / (peak * self.ranks.world_size)


def accumulate(network: TrainedNetwork, batches: list[Batch], fns_weight: float) -> LossSums:
    """Run forward and backward on this process's microbatches; return sums over all processes.

    The gradient is left as FSDP reduces it: that of the summed loss, divided by the number of
    processes.
    """
    sums = torch.zeros(6, dtype=torch.float64, device=batches[0].known.device)
    for number, batch in enumerate(batches, start=1):
        network.set_requires_gradient_sync(number == len(batches))  # type: ignore[operator]
        of_batch: LossSums = network(*batch, fns_weight)
        of_batch.loss.backward()  # type: ignore[no-untyped-call]
        sums += torch.stack([part.detach().double() for part in of_batch])
    dist.all_reduce(sums)
    return LossSums(*sums)


def mean_gradient(network: TrainedNetwork, count: float, clip_norm: float) -> float:
    """Divide the gradient by the tokens of the global batch, clip it, and return its norm before.

    This is the one place that divides: FSDP has divided by the number of processes already, which
    is undone here.
    """
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    for gradient in gradients:
        gradient.mul_(dist.get_world_size() / max(count, 1))
    norm: Any = torch.nn.utils.clip_grad_norm_(network.parameters(), clip_norm)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
