"""A tuned model as its start was: the same files, but for the weights that had adapters."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from safetensors import safe_open
from torch import Tensor
from transformers import TrainerCallback

from carbon.design.job import write_fasta
from carbon.io.files import atomic_file, behind_links, free_folder
from carbon.model.folder import weight_files
from carbon.model.save import OnDemand, tensor_types, write_streamed
from carbon.parallel.journal import check_same_job
from carbon.rl.config import TuneTask
from carbon.rl.rewards import Rewards
from carbon.run_folder import METRICS
from carbon.tokenizer import K

# What is told of the start beside these, as its results, is not told of another model.
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


def save_as_start(start: Path, tuned: Mapping[str, Tensor], folder: Path) -> None:
    """Write a model folder with the files, shards and dtypes of another.

    Args:
        start: folder of the model that was tuned.
        tuned: merged weights that differ, by their stock names; all others are the start's.
        folder: that is there and empty.
    """
    for pattern in _COPIED:
        for path in start.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    for path in weight_files(start):
        _save_file(path, tuned, folder / path.name)


def _save_file(path: Path, tuned: Mapping[str, Tensor], output: Path) -> None:
    kinds = tensor_types(path)

    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            before: Tensor = file.get_tensor(name)
        return tuned[name].to("cpu", before.dtype).contiguous() if name in tuned else before

    write_streamed(output, kinds, OnDemand(kinds, read))


SETTINGS, SAMPLES, ADAPTER, MODEL = "tune.json", "samples", "adapter", "model"
# Columns of `metrics.jsonl`, beside one for the mean value of each oracle.
COLUMNS = (
    *("step", "reward", "reward_std", "kl_nats_per_base", "nats_per_base"),
    *("loss", "grad_norm", "learning_rate", "staleness_rounds", "dropped_groups"),
)
_CHECKPOINT, _LAST_FILE = "checkpoint-*", "trainer_state.json"
_RANDOM_NUMBERS = "rng_state*.pth"  # of each process
_KEPT = 2  # checkpoints: the newest may be torn


def last_checkpoint(folder: Path, processes: int) -> Path | None:
    """Return the newest checkpoint that is whole, if there is one.

    Args:
        folder: of the run.
        processes: that wrote it.
    """
    whole = [path for path in folder.glob(_CHECKPOINT) if _is_whole(path, processes)]
    return max(whole, key=step_of, default=None)


def step_of(checkpoint: Path | None) -> int:
    """Return the steps that are done at a checkpoint; 0 without one."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def _is_whole(checkpoint: Path, processes: int) -> bool:
    try:
        json.loads((checkpoint / _LAST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # `torch.save` writes a ZIP, whose end is what a torn one lacks.
    return sum(map(is_zipfile, checkpoint.glob(_RANDOM_NUMBERS))) == processes


def begin_folder(path: Path, settings: dict[str, Any], *, resume: bool) -> Path:
    """Make a folder, or take one back to its last checkpoint.

    Raises:
        UserError: something else is there, or an earlier run had other settings.
    """
    settings = json.loads(json.dumps(settings))
    folder = behind_links(path)
    if not resume or not (folder / SETTINGS).is_file():
        folder = free_folder(path)
        (folder / SAMPLES).mkdir(parents=True)
        with atomic_file(folder / SETTINGS) as temporary:
            temporary.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        return folder
    earlier = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    check_same_job(folder, earlier, settings)
    if not (folder / MODEL).is_dir():
        _keep_lines(folder / METRICS, step_of(last_checkpoint(folder, settings["processes"])))
    return folder


def _keep_lines(path: Path, count: int) -> None:
    """Cut off the steps that are taken again."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    with atomic_file(path) as temporary:
        temporary.write_text("".join(lines[:count]), encoding="utf-8")


def remove_checkpoints(folder: Path, newest: int = 0) -> None:
    """Remove what a run goes on from, but for so many of the newest."""
    found = sorted(folder.glob(_CHECKPOINT), key=step_of)
    for path in found[: len(found) - newest]:
        shutil.rmtree(path)


class Written(TrainerCallback):
    """A line of metrics a step; samples and the adapter at every probe."""

    def __init__(
        self,
        folder: Path,
        task: TuneTask,
        settings: dict[str, Any],
        rewards: Rewards,
        finetuned: Any,
        advance: Callable[[int], None],
        more: Callable[[], dict[str, int]] = dict,
    ) -> None:
        """Take where to, what of, and what more is told of each step."""
        self._folder, self._task, self._settings = folder, task, settings
        self._rewards, self._finetuned, self._advance = rewards, finetuned, advance
        self._more = more

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write what a step was; what trl tells in the end is of none."""
        if "reward" not in logs:
            return
        step = state.global_step
        with (self._folder / METRICS).open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(self._line(step, logs)) + "\n")
        if step % self._task.probe_steps == 0 or step == self._task.steps:
            self._write_samples(step)
            save_adapter(self._finetuned, self._folder / ADAPTER)
        self._advance(1)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep no more checkpoints than it takes to go on."""
        remove_checkpoints(self._folder, newest=_KEPT)

    def _line(self, step: int, logs: dict[str, Any]) -> dict[str, Any]:
        """Return a step; trl's means are of tokens, and a token is six bases."""
        rewards = self._rewards.gains.sum(axis=1)
        found = {
            "step": step,
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "kl_nats_per_base": logs["kl"] / K if "kl" in logs else None,
            "nats_per_base": logs["entropy"] / K,
            **{name: logs.get(name) for name in ("loss", "grad_norm", "learning_rate")},
        }
        return found | self._more() | self._rewards.means

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
    """Return where a run has the samples of a step."""
    return folder / SAMPLES / f"step_{step:06d}.fa"


def save_adapter(finetuned: Any, folder: Path) -> None:
    """Write the adapter as `peft.PeftModel.from_pretrained` loads it, in the place of an earlier.

    Args:
        finetuned: network of peft.
        folder: to write or to replace.
    """
    config = finetuned.peft_config["default"]
    targets, config.target_modules = config.target_modules, sorted(config.target_modules)
    finetuned.save_pretrained(folder, save_embedding_layers=False)
    config.target_modules = targets
    (folder / "README.md").unlink(missing_ok=True)  # peft's card, which nobody has filled in


def first_and_last(folder: Path, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the mean values of each oracle in the first and in the last step."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    steps = {"first": json.loads(lines[0]), "last": json.loads(lines[-1])}
    return {when: {name: line[name] for name in names} for when, line in steps.items()}
