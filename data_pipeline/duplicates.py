"""Records that say the same: equal ones, transcripts that are nearly equal, evaluation sequences.

Near-duplicates are found in two steps. A MinHash over canonical 12-mers, in bands of two, offers
pairs: at 90 % identity two transcripts share a sixth of their 12-mers (Jaccard, from 0.9 ^ 12), and
128 bands then offer the pair with probability 0.97 (0.94 to 0.96 were measured); above, nearly
always. Every pair on offer is then aligned end to end (edlib), so that nothing goes on a guess.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import edlib
import numpy as np

from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.kmers import canonical_kmers

SKETCH_K = 12
EVALUATION_K = 31
_NUM_PERM = 256
_SCHEME = "affine32"  # datasketch's name for a * x + b modulo 2 ** 32
_FACTORS, _ADDENDS = np.random.default_rng(1).integers(2**32, size=(2, _NUM_PERM), dtype=np.uint32)
_FACTORS |= np.uint32(1)
_HASHED_AT_ONCE = 1024
_BANDS = (128, 2)  # how many, and hashes in each


def sketch_of(sequence: str) -> bytes:
    """Return the MinHash of a sequence's canonical 12-mers, 1,024 bytes."""
    kmers = canonical_kmers(sequence, SKETCH_K)
    # Codes that differ in their last bits must not stay near one another.
    mixed = (kmers * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)).astype(np.uint32)
    smallest = np.full(_NUM_PERM, 2**32 - 1, dtype=np.uint32)
    for at in range(0, len(mixed), _HASHED_AT_ONCE):
        hashes = mixed[at : at + _HASHED_AT_ONCE, None] * _FACTORS + _ADDENDS
        np.minimum(smallest, hashes.min(axis=0), out=smallest)
    return smallest.astype("<u4").tobytes()


class Candidate(NamedTuple):
    """A transcript that may be a near-duplicate; `sequence` fetches it when it is looked at."""

    length_bp: int
    held_out: bool
    sketch: bytes
    sequence: Callable[[], str]


def near_duplicates(candidates: list[Candidate], identity: float) -> Iterator[tuple[int, int]]:
    """Yield `(i, j)` where candidate i goes because j, which stays, is at least this much alike.

    Identity is one less the edit distance over the longer length, of either strand. What is held
    out stays before what is not, longer before shorter, earlier before later.
    """
    from datasketch import MinHash, MinHashLSH  # slow to import, and most builds end before

    order = sorted(
        range(len(candidates)), key=lambda i: (not candidates[i].held_out, -candidates[i].length_bp)
    )
    index = MinHashLSH(num_perm=_NUM_PERM, params=_BANDS)
    for i in order:
        mine = candidates[i]
        hashes = np.frombuffer(mine.sketch, dtype="<u4").astype(np.uint64)
        minhash = MinHash(num_perm=_NUM_PERM, seed=1, hashvalues=hashes, scheme=_SCHEME)
        found = sorted(int(j) for j in index.query(minhash))
        alike = next((j for j in found if _are_alike(mine, candidates[j], identity)), None)
        if alike is None:
            index.insert(i, minhash)
        else:
            yield i, alike


def _are_alike(one: Candidate, other: Candidate, identity: float) -> bool:
    shorter, longer = sorted((one.length_bp, other.length_bp))
    most_edits = int((1 - identity) * longer + 1e-9)
    if longer - shorter > most_edits:
        return False
    mine, theirs = one.sequence().upper(), other.sequence().upper()
    return any(
        edlib.align(form, theirs, task="distance", k=most_edits)["editDistance"] >= 0
        for form in (mine, reverse_complement(mine))
    )


class EvaluationSequences:
    """The 31-mers of sequences that models will be measured on."""

    def __init__(self, named: Iterable[tuple[str, str]], shared: float) -> None:
        """Index sequences.

        Raises:
            UserError: one has no 31 known bases in a row.
        """
        self._shared = shared
        self.names: list[str] = []
        kmers, owners, sizes = [], [], []
        for name, sequence in named:
            found = np.unique(canonical_kmers(sequence, EVALUATION_K))
            if not len(found):
                raise UserError(
                    f"evaluation sequence '{name}': has no {EVALUATION_K} known bases in a row; "
                    "leave it out, or give its place in a BED"
                )
            owners.append(np.full(len(found), len(self.names)))
            kmers.append(found)
            sizes.append(len(found))
            self.names.append(name)
        self._kmers = np.concatenate([np.zeros(0, dtype=np.uint64), *kmers])
        self._owners = np.concatenate([np.zeros(0, dtype=np.int64), *owners])
        self._needed = np.array(sizes) * shared
        order = np.argsort(self._kmers, kind="stable")
        self._kmers, self._owners = self._kmers[order], self._owners[order]

    def contained_in(self, sequence: str) -> str | None:
        """Return the name of an evaluation sequence that a record nearly contains or lies in.

        That is where one of the two has this share of the other's distinct 31-mers.
        """
        if not self.names:
            return None
        mine = np.unique(canonical_kmers(sequence, EVALUATION_K))
        first = np.searchsorted(self._kmers, mine, side="left")
        last = np.searchsorted(self._kmers, mine, side="right")
        hit = last > first
        if not hit.any():
            return None
        spans = zip(first[hit].tolist(), last[hit].tolist(), strict=True)
        owners = np.concatenate([self._owners[a:b] for a, b in spans])
        counts = np.bincount(owners, minlength=len(self.names))
        needed = np.minimum(self._needed, self._shared * len(mine))
        full = np.flatnonzero((counts > 0) & (counts >= needed))
        return self.names[full[0]] if len(full) else None
