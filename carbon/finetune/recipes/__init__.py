"""Published tasks as runs of `carbon finetune`: their settings, and published figures.

A file of this folder is a family: `source` of the figures, `notes` on what differs from the
published protocol, `settings` of all its tasks, and of each of `tasks` what is its own. A new task
is a table of such a file, a new family a file.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from carbon.errors import ConfigError
from carbon.finetune.config import FinetuneConfig
from carbon.io.config import with_overrides

Table = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published task.

    Attributes:
        name: that `carbon finetune --config` takes.
        question: in a few words.
        published: score of `results.json` to model to its published value; the first score is that
            of the task.
        source: of the figures and settings.
        notes: what differs from the published protocol.
        settings: of a run, without model and output.
    """

    name: str
    question: str
    published: Mapping[str, Mapping[str, float]]
    source: str
    notes: str
    settings: Table

    @property
    def metric(self) -> str:
        """The score that the task is known by."""
        return next(iter(self.published))


@cache
def recipes() -> Mapping[str, Recipe]:
    """Return all recipes by name, families in the order of their files."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        family = tomllib.loads(path.read_text(encoding="utf-8"))
        for name, task in family["tasks"].items():
            found[name] = Recipe(
                name=name,
                question=task["question"],
                published=task["published"],
                source=family["source"],
                notes=family["notes"],
                settings=_merged(family["settings"], task.get("settings", {})),
            )
    return found


def _merged(common: Table, own: Table) -> Table:
    """Return values of both; the own ones where both say something."""
    both = dict(common)
    for key, value in own.items():
        deeper = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = _merged(both[key], value) if deeper else value
    return both


def recipe_of(source: str | Path) -> Recipe | None:
    """Return the recipe of a name; None where a file of that name is there, or no such recipe."""
    return None if Path(source).is_file() else recipes().get(str(source))


def read_run(source: str | Path, overrides: Sequence[str] = ()) -> FinetuneConfig:
    """Read a run from a TOML file, or from a recipe's name and what it lacks.

    Args:
        source: a file, or a name of `recipes`; the file comes first.
        overrides: such as `model=my_model`.

    Raises:
        ConfigError: there is neither, or a key or value does not fit.
    """
    recipe = recipe_of(source)
    if recipe is None:
        is_there = Path(source).is_file()
        if not is_there and (near := difflib.get_close_matches(str(source), recipes(), n=1)):
            raise ConfigError(f"{source}: no such file or recipe; did you mean '{near[0]}'?")
        return FinetuneConfig.load(source, overrides)
    return FinetuneConfig.from_table(with_overrides(recipe.settings, overrides), recipe.name)
