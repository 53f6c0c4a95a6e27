"""What learners meet over: one interface, of which there are a group and a mailbox."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch import Tensor

from train.learners.rounds import Meeting, Plan, Told, plan_of


@dataclass(slots=True)
class Flight:
    """A change that is on its way to a meeting.

    Attributes:
        round: at whose end it was sent.
        plan: of that round.
        fragments: that meet.
        is_last: whether the run ends with it.
        told: beside it.
        left: steps until this learner goes on from the meeting.
        age: steps since it was sent.
    """

    round: int
    plan: Plan
    fragments: tuple[int, ...]
    is_last: bool
    told: Told
    left: int
    age: int = 0

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Flight":
        """Return what `to_table` gave."""
        parts = {
            "plan": plan_of(table["plan"]),
            "fragments": tuple(table["fragments"]),
            "told": Told(**table["told"]),
        }
        return cls(**{**table, **parts})


class Wait(enum.Enum):
    """How long a learner waits for a meeting."""

    NOT = 0
    FOR_A_QUORUM = 1
    """While there is one, or may be one within the grace."""
    FOR_EVER = 2


class ChangesGoneError(Exception):
    """What led to a meeting has been removed from the mailbox: the others are far ahead."""


Change = Mapping[str, Tensor]
"""What a learner's weights have lost since the anchor, by names: decoded, fp32."""


class Transport(Protocol):
    """Carries changes; all processes of a learner call it together.

    Attributes:
        sent_bytes: by this process, since it was made.
        received_bytes: likewise.
    """

    sent_bytes: int
    received_bytes: int

    def send(self, flight: Flight, parts: Mapping[str, Tensor] | None) -> None:
        """Begin to send a change, encoded; None: it was sent before this process was started."""

    def meeting(self, flight: Flight, wait: Wait) -> Meeting | None:
        """Return the meeting of a flight; None: it has not taken place, and waiting is over."""

    def changes(self, meeting: Meeting, names: Sequence[str]) -> list[Change]:
        """Return the members' changes of a meeting, in their order."""

    def flush(self) -> None:
        """Wait until what was sent is where it would outlive this process."""

    def close(self) -> None:
        """Leave nothing behind on this machine."""
