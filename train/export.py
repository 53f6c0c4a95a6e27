"""Trained weights as a model folder, in the layout of the model that they began as if there is one.

One weight is held at a time.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedConfig

from carbon.errors import ModelError, UserError
from carbon.io.files import atomic_folder
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.model.folder import TAGS_KEY, weight_files
from carbon.model.save import OnDemand, name_tags, save_weights, tensor_types, write_streamed
from carbon.progress import say
from carbon.tokenizer import HYBRID, NATIVE
from train.config import ModelConfig, ParallelConfig, TrainConfig
from train.data import open_rows
from train.distributed.mesh import joined_ranks
from train.distributed.weights import merged, save_adapter
from train.models.network import network_config
from train.models.start import TUNINGS, Start, open_start
from train.runs.record import Work
from train.saved import Saved, saved_weights
from train.schedule import Schedule

_DNA_SPECIALS = ("other", "begin", "dna_end")  # padding is a row of text
_COPIED = (".json", ".jinja", ".txt", ".model", ".py")


def write_export(
    network_config: PreTrainedConfig,
    model: ModelConfig,
    start: Start | None,
    weights: Mapping[str, Tensor],
    folder: Path,
    tags: Sequence[str],
) -> None:
    """Write a model folder; of what went on from a model with `adapter/` if adapters were trained.

    Args:
        network_config: the network, with the RoPE of the last phase.
        model: which part of it the run trains.
        start: the starting checkpoint, if there is one.
        weights: fp32, by their stock names, in the native layout, including adapters.
        folder: that is there and empty.
        tags: of the corpus.
    """
    if start is None:
        name_tags(network_config, tags)
        save_weights(network_config, weights, folder)
        return
    rope: Any = network_config.rope_parameters
    save_as_it_came(start, merged(weights, model), folder, rope["rope_theta"], tags)
    if TUNINGS[model.tune].adapts:
        save_adapter(weights, model, folder / "adapter")


def save_as_it_came(
    start: Start, weights: Mapping[str, Tensor], folder: Path, theta: float, tags: Sequence[str]
) -> None:
    """Write a model with the files, shards and dtypes of its start, and its rows of text.

    Args:
        start: the starting checkpoint.
        weights: fp32, by their stock names, in the native layout.
        folder: that is there and empty.
        theta: of RoPE, as the last phase has it.
        tags: of the corpus; added to the tags that a native model's config names.
    """
    source, files = start.folder.path, weight_files(start.folder.path)
    for path in source.iterdir():
        if path.is_file() and (path.suffix in _COPIED or path.name == "LICENSE"):
            shutil.copyfile(path, folder / path.name)
    config = read_json(source / "config.json", JSON_OBJECT, error=ModelError)
    _name_theta(config, theta)
    if not start.is_hybrid:
        known = {*start.folder.six_mers.tags, *tags}
        config[TAGS_KEY] = [tag for tag in NATIVE.tags if tag in known]
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    for path in files:
        kinds = tensor_types(path)
        write_streamed(folder / path.name, kinds, OnDemand(kinds, partial(_trained, path, weights)))


def _trained(path: Path, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return a tensor in a file of the start, with its trained rows replaced."""
    with safe_open(path, framework="pt") as file:
        before: Tensor = file.get_tensor(name)
    trained = weights.get(name)
    if trained is None:  # a tied head that was written all the same, or what older files have
        if name != "lm_head.weight":
            return before
        trained = weights["model.embed_tokens.weight"]
    trained = trained.to(before.dtype)
    if before.shape == trained.shape:
        return trained.contiguous()
    rows = before.clone()
    for special in _DNA_SPECIALS:
        rows[getattr(HYBRID, special)] = trained[getattr(NATIVE, special)]
    rows[HYBRID.kmer_rows] = trained[NATIVE.kmer_rows]
    return rows


def _name_theta(config: dict[str, Any], theta: float) -> None:
    """Write a theta wherever a config has one: transformers 4 and 5 look in different places."""
    for key in ("rope_parameters", "rope_scaling"):
        if isinstance(config.get(key), dict) and "rope_theta" in config[key]:
            config[key]["rope_theta"] = theta
    if "rope_theta" in config or "rope_parameters" not in config:
        config["rope_theta"] = theta


def export_newest(config: TrainConfig, folder: Path) -> Work | None:
    """Write the newest whole checkpoint as a model folder; of a worker, its outer parameters.

    Neither a network nor moments are made: memory is one weight, the largest.

    Args:
        config: of the run.
        folder: that is not there yet.

    Returns:
        The training of all workers that is in it; None: the run has no workers.

    Raises:
        UserError: there is no checkpoint, or it has other settings; or the folder exists.
    """
    start = open_start(config)
    rows = open_rows(config, Schedule(config), start)
    with joined_ranks(ParallelConfig(), "cpu") as ranks:
        found = Saved(config, rows, ranks, start.digest if start else "").newest()
        if found is None:
            raise UserError(f"{config.output}: has no whole checkpoint to export")
        path, state = found
        weights = saved_weights(path, ranks, config, start)
        schedule = Schedule(config, state.ended)
        of_network = network_config(config)
        rope: Any = of_network.rope_parameters
        last = min(state.step, schedule.total_steps - 1)
        rope["rope_theta"] = schedule.at(last).phase.rope_theta
        with atomic_folder(folder) as temporary:
            write_export(of_network, config.model, start, weights, temporary, rows.tags)
    say(f"exported {folder}")
    return Work(**state.sync["outer"]["trained"]) if state.sync else None
