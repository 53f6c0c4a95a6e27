"""Labelled examples; assign them to splits, and find sequences that leak between splits.

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
from carbon.genome import Variant, reverse_complement
from carbon.genome.kmers import UInt64s, canonical_kmers

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
}
"""The function of each of `SPLIT_RULES`."""


K = 31
_MOST_KMERS = 20_000_000  # in memory; of more, a sample by hash

Flags = NDArray[np.bool_]


class Leak(NamedTuple):
    """Examples of one split that also occur in other splits.

    Each example counts once, however many splits have it: it is compared with all others together.

    Attributes:
        split: whose examples are counted.
        num_equal: examples that another split has, on either strand.
        num_near: further examples whose share of 31-mers occurs in the other splits.
        of: number of examples in the split.
        by_split: for each other split with any, the number that it has by itself.
        example: the name of one of them.
    """

    split: str
    num_equal: int
    num_near: int
    of: int
    by_split: dict[str, int]
    example: str

    @property
    def num(self) -> int:
        """Examples that are equal or nearly equal."""
        return self.num_equal + self.num_near

    def to_text(self) -> str:
        """Return a sentence."""
        where = "".join(f"{number} in {other}, " for other, number in self.by_split.items())
        return (
            f"{self.num} of {self.of} sequences of {self.split} also occur in another split "
            f"({self.num_equal} equal, {self.num_near} nearly; {where}such as '{self.example}')."
        )


def canonical(sequence: str) -> str:
    """Return the smaller of a sequence and its reverse complement, in upper case."""
    sequence = sequence.upper()
    return min(sequence, reverse_complement(sequence))


class _Index:
    """Sequences as integers: one for the whole sequence, and one for each of its 31-mers."""

    def __init__(self, sequences: Sequence[str]) -> None:
        forms = [canonical(sequence) for sequence in sequences]
        self.whole = np.unique(np.asarray(forms, dtype=object), return_inverse=True)[1]
        scale = 1 + sum(map(len, forms)) // _MOST_KMERS
        kmers = [_sampled(np.unique(canonical_kmers(form, K)), scale) for form in forms]
        self.sizes = np.array([len(each) for each in kmers], dtype=np.int64)
        self.owners = np.repeat(np.arange(len(forms)), self.sizes)
        joined = np.concatenate([np.zeros(0, dtype=np.uint64), *kmers])
        self.kmers = np.unique(joined, return_inverse=True)[1]

    def flagged(self, selected: Flags, others: Flags, share: float) -> tuple[Flags, Flags]:
        """Return which selected sequences equal one of `others`, and which others nearly do."""
        equal = selected & np.isin(self.whole, self.whole[others])
        in_others = np.zeros(int(self.kmers.max(initial=-1)) + 1, dtype=bool)
        in_others[self.kmers[others[self.owners]]] = True
        shared = np.bincount(self.owners[in_others[self.kmers]], minlength=len(selected))
        near = selected & (self.sizes > 0) & (shared >= share * self.sizes) & ~equal
        return equal, near


def _sampled(kmers: UInt64s, scale: int) -> UInt64s:
    """Return the k-mers with one remainder of their hash, the same in every sequence."""
    if scale == 1:
        return kmers
    mixed = kmers * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    sampled: UInt64s = kmers[mixed % np.uint64(scale) == 0]
    return sampled


def find_leaks(examples: Examples, share: float) -> list[Leak]:
    """Return the leaks of each split, test first.

    Args:
        examples: with splits assigned.
        share: share of a sequence's 31-mers that makes it a near duplicate.
    """
    return _leaks(examples, _Index(examples.sequences), share)


def _leaks(examples: Examples, index: _Index, share: float) -> list[Leak]:
    members = _members(examples)
    leaks = []
    for split in reversed(SPLITS):
        others = {other: members[other] for other in SPLITS if other != split}
        equal, near = index.flagged(members[split], np.logical_or.reduce([*others.values()]), share)
        if (either := np.flatnonzero(equal | near)).size:
            num_in = {
                other: int(np.logical_or(*index.flagged(members[split], flags, share)).sum())
                for other, flags in others.items()
            }
            leaks.append(
                Leak(
                    split=split,
                    num_equal=int(equal.sum()),
                    num_near=int(near.sum()),
                    of=int(members[split].sum()),
                    by_split={other: number for other, number in num_in.items() if number},
                    example=min(examples.names[i] for i in either),
                )
            )
    return leaks


def _members(examples: Examples) -> dict[str, Flags]:
    splits = np.asarray(examples.splits, dtype=str)
    return {split: splits == split for split in SPLITS}


class LeakResult(NamedTuple):
    """Examples after a leak rule.

    Attributes:
        examples: the remaining examples.
        notes: sentences for the report.
        leaks: leaks that remain.
    """

    examples: Examples
    notes: list[str]
    leaks: list[Leak]


def _report(examples: Examples, share: float) -> LeakResult:
    leaks = find_leaks(examples, share)
    return LeakResult(examples, [leak.to_text() for leak in leaks], leaks)


def _refuse(examples: Examples, share: float) -> LeakResult:
    if leaks := find_leaks(examples, share):
        raise UserError(
            f'data: {leaks[0].to_text()} Split by group, or set data.leaks = "drop" or "report"'
        )
    return LeakResult(examples, [], [])


def _drop(examples: Examples, share: float) -> LeakResult:
    """Remove from train what occurs in validation or test, and from validation what occurs in test.

    A sequence whose 31-mers still occur elsewhere, such as a short test sequence within a long one
    of train, is removed itself.
    """
    index, members = _Index(examples.sequences), _members(examples)
    remaining = dict(members)

    def remove(split: str, others: Flags) -> None:
        equal, near = index.flagged(remaining[split], others, share)
        remaining[split] = remaining[split] & ~(equal | near)

    remove("train", remaining["validation"] | remaining["test"])
    remove("validation", remaining["test"])
    for split in reversed(SPLITS):
        remove(
            split, np.logical_or.reduce([remaining[other] for other in SPLITS if other != split])
        )
    notes = [
        f"{int(removed)} of {int(members[split].sum())} sequences of {split} also occur in another "
        "split and are removed."
        for split in SPLITS
        if (removed := members[split].sum() - remaining[split].sum())
    ]
    subset = examples.subset(np.flatnonzero(np.logical_or.reduce(list(remaining.values()))))
    return LeakResult(subset, notes, [])


LEAK_RULES: dict[str, Callable[[Examples, float], LeakResult]] = {
    "report": _report,
    "refuse": _refuse,
    "drop": _drop,
}
"""The function of each of `LEAKS`: from examples and a share of 31-mers."""
