"""Labelled examples, and the assignment to splits.

A hash of a seed and a name assigns an example, so its split does not depend on the order of rows or
on examples added later. With folds, every example is tested once.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import SPLITS, SplitConfig
from carbon.genome import Variant

MIN_GROUPS = 10
"""Below this number of groups, a bootstrap over groups is unreliable."""

Labels = NDArray[np.float32]

SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "eval"),
    "test": ("test", "testing"),
}
"""Values of a split column that are recognised, in any case, if the recipe names none."""

Where = Callable[[int], str]


Alleles = tuple[str, str]
"""Windows with REF and with ALT."""
Input = str | Alleles
"""What a model reads for an example: a sequence, or both alleles of a variant."""


def sequences_of(item: Input) -> tuple[str, ...]:
    """Return the sequence of an input, or its windows with REF and with ALT."""
    return (item,) if isinstance(item, str) else tuple(item)


def input_bp(item: Input) -> int:
    """Return the bases of an input's longest sequence."""
    return max(map(len, sequences_of(item)))


class LabelledVariant(NamedTuple):
    """A variant of a labelled VCF.

    Attributes:
        variant: as written in the VCF, with the contig's name in the reference.
        ref_window: window with REF; empty if the model reads ALT alone.
        consequence: value of `data.consequence`, if any.
        delta: zero-shot delta of the base model in nats; NaN until it is computed.
    """

    variant: Variant
    ref_window: str = ""
    consequence: str = ""
    delta: float = float("nan")


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled sequences.

    Attributes:
        names: (examples,) unique.
        sequences: (examples,) upper-case IUPAC letters, at least one each.
        labels: (rows, columns) in the unit of the file, NaN where unknown. A row is an example, or,
            if `per_base`, a base: all bases of all examples in order. Of classes there is one
            column with the class index (0 or 1 for two classes); otherwise a column for each label
            or number.
        splits: (examples,) names of `SPLITS`.
        groups: (examples,) contig or group of each, "" if none; a bootstrap draws groups whole.
        per_base: whether every base has a label.
        variants: (examples,) variants of a VCF, whose windows with ALT are `sequences`; else empty.
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    labels: Labels
    splits: tuple[str, ...]
    groups: tuple[str, ...]
    per_base: bool = False
    variants: tuple[LabelledVariant, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if the columns differ in length."""
        num_rows = int(self.starts[-1])
        lengths = {len(self.names), len(self.sequences), len(self.splits), len(self.groups)}
        if self.variants:
            lengths.add(len(self.variants))
        if len(lengths) != 1 or self.labels.ndim != 2 or len(self.labels) != num_rows:
            raise ValueError(f"{lengths} examples, {self.labels.shape} labels, {num_rows} rows")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each example, followed by the number of all rows."""
        sizes = map(len, self.sequences) if self.per_base else (1 for _ in self.sequences)
        return np.cumsum([0, *sizes], dtype=np.int64)

    def rows_of(self, example: int) -> slice:
        """Return the rows of `labels` that belong to an example."""
        return slice(int(self.starts[example]), int(self.starts[example + 1]))

    @property
    def inputs(self) -> Sequence[Input]:
        """Return what the model reads for each example."""
        pairs = zip(self.variants, self.sequences, strict=False)
        two = [(each.ref_window, alt) for each, alt in pairs if each.ref_window]
        return two or self.sequences

    @property
    def drawn_together(self) -> str:
        """Return what a bootstrap draws whole: `groups` of examples, or `examples`."""
        return "groups" if MIN_GROUPS <= len(set(self.groups)) < len(self) else "examples"

    @property
    def row_groups(self) -> tuple[str, ...]:
        """Return, for each row, the unit that a bootstrap draws: its group, or else its example.

        With fewer than `MIN_GROUPS` groups, such as the two chromosomes of a test split, examples
        are drawn, all bases of one together.
        """
        units = self.groups if len(set(self.groups)) >= MIN_GROUPS else self.names
        return tuple(np.repeat(np.asarray(units, dtype=object), np.diff(self.starts)).tolist())

    def subset(self, which: Iterable[int]) -> "Examples":
        """Return the examples with these numbers, in the order given."""
        which = [int(i) for i in which]
        rows = [np.arange(self.starts[i], self.starts[i + 1]) for i in which]
        return Examples(
            names=tuple(self.names[i] for i in which),
            sequences=tuple(self.sequences[i] for i in which),
            labels=self.labels[np.concatenate([np.zeros(0, dtype=np.int64), *rows])],
            splits=tuple(self.splits[i] for i in which),
            groups=tuple(self.groups[i] for i in which),
            per_base=self.per_base,
            variants=tuple(self.variants[i] for i in which) if self.variants else (),
        )

    def split(self, name: str) -> "Examples":
        """Return the examples of a split, in their order.

        Raises:
            UserError: `name` is not a split.
        """
        if name not in SPLITS:
            raise UserError(f"split '{name}': give one of {', '.join(SPLITS)}")
        return self.subset(i for i, split in enumerate(self.splits) if split == name)


def assign_splits(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> tuple[str, ...]:
    """Return the split of each example.

    Args:
        keys: text to hash for each example: its name, or its sequence.
        values: values of the column, contigs or groups; unused if `by` is `random`.
        config: the rule.
        where: maps an example to its location for messages.

    Raises:
        UserError: the column has an unknown value, or a split is empty.
    """
    splits = RULES[config.by](keys, values, config, where)
    if config.by in ("files", "column") and "validation" not in splits:
        splits = _validation_of_train(keys, splits, config)
    counts = Counter(splits)
    for split in SPLITS:
        if not counts[split]:
            raise UserError(
                f"data.split: {split} is empty ({len(splits)} examples, by = "
                f"'{config.by}'); give larger shares, or other names"
            )
    return tuple(splits)


def hashed(text: str, seed: int) -> float:
    """Return a number from 0 to 1 that depends on a text and a seed only."""
    digest = hashlib.blake2b(f"{seed}\t{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _by_column(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> list[str]:
    named = {"validation": config.validation, "test": config.test}
    if not any(named.values()):
        split_of = {word: split for split, words in SPLIT_WORDS.items() for word in words}
        splits = [split_of.get(value.strip().lower(), "") for value in values]
    else:
        splits = [_named(value, named) for value in values]
    if "" in splits:
        row = splits.index("")
        raise UserError(
            f"{where(row)}: '{values[row]}' in column '{config.column}' is not a split; name its "
            "values in data.split.validation and data.split.test"
        )
    return splits


def _named(value: str, named: dict[str, tuple[str, ...]]) -> str:
    return next((split for split, words in named.items() if value in words), "train")


def _validation_of_train(keys: Sequence[str], splits: list[str], config: SplitConfig) -> list[str]:
    """Take the validation split out of train if the data have none."""
    return [
        "validation"
        if split == "train" and hashed(key, config.seed) < config.validation_share
        else split
        for key, split in zip(keys, splits, strict=True)
    ]


def _grouped(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> list[str]:
    """Assign whole groups by name, or else by their hashes."""
    if "" in values:
        raise UserError(f"{where(list(values).index(''))}: has no group or contig; give it one")
    named = {"validation": config.validation, "test": config.test}
    for split, words in named.items():
        if missing := sorted(set(words) - set(values)):
            raise UserError(
                f"data.split.{split}: '{missing[0]}' is in no row; rows have "
                f"{', '.join(sorted(set(values))[:8])}"
            )
    if any(named.values()):
        splits = [_named(value, named) for value in values]
        return splits if config.validation else _validation_by_group(values, splits, config)
    place = _dealt(Counter(values), _shares(config), config.seed)
    return [_split_at(place[value], config) for value in values]


def _validation_by_group(
    values: Sequence[str], splits: list[str], config: SplitConfig
) -> list[str]:
    """Take whole groups out of train for validation if only test groups are named."""
    sizes = Counter(value for value, split in zip(values, splits, strict=True) if split == "train")
    share = config.validation_share
    place = _dealt(sizes, [1 - share, share], config.seed)
    return [
        "validation" if split == "train" and place[value] else split
        for value, split in zip(values, splits, strict=True)
    ]


def _hashed(
    keys: Sequence[str], values: Sequence[str], config: SplitConfig, where: Where
) -> list[str]:
    ends = np.cumsum(_shares(config))
    places = [int(np.searchsorted(ends[:-1], hashed(key, config.seed), "right")) for key in keys]
    return [_split_at(place, config) for place in places]


def _shares(config: SplitConfig) -> list[float]:
    """Return the share of each fold, or of each split in order."""
    if config.folds:
        return [1 / config.folds] * config.folds
    test, validation = config.test_share, config.validation_share
    return [1 - validation - test, validation, test]


def _split_at(place: int, config: SplitConfig) -> str:
    if not config.folds:
        return SPLITS[place]
    distance = (place - config.fold) % config.folds
    return {0: "test", 1: "validation"}.get(distance, "train")


def _dealt(sizes: Counter[str], shares: Sequence[float], seed: int) -> dict[str, int]:
    """Return each group's place: in the order of hashes, where most examples are missing."""
    lacking = np.array(shares) * sum(sizes.values())
    places = {}
    for group in sorted(sizes, key=lambda group: (hashed(group, seed), group)):
        places[group] = int(np.argmax(lacking))
        lacking[places[group]] -= sizes[group]
    return places


Rule = Callable[[Sequence[str], Sequence[str], SplitConfig, Where], list[str]]

RULES: dict[str, Rule] = {
    "files": _by_column,
    "column": _by_column,
    "contig": _grouped,
    "group": _grouped,
    "random": _hashed,
    "homology": _grouped,
}
"""The function of each of `SPLIT_RULES`."""
