"""Records that nearly say the same: transcripts, and what is like a held-out record.

Near-duplicates are found in two steps. A MinHash over canonical 12-mers, in bands of two, offers
pairs: at 90 % identity two transcripts share a sixth of their 12-mers (Jaccard, from 0.9 ^ 12), and
128 bands then offer the pair with probability 0.97 (0.94 to 0.96 were measured); above, nearly
always. Every pair on offer is then aligned end to end (edlib), so that nothing goes on a guess.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import edlib
import numpy as np
from numpy.typing import NDArray

from carbon.genome import reverse_complement
from carbon.progress import say
from data_pipeline.dedup.bands import Bands, Groups
from data_pipeline.dedup.sketch import NUM_BANDS

_LARGE_GROUP = 100_000


class Candidates(NamedTuple):
    """Records that may be near-duplicates of one another; arrays have one item a record.

    Attributes:
        lengths_bp: of their sequences.
        held_out: whether they are.
        considered: those that take part; the others are gone already.
        sketches: in the order of the records, some at a time, of shape (some, 256).
        sequence: fetches the bases of one.
    """

    lengths_bp: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    considered: NDArray[np.bool_]
    sketches: Iterator[NDArray[np.uint32]]
    sequence: Callable[[int], str]


def near_duplicates(
    candidates: Candidates, identity: float, scratch: Path, *, leaks_only: bool = False
) -> NDArray[np.int64]:
    """Return for each record the one that it goes because of, which stays; or -1.

    Identity is one less the edit distance over the longer length, of either strand. What is held
    out stays before what is not, longer before shorter, earlier before later. With `leaks_only` a
    record to train on goes because of one that is held out, and no other goes. `scratch` is a
    folder to make and remove: 1 KiB a record, and 16 for each band that a record shares.
    """
    lengths_bp, held_out = candidates.lengths_bp, candidates.held_out
    order = np.flatnonzero(candidates.considered).astype(np.uint32)
    order = order[np.lexsort((-lengths_bp[order], ~held_out[order]))]
    because = np.full(len(lengths_bp), -1, dtype=np.int64)

    def decide(rank: int, found: set[int]) -> bool:
        record = int(order[rank])
        if leaks_only and held_out[record]:
            return True
        others = np.sort(order[np.fromiter(found, dtype=np.int64, count=len(found))])
        because[record] = _first_alike(candidates, record, others, identity)
        return bool(because[record] < 0) and not leaks_only

    def is_needed(kept: int, later: int) -> bool:
        # Behind one to train on there are none but shorter ones to train on.
        one, other = order[kept], order[later]
        longest = int(lengths_bp[one])
        return bool(held_out[one]) or longest - lengths_bp[other] <= _most_edits(longest, identity)

    with _scratch(scratch):
        bands = Bands(scratch / "bands", NUM_BANDS)
        bands.fill(some.view(np.uint64) for some in candidates.sketches)
        groups = Groups(scratch / "groups", bands, order)
        if groups.largest > _LARGE_GROUP:
            say(
                f"near-duplicates: {groups.largest:,} records share a part of their sketches; each "
                "is compared with all of them that stay, which may take long"
            )
        groups.replay(decide, is_needed)
    return because


@contextmanager
def _scratch(folder: Path) -> Iterator[None]:
    shutil.rmtree(folder, ignore_errors=True)  # of a step that was killed
    yield
    shutil.rmtree(folder)


def _first_alike(
    candidates: Candidates, record: int, others: NDArray[np.uint32], identity: float
) -> int:
    """Return the first of some records that a record is alike, or -1."""
    shorter_bp = np.minimum(candidates.lengths_bp[others], candidates.lengths_bp[record])
    longer_bp = np.maximum(candidates.lengths_bp[others], candidates.lengths_bp[record])
    near = longer_bp - shorter_bp <= _most_edits(longer_bp, identity)
    if not near.any():
        return -1
    mine = candidates.sequence(record).upper()
    forms = (mine, reverse_complement(mine))
    for other, length_bp in zip(others[near].tolist(), longer_bp[near].tolist(), strict=True):
        theirs, most = candidates.sequence(other).upper(), int(_most_edits(length_bp, identity))
        if any(edlib.align(f, theirs, task="distance", k=most)["editDistance"] >= 0 for f in forms):
            return int(other)
    return -1


def _most_edits(longer_bp: Any, identity: float) -> Any:
    """Return how many edits two records may be apart, from the longer length or an array of it."""
    return np.floor((1 - identity) * longer_bp + 1e-9)
