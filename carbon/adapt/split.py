"""Which example is for which part: by what is said of it, or by hashes that no order changes.

A hash is of a seed and a name. So rows may be sorted, and others added, and an example stays where
it was; with folds, every example is tested once.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from carbon.adapt.config import SplitConfig
from carbon.adapt.examples import PARTS
from carbon.errors import UserError

SAID = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "eval"),
    "test": ("test", "testing"),
}
"""What a column may say of a part, in any case, where a configuration does not name it."""

Where = Callable[[int], str]


def parts_of(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> tuple[str, ...]:
    """Return the part of each example.

    Args:
        keys: that are hashed, one an example: its name, or its sequence.
        values: of the column, the contigs or the groups; not read where `by` is `random`.
        config: how.
        where: what messages call an example.

    Raises:
        UserError: the column says something else, or a part is left empty.
    """
    parts = RULES[config.by](keys, values, config, where)
    if config.by in ("files", "column") and "validation" not in parts:
        parts = _validation_of_train(keys, parts, config)
    found = Counter(parts)
    for part in PARTS:
        if not found[part]:
            raise UserError(
                f"data.split: nothing is left for {part} of {len(parts)} examples (by = "
                f"'{config.by}'); give larger shares, or other names"
            )
    return tuple(parts)


def hashed(text: str, seed: int) -> float:
    """Return a number of 0 to 1 that follows from a text and a seed alone."""
    digest = hashlib.blake2b(f"{seed}\t{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _said(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> list[str]:
    named = {"validation": config.validation, "test": config.test}
    if not any(named.values()):
        of = {word: part for part, words in SAID.items() for word in words}
        parts = [of.get(value.strip().lower(), "") for value in values]
    else:
        parts = [_named(value, named) for value in values]
    if "" in parts:
        row = parts.index("")
        raise UserError(
            f"{where(row)}: '{values[row]}' in column '{config.column}' is no part; say what is "
            "with data.split.validation and data.split.test"
        )
    return parts


def _named(value: str, named: dict[str, tuple[str, ...]]) -> str:
    return next((part for part, words in named.items() if value in words), "train")


def _validation_of_train(keys: Sequence[str], parts: list[str], config: SplitConfig) -> list[str]:
    """Take the validation part out of train, where the data have none."""
    return [
        "validation"
        if part == "train" and hashed(key, config.seed) < config.validation_share
        else part
        for key, part in zip(keys, parts, strict=True)
    ]


def _grouped(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> list[str]:
    """Put whole groups where they are named, else deal them out by their hashes."""
    if "" in values:
        raise UserError(f"{where(list(values).index(''))}: has no group or contig; give it one")
    named = {"validation": config.validation, "test": config.test}
    for part, words in named.items():
        if missing := sorted(set(words) - set(values)):
            raise UserError(
                f"data.split.{part}: '{missing[0]}' is in no row; there are "
                f"{', '.join(sorted(set(values))[:8])}"
            )
    if any(named.values()):
        parts = [_named(value, named) for value in values]
        return parts if config.validation else _validation_by_group(values, parts, config)
    place = _dealt(Counter(values), _shares(config), config.seed)
    return [_part_at(place[value], config) for value in values]


def _validation_by_group(values: Sequence[str], parts: list[str], config: SplitConfig) -> list[str]:
    """Take whole groups out of train for validation, where test alone is named."""
    sizes = Counter(value for value, part in zip(values, parts, strict=True) if part == "train")
    share = config.validation_share
    place = _dealt(sizes, [1 - share, share], config.seed)
    return [
        "validation" if part == "train" and place[value] else part
        for value, part in zip(values, parts, strict=True)
    ]


def _hashed(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> list[str]:
    ends = np.cumsum(_shares(config))
    places = [int(np.searchsorted(ends[:-1], hashed(key, config.seed), "right")) for key in keys]
    return [_part_at(place, config) for place in places]


def _shares(config: SplitConfig) -> list[float]:
    """Return the share of each place: of the folds, or of the parts in their order."""
    if config.folds:
        return [1 / config.folds] * config.folds
    test, validation = config.test_share, config.validation_share
    return [1 - validation - test, validation, test]


def _part_at(place: int, config: SplitConfig) -> str:
    if not config.folds:
        return PARTS[place]
    behind = (place - config.fold) % config.folds
    return {0: "test", 1: "validation"}.get(behind, "train")


def _dealt(sizes: Counter[str], shares: Sequence[float], seed: int) -> dict[str, int]:
    """Return the place of each group: in the order of hashes, where most is lacking."""
    lacking = np.array(shares) * sum(sizes.values())
    places = {}
    for group in sorted(sizes, key=lambda group: (hashed(group, seed), group)):
        places[group] = int(np.argmax(lacking))
        lacking[places[group]] -= sizes[group]
    return places


Rule = Callable[[Sequence[str], Sequence[str], SplitConfig, Where], list[str]]

RULES: dict[str, Rule] = {
    "files": _said,
    "column": _said,
    "contig": _grouped,
    "group": _grouped,
    "random": _hashed,
}
"""Of each of `SPLITS`."""
