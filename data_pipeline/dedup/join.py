"""Links between records with similar sketches, band by band.

Records that agree in a band form a group. Inside a group, in the order of lengths, each record is
compared with the WINDOW records before it: they are linked if their lengths and sketches allow
the identity of the recipe. Two records that links connect already are not compared.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_pipeline.dedup.components import LINKS, connect, roots_of
from data_pipeline.dedup.rows import Ids, Rows, save
from data_pipeline.dedup.sketch import NUM_BANDS, Lengths, most_edits, similar

WINDOW = 64
_RECORDS_AT_ONCE = 1 << 25  # of a band, in memory
_PAIRS_AT_ONCE = 1 << 14
_MIXER = np.uint64(0x9E3779B97F4A7C15)


def join_bands(work: Path, identity: float, rank: int) -> None:
    """Write the links of the bands of task `rank`: pairs of rows, (n, 2)."""
    rows = Rows(work)
    path = rows.folder / LINKS / f"{rank:03d}.npy"
    num_tasks = rows.num_tasks(NUM_BANDS)
    if rank >= num_tasks or path.exists():
        return
    stays = rows.stays()
    num_passes = -(-int(np.count_nonzero(stays)) // _RECORDS_AT_ONCE)
    found = [np.zeros((0, 2), dtype=np.int64)]
    for band in range(rank, NUM_BANDS, num_tasks):
        for part in range(num_passes):
            groups, lengths_bp, ids = _grouped(rows, band, stays, part, num_passes)
            found += _links(rows, identity, groups, lengths_bp, ids)
    save(path, np.concatenate(found))


def _grouped(
    rows: Rows, band: int, stays: NDArray[np.bool_], part: int, num_passes: int
) -> tuple[NDArray[np.uint64], Lengths, Ids]:
    """Return band, length and row of records that share the band, sorted: (n,) each."""
    keys, lengths_bp, ids = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, int)]
    for column in rows.columns:
        mine = stays[column.first : column.first + column.size]
        if not mine.any():
            continue
        band_keys = column.band(band)
        parts = (band_keys * _MIXER >> np.uint64(32)) % np.uint64(num_passes)
        inside = np.flatnonzero(mine & (parts == part))
        keys.append(band_keys[inside])
        lengths_bp.append(column.facts()["length_bp"][inside].astype(np.int64))
        ids.append(inside + column.first)
    key, length_bp, row = (np.concatenate(each) for each in (keys, lengths_bp, ids))
    order = np.argsort(key, kind="stable")
    as_before = np.zeros(len(order) + 1, dtype=bool)
    as_before[1:-1] = key[order[1:]] == key[order[:-1]]
    shared = order[as_before[1:] | as_before[:-1]]
    shared = shared[np.lexsort((row[shared], length_bp[shared], key[shared]))]
    return key[shared], length_bp[shared], row[shared]


def _links(
    rows: Rows, identity: float, groups: NDArray[np.uint64], lengths_bp: Lengths, ids: Ids
) -> Iterator[Ids]:
    """Yield pairs of rows that link the similar records of groups."""
    labels = np.arange(len(ids))
    edits = most_edits(lengths_bp, identity)
    for distance in range(1, WINDOW + 1):
        later = distance + np.flatnonzero(groups[distance:] == groups[:-distance])
        if not len(later):
            return
        near = lengths_bp[later] - lengths_bp[later - distance] <= edits[later]
        pairs = np.stack([later - distance, later], axis=1)[near]
        roots = roots_of(labels, pairs)
        pairs = pairs[roots[:, 0] != roots[:, 1]]
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            part = pairs[start : start + _PAIRS_AT_ONCE]
            part = part[similar(rows.sketches(ids[part[:, 0]]), rows.sketches(ids[part[:, 1]]))]
            connect(labels, part)
            yield ids[part]
