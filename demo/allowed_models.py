"""Models that others may ask for by name: what may be loaded is settled before anything is."""

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
class Offer:
    """Models that may be switched to.

    Attributes:
        sources: by the name that is shown: of bundled models, or folders of models and runs.
        any_folder: whether any other folder of this machine may be named.
        load: opens one.
        places: where the sources led when they were offered.
    """

    sources: Mapping[str, str]
    any_folder: bool
    load: Callable[[Path | str], "Model"]
    places: dict[str, Path | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Look where the sources lead now."""
        self.places.update({name: _place(source) for name, source in self.sources.items()})

    def source_of(self, name: str) -> str:
        """Return what a name may have loaded.

        Raises:
            UserError: it is not offered, or leads elsewhere than when it was.
        """
        source = self.sources.get(name, name)
        if name not in self.sources and not (self.any_folder and os.path.isdir(name)):
            raise UserError(f"Model: there is no '{name[:60]}' here; choose one of the list")
        if name in self.sources and _place(source) != self.places[name]:
            raise UserError(
                f"Model: '{name}' is another folder than when it was offered; whoever runs this "
                "can offer it anew"
            )
        return source


def _place(source: str) -> Path | None:
    """Return the folder behind all links that a source leads to; None of a name."""
    path = model_of_run(source)
    return path.resolve() if path.is_dir() else None
