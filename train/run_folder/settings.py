"""The settings that decide a run's numbers: those of a checkpoint against those of a run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carbon.corpus import TokenRows
from carbon.errors import ModelError
from train.choices.stage_ends import STAGE_ENDS
from train.config import CheckpointConfig, ComputeConfig, ParallelConfig, ProbeConfig, TrainConfig
from train.run_folder.defaults import with_defaults


def settings_of(config: TrainConfig, rows: TokenRows, start_sha256: str = "") -> dict[str, Any]:
    """Return all that decides a run's numbers, flat: settings, and the content of each source.

    How processes share the work changes numbers by rounding only. Where the run writes, when it
    saves and measures, where its corpora and its start lie, who reads it, and which learner it is,
    decides nothing.
    """
    fixed = config.replace(
        tracker="none",
        data=config.data.replace(cache="", workers=0, microbatch_tokens=1),
        checkpoint=CheckpointConfig(),
        parallel=ParallelConfig(),
        learners=config.learners.alike(),
        compute=ComputeConfig(dtype=config.compute.dtype, float8=config.compute.float8),
    )
    if not any(STAGE_ENDS[stage.until].needs_probes for stage in config.stages):
        fixed = fixed.replace(probe=ProbeConfig())
    sources = sorted(rows.sources.items())
    content = {name: source.store.key for name, source in sources}
    both_strands = {name: source.both_strands for name, source in sources}
    table = fixed.to_table() | {"content": content, "both_strands": both_strands}
    if start_sha256:
        table["start_sha256"] = start_sha256
    nowhere = {"output": "", "data.corpus": "", "data.replay_corpus": "", "model.start": ""}
    flat: dict[str, Any] = json.loads(json.dumps(dict(_flat(table, "")) | nowhere))
    return flat


def check_settings(
    path: Path, before: dict[str, Any], now: dict[str, Any], config: TrainConfig, accept: bool
) -> None:
    """Refuse a checkpoint of other settings, with what to do.

    Args:
        path: of the checkpoint.
        before: its settings, of whatever version.
        now: those of the run.
        config: of the run, whose defaults stand for what an older version did not name.
        accept: other data.

    Raises:
        ModelError: settings differ, be it only in what is read, unless that is accepted.
    """
    before = with_defaults(config, _with_strands(before))
    names = sorted(before.keys() | now.keys())
    changed = [name for name in names if before.get(name) != now.get(name)]
    only_data = all(map(_is_of_data, changed))
    if not changed or (accept and only_data):
        return
    told = [f"{n} was {before.get(n)}, is {now.get(n)}" for n in changed[:3]]
    more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
    remedy = "resume with those of its run, or name another output"
    if only_data:
        remedy += ", or go on with other data by --accept-data-change"
    raise ModelError(f"{path}: has other settings: {'; '.join(told)}{more}; {remedy}")


def _with_strands(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings that say of each source whether both strands are read.

    Older ones have a list of names instead, of which some may not have been read at all.
    """
    if "data.flip_strands" not in settings:
        return settings
    flipped = settings["data.flip_strands"]
    names = [key.removeprefix("content.") for key in settings if key.startswith("content.")]
    kept = {key: value for key, value in settings.items() if key != "data.flip_strands"}
    return kept | {f"both_strands.{name}": name in flipped for name in names}


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
    return name.startswith(("data.", "content.", "both_strands.")) or ".mixture." in name
