"""Connected components of all links, and the share of each verifying task."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from carbon.io.files import atomic_folder
from data_pipeline.dedup.rows import Ids, Rows

LINKS, COMPONENTS = "links", "components"
VERIFY_TASKS = 128


def roots_of(labels: Ids, members: Ids) -> Ids:
    """Return the first member of the set of each of some members, of any shape.

    `labels` maps each member to one of its set that is not greater; paths are shortened.
    """
    result = labels[members]
    while True:
        above = labels[result]
        if np.array_equal(above, result):
            labels[members] = result
            return result
        result = above


def connect(labels: Ids, pairs: Ids) -> None:
    """Join the sets of both members of each pair, (n, 2)."""
    while len(pairs):
        pairs = roots_of(labels, pairs)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        labels[pairs.max(axis=1)] = pairs.min(axis=1)


def find_components(work: Path, rank: int = 0) -> None:
    """Write the components that may hold near-duplicates, a file per verifying task.

    A file has pairs of the component's first row and a row, (n, 2). The largest components are
    dealt out first.
    """
    del rank  # there is one task
    rows = Rows(work)
    folder = rows.folder / COMPONENTS
    if folder.exists():
        return
    labels = np.arange(rows.size)
    linked = np.zeros(rows.size, dtype=bool)
    for path in sorted((rows.folder / LINKS).glob("*.npy")):
        pairs = np.load(path)
        linked[pairs] = True
        connect(labels, pairs)
    members = np.flatnonzero(linked)
    firsts = roots_of(labels, members)
    order = np.argsort(firsts, kind="stable")
    members, firsts = members[order], firsts[order]
    starts = np.flatnonzero(np.diff(firsts, prepend=-1))
    useful = _has_comparable(rows, members, starts)
    bounds = list(pairwise([*starts.tolist(), len(members)]))
    chosen = [bound for bound, use in zip(bounds, useful, strict=True) if use]
    chosen.sort(key=lambda bound: (bound[0] - bound[1], bound[0]))
    num_tasks = rows.num_tasks(VERIFY_TASKS)
    with atomic_folder(folder) as whole:
        for task in range(num_tasks):
            parts = [np.arange(*bound) for bound in chosen[task::num_tasks]]
            mine = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
            np.save(whole / f"{task:03d}.npy", np.stack([firsts[mine], members[mine]], axis=1))


def _has_comparable(rows: Rows, members: Ids, starts: Ids) -> NDArray[np.bool_]:
    """Return which components have a record that may be removed for another: (components,)."""
    if not len(starts):
        return np.zeros(0, dtype=bool)
    facts, sources = rows.facts(members)
    held_out = np.add.reduceat(facts["held_out"].astype(np.int64), starts)
    sizes = np.diff(starts, append=len(members))
    has_both = (held_out > 0) & (held_out < sizes)
    components = np.repeat(np.arange(len(starts)), sizes)
    near = np.flatnonzero(rows.near_sources[sources])
    keys = components[near] * len(rows.sources) + sources[near]
    again, counts = np.unique(keys, return_counts=True)
    has_two = np.zeros(len(starts), dtype=bool)
    has_two[again[counts > 1] // len(rows.sources)] = True
    return has_both | has_two
