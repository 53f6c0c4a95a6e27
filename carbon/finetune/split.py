"""Which example is for which part: by what is said of it, or by hashes that no order changes.

A hash is of a seed and a name. So rows may be sorted, and others added, and an example stays where
it was; with folds, every example is tested once.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import SplitConfig
from carbon.finetune.data import PARTS, Examples
from carbon.genome import reverse_complement
from carbon.genome.kmers import UInt64s, canonical_kmers

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


K = 31
_MOST_KMERS = 20_000_000  # in memory; of more, those whose hash is of some remainder

Flags = NDArray[np.bool_]


class Leak(NamedTuple):
    """Examples of a part that the other parts have too.

    An example counts once, however many parts have it: it is compared with all of them together.

    Attributes:
        part: whose examples are counted.
        num_equal: that another part has as they are, or as their reverse complement.
        num_near: that are not equal to one, and whose share of 31-mers the other parts have.
        of: examples of the part.
        by_part: of each other part that has any, how many it has by itself.
        example: the name of one of them.
    """

    part: str
    num_equal: int
    num_near: int
    of: int
    by_part: dict[str, int]
    example: str

    @property
    def num(self) -> int:
        """Examples that are equal or nearly equal."""
        return self.num_equal + self.num_near

    def to_text(self) -> str:
        """Write as a sentence."""
        where = "".join(f"{number} in {other}, " for other, number in self.by_part.items())
        return (
            f"{self.num} of {self.of} sequences of {self.part} stand in another part too "
            f"({self.num_equal} equal, {self.num_near} nearly; {where}such as '{self.example}')."
        )


def canonical(sequence: str) -> str:
    """Return the smaller of a sequence and its reverse complement, in upper case."""
    sequence = sequence.upper()
    return min(sequence, reverse_complement(sequence))


class _Index:
    """Sequences as numbers: one of the whole, and those of their 31-mers."""

    def __init__(self, sequences: Sequence[str]) -> None:
        forms = [canonical(sequence) for sequence in sequences]
        self.whole = np.unique(np.asarray(forms, dtype=object), return_inverse=True)[1]
        scale = 1 + sum(map(len, forms)) // _MOST_KMERS
        kmers = [_sampled(np.unique(canonical_kmers(form, K)), scale) for form in forms]
        self.sizes = np.array([len(each) for each in kmers], dtype=np.int64)
        self.owners = np.repeat(np.arange(len(forms)), self.sizes)
        joined = np.concatenate([np.zeros(0, dtype=np.uint64), *kmers])
        self.kmers = np.unique(joined, return_inverse=True)[1]

    def flagged(self, mine: Flags, theirs: Flags, share: float) -> tuple[Flags, Flags]:
        """Return which of mine are equal to one of theirs, and which others nearly are."""
        equal = mine & np.isin(self.whole, self.whole[theirs])
        there = np.zeros(int(self.kmers.max(initial=-1)) + 1, dtype=bool)
        there[self.kmers[theirs[self.owners]]] = True
        shared = np.bincount(self.owners[there[self.kmers]], minlength=len(mine))
        near = mine & (self.sizes > 0) & (shared >= share * self.sizes) & ~equal
        return equal, near


def _sampled(kmers: UInt64s, scale: int) -> UInt64s:
    """Return the k-mers of a remainder of their hash, the same ones in every sequence."""
    if scale == 1:
        return kmers
    mixed = kmers * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    found: UInt64s = kmers[mixed % np.uint64(scale) == 0]
    return found


def find_leaks(examples: Examples, share: float) -> list[Leak]:
    """Return what of each part stands in the others, most measured parts first.

    Args:
        examples: in parts.
        share: of a sequence's 31-mers that make it nearly another part's.
    """
    return _leaks(examples, _Index(examples.sequences), share)


def _leaks(examples: Examples, index: _Index, share: float) -> list[Leak]:
    of_part = _members(examples)
    leaks = []
    for part in reversed(PARTS):
        others = {other: of_part[other] for other in PARTS if other != part}
        equal, near = index.flagged(of_part[part], np.logical_or.reduce([*others.values()]), share)
        if (either := np.flatnonzero(equal | near)).size:
            alone = {
                other: int(np.logical_or(*index.flagged(of_part[part], theirs, share)).sum())
                for other, theirs in others.items()
            }
            leaks.append(
                Leak(
                    part=part,
                    num_equal=int(equal.sum()),
                    num_near=int(near.sum()),
                    of=int(of_part[part].sum()),
                    by_part={other: number for other, number in alone.items() if number},
                    example=min(examples.names[i] for i in either),
                )
            )
    return leaks


def _members(examples: Examples) -> dict[str, Flags]:
    parts = np.asarray(examples.parts, dtype=str)
    return {part: parts == part for part in PARTS}


class Screened(NamedTuple):
    """What a rule makes of leaks.

    Attributes:
        examples: that are kept.
        told: whole sentences.
        leaks: that are still there.
    """

    examples: Examples
    told: list[str]
    leaks: list[Leak]


def _told(examples: Examples, share: float) -> Screened:
    leaks = find_leaks(examples, share)
    return Screened(examples, [leak.to_text() for leak in leaks], leaks)


def _refused(examples: Examples, share: float) -> Screened:
    if leaks := find_leaks(examples, share):
        raise UserError(
            f'data: {leaks[0].to_text()} Split by group, or set data.leaks = "drop" or "tell"'
        )
    return Screened(examples, [], [])


def _dropped(examples: Examples, share: float) -> Screened:
    """Leave out of train what stands in validation or test, of validation what stands in test.

    What still has its share elsewhere then, as a short sequence of test within a long one of train,
    goes itself.
    """
    index, of_part = _Index(examples.sequences), _members(examples)
    kept = dict(of_part)

    def leave_out(part: str, others: Flags) -> None:
        equal, near = index.flagged(kept[part], others, share)
        kept[part] = kept[part] & ~(equal | near)

    leave_out("train", kept["validation"] | kept["test"])
    leave_out("validation", kept["test"])
    for part in reversed(PARTS):
        leave_out(part, np.logical_or.reduce([kept[other] for other in PARTS if other != part]))
    told = [
        f"{int(gone)} of {int(of_part[part].sum())} sequences of {part} stand in another part and "
        "are left out."
        for part in PARTS
        if (gone := of_part[part].sum() - kept[part].sum())
    ]
    taken = examples.taken(np.flatnonzero(np.logical_or.reduce(list(kept.values()))))
    return Screened(taken, told, [])


LEAK_RULES: dict[str, Callable[[Examples, float], Screened]] = {
    "tell": _told,
    "refuse": _refused,
    "drop": _dropped,
}
"""Of each of `LEAKS`: from examples and a share of 31-mers."""
