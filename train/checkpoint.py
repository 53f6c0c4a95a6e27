"""Checkpoints: whole or absent, independent of how processes share the work, without pickle.

checkpoints/step-00000100/
  shard-*.safetensors   model and optimizer, written by all processes (DCP)
  state.json            where the run stands, settings, content of the data, sha256 of every shard
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from carbon.corpus import TokenRows
from carbon.errors import UserError
from carbon.io.files import sha256_of_file, sync_path
from carbon.io.locks import locked_folder
from carbon.progress import say
from train.config import CheckpointConfig, TrainConfig
from train.distributed.mesh import Ranks, as_placed, local, named_parameters, trained_parameters
from train.distributed.stage import DecoderStage, stock_name
from train.optim import optimizer_state
from train.saved import FORMAT, REPLACED, WEIGHTS, RunState, Saved, Shards, step_of

_SHARE_OF_WRITING = 1 / 20
"""Most of the time that checkpoints between the regular ones are being written in: a model whose
checkpoint takes a minute has one in twenty minutes."""


def steps_to_keep(steps: Sequence[int], config: CheckpointConfig) -> set[int]:
    """Return which checkpoints are kept, of those at ascending steps.

    Checkpoints triggered by time or a signal never displace periodic ones; they fill free places,
    and the newest is kept while it is the newest of all.
    """
    every = config.milestone_steps
    milestones = {step for step in steps if every and step % every == 0}
    regular = [s for s in steps if s % config.every_steps == 0 and s not in milestones]
    others = [step for step in steps if step % config.every_steps]
    num_left = max(0, config.keep - len(regular))
    filling = others[-num_left:] if num_left else []
    return milestones | {*regular[-config.keep :], *filling, steps[-1]}


class AlsoSaved:
    """State that a run saves next to its network and optimizer; here none."""

    def steps_taken(self, state: RunState) -> int:
        """Return the steps of the run that these processes have taken: names of checkpoints."""
        return state.step

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold of it, when it is fit to be saved."""
        return {}

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave, and make room for its tensors."""

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors by their names in a checkpoint."""
        return {}


class Checkpoints(Saved):
    """The checkpoints of one run folder, and the tensors that they hold."""

    def __init__(
        self,
        config: TrainConfig,
        rows: TokenRows,
        ranks: Ranks,
        parts: list[DecoderStage],
        optimizers: Sequence[torch.optim.Optimizer],
        sync: AlsoSaved,
        start_sha256: str = "",
    ) -> None:
        """Look after `output/checkpoints`."""
        super().__init__(config, rows, ranks, start_sha256)
        self._parts = parts
        self._optimizers = optimizers
        self._modules = nn.ModuleList(parts)  # one for all saves: torch caches names by module
        self._sync = sync
        self._writing: threading.Thread | None = None
        self._error: BaseException | None = None
        self._saved_at = time.monotonic()
        self._save_seconds = 0.0  # that the last one took

    def save(self, state: RunState) -> None:
        """Copy the state to memory and write it; it takes its name when all of it is on disk.

        With `checkpoint.background` writing continues after this returns; `finish` raises its
        errors. If the one before could not be written, that is reported, and this one is on disk
        when this returns.

        Raises:
            OSError: it could not be written, such as on a full disk; earlier ones are untouched.
        """
        failed = self._failure()
        if failed is not None and not isinstance(failed, OSError):
            raise failed
        if failed is not None and self._ranks.is_first:
            say(f"{failed.filename}: {failed.strerror}; writing the next checkpoint")
        self._saved_at = time.monotonic()
        state.sync = self._sync.to_table()
        table = {"format": FORMAT, "state": state.to_table(), "settings": self._settings}
        tensors = {name: _copied(t) for name, t in self._tensors(state, for_save=True).items()}
        # The run continues while the GPU copies; later kernels wait for their turn.
        copied = torch.Event(self._ranks.device) if self._ranks.device.type != "cpu" else None
        if copied:
            copied.record()
        final = self._folder / f"step-{self._sync.steps_taken(state):08d}"
        given = (final, tensors, table, copied)
        self._writing = threading.Thread(target=self._write, args=given, daemon=True)
        self._writing.start()
        if failed is not None or not self._config.checkpoint.background:
            self.finish()

    def are_due(self) -> bool:
        """Return whether enough work is unsaved to justify a checkpoint."""
        every_seconds = 60 * self._config.checkpoint.every_minutes
        if not every_seconds or (self._writing and self._writing.is_alive()):
            return False
        unsaved_seconds = time.monotonic() - self._saved_at
        return unsaved_seconds >= max(every_seconds, self._save_seconds / _SHARE_OF_WRITING)

    def finish(self) -> None:
        """Wait until the checkpoint in progress is on disk.

        Raises:
            OSError: it could not be written.
        """
        failed = self._failure()
        if failed is not None:
            raise failed

    def _failure(self) -> BaseException | None:
        """Wait for the checkpoint in progress; return why it could not be written.

        An OSError is that of all processes, so that all act alike.
        """
        if self._writing is None:
            return None
        self._writing.join()
        self._writing = None
        failed, self._error = self._error, None
        return failed

    def _write(
        self,
        final: Path,
        tensors: dict[str, Tensor],
        table: dict[str, Any],
        copied: torch.Event | None,
    ) -> None:
        temporary = self._folder / f".{final.name}.partial"
        try:
            if copied:
                copied.synchronize()
            self._from_first(lambda: _made_anew(temporary))
            writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
            save(tensors, storage_writer=writer, process_group=self._ranks.quiet_group)
            mine = self._mine(self._names_in(temporary))
            sums = self._together(lambda: {name: _on_disk(temporary / name) for name in mine})
            self._from_first(lambda: self._complete(temporary, final, table | {"sha256": sums}))
            self._save_seconds = time.monotonic() - self._saved_at
        except BaseException as error:  # handed to the thread that trains
            if self._ranks.is_first:  # another process might remove what is begun anew
                shutil.rmtree(temporary, ignore_errors=True)
            self._error = _first_cause(error, temporary)

    def _complete(self, temporary: Path, final: Path, table: dict[str, Any]) -> None:
        """Name a checkpoint when all of it is on disk; one of the same step is there until then."""
        state = temporary / "state.json"
        state.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        sync_path(state)
        sync_path(temporary)
        if final.exists():
            aside = final.with_name(f"{final.name}{REPLACED}")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(final, aside)
        os.replace(temporary, final)
        sync_path(self._folder)
        for old in self._folder.glob(f"step-*{REPLACED}"):
            shutil.rmtree(old)
        for old in self._outlived(final):
            shutil.rmtree(old)

    def _outlived(self, newest: Path) -> list[Path]:
        """Return the checkpoints that are not kept, now that there is one more."""
        # A later one is torn, or the run would have gone on from it: it does not count.
        until_now = [path for path in self._all() if path.name <= newest.name]
        kept = steps_to_keep([step_of(path) for path in until_now], self._config.checkpoint)
        return [path for path in until_now if step_of(path) not in kept]

    def _names_in(self, folder: Path) -> list[str]:
        """Return a folder's shards as the first process sees them.

        A network disk may show less of it to others for a while.
        """
        return self._from_first(lambda: sorted(path.name for path in folder.glob("*.safetensors")))

    def load_newest(
        self, *, accept_data_change: bool = False, regular_until: int | None = None
    ) -> RunState | None:
        """Load what `newest` finds and return where it stands, None if there is none.

        Raises:
            ModelError: as `newest`.
            OSError: as `newest`, or a checkpoint in progress could not be written.
        """
        self.finish()
        found = self.newest(accept_data_change=accept_data_change, regular_until=regular_until)
        if found is None:
            return None
        path, state = found
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        if state.sync:
            self._sync.expect(state.sync)
        shards = Shards(path, self._ranks)
        load(self._tensors(state), storage_reader=shards, process_group=self._ranks.quiet_group)
        self._copy_to_other_end(state)
        return state

    def roll_back(self, state: RunState) -> RunState:
        """Load the newest whole periodic checkpoint up to a state, and return where it stands.

        Later ones are of the future of a run that has gone on from an earlier one. The state itself
        is returned if there is none.

        Raises:
            ModelError, OSError: as `load_newest`.
        """
        last = self._sync.steps_taken(state)
        return self.load_newest(accept_data_change=True, regular_until=last) or state

    def _tensors(self, state: RunState, *, for_save: bool = False) -> dict[str, Tensor]:
        """Return trained weights, moments and outer parameters, by their names; tied ones once.

        The copy at the other end of a pipeline has the embedding's name, and is not saved.
        """
        tensors: dict[str, Tensor] = {}
        moments = self._moments(state)
        for name, parameter in trained_parameters(self._parts).items():
            stock = stock_name(name, self._parts[0].config)
            if stock != name and (for_save or f"{WEIGHTS}{stock}" in tensors):
                continue
            tensors[f"{WEIGHTS}{stock}"] = parameter.detach()
            for moment, values in moments[name].items():
                tensors[f"optimizer.{stock}.{moment}"] = values
        return tensors | self._sync.tensors()

    def _moments(self, state: RunState) -> dict[str, dict[str, Tensor]]:
        """Return the optimizers' tensors by the names of parameters and their own."""
        found = optimizer_state(self._modules, self._optimizers, state.updates)
        return {name.partition(".")[2]: tensors for name, tensors in found.items()}

    @torch.no_grad()
    def _copy_to_other_end(self, state: RunState) -> None:
        """Where both ends of tied embeddings are in this process, one was loaded: copy it."""
        named = named_parameters(self._parts)
        first, last = (named.get(f"{n}.weight") for n in ("model.embed_tokens", "lm_head"))
        if first is None or last is None or not self._parts[0].config.tie_word_embeddings:
            return
        if not first.requires_grad:
            return
        last.copy_(first)
        moments = self._moments(state)
        for name, values in moments["model.embed_tokens.weight"].items():
            moments["lm_head.weight"][name].copy_(values)


def _copied(tensor: Tensor) -> Tensor:
    """Return what will be a copy in the memory of the CPU, sharded as the tensor is.

    A copy from a GPU is complete when the GPU has finished its present work.
    """
    here = local(tensor)
    copy = torch.empty_like(here, device="cpu", pin_memory=here.is_cuda)
    copy.copy_(here, non_blocking=True)
    return as_placed(copy, tensor)


def _on_disk(path: Path) -> str:
    """Return a shard's sha256, when the disk has it."""
    sync_path(path)
    return sha256_of_file(path)


def _made_anew(folder: Path) -> None:
    """Make an empty folder, and remove remains of killed processes next to it."""
    for left in folder.parent.glob(".step-*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    folder.mkdir(parents=True)


def _first_cause(error: BaseException, path: Path) -> BaseException:
    """Return what went wrong on the first process that failed, an OSError with its path."""
    if isinstance(error, CheckpointException):
        error, _ = next(iter(error.failures.values()))
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, str(path))
    return error


@contextmanager
def locked_run(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Hold the lock of a run folder from before its checkpoints are read until the run ends.

    Raises:
        UserError: another run holds it; on all processes.
        OSError: the folder cannot be written; on all processes.
    """
    with ExitStack() as held:
        refusal: list[Any] = [None]
        if ranks.is_first:
            try:
                held.enter_context(locked_folder(folder))
            except (UserError, OSError) as error:
                refusal = [error]
        dist.broadcast_object_list(refusal, group=ranks.quiet_group, group_src=0)
        if refusal[0] is not None:
            raise refusal[0]
        yield
