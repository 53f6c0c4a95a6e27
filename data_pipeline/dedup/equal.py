"""Equal records: the same bases on either strand, found by their digests."""

from pathlib import Path

import numpy as np

from data_pipeline.dedup.rows import DUPLICATE, EQUAL, LEAK, Rows, save_gone

EQUAL_TASKS = 16


def find_equal(work: Path, rank: int) -> None:
    """Write which records go because of an equal one, among the digests of task `rank`.

    Of the equal records of a source one stays: a held-out one, else the first in the recipe. A
    training record that equals a held-out one of any source goes.
    """
    rows = Rows(work)
    path = rows.folder / EQUAL / f"{rank:02d}.npy"
    num_tasks = rows.num_tasks(EQUAL_TASKS)
    if rank >= num_tasks or path.exists():
        return
    parts = [np.zeros((0, 4), dtype=np.uint64)]
    for column in rows.columns:
        facts = column.facts()
        inside = np.flatnonzero(facts["digest"] % np.uint64(num_tasks) == rank)
        part = np.empty((len(inside), 4), dtype=np.uint64)
        part[:, 0] = facts["digest"][inside]
        part[:, 1] = rows.sources.index(column.source)
        part[:, 2] = ~facts["held_out"][inside]
        part[:, 3] = inside + column.first
        parts.append(part)
    table = np.concatenate(parts)
    table = table[np.lexsort(table.T[::-1])]
    digests, sources, is_train, ids = table.T
    repeats = np.zeros(len(table), dtype=bool)
    repeats[1:] = (digests[1:] == digests[:-1]) & (sources[1:] == sources[:-1])
    leaks = np.isin(digests, digests[is_train == 0]) & (is_train == 1)
    gone = repeats | leaks
    reasons = np.where(leaks, LEAK, DUPLICATE).astype(np.uint8)
    nothing = np.full(np.count_nonzero(gone), -1)
    save_gone(path, ids[gone].astype(np.int64), nothing, reasons[gone])
