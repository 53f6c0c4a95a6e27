"""What stands in two parts, on either strand: equal sequences, and nearly equal ones.

A sequence is nearly another part's where a share of its 31-mers, of either strand, stands there; so
one that lies within a longer one is found, and one that another's window overlaps by half. What is
shorter than 31 bases is looked for as a whole alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.examples import PARTS, Examples
from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.kmers import UInt64s, canonical_kmers

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
