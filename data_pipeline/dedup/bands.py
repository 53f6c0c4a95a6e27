"""Which records share a part of their sketches, found on disk: memory does not hold the sketches.

A band is a few hashes of a sketch; records that have all hashes of a band in common are a group of
that band, and may be alike. Three things are done in turn, each of them file by file:

    Bands     the hashes of all records, a file a band
    groups    band by band, sorted: each record's groups of two or more, in files of some ranks
    replay    rank by rank: a record goes because of one before it that stays, or it stays

A rank is a record's place in the order in which it is decided. What stays is told to the later
members of its groups: within a file in memory, beyond it by a message to the file where the next
member stands. So memory holds the groups of one file of ranks, however many records there are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RANKS_A_FILE = 8192
_NO_RANK = 2**32 - 1
_MEMBER = np.dtype([("rank", "<u4"), ("next", "<u4"), ("group", "<u8")])
_MESSAGE = np.dtype([("group", "<u8"), ("rank", "<u4")])

Ranks = NDArray[np.uint32]
# Whether a rank stays beside those that stay and share a band with it.
Decide = Callable[[int, set[int]], bool]


class Bands:
    """A folder of the sketches of all records, a file a band."""

    def __init__(self, folder: Path, bands: int) -> None:
        self._folder, self.num_bands = folder, bands
        folder.mkdir(parents=True)

    def fill(self, sketches: Iterator[NDArray[np.uint64]]) -> None:
        """Write sketches, of shape (records, bands): 64 bits a band."""
        files = [self._path(band).open("wb") for band in range(self.num_bands)]
        try:
            for some in sketches:
                for band, file in enumerate(files):
                    file.write(some[:, band].tobytes())
        finally:
            for file in files:
                file.close()

    def keys(self, band: int) -> NDArray[np.uint64]:
        """Return the hashes of a band, of all records as they came."""
        return np.fromfile(self._path(band), dtype=np.uint64)

    def _path(self, band: int) -> Path:
        return self._folder / f"{band:03d}"


class Groups:
    """A folder of the members of all groups, in files of RANKS_A_FILE ranks, with their messages.

    Attributes:
        largest: members of the largest group.
    """

    def __init__(self, folder: Path, bands: Bands, order: Ranks) -> None:
        """Sort the bands one after another; `order` is the record of each rank."""
        self._folder = folder
        self._files = -(-len(order) // RANKS_A_FILE)
        self.largest = 0
        folder.mkdir(parents=True)
        num_groups = 0
        for band in range(bands.num_bands):
            members, largest = _members(bands.keys(band)[order], num_groups)
            num_groups = int(members["group"][-1]) + 1 if len(members) else num_groups
            self.largest = max(self.largest, largest)
            members = members[np.argsort(members["rank"], kind="stable")]
            self._append(members, members["rank"], "members")

    def replay(self, decide: Decide, is_needed: Callable[[int, int], bool]) -> None:
        """Let `decide` say of each rank that is in a group, from the first, whether it stays.

        `is_needed(kept, rank)` tells whether one that stays can matter to `rank` or a later one.
        """
        for number in range(self._files):
            members = self._take(number, "members", _MEMBER)
            kept: dict[int, list[int]] = defaultdict(list)
            for group, rank in self._take(number, "messages", _MESSAGE).tolist():
                kept[group].append(rank)
            for rank, groups in _by_rank(members[np.argsort(members["rank"], kind="stable")]):
                found = {other for group in groups for other in kept.get(group, ())}
                if decide(rank, found):
                    for group in groups:
                        kept[group].append(rank)
            ahead = members[members["next"] // RANKS_A_FILE > number]
            self._tell_later(ahead[ahead["next"] < _NO_RANK], kept, is_needed)

    def _tell_later(
        self,
        ahead: NDArray[np.void],
        kept: dict[int, list[int]],
        is_needed: Callable[[int, int], bool],
    ) -> None:
        ahead = ahead[np.argsort(ahead["next"], kind="stable")]
        told: list[int] = []
        counts = []
        for later, group in zip(ahead["next"].tolist(), ahead["group"].tolist(), strict=True):
            ranks = [rank for rank in kept.get(group, ()) if is_needed(rank, later)]
            told += ranks
            counts.append(len(ranks))
        messages = np.empty(len(told), dtype=_MESSAGE)
        messages["group"] = np.repeat(ahead["group"], counts)
        messages["rank"] = told
        self._append(messages, np.repeat(ahead["next"], counts), "messages")

    def _append(self, items: NDArray[np.void], ranks: Ranks, kind: str) -> None:
        """Put items into the files of their ranks, which rise."""
        numbers = ranks // RANKS_A_FILE
        firsts = np.flatnonzero(np.diff(numbers.astype(np.int64), prepend=-1)).tolist()
        for first, last in pairwise([*firsts, len(items)]):
            with self._path(int(numbers[first]), kind).open("ab") as file:
                file.write(items[first:last].tobytes())

    def _take(self, number: int, kind: str, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        path = self._path(number, kind)
        if not path.exists():
            return np.zeros(0, dtype=dtype)
        items = np.fromfile(path, dtype=dtype)
        path.unlink()
        return items

    def _path(self, number: int, kind: str) -> Path:
        return self._folder / f"{number:06d}.{kind}"


def _members(keys: NDArray[np.uint64], first_group: int) -> tuple[NDArray[np.void], int]:
    """Return the members of a band's groups of two or more, and the size of the largest.

    `keys` stand in the order of ranks.
    """
    ranks = np.argsort(keys, kind="stable").astype(np.uint32)
    keys = keys[ranks]
    as_before = np.zeros(len(keys) + 1, dtype=bool)
    as_before[1:-1] = keys[1:] == keys[:-1]
    as_next = as_before[1:]
    as_before = as_before[:-1]
    grouped = np.flatnonzero(as_before | as_next)
    members = np.empty(len(grouped), dtype=_MEMBER)
    members["rank"] = ranks[grouped]
    members["next"] = _NO_RANK
    goes_on = as_next[grouped]
    members["next"][goes_on] = ranks[grouped[goes_on] + 1]
    begins = ~as_before[grouped]
    members["group"] = np.cumsum(begins) + (first_group - 1)
    sizes = np.diff(np.flatnonzero(begins), append=len(grouped))
    return members, int(sizes.max(initial=0))


def _by_rank(members: NDArray[np.void]) -> Iterator[tuple[int, list[int]]]:
    """Yield each rank with its groups; members stand in the order of ranks."""
    ranks = members["rank"]
    firsts = np.flatnonzero(np.diff(ranks.astype(np.int64), prepend=-1)).tolist()
    groups = members["group"].tolist()
    for first, last in pairwise([*firsts, len(members)]):
        yield int(ranks[first]), groups[first:last]
