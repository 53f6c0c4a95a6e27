"""Recipes as files: settings, and layouts for numbers of processes.

A layout says what is otherwise where a run has so many processes or more, such as

    [layouts.64]
    parallel = { replicate = 8 }
    compute = { activation_checkpointing = "full" }
    data = { microbatch_tokens = 32_768 }

It holds nothing by which numbers change but by rounding, so a run goes on with any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from carbon.config import OneOf, check, from_table, read_table, with_overrides
from train.choices.computing import ACTIVATION_CHECKPOINTINGS
from train.config import ParallelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compute:
    activation_checkpointing: Annotated[str, OneOf(ACTIVATION_CHECKPOINTINGS)] = "none"
    compile: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Data:
    microbatch_tokens: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """The keys that a layout may have, by the tables of a recipe."""

    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    compute: _Compute = field(default_factory=_Compute)
    data: _Data = field(default_factory=_Data)


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
    _check_layouts(layouts, f"{path}: layouts")
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


def _check_layouts(layouts: Any, where: str) -> None:
    check(isinstance(layouts, Mapping), f"{where}: expected tables, got {layouts!r}")
    for number, layout in layouts.items():
        is_number = number.isdecimal() and str(int(number)) == number
        check(is_number, f"{where}.{number}: name a layout by a number of processes, such as 8")
        check(isinstance(layout, Mapping), f"{where}.{number}: expected a table, got {layout!r}")
        from_table(_Layout, layout, f"{where}.{number}")
