"""What a checkpoint leaves unsaid: settings that were unknown when it was written."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from carbon.io.config import Recipe


def with_defaults(config: Recipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings of a checkpoint, and the default of every key that is absent there.

    So a key that has been added since changes nothing, as long as the run has its default.

    Args:
        config: of the run that goes on; its models say which keys there are.
        settings: by dotted names, such as `stages.0.tokens`, as JSON has them.
    """
    defaults: dict[str, Any] = json.loads(json.dumps(dict(_defaults(config, "", settings))))
    return defaults | dict(settings)


def _defaults(table: Recipe, prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield keys and defaults of a table and of those in it.

    Of an array of tables only those count that the settings have: a new stage is no new key.
    """
    for key, field in type(table).model_fields.items():
        name, value = f"{prefix}{key}", getattr(table, key)
        if isinstance(value, Recipe):
            yield from _defaults(value, f"{name}.", settings)
        elif isinstance(value, tuple) and value and isinstance(value[0], Recipe):
            for i, each in enumerate(value):
                if any(key.startswith(f"{name}.{i}.") for key in settings):
                    yield from _defaults(each, f"{name}.{i}.", settings)
        elif not (field.is_required() or field.default_factory):  # an empty table has no keys
            yield name, field.default
