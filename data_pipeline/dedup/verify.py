"""Which records of a component go: alignments of pairs whose sketches are similar.

At 90 % identity two transcripts share a sixth of their 12-mers (Jaccard, from 0.9 ^ 12), and one of
128 bands with probability 0.97. Every pair is then aligned end to end, on both strands.
"""

from itertools import pairwise
from pathlib import Path

import edlib
import numpy as np

from carbon.genome import reverse_complement
from data_pipeline.dedup.components import COMPONENTS, VERIFY_TASKS
from data_pipeline.dedup.rows import NEAR, NEAR_DUPLICATE, NEAR_LEAK, Ids, Rows, save_gone
from data_pipeline.dedup.sketch import most_edits, similar


def verify(work: Path, identity: float, rank: int) -> None:
    """Write which records of the components of task `rank` are removed, and for which record.

    Identity is one less the edit distance over the longer length, of either strand. Held-out
    records are decided first, then longer ones, then earlier ones. A record is removed for a record
    that stays: one of the same source if near-duplicates of it are removed, or a held-out record if
    it is a training record itself.
    """
    rows = Rows(work)
    path = rows.folder / NEAR / f"{rank:03d}.npy"
    if rank >= rows.num_tasks(VERIFY_TASKS) or path.exists():
        return
    firsts, members = np.load(rows.folder / COMPONENTS / f"{rank:03d}.npy").T
    starts = np.flatnonzero(np.diff(firsts, prepend=-1)).tolist()
    gone = [
        pair
        for first, last in pairwise([*starts, len(members)])
        for pair in _near_duplicates(rows, members[first:last], identity)
    ]
    ids, because = np.array(gone, dtype=np.int64).reshape(-1, 2).T
    leaks = rows.facts(because)[0]["held_out"] & ~rows.facts(ids)[0]["held_out"]
    save_gone(path, ids, because, np.where(leaks, NEAR_LEAK, NEAR_DUPLICATE).astype(np.uint8))


def _near_duplicates(rows: Rows, members: Ids, identity: float) -> list[tuple[int, int]]:
    """Return the records of a component that are removed, each with the record that stays."""
    facts, sources = rows.facts(members)
    lengths_bp, held_out = facts["length_bp"].astype(np.int64), facts["held_out"]
    is_near = rows.near_sources[sources]
    sketches = rows.sketches(members)
    stays = np.zeros(len(members), dtype=bool)
    result = []
    for i in np.lexsort((members, -lengths_bp, ~held_out)).tolist():
        comparable = (sources == sources[i]) & is_near[i] | (held_out & ~held_out[i])
        longer_bp = np.maximum(lengths_bp, lengths_bp[i])
        near = np.abs(lengths_bp - lengths_bp[i]) <= most_edits(longer_bp, identity)
        others = np.flatnonzero(stays & comparable & near)
        others = others[similar(sketches[others], sketches[i])]
        because = _first_alike(rows, int(members[i]), members[others], identity)
        stays[i] = because < 0
        if because >= 0:
            result.append((int(members[i]), because))
    return result


def _first_alike(rows: Rows, row: int, others: Ids, identity: float) -> int:
    """Return the first of some rows that a row is a near-duplicate of, or -1."""
    if not len(others):
        return -1
    bases = rows.text(row, "sequence").upper()
    forms = (bases, reverse_complement(bases))
    for other in others.tolist():
        target = rows.text(other, "sequence").upper()
        edits = int(most_edits(np.array(max(len(bases), len(target))), identity))
        if any(
            edlib.align(f, target, task="distance", k=edits)["editDistance"] >= 0 for f in forms
        ):
            return int(other)
    return -1
