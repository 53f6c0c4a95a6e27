"""Fragments of the weights, which synchronise at different times (arXiv 2501.18512)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from carbon.errors import ConfigError
from train.diloco.rounds import RoundRecord, WorkerReport
from train.runs.record import Work


def fragments(sizes: Mapping[str, int], count: int) -> tuple[tuple[str, ...], ...]:
    """Divide tensors into fragments of about the same size, the same for any order of `sizes`.

    The largest goes first, each into the fragment that has least; the fullest has at most 4/3 of
    its load in the best division (Graham, SIAM J. Appl. Math. 17, 1969).

    Args:
        sizes: parameters by name.
        count: of fragments, 1 or more.

    Raises:
        ConfigError: there are fewer tensors than fragments.
    """
    if len(sizes) < count:
        raise ConfigError(
            f"workers.fragments = {count}: the weights are {len(sizes)} tensors, which are not "
            f"divided; give at most {len(sizes)}"
        )
    names: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = min(range(count), key=lambda i: (loads[i], len(names[i])))
        names[least].append(name)
        loads[least] += sizes[name]
    return tuple(map(tuple, names))


def fragments_of_round(round_: int, count: int, is_last: bool) -> tuple[int, ...]:
    """Return which fragments synchronise at the end of a round: one in turn, in the last all."""
    return tuple(range(count)) if is_last else (round_ % count,)


class UnsentWork:
    """Training by fragment of the weights, since each was last sent."""

    def __init__(self, num_fragments: int) -> None:
        """Begin with none."""
        self.works = [Work()] * num_fragments

    def add(self, work: Work) -> None:
        """Count a step, which changes all fragments."""
        self.works = [before + work for before in self.works]

    def take(self, fragments: Sequence[int]) -> Work:
        """Return the work of fragments that are sent, added up; from now on it is none."""
        taken = sum((self.works[number] for number in fragments), Work())
        for number in fragments:
            self.works[number] = Work()
        return taken

    def merge(self, record: RoundRecord, report: WorkerReport, alpha: float) -> int:
        """Count a merge, which overwrites the weights except a share of alpha.

        Work that the round has not merged counts by this share: steps since the pseudo-gradient was
        sent, and the pseudo-gradient itself if the round took an earlier one or none.

        Args:
            record: of the round whose outer parameters replaced the weights.
            report: on the pseudo-gradient that was sent last.
            alpha: share of the local weights that the worker keeps.

        Returns:
            Local steps that the weights have lost.
        """
        merged = (each.work for each in record.members if each.worker == report.worker)
        left_out = (report.work - sum(merged, Work())).times(1 / len(record.fragments))
        num_lost = 0
        for number in record.fragments:
            unmerged = self.works[number] + left_out
            self.works[number] = unmerged.times(alpha)
            num_lost = max(num_lost, unmerged.steps - self.works[number].steps)
        return num_lost

    def to_table(self) -> list[dict[str, Any]]:
        """Return what JSON can hold."""
        return [asdict(work) for work in self.works]

    def expect(self, table: Sequence[dict[str, Any]]) -> None:
        """Take what `to_table` gave."""
        self.works = [Work(**work) for work in table]
