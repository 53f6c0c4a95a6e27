"""Recipes as files: settings, and layouts for numbers of processes.

A layout says what is otherwise where a run has so many processes or more, such as

    [layouts.64]
    parallel = { replicate = 8 }
    compute = { activation_checkpointing = "full" }
    data = { microbatch_tokens = 32_768 }

It holds nothing by which numbers change but by rounding, so a run goes on with any other.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from carbon.io.config import Recipe, read_table, with_overrides
from train.config import CheckpointingName, ParallelConfig


class _Compute(Recipe):
    activation_checkpointing: CheckpointingName = "none"
    compile: bool = False


class _Data(Recipe):
    microbatch_tokens: int = 1


class _Layout(Recipe):
    """The keys that a layout may have, by the tables of a recipe."""

    parallel: ParallelConfig = ParallelConfig()
    compute: _Compute = _Compute()
    data: _Data = _Data()


class _Layouts(Recipe):
    layouts: dict[str, _Layout]

    def problems(self) -> Iterator[tuple[str, str]]:
        for number in self.layouts:
            if not number.isdecimal() or str(int(number)) != number:
                yield (
                    f"layouts.{number}",
                    "name a layout by a number of processes, such as 8",
                )


def read_recipe(
    path: str | Path, overrides: Sequence[str] = (), num_processes: int = 1
) -> dict[str, Any]:
    """Read a recipe's table as a run of so many processes has it; overrides go above its layouts.

    Raises:
        ConfigError: the file is absent or not TOML, a layout holds what none may, or an override
            does not fit.
    """
    table = read_table(path)
    layouts = table.pop("layouts", {})
    _Layouts.from_table({"layouts": layouts}, str(path))
    return with_overrides(_laid_out(table, layouts, num_processes), overrides)


def _laid_out(
    table: Mapping[str, Any], layouts: Mapping[str, Mapping[str, Any]], num_processes: int
) -> dict[str, Any]:
    """Return a table with the layout of the most processes that are not more than these."""
    fitting = [int(number) for number in layouts if int(number) <= num_processes]
    chosen = layouts[str(max(fitting))] if fitting else {}
    return {**table, **{name: _above(table.get(name, {}), part) for name, part in chosen.items()}}


def _above(settings: Any, part: Mapping[str, Any]) -> Any:
    return {**settings, **part} if isinstance(settings, Mapping) else settings
