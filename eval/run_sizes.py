"""Sizes of a run by the names of `--preset`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunSize:
    """The size of a run, unless the command line gives another.

    Attributes:
        max_samples: most examples a task; None for all.
        orders: of the Markov models.
        of_tasks: task to its sizes by name.
    """

    max_samples: int | None
    orders: tuple[int, ...]
    of_tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


RUN_SIZES = {
    "published": RunSize(None, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
    # What `tiny` holds, within ten minutes on a CPU.
    "smoke": RunSize(40, (1, 3, 6), {"genomic_niah": {"context_length_tokens": (4096, 8192)}}),
}
