"""The run folder of RL fine-tuning: settings, metrics, samples, adapter, checkpoints and model."""

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from safetensors import safe_open
from torch import Tensor
from transformers import TrainerCallback

from carbon.design.job import write_fasta
from carbon.errors import UserError
from carbon.io.files import atomic_file, behind_links, free_folder
from carbon.io.structured import JSON_OBJECT, read_json, read_json_lines, whole_lines
from carbon.model.folder import weight_files
from carbon.model.save import OnDemand, tensor_types, write_streamed
from carbon.parallel.journal import check_same_job
from carbon.rl.config import RLConfig
from carbon.rl.rewards import Rewards
from carbon.run_folder import METRICS
from carbon.tokenizer import K

# Other files of the starting model, such as its results, do not describe the new model.
_COPIED = (
    "config.json",
    "generation_config.json",
    "*tokenizer*",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "dna_config.json",
    "*.safetensors.index.json",
    "*.py",
    "LICENSE",
)


def save_like(start: Path, changed: Mapping[str, Tensor], folder: Path) -> None:
    """Write a model folder with the files, shards and dtypes of the starting model.

    Args:
        start: folder of the starting model.
        changed: merged weights by their names in the folder; all others are copied.
        folder: an existing, empty folder.
    """
    for pattern in _COPIED:
        for path in start.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    for path in weight_files(start):
        _save_shard(path, changed, folder / path.name)


def _save_shard(path: Path, changed: Mapping[str, Tensor], output: Path) -> None:
    types = tensor_types(path)

    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            before: Tensor = file.get_tensor(name)
        return changed[name].to("cpu", before.dtype).contiguous() if name in changed else before

    write_streamed(output, types, OnDemand(types, read))


SETTINGS, SAMPLES, ADAPTER, MODEL = "rl.json", "samples", "adapter", "model"
# Columns of `metrics.jsonl`, besides the mean value of each scoring function.
COLUMNS = (
    *("step", "reward", "reward_std", "kl_nats_per_base", "nats_per_base"),
    *("loss", "grad_norm", "learning_rate", "staleness_rounds", "dropped_groups"),
)
_CHECKPOINT = re.compile(r"checkpoint-\d{1,12}", re.ASCII)
_LAST_FILE = "trainer_state.json"
_RANDOM_NUMBERS = "rng_state*.pth"  # one per process
_NUM_CHECKPOINTS = 2  # the newest may be incomplete


def last_checkpoint(folder: Path, processes: int) -> Path | None:
    """Return the newest complete checkpoint of a run folder, if there is one.

    Args:
        folder: of the run.
        processes: number of processes that wrote it.
    """
    complete = [path for path in _checkpoints(folder) if _is_complete(path, processes)]
    return max(complete, key=step_of, default=None)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run in the order of steps; other names are left alone."""
    named = [path for path in folder.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name)]
    return sorted(named, key=step_of)


def step_of(checkpoint: Path | None) -> int:
    """Return the number of finished steps at a checkpoint; 0 for None."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def _is_complete(checkpoint: Path, processes: int) -> bool:
    try:
        read_json(checkpoint / _LAST_FILE, JSON_OBJECT, finite=False)
    except (OSError, UserError):
        return False
    # `torch.save` writes a ZIP; an incomplete one lacks the directory at its end.
    return sum(map(is_zipfile, checkpoint.glob(_RANDOM_NUMBERS))) == processes


def begin_folder(path: Path, settings: dict[str, Any], *, resume: bool) -> Path:
    """Create a run folder, or reset one to its last checkpoint.

    Raises:
        UserError: the output exists, or the earlier run had other settings.
    """
    settings = json.loads(json.dumps(settings))
    folder = behind_links(path)
    if not resume or not (folder / SETTINGS).is_file():
        folder = free_folder(path)
        (folder / SAMPLES).mkdir(parents=True)
        with atomic_file(folder / SETTINGS) as temporary:
            temporary.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        return folder
    earlier = read_json(folder / SETTINGS, JSON_OBJECT, remedy="start the run again")
    check_same_job(folder, earlier, settings)
    if not (folder / MODEL).is_dir():
        _truncate(folder / METRICS, step_of(last_checkpoint(folder, settings["processes"])))
    return folder


def _truncate(path: Path, num_lines: int) -> None:
    """Remove the metrics of steps that will be repeated."""
    lines = [line for _, line in whole_lines(path)] if path.exists() else []
    with atomic_file(path) as temporary:
        temporary.write_bytes(b"".join(lines[:num_lines]))


def remove_checkpoints(folder: Path, newest: int = 0) -> None:
    """Remove all checkpoints but the `newest`."""
    checkpoints = _checkpoints(folder)
    for path in checkpoints[: len(checkpoints) - newest]:
        shutil.rmtree(path)


class RunWriter(TrainerCallback):
    """Writes metrics at every step; samples and the adapter every `save_steps`."""

    def __init__(
        self,
        folder: Path,
        config: RLConfig,
        settings: dict[str, Any],
        rewards: Rewards,
        network: Any,
        advance: Callable[[int], None],
        more: Callable[[], dict[str, int]] = dict,
    ) -> None:
        """Create the callback.

        Args:
            folder: of the run.
            config: of the run.
            settings: for the headers of samples.
            rewards: of the current group.
            network: with adapters of peft.
            advance: called with the number of new steps.
            more: returns further metrics of a step.
        """
        self._folder, self._config, self._settings = folder, config, settings
        self._rewards, self._network, self._advance = rewards, network, advance
        self._more = more

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write the metrics of a step; trl's final log has no reward and is skipped."""
        if "reward" not in logs:
            return
        step = state.global_step
        with (self._folder / METRICS).open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(self._line(step, logs)) + "\n")
        if step % self._config.save_steps == 0 or step == self._config.steps:
            self._write_samples(step)
            save_adapter(self._network, self._folder / ADAPTER)
        self._advance(1)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Remove old checkpoints."""
        remove_checkpoints(self._folder, newest=_NUM_CHECKPOINTS)

    def _line(self, step: int, logs: dict[str, Any]) -> dict[str, Any]:
        """Return the metrics of a step; trl reports means per token of six bases."""
        rewards = self._rewards.gains.sum(axis=1)
        metrics = {
            "step": step,
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "kl_nats_per_base": logs["kl"] / K if "kl" in logs else None,
            "nats_per_base": logs["entropy"] / K,
            **{name: logs.get(name) for name in ("loss", "grad_norm", "learning_rate")},
        }
        metrics |= self._more() | self._rewards.means
        # JSON has no numbers that are not finite.
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in metrics.items()
        }

    def _write_samples(self, step: int) -> None:
        rewards = self._rewards
        columns = {"name": str, **dict.fromkeys(rewards.names, float), "bases": str}
        path = samples_file(self._folder, step)
        with write_fasta(path, columns, {"step": step} | self._settings) as write:
            for number, (bases, values) in enumerate(
                zip(rewards.sequences, rewards.values, strict=True), start=1
            ):
                write((f"sample_{number}", *values, bases))


def samples_file(folder: Path, step: int) -> Path:
    """Return the FASTA with the samples of a step."""
    return folder / SAMPLES / f"step_{step:06d}.fa"


def save_adapter(network: Any, folder: Path) -> None:
    """Write the adapter for `peft.PeftModel.from_pretrained`; replace an earlier one.

    Args:
        network: with adapters of peft.
        folder: to write.
    """
    config = network.peft_config["default"]
    targets, config.target_modules = config.target_modules, sorted(config.target_modules)
    network.save_pretrained(folder, save_embedding_layers=False)
    config.target_modules = targets
    (folder / "README.md").unlink(missing_ok=True)  # peft's card, an empty form


def first_and_last(folder: Path, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the mean value of each scoring function in the first and in the last step."""
    lines = [line for _, line in read_json_lines(folder / METRICS, JSON_OBJECT)]
    steps = {"first": lines[0], "last": lines[-1]}
    return {when: {name: line[name] for name in names} for when, line in steps.items()}
