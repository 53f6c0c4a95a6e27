"""One recipe for all processes of a launch, compared before they form a group."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from carbon.errors import UserError


def differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that two runs do not have alike."""
    return [name for name in sorted({*first, *other}) if first.get(name) != other.get(name)]


def other_recipe(
    whose: str, number: int, first: Mapping[str, Any], other: Mapping[str, Any]
) -> str:
    """Return how the recipe of a process or worker differs from the first one's, if it does."""
    if not (names := differing(first, other)):
        return ""
    return (
        f"{whose} {number}: has another recipe than {whose} 0: {names[0]} is "
        f"{other.get(names[0])}, and {first.get(names[0])} there; give all one recipe"
    )


def check_one_recipe(settings: Mapping[str, Any], timeout: timedelta) -> Store:
    """Compare the settings of a launch's processes in the store in which torchrun joins them.

    Returns:
        The store, which the first process may serve: keep it while the others use it.

    Raises:
        UserError: two processes differ, in one line on all.
    """
    joined: tuple[Store, int, int] = next(rendezvous("env://", timeout=timeout))
    whole, rank, world_size = joined
    store = PrefixStore("recipe", whole)
    if rank == 0:
        store.set("first", json.dumps(settings))
    first = json.loads(store.get("first"))
    store.set(f"of-{rank}", other_recipe("process", rank, first, settings) or "none")
    if rank == 0:
        of_all = [store.get(f"of-{number}").decode() for number in range(world_size)]
        store.set("refusal", next((each for each in of_all if each != "none"), "none"))
    refusal = store.get("refusal").decode()
    store.set(f"read-{rank}", "")
    if refusal == "none":
        return whole
    if rank == 0:
        store.wait([f"read-{number}" for number in range(world_size)])
    raise UserError(refusal)
