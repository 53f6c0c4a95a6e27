"""Models that visitors may select, and the facts about a model for its card."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.model.folder import carbon_folder
from carbon.pretrained import BUNDLED_MODELS
from carbon.run_folder import METRICS, RECIPE, column, read_lines, read_recipe
from carbon.tokenizer import K

if TYPE_CHECKING:
    from carbon.inference import Model

EXPORT = "export"  # folder of the export in a run folder


class AboutModel(NamedTuple):
    """Facts about a model.

    Attributes:
        what: description in a few words; None if unknown.
        trained_on: training data; None if unknown.
        num_parameters: number of parameters of the network.
        context_bp: bases in the model's context.
        hours: compute time of its training; None if it was not recorded.
    """

    what: str | None
    trained_on: str | None
    num_parameters: int
    context_bp: int
    hours: float | None


def model_of_run(folder: str | Path) -> Path:
    """Return the export of a run folder, or the folder itself if it is not a run folder.

    >>> model_of_run("tests").name
    'tests'
    """
    folder = Path(folder)
    is_run = (folder / RECIPE).is_file() and (folder / EXPORT / "config.json").is_file()
    return folder / EXPORT if is_run else folder


def about_model(source: str) -> AboutModel:
    """Return the facts about a bundled model, or about a model folder.

    For an export in its run's folder, they come from the run's recipe and metrics.

    Raises:
        ModelError: the source is not a model.
    """
    opened = carbon_folder(source)
    size = opened.num_parameters, K * (int(opened.config["max_position_embeddings"]) - 1)
    if source in BUNDLED_MODELS and not Path(source).is_dir():
        entry = BUNDLED_MODELS[source]
        trained_on = f"{entry.organism} ({entry.assembly}): {entry.training}"
        return AboutModel(entry.what, trained_on, *size, entry.hours)
    run = opened.path.resolve().parent
    if not (run / RECIPE).is_file():
        return AboutModel(None, None, *size, None)
    recipe = read_recipe(run)
    preset = str(recipe.get("model", {}).get("preset", ""))
    what = f"the run {run.name}" + (f", preset {preset}" if preset else "")
    return AboutModel(what, _corpus_of(recipe), *size, _hours_of(run))


def _corpus_of(recipe: dict[str, Any]) -> str | None:
    """Return the organisms of a run's corpus, or the corpus's name if its manifest is missing."""
    corpus = str(recipe.get("data", {}).get("corpus", ""))
    if not corpus or "://" in corpus:
        return corpus or None
    try:
        assemblies = read_manifest(corpus).get("recipe", {}).get("assemblies", [])
    except UserError:
        assemblies = []
    names = [str(a.get("organism") or a.get("name") or "") for a in assemblies]
    return ", ".join(filter(None, names)) or f"the corpus {Path(corpus).name}"


def _hours_of(run: Path) -> float | None:
    """Return training hours, summed over steps as tokens divided by tokens per second."""
    if not (run / METRICS).is_file():
        return None
    steps = read_lines(run).steps
    speeds = column(steps, "tokens_per_second")
    tokens = np.diff(column(steps, "tokens"), prepend=0)
    timed = np.isfinite(speeds) & (speeds > 0)
    return float((tokens[timed] / speeds[timed]).sum()) / 3600 if timed.any() else None


@dataclass(frozen=True, slots=True)
class AllowedModels:
    """Models that a visitor may select.

    Attributes:
        sources: displayed name to the name of a bundled model, or to the folder of a model or run.
        any_folder: whether visitors may name any other folder of this machine.
        load: function that opens a model.
        places: folders of the sources, with links resolved, at the time of the list's creation.
    """

    sources: Mapping[str, str]
    any_folder: bool
    load: Callable[[Path | str], "Model"]
    places: dict[str, Path | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Record the current folders of the sources."""
        self.places.update({name: _place(source) for name, source in self.sources.items()})

    def source_of(self, name: str) -> str:
        """Return the model source that a name may load.

        Raises:
            UserError: the model is not allowed, or its folder has changed since the start.
        """
        source = self.sources.get(name, name)
        if name not in self.sources and not (self.any_folder and os.path.isdir(name)):
            raise UserError(f"Model: there is no '{name[:60]}' here; choose one of the list")
        if name in self.sources and _place(source) != self.places[name]:
            raise UserError(
                f"Model: the folder of '{name}' has changed since the start; restart the demo"
            )
        return source


def _place(source: str) -> Path | None:
    """Return the folder of a source, with links resolved; None if it is a name."""
    path = model_of_run(source)
    return path.resolve() if path.is_dir() else None
