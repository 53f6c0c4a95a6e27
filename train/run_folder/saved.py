"""What a run has saved: the newest whole checkpoint, and the weights in it one at a time."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from transformers import LlamaForCausalLM
from typing_extensions import TypedDict

from carbon.corpus import TokenRows
from carbon.errors import ModelError
from carbon.io.files import sha256_of_file
from carbon.io.structured import read_json
from carbon.model.save import OnDemand
from carbon.progress import say
from train.config import TrainConfig
from train.network.ranks import Ranks
from train.planning.sizes import llama_config
from train.run_folder.settings import check_settings, settings_of
from train.run_folder.state import RunState
from train.start.model import Start

WEIGHTS = "model."
"""What names of weights begin with in a checkpoint; others are of the optimizer."""
REPLACED = ".replaced"
"""What the name of a checkpoint ends with while another of the same step takes its place; a crash
may leave it so, and it is as good as any."""
ANCHOR = "learner.anchor."
"""What names of weights begin with that a learner has in common with all others."""
_NAME = re.compile(rf"step-\d+({re.escape(REPLACED)})?")


class Checkpoint(TypedDict):
    """`state.json` of a checkpoint.

    Attributes:
        settings: of the run that wrote it.
        state: where the run stood.
        sha256: of each file of the checkpoint, by name.
    """

    settings: dict[str, Any]
    state: RunState
    sha256: dict[str, str]


class Saved:
    """The checkpoints of one run folder, as they are read."""

    def __init__(
        self, config: TrainConfig, rows: TokenRows, ranks: Ranks, start_sha256: str = ""
    ) -> None:
        """Look into `output/checkpoints`.

        What is not trained is not saved: that of a start with these contents has it.
        """
        self._folder = Path(config.output) / "checkpoints"
        self._settings = settings_of(config, rows, start_sha256)
        self._config = config
        self._ranks = ranks
        if ranks.is_first:
            self.name_foreign()

    def name_foreign(self) -> None:
        """Print which files in the folder are not checkpoints: they are left alone."""
        foreign = [p.name for p in self._folder.glob("*") if not _is_checkpoint_or_temporary(p)]
        if foreign:
            say(f"{self._folder}: not checkpoints, left alone: {', '.join(sorted(foreign))}")

    def exist(self) -> bool:
        """Tell whether the run has any checkpoint."""
        return bool(self._all())

    def newest(
        self, *, accept_data_change: bool = False, regular: bool = False
    ) -> tuple[Path, RunState] | None:
        """Return the newest whole checkpoint and where it stands, None if there is none.

        Of learners of one launch, the newest that all of them have. With `regular`, only those of
        `every_steps` count: what is trained is not to depend on when a clock or a signal has asked
        for one.

        Raises:
            ModelError: it belongs to another configuration, be it only to other data, unless that
                is accepted.
        """
        found = self._newest_of_all(regular)
        if found is None:
            return None
        path, table = found
        before = table["settings"]
        check_settings(path, before, self._settings, self._config, accept_data_change)
        return path, table["state"]

    def _is_regular(self, path: Path) -> bool:
        """Tell whether a checkpoint is one that any start of the run would have written."""
        return step_of(path) % self._config.checkpoint.every_steps == 0

    def _all(self) -> list[Path]:
        found = (p for p in self._folder.glob("step-*") if _NAME.fullmatch(p.name))
        return sorted(found, key=_age)

    def _newest_of_all(self, regular: bool) -> tuple[Path, Checkpoint] | None:
        """Return the newest whole checkpoint for which every learner of this launch has one.

        They save together; one that was killed meanwhile may lack the last.
        """
        until = None
        while True:
            found = self._newest_whole(regular, until)
            here = step_of(found[0]) if found else 0
            if self._ranks.num_learners == 1:
                return found
            least = -int(self._ranks.largest(-here))
            if int(self._ranks.largest(here)) == least:
                return found
            if found and here > least and self._ranks.is_first:
                say(f"{found[0]}: another learner has none of this step; trying the one before")
            until = least

    def _newest_whole(self, regular: bool, until: int | None) -> tuple[Path, Checkpoint] | None:
        names: list[Any] = [[p for p in self._all() if self._is_regular(p) or not regular]]
        dist.broadcast_object_list(names, group=self._ranks.quiet_group, group_src=0)
        for path in reversed(names[0]):
            if until is not None and step_of(path) > until:
                continue
            wrong, table = self._verified(path)
            if table and not wrong:
                return path, table
            if self._ranks.is_first:
                say(f"{path}: is not whole ({wrong}); trying the one before")
        return None

    def _verified(self, path: Path) -> tuple[str, Checkpoint | None]:
        """Return the damage of a checkpoint, an empty string if it is whole, and its state.json."""
        table = None
        wrong = ""
        try:
            table = read_json(path / "state.json", Checkpoint, error=ModelError)
            missing = [name for name in table["sha256"] if not (path / name).is_file()]
            wrong = f"{missing[0]} is missing" if missing else ""
            for name in self._mine(sorted(table["sha256"])):
                if not wrong and sha256_of_file(path / name) != table["sha256"][name]:
                    wrong = f"{name} differs from its checksum"
        except (OSError, ModelError) as error:
            wrong = str(error) or type(error).__name__
        found = self._together({str(self._ranks.rank): wrong})
        return next((text for text in found.values() if text), ""), table

    def _mine(self, names: Sequence[str]) -> Sequence[str]:
        """Return this process's share of shards, for what takes long."""
        return names[self._ranks.rank :: self._ranks.world_size]

    def _together(self, mine: dict[str, Any]) -> dict[str, Any]:
        found: list[Any] = [None] * self._ranks.world_size
        dist.all_gather_object(found, mine, group=self._ranks.quiet_group)
        return dict(sorted(item for part in found for item in part.items()))


class Shards(HuggingFaceStorageReader):
    """Reads a checkpoint, whose shards and what they hold the first process has told all others.

    A network disk may show others less of it for a while, and headers of shards are many.

    Attributes:
        metadata: of all tensors.
    """

    def __init__(self, path: Path, ranks: Ranks) -> None:
        """Read the headers; all processes do so together."""
        super().__init__(str(path))
        found = [super().read_metadata() if ranks.is_first else None]
        dist.broadcast_object_list(found, group=ranks.quiet_group, group_src=0)
        assert found[0] is not None
        self.metadata: Metadata = found[0]

    def read_metadata(self) -> Metadata:
        """Return what the first process has read."""
        return self.metadata


def saved_weights(
    path: Path, ranks: Ranks, config: TrainConfig, start: Start | None
) -> Mapping[str, Tensor]:
    """Return weights of a checkpoint, and of its start what was not trained, by stock names.

    Of a learner, those of the anchor. Each is read when it is asked for, fp32 on the CPU, whatever
    shards it lies in; by one process that is alone.
    """
    shards = Shards(path, ranks)
    kinds = shards.metadata.state_dict_metadata

    def read(name: str) -> Tensor:
        key = next((key for key in (ANCHOR + name, WEIGHTS + name) if key in kinds), None)
        if key is None:
            assert start is not None
            return start.weight(name)
        kind = kinds[key]
        assert isinstance(kind, TensorStorageMetadata)
        weight = torch.empty(kind.size, dtype=kind.properties.dtype)
        load({key: weight}, storage_reader=shards, process_group=ranks.quiet_group)
        return weight

    with torch.device("meta"):
        network = LlamaForCausalLM(llama_config(config))
    names = [name for name, _ in network.named_parameters()]
    there = [name.removeprefix(WEIGHTS) for name in kinds if name.startswith(WEIGHTS)]
    return OnDemand([*names, *there], read)


def step_of(path: Path) -> int:
    """Return the step that a checkpoint was written at."""
    return int(path.name.removeprefix("step-").removesuffix(REPLACED))


def _is_checkpoint_or_temporary(path: Path) -> bool:
    """Return whether a name in `checkpoints/` is a checkpoint's, whole or being written."""
    return bool(_NAME.fullmatch(path.name)) or path.name.startswith(".")


def _age(path: Path) -> tuple[int, bool]:
    """Return the step, and of two of a step that the one being replaced is older."""
    return step_of(path), not path.name.endswith(REPLACED)
