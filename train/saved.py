"""Reading checkpoints: state, settings, verification, weights one at a time."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NotRequired, TypeVar

import torch
import torch.distributed as dist
from pydantic import NonNegativeInt
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from typing_extensions import TypedDict

from carbon.corpus import TokenRows
from carbon.errors import ModelError, UserError
from carbon.io.files import sha256_of_file
from carbon.io.structured import read_json
from carbon.model.save import OnDemand
from carbon.progress import say
from train.config import CheckpointConfig, ComputeConfig, ParallelConfig, ProbeConfig, TrainConfig
from train.distributed.mesh import Ranks
from train.models.network import build_network
from train.models.start import Start
from train.watch import PHASE_ENDS

T = TypeVar("T")
_PLACES = ("output", "data.corpus", "data.replay_corpus", "data.cache", "model.start")


@dataclass(slots=True)
class RunState:
    """Progress of a run.

    There is no random state: rows follow from their numbers, weights from their names, and a
    network without dropout draws nothing.

    Attributes:
        step: the next one, from 0; it determines the rows that are read next.
        updates: how many steps have changed the weights.
        skipped: first and last of the steps that were left out, for each time.
        ended: steps of the phases that a signal has ended, by their number.
        history: loss and gradient norm of good steps of the phase, the last or all of them.
        gaps: of sequence recovery between fp32 and bf16, one a probe of the phase.
        phase: number of the phase of the step before; None: that follows from the step.
        sync: where a worker stands among the others.
    """

    step: NonNegativeInt = 0
    updates: NonNegativeInt = 0
    skipped: list[list[int]] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    history: list[list[float]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    phase: int | None = None
    sync: dict[str, Any] = field(default_factory=dict)

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)


def settings_of(config: TrainConfig, rows: TokenRows, start_sha256: str = "") -> dict[str, Any]:
    """Return all that decides a run's numbers, flat: settings, and the content of each source."""
    sources = sorted(rows.sources.items())
    content: dict[str, Any] = {
        "content": {name: source.store.key for name, source in sources},
        "both_strands": {name: source.both_strands for name, source in sources},
    }
    if start_sha256:
        content["start_sha256"] = start_sha256
    return recipe_settings(config) | _flat_json(content)


def recipe_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that decide a run's numbers, flat.

    How processes share the work changes numbers by rounding only, but for SPARTA, which draws its
    numbers from the parts that a process has. Where the run writes, when it
    saves and measures, where its corpora and its start lie, who reads it, and which worker it is,
    decides nothing.
    """
    fixed = config.replace(
        tracker="none",
        data=config.data.replace(workers=0, microbatch_tokens=1),
        checkpoint=CheckpointConfig(),
        parallel=ParallelConfig(),
        workers=config.workers.alike(),
        compute=ComputeConfig(dtype=config.compute.dtype, float8=config.compute.float8),
    )
    if not any(PHASE_ENDS[phase.until].needs_probes for phase in config.phases):
        fixed = fixed.replace(probe=ProbeConfig())
    return launch_settings(fixed)


def launch_settings(config: TrainConfig) -> dict[str, Any]:
    """Return all settings, flat, except where files lie: the processes of a launch share them."""
    return _flat_json(config.to_table()) | dict.fromkeys(_PLACES, "")


def _flat_json(table: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = json.loads(json.dumps(dict(_flat(table, ""))))
    return flat


def check_settings(path: Path, before: dict[str, Any], now: dict[str, Any], accept: bool) -> None:
    """Refuse a checkpoint of other settings, with what to do.

    Args:
        path: of the checkpoint.
        before: its settings.
        now: settings of the run.
        accept: other data.

    Raises:
        ModelError: settings differ, even if only in the data, unless that is accepted.
    """
    names = sorted(before.keys() | now.keys())
    changed = [name for name in names if before.get(name) != now.get(name)]
    only_data = all(map(_is_of_data, changed))
    if not changed or (accept and only_data):
        return
    differences = [f"{n} was {before.get(n)}, is {now.get(n)}" for n in changed[:3]]
    more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
    remedy = f"give --config {path.parents[1] / 'config.toml'}, or name another output"
    if only_data:
        remedy += ", or continue with other data by --accept-data-change"
    raise ModelError(f"{path}: has other settings: {'; '.join(differences)}{more}; {remedy}")


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
    """Return whether a setting only describes the data: a weight of bases decides the loss."""
    if name == "data.soft_mask_weight":
        return False
    return name.startswith(("data.", "content.", "both_strands.")) or ".mixture." in name


FORMAT = 4
"""Of checkpoints, in `state.json`; version 0.2 wrote none, and nothing released wrote 1 to 3."""
WEIGHTS = "model."
"""What names of weights begin with in a checkpoint; others are of the optimizer."""
REPLACED = ".replaced"
"""What the name of a checkpoint ends with while another of the same step takes its place; a crash
may leave it so, and it is as good as any."""
OUTER_PARAMS = "worker.outer_params."
"""What names of weights begin with that a worker has in common with all others."""
_NAME = re.compile(rf"step-\d+({re.escape(REPLACED)})?")


class Checkpoint(TypedDict):
    """`state.json` of a checkpoint.

    Attributes:
        format: `FORMAT`.
        settings: of the run that wrote it.
        state: where the run stood.
        sha256: of each file of the checkpoint, by name.
    """

    format: NotRequired[int]
    settings: dict[str, Any]
    state: RunState
    sha256: dict[str, str]


class Saved:
    """The checkpoints of one run folder, as they are read."""

    def __init__(
        self, config: TrainConfig, rows: TokenRows, ranks: Ranks, start_sha256: str = ""
    ) -> None:
        """Look into `output/checkpoints`.

        Frozen weights are not saved: the starting checkpoint with these contents has them.
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
        """Return whether the run has any checkpoint; all processes ask together."""
        return bool(self._from_first(self._all))

    def newest(
        self, *, accept_data_change: bool = False, regular_until: int | None = None
    ) -> tuple[Path, RunState] | None:
        """Return the newest whole checkpoint and where it stands, None if the run has none.

        For workers of one launch, the newest that all of them have.

        Args:
            accept_data_change: of another configuration of data.
            regular_until: only those at `every_steps` count, up to this step: training must not
                depend on when a clock or a signal has asked for one. None: all of them.

        Raises:
            ModelError: one cannot be read, or there are some and none is whole; or it belongs to
                another configuration, even if only the data differ, unless that is accepted.
            OSError: the folder cannot be read.
        """
        found = self._newest_of_all(regular_until)
        if found is None:
            return None
        path, table = found
        before = table["settings"]
        check_settings(path, before, self._settings, accept_data_change)
        return path, table["state"]

    def _all(self) -> list[Path]:
        return checkpoints_in(self._folder)

    def _regular(self, last: int) -> list[Path]:
        """Return the checkpoints up to a step that any start of the run would have written."""
        every = self._config.checkpoint.every_steps
        return [p for p in self._all() if step_of(p) <= last and step_of(p) % every == 0]

    def _newest_of_all(self, regular_until: int | None) -> tuple[Path, Checkpoint] | None:
        """Return the newest whole checkpoint for which every worker of this launch has one.

        They save together; one that was killed meanwhile may lack the last.
        """
        until = None
        while True:
            found = self._newest_whole(regular_until, until)
            here = step_of(found[0]) if found else 0
            if self._ranks.num_workers == 1:
                return found
            least = -int(self._ranks.largest(-here))
            if int(self._ranks.largest(here)) == least:
                return found
            if found and here > least and self._ranks.is_first:
                say(f"{found[0]}: another worker has none of this step; trying the one before")
            until = least

    def _newest_whole(
        self, regular_until: int | None, until: int | None
    ) -> tuple[Path, Checkpoint] | None:
        paths = self._from_first(
            self._all if regular_until is None else partial(self._regular, regular_until)
        )
        damaged: list[str] = []
        for path in reversed(paths):
            if until is not None and step_of(path) > until:
                continue
            damage, table = self._verified(path)
            if table and not damage:
                return path, table
            if self._ranks.is_first:
                say(f"{path}: is not whole ({damage}); trying the one before")
            damaged.append(f"{path.name} ({damage})")
        if damaged:
            more = f"; and {len(damaged) - 3} more" if len(damaged) > 3 else ""
            raise ModelError(
                f"{self._folder}: holds no whole checkpoint: {'; '.join(damaged[:3])}{more}; "
                "restore one from a copy, or start anew with another output"
            )
        return None

    def _verified(self, path: Path) -> tuple[str, Checkpoint | None]:
        """Return the damage of a checkpoint, an empty string if it is whole, and its state.json.

        Raises:
            ModelError: a process cannot read it, on all processes. That may pass, so it is no
                reason to take an older one.
        """
        try:
            table = self._from_first(
                lambda: read_json(path / "state.json", Checkpoint, error=ModelError)
            )
            found = self._together(lambda: {str(self._ranks.rank): self._damage(path, table)})
        except (FileNotFoundError, NotADirectoryError, ModelError) as error:
            return str(error), None
        except OSError as error:
            raise ModelError(
                f"{path}: cannot be read ({error.strerror or error}); repeat the command when it "
                "can be, or move it away to go on from the one before"
            ) from None
        _check_format(path, table)
        return next((damage for damage in found.values() if damage), ""), table

    def _damage(self, path: Path, table: Checkpoint) -> str:
        """Return what is wrong with this process's share of the shards."""
        for name in self._mine(sorted(table["sha256"])):
            try:
                if sha256_of_file(path / name) != table["sha256"][name]:
                    return f"{name} differs from its checksum"
            except FileNotFoundError:
                return f"{name} is missing"
        return ""

    def _mine(self, names: Sequence[str]) -> Sequence[str]:
        """Return this process's share of shards, for what takes long."""
        return names[self._ranks.rank :: self._ranks.world_size]

    def _together(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what this work gives on all processes; if it fails on one, it has on all."""
        found: list[Any] = [None] * self._ranks.world_size
        dist.all_gather_object(found, _result_or_error(work), group=self._ranks.quiet_group)
        for part in found:
            if isinstance(part, Exception):
                raise part
        return dict(sorted(item for part in found for item in part.items()))

    def _from_first(self, work: Callable[[], T]) -> T:
        """Return what this work gives on the first process; if it fails, it has on all."""
        found: list[Any] = [_result_or_error(work) if self._ranks.is_first else None]
        dist.broadcast_object_list(found, group=self._ranks.quiet_group, group_src=0)
        if isinstance(found[0], Exception):
            raise found[0]
        result: T = found[0]
        return result


def _result_or_error(work: Callable[[], T]) -> T | OSError | UserError:
    """Return what some work gives, or the error of a disk or of a file's content."""
    try:
        return work()
    except (OSError, UserError) as error:
        return error


def _check_format(path: Path, table: Checkpoint) -> None:
    if table.get("format") != FORMAT:
        raise ModelError(
            f"{path}: was written by another version of Carbon, which this one cannot resume; "
            "resume with that version, or name another output"
        )


def check_network(config: TrainConfig, run: Path) -> None:
    """Refuse to resume a run whose newest checkpoint is of another network.

    One that cannot be read is left to `Saved.newest`, which tries the one before.

    Raises:
        ModelError: its architecture, preset or tuning differs.
    """
    states = (path / "state.json" for path in checkpoints_in(run / "checkpoints"))
    paths = list(filter(Path.exists, states))
    try:
        table = read_json(paths[-1], Checkpoint, error=ModelError) if paths else None
    except (OSError, ModelError):
        return
    if table is None:
        return
    _check_format(paths[-1].parent, table)
    before = table["settings"]
    for key in ("architecture", "preset", "tune"):
        name, now = f"model.{key}", getattr(config.model, key)
        if before.get(name, now) != now:
            raise ModelError(
                f"{paths[-1].parent}: {name} was {before[name]}, is {now}; resume with the "
                "settings of its run, or name another output"
            )


class Shards(HuggingFaceStorageReader):
    """Reads a checkpoint by the headers that the first process has sent to all others.

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
        """Return the metadata from the first process."""
        return self.metadata


def saved_weights(
    path: Path, ranks: Ranks, config: TrainConfig, start: Start | None
) -> Mapping[str, Tensor]:
    """Return weights of a checkpoint, and frozen ones of its start, by stock names.

    For a worker, the outer parameters. Each is read on request, fp32 on the CPU, whatever
    shards it lies in; by one process that is alone.
    """
    shards = Shards(path, ranks)
    kinds = shards.metadata.state_dict_metadata

    def read(name: str) -> Tensor:
        key = next((key for key in (OUTER_PARAMS + name, WEIGHTS + name) if key in kinds), None)
        if key is None:
            assert start is not None
            return start.weight(name)
        kind = kinds[key]
        assert isinstance(kind, TensorStorageMetadata)
        weight = torch.empty(kind.size, dtype=kind.properties.dtype)
        load({key: weight}, storage_reader=shards, process_group=ranks.quiet_group)
        return weight

    with torch.device("meta"):
        network = build_network(config)
    names = [name for name, _ in network.named_parameters()]
    there = [name.removeprefix(WEIGHTS) for name in kinds if name.startswith(WEIGHTS)]
    return OnDemand([*names, *there], read)


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints, the oldest first; a folder that cannot be read is an error."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((folder / name for name in names if _NAME.fullmatch(name)), key=_age)


def step_of(path: Path) -> int:
    """Return the step that a checkpoint was written at."""
    return int(path.name.removeprefix("step-").removesuffix(REPLACED))


def _is_checkpoint_or_temporary(path: Path) -> bool:
    """Return whether a name in `checkpoints/` is a checkpoint's, whole or being written."""
    return bool(_NAME.fullmatch(path.name)) or path.name.startswith(".")


def _age(path: Path) -> tuple[int, bool]:
    """Return the step, and of two of a step that the one being replaced is older."""
    return step_of(path), not path.name.endswith(REPLACED)
