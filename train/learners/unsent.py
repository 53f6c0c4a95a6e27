"""What a learner has trained and not sent: it decides what its next change weighs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from train.learners.rounds import Meeting, Told
from train.run_folder.work import Work


class Unsent:
    """Work by fragment of the weights, since each was last sent."""

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

    def merge(self, meeting: Meeting, told: Told, alpha: float) -> int:
        """Go on from a meeting, which overwrites all of the weights but a share of alpha.

        Work that the meeting has not merged counts by this share: what was done since the change
        was sent, and the change itself if the meeting took an earlier one or none.

        Args:
            meeting: whose anchor the weights were replaced by.
            told: beside the change that was sent last.
            alpha: share of its own weights that the learner keeps.

        Returns:
            Steps of its own that the weights have lost.
        """
        merged = (each.work for each in meeting.members if each.learner == told.learner)
        left_out = (told.work - sum(merged, Work())).times(1 / len(meeting.fragments))
        num_lost = 0
        for number in meeting.fragments:
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
