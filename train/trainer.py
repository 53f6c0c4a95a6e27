"""The training loop: a run from its settings to an exported model."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from carbon.errors import UserError
from carbon.io.files import atomic_folder
from carbon.losses import LossSums
from carbon.progress import say
from train.checkpoint import Checkpoints
from train.config import TrainConfig
from train.data import batches, open_rows
from train.diloco.sparta import SpartaWorker
from train.diloco.sync import OuterSync
from train.diloco.worker import DilocoWorker
from train.distributed.context import Batch
from train.distributed.gather import gather_full_state_dict
from train.distributed.mesh import Ranks, trained_parameters
from train.distributed.parallelize import build_stages, fill_trained
from train.distributed.pipeline import Pipeline, finish_gradients
from train.distributed.weights import FrozenRows, merged
from train.export import write_export
from train.hooks import (
    Checkpointer,
    CompiledGraphs,
    Evaluation,
    Evaluator,
    Guard,
    Hook,
    Meter,
    StepProfiler,
    StopRequest,
    assembled,
    set_up,
    signal_to_end,
)
from train.models.network import network_config
from train.models.start import open_start
from train.optim import make_optimizers, set_learning_rate
from train.planning.plan import check_fits, plan_of
from train.planning.workers import advice
from train.runs.log import Metrics, RunLog
from train.saved import RunState, settings_of
from train.schedule import Schedule, Span, learning_rate, objective_at
from train.signals import StopSignals

SYNC_METHODS = {"diloco": DilocoWorker, "sparta": SpartaWorker}


def check_memory(config: TrainConfig, ranks: Ranks) -> None:
    """Refuse a run that takes more memory than its GPUs have.

    Raises:
        ConfigError: it does, or the processes cannot share the network or a batch.
    """
    if ranks.device.type == "cuda":
        gpu_bytes = torch.cuda.get_device_properties(ranks.device).total_memory
        check_fits(config, ranks.world_size, gpu_bytes)


class Trainer:
    """A run: its rows, network and optimizer, and the folder it is written to."""

    def __init__(
        self,
        config: TrainConfig,
        ranks: Ranks,
        *,
        resumes: bool = False,
        signals: StopSignals | None = None,
    ) -> None:
        """Open the corpus and build this process's parts of the network.

        A trainer that resumes has no weights until `run` has loaded or made them.

        Raises:
            UserError: the configuration, the corpus and the processes do not fit.
        """
        self.config = config
        self.ranks = ranks
        self.schedule = Schedule(config)
        set_up(config.compute, len({span.context_tokens for span in self.schedule.spans}))
        plan_of(config, self.schedule, ranks.world_size)  # refuses what cannot be shared
        self.start = open_start(config)
        if self.start:
            self.start.check_memory(ranks.world_size)
        self.rows = open_rows(config, self.schedule, self.start)
        self.parts = build_stages(config, ranks, self.start, fills=not resumes)
        self._lacks_weights = resumes
        self._freeze_rows()
        self.pipeline = Pipeline(config, ranks, self.parts)
        self.optimizers = make_optimizers(config.optimizer, trained_parameters(self.parts))
        start_sha256 = self._start_sha256()
        self.sync = self._make_sync(start_sha256)
        self.checkpoints = Checkpoints(
            config, self.rows, ranks, self.parts, self.optimizers, self.sync, start_sha256
        )
        self.state = RunState()
        self.guard = Guard(config.guard, self.checkpoints)
        is_evaluated = bool(config.probe.every_steps)
        # The first process alone measures. If it fails, it ends all.
        self._evaluator = Evaluator(config) if is_evaluated and ranks.is_first else None
        self._meter = Meter(ranks, self.parts[0].config)
        self._folder = Path(config.output)
        self._graphs = CompiledGraphs(config.compute)
        self._signals = signals or StopSignals()
        self._checkpointer = Checkpointer(self, self.checkpoints, self._signals)
        self._has_begun = False

    def run(self, resume: bool, accept_data_change: bool = False) -> bool:
        """Train to the end of the last phase and export, or until a stop request and save.

        Returns:
            Whether the end was reached.
        """
        self._start(resume, accept_data_change)
        self._signals.saves = True
        with RunLog(self.config, self.ranks, self.schedule, self.state.step) as log:
            hooks = self._hooks(log)
            for metrics in self.steps(log):
                log.step(metrics, self.schedule.total_steps)
                for hook in hooks:
                    hook.after_step(metrics)
                if self._stops:
                    break
            if self._stops:
                self._checkpointer.stop(log)
                return False
            self._finish(log)
        return True

    @property
    def _stops(self) -> bool:
        """Whether the run is asked to stop; a worker also before its first step, while it waits."""
        return self.sync.stopped or self._checkpointer.agreed == StopRequest.STOP

    def _hooks(self, log: RunLog) -> list[Hook]:
        """Return what follows each step, in this order: checkpoints hold what evaluations found."""
        self._begin(log)
        profiler = StepProfiler(self.config, self.ranks)
        hooks: list[Hook] = [profiler]
        if self.config.probe.every_steps:
            evaluation = Evaluation(self, self.sync, self._evaluator, log)
            is_first_step = self.state.step < self.ranks.num_workers
            if self.start and is_first_step and not self.sync.steps_taken(self.state):
                evaluation.evaluate()  # the quality of the starting checkpoint
            hooks.append(evaluation)
        profiler.step(self.state.step)  # the trace of the first step begins before it
        return [*hooks, self._checkpointer]

    def _finish(self, log: RunLog) -> None:
        """Export the model, and write the card and the page about the run."""
        self.checkpoints.finish()
        with self.sync.outer_params_loaded():
            self.export(self._folder / "export")
        self.sync.close()
        log.finish(self._folder / "export", self.sync.trained())

    def is_time_for(self, every_steps: int) -> bool:
        """Return whether something periodic is due, by the steps of this worker or at the end."""
        is_end = self.state.step == self.schedule.total_steps
        return is_end or self.sync.steps_taken(self.state) % every_steps == 0

    def steps(self, log: RunLog | None = None) -> Iterator[Metrics]:
        """Take one optimizer step after the other, from where the run stands to its end.

        Raises:
            FloatingPointError: steps are bad, and the guard's policy is to stop or has no more
                patience.
        """
        log = log or RunLog.silent(self.config, self.ranks, self.schedule)
        self._begin(log)
        while self._goes_on():
            schedule, order = self.schedule, self.sync.order
            steps = range(self.state.step, schedule.total_steps) if order is None else order
            read = batches(self.rows, self.config, schedule, self.ranks, steps)
            # The end of a phase by a signal, or a synchronisation, changes the next rows.
            while self.schedule is schedule and self.sync.order is order and self._goes_on():
                yield self._step(schedule.at(self.state.step), read, log)

    def _goes_on(self) -> bool:
        return self.state.step < self.schedule.total_steps and not self.sync.stopped

    def _step(self, span: Span, read: Iterator[list[Batch]], log: RunLog) -> Metrics:
        """Take one step: read, forward and backward, check, update."""
        start = time.perf_counter()
        microbatches = next(read)
        phase, step = span.phase, span.step_in_phase + self.state.step - span.first_step
        self._enter(span, log)
        sums = self.pipeline.forward_backward(microbatches, objective_at(phase, step))
        self._held.clear_gradients()
        clip_norm = self.config.optimizer.clip_norm
        norm = finish_gradients(self.parts, self.ranks, sums.num_tokens, clip_norm)
        metrics, tokens = self._metrics(span, sums, norm)
        metrics["learning_rate"] = learning_rate(phase, step)
        if reason := self.guard.check(self.state, metrics):
            metrics["skipped"], tokens = reason, 0
            self.state = self.guard.reject(self.state, reason, log)
        else:
            self._update(metrics["learning_rate"])
            self.guard.accept(self.state, phase, metrics)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        seconds = time.perf_counter() - start
        self.sync.after_step(self.state, tokens, seconds)
        if tokens:
            self._end_phase_on_signal(span, log)
        if new := self._graphs.new():
            counts = f"{new} new, {self._graphs.total} in all"
            message = f"step {metrics['step']}: compiled graphs: {counts}"
            log.event(self.state.step, "compile", message)
        return metrics | self._meter.measure(span, seconds)

    def _enter(self, span: Span, log: RunLog) -> None:
        """Set what holds in a phase; forget the history of the phase before."""
        state = self.state
        if span.number != self._phase_before():
            state.history, state.gaps = [], []
            log.event(state.step, "phase", f"phase {span.number}, {span.phase.name!r}, begins")
        state.phase = span.number
        for part in self.parts:
            part.set_rope_theta(span.phase.rope_theta, self.ranks.device)

    def _update(self, rate: float) -> None:
        """Let the optimizers change the weights, except frozen rows."""
        set_learning_rate(self.optimizers, rate)
        for optimizer in self.optimizers:
            optimizer.step()
        self._held.restore()

    def _metrics(self, span: Span, sums: LossSums, norm: Tensor) -> tuple[Metrics, int]:
        """Return the metrics of a step and its tokens: the one place that waits for the device.

        What all processes request travels with them.
        """
        request = self.ranks.largest(self._checkpointer.request())
        means = sums.means() | {"gradient_norm": norm}
        numbers = [*means.values(), request, sums.num_tokens]
        # As fp64, for counts above 2^24.
        *values, agreed, tokens = torch.stack([each.double() for each in numbers]).tolist()
        self._checkpointer.agreed = StopRequest(int(agreed))
        metrics = {
            "step": self.state.step + 1,
            "tokens": span.tokens_by(self.state.step + 1),
            "phase": span.phase.name,
            "objective": span.phase.objective,
            "context_tokens": span.context_tokens,
            **dict(zip(means, values, strict=True)),
        }
        return metrics, int(tokens)

    def _end_phase_on_signal(self, span: Span, log: RunLog) -> None:
        if reason := signal_to_end(span.phase, self.state):
            done = span.step_in_phase + self.state.step - span.first_step
            if done < span.phase.num_steps:
                log.event(self.state.step, "signal", f"{reason}: {span.phase.name!r} ends")
                self.state.ended[span.number] = done
                self._set_schedule()

    def _set_schedule(self) -> None:
        self.schedule = Schedule(self.config, self.state.ended)
        self.rows = self.rows.reordered(self.config.seed, self.schedule.rows)

    def gathered(self) -> PreTrainedModel | None:
        """Return the whole network, fp32, on the first process; None on the others.

        Adapters are merged into it.
        """
        with gather_full_state_dict(self.parts, self.ranks) as weights:
            if not self.ranks.is_first:
                return None
            return assembled(
                self._described(), merged(weights, self.config.model), self.ranks.device
            )

    def _described(self) -> PreTrainedConfig:
        network = network_config(self.config)
        network.rope_parameters = self.parts[0].config.rope_parameters
        return network

    def _make_sync(self, start_sha256: str) -> OuterSync:
        """Return the synchronisation of the run's workers, or none."""
        if not self.config.workers.count:
            return OuterSync()
        settings = settings_of(self.config, self.rows, start_sha256)
        worker = SYNC_METHODS[self.config.workers.method]
        return worker(self.config, self.ranks, self.parts, self.schedule.total_steps, settings)

    def _begin(self, log: RunLog) -> None:
        """Begin synchronising from the present state, once."""
        if not self._has_begun:
            self._has_begun = True
            self.sync.begin(self.state, log, lambda: bool(self._signals.name))

    def _phase_before(self) -> int:
        """Return the number of the phase of the step before, -1 at the first."""
        if self.state.phase is not None:
            return self.state.phase
        return self.schedule.at(self.state.step - 1).number if self.state.step else -1

    def _start_sha256(self) -> str:
        """Return the digest of the starting checkpoint, read by the first process."""
        found = [self.start.digest if self.start and self.ranks.is_first else ""]
        dist.broadcast_object_list(found, group=self.ranks.group, group_src=0)
        return found[0]

    def export(self, folder: Path) -> None:
        """Write the network as a stock model folder, in the place of an earlier export.

        What went on from a model has that model's layout, and `adapter/` if adapters were trained.
        """
        with gather_full_state_dict(self.parts, self.ranks) as weights:
            if self.ranks.is_first:
                shutil.rmtree(folder, ignore_errors=True)
                with atomic_folder(folder) as temporary:
                    model, tags = self.config.model, self.rows.tags
                    write_export(self._described(), model, self.start, weights, temporary, tags)
                say(f"exported {folder}")
        dist.barrier(self.ranks.group)

    def load(self, accept_data_change: bool = False) -> bool:
        """Go to where the newest whole checkpoint stands; return whether there is one."""
        state = self.checkpoints.load_newest(accept_data_change=accept_data_change)
        if state is None:
            return False
        self.state = state
        if state.ended:
            self._set_schedule()
        last = min(state.step, self.schedule.total_steps - 1)
        for part in self.parts:
            part.set_rope_theta(self.schedule.at(last).phase.rope_theta, self.ranks.device)
        return True

    def _freeze_rows(self) -> None:
        rows = self.start.frozen_rows(self.rows.tags) if self.start else ()
        self._held = FrozenRows(self.parts, rows)

    def _start(self, resume: bool, accept_data_change: bool) -> None:
        if self.checkpoints.exist() and not resume:
            raise UserError(
                f"{self._folder}: holds checkpoints already; continue with --resume auto, or name "
                "another output"
            )
        was_there = self.load(accept_data_change)
        if self._lacks_weights:
            if not was_there:
                fill_trained(self.parts, self.config, self.start)
            self._lacks_weights = False
            self._freeze_rows()
        if not was_there and self.guard.goes_back:
            self.checkpoints.save(self.state)  # there is always one to go back to
        if self.ranks.is_first:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "config.toml").write_text(self.config.to_toml(), encoding="utf-8")
            say(f"training from step {self.state.step} to {self.schedule.total_steps}")
            if remedy := advice(self.config.workers, self.schedule.total_steps):
                say(remedy)
        dist.barrier(self.ranks.group)
