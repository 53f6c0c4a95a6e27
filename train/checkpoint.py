"""Checkpoints: whole or absent, independent of the number of processes, without pickle.

checkpoints/step-00000100/
  shard-*.safetensors   model and optimizer, written by all processes (DCP)
  state.json            step, settings and content of the data, sha256 of every shard
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from carbon.console import say
from carbon.corpus import TokenRows
from carbon.errors import ModelError
from carbon.files import sha256_of_file
from train.config import CheckpointConfig, TrainConfig
from train.network import TrainedNetwork
from train.ranks import Ranks

_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def settings_of(config: TrainConfig, rows: TokenRows) -> dict[str, Any]:
    """Return all that decides a run's numbers, flat: settings, and the content of each source.

    Where the run writes, when it saves, where its corpus lies and who reads it, decides nothing.
    """
    fixed = dataclasses.replace(
        config,
        output="",
        data=dataclasses.replace(config.data, corpus="", cache="", workers=0),
        checkpoint=CheckpointConfig(),
    )
    content = {name: source.store.key for name, source in sorted(rows.sources.items())}
    table = dataclasses.asdict(fixed) | {"content": content}
    flat: dict[str, Any] = json.loads(json.dumps(dict(_flat(table, ""))))
    return flat


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        parts = ((str(i), each) for i, each in enumerate(value))  # type: ignore[assignment]
    else:
        yield name, value
        return
    for key, each in parts:
        yield from _flat(each, f"{name}.{key}" if name else key)


def _is_of_data(name: str) -> bool:
    """Tell whether a setting only says what is read."""
    return name.startswith(("data.", "content.")) or ".mixture." in name


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, config: TrainConfig, rows: TokenRows, ranks: Ranks) -> None:
        """Look after `output/checkpoints`."""
        self._folder = Path(config.output) / "checkpoints"
        self._settings = settings_of(config, rows)
        self._keep = config.checkpoint.keep
        self._ranks = ranks

    def save(self, step: int, network: TrainedNetwork, optimizer: torch.optim.Optimizer) -> None:
        """Write the state after `step` steps; it takes its name when all of it is on disk.

        Raises:
            OSError: it could not be written, for a full disk mostly; earlier ones are untouched.
        """
        final = self._folder / f"step-{step:08d}"
        temporary = self._folder / f".{final.name}.partial"
        if self._ranks.is_first:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        dist.barrier()
        writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
        try:
            save(_tensors(network, optimizer), storage_writer=writer)
        except CheckpointException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise _first_cause(error, temporary) from None
        if self._ranks.is_first:
            _write_state(temporary, {"step": step, "settings": self._settings})
            shutil.rmtree(final, ignore_errors=True)
            os.replace(temporary, final)
            # A later one is torn, or the run would have gone on from it: it does not count.
            until_now = [path for path in self._all() if path.name <= final.name]
            for old in until_now[: -self._keep]:
                shutil.rmtree(old)
        dist.barrier()

    def exist(self) -> bool:
        """Tell whether the run has any checkpoint."""
        return bool(self._all())

    def load_newest(
        self,
        network: TrainedNetwork,
        optimizer: torch.optim.Optimizer,
        *,
        accept_data_change: bool = False,
    ) -> int:
        """Load the newest whole checkpoint and return its step, 0 if there is none.

        Raises:
            ModelError: it belongs to another configuration, be it only to other data, unless that
                is accepted.
        """
        found: list[Any] = [self._newest_whole() if self._ranks.is_first else None]
        dist.broadcast_object_list(found, src=0)
        if found[0] is None:
            return 0
        path, state = found[0]
        self._check_settings(path, state["settings"], accept_data_change)
        _ensure_state(optimizer)
        tensors = _tensors(network, optimizer)
        load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))
        _put_back(tensors, network, optimizer)
        return int(state["step"])

    def _check_settings(self, path: Path, before: dict[str, Any], accept: bool) -> None:
        names = sorted(before.keys() | self._settings.keys())
        changed = [name for name in names if before.get(name) != self._settings.get(name)]
        only_data = all(map(_is_of_data, changed))
        if not changed or (accept and only_data):
            return
        told = [f"{n} was {before.get(n)}, is {self._settings.get(n)}" for n in changed[:3]]
        more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
        remedy = "resume with those of its run, or name another output"
        if only_data:
            remedy += ", or go on with other data by --accept-data-change"
        raise ModelError(f"{path}: has other settings: {'; '.join(told)}{more}; {remedy}")

    def _all(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))

    def _newest_whole(self) -> tuple[Path, dict[str, Any]] | None:
        for path in reversed(self._all()):
            try:
                return path, _verified_state(path)
            except (OSError, ValueError, KeyError) as error:
                say(f"{path}: is not whole ({error}); trying the one before")
        return None


def _first_cause(error: CheckpointException, path: Path) -> BaseException:
    """Return what went wrong on the first process that failed, an OSError with its path."""
    cause, _ = next(iter(error.failures.values()))
    if isinstance(cause, OSError):
        return OSError(cause.errno, cause.strerror, str(path))
    return cause


def _write_state(folder: Path, state: dict[str, Any]) -> None:
    shards = sorted(folder.glob("*.safetensors"))
    state["sha256"] = {shard.name: sha256_of_file(shard) for shard in shards}
    (folder / "state.json").write_text(json.dumps(state, indent=1) + "\n")


def _verified_state(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    for name, expected in state["sha256"].items():
        if sha256_of_file(folder / name) != expected:
            raise ValueError(f"{name} differs from its checksum")
    return state


def _tensors(network: TrainedNetwork, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return model and optimizer state as one flat table of tensors; tied ones stand once."""
    model = get_model_state_dict(network)
    if network.llama.config.tie_word_embeddings:
        del model["llama.lm_head.weight"]
    adam = get_optimizer_state_dict(network, optimizer, options=_FLAT)
    tensors: dict[str, Any] = {f"model.{name}": value for name, value in model.items()}
    tensors |= {f"optimizer.{k}": v for k, v in adam.items() if isinstance(v, torch.Tensor)}
    return tensors


def _ensure_state(optimizer: torch.optim.Optimizer) -> None:
    """Let AdamW make its state, zero, so that there is something to load into."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in optimizer.state:
                optimizer.state[parameter] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }


def _put_back(
    tensors: dict[str, Any], network: TrainedNetwork, optimizer: torch.optim.Optimizer
) -> None:
    """Hand loaded tensors to the network and the optimizer, whose settings stay as they are."""
    parts: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}}
    for name, value in tensors.items():
        part, _, key = name.partition(".")
        parts[part][key] = value
    set_model_state_dict(network, parts["model"], options=StateDictOptions(strict=False))
    settings = get_optimizer_state_dict(network, optimizer, options=_FLAT)
    set_optimizer_state_dict(network, optimizer, settings | parts["optimizer"], options=_FLAT)
