"""Sequences that models will be measured on, which no record may nearly contain or lie in."""

from collections.abc import Iterable

import numpy as np

from carbon.errors import UserError
from carbon.genome.kmers import canonical_kmers

EVALUATION_K = 31


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
