"""Published tasks as recipes of `carbon finetune`: settings and published scores.

Each TOML file is a family: `source` of the figures, `notes` on deviations from the published
protocol, `settings` of all its tasks, and the differing settings of each of `tasks`. A new task is
a table in such a file, a new family is a file.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from carbon.errors import ConfigError
from carbon.finetune.config import FinetuneConfig
from carbon.io.config import with_overrides
from carbon.io.structured import read_toml

Table = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PublishedTask:
    """A published task.

    Attributes:
        name: name that `carbon finetune --config` takes.
        description: a few words.
        published: published value by score of `results.json` and model; the first score is the
            task's own.
        source: source of the figures and settings.
        notes: deviations from the published protocol.
        settings: settings of a run, without model and output.
    """

    name: str
    description: str
    published: Mapping[str, Mapping[str, float]]
    source: str
    notes: str
    settings: Table

    @property
    def metric(self) -> str:
        """The task's own score."""
        return next(iter(self.published))


@cache
def recipes() -> Mapping[str, PublishedTask]:
    """Return all recipes by name, families in the order of their files."""
    tasks = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        family = read_toml(path)
        for name, task in family["tasks"].items():
            tasks[name] = PublishedTask(
                name=name,
                description=task["description"],
                published=task["published"],
                source=family["source"],
                notes=family["notes"],
                settings=_merged(family["settings"], task.get("settings", {})),
            )
    return tasks


def _merged(common: Table, own: Table) -> Table:
    """Return values of both tables; those of `own` take precedence."""
    both = dict(common)
    for key, value in own.items():
        deeper = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = _merged(both[key], value) if deeper else value
    return both


def recipe_of(source: str | Path) -> PublishedTask | None:
    """Return the recipe of a name; None if a file has that name, or no recipe has."""
    return None if Path(source).is_file() else recipes().get(str(source))


def read_run(source: str | Path, overrides: Sequence[str] = ()) -> FinetuneConfig:
    """Read a run from a TOML file, or from a recipe's name and overrides.

    Args:
        source: a file, or a name of `recipes`; a file takes precedence.
        overrides: such as `model=my_model`.

    Raises:
        ConfigError: there is neither, or a key or value is invalid.
    """
    recipe = recipe_of(source)
    if recipe is None:
        is_there = Path(source).is_file()
        if not is_there and (near := difflib.get_close_matches(str(source), recipes(), n=1)):
            raise ConfigError(f"{source}: no such file or recipe; did you mean '{near[0]}'?")
        return FinetuneConfig.load(source, overrides)
    return FinetuneConfig.from_table(with_overrides(recipe.settings, overrides), recipe.name)
