"""Models that visitors may select by name; the server fixes the list before it loads any."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carbon.errors import UserError
from demo.model_facts import model_of_run

if TYPE_CHECKING:
    from carbon.inference import Model


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
