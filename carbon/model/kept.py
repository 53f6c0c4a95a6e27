"""Keys and values that a network keeps, by the name that its release of transformers has for them.

`past_key_values` is `cache` since transformers 5.24; code of a model on a hub may have either.
"""

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any


def keeping(network: Any, kept: Any = None) -> dict[str, Any]:
    """Return arguments by which a network keeps keys and values, behind those that are kept."""
    return {_name_in(type(network).forward): kept, "use_cache": True}


@lru_cache
def _name_in(forward: Callable[..., Any]) -> str:
    return "cache" if "cache" in signature(forward).parameters else "past_key_values"


def kept_in(output: Any) -> Any:
    """Return the keys and values of an output, None if there are none."""
    kept = getattr(output, "cache", None)
    return getattr(output, "past_key_values", None) if kept is None else kept
