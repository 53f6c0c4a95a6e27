"""Workers of one launch: each process exchanges with its counterparts in other workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train.diloco.codecs import Codec, decoded
from train.diloco.rounds import Change, Flight, Meeting, Wait, WorkerReport, planned
from train.distributed.mesh import Ranks

_NUMBERS = ("tokens", "steps", "seconds")
"""Of `Told`, sent as fp64 in front of the change."""


@dataclass(slots=True)
class _Sent:
    work: Any
    received: list[Tensor]
    layout: dict[str, tuple[torch.dtype, torch.Size]]


class Group:
    """All-gathers encoded changes over gloo, from the memory of the CPU, during the training.

    Every learner takes part in every meeting. Sums are in the order of learners on all of them, so
    that anchors are alike to the bit.
    """

    def __init__(self, ranks: Ranks, codec: Codec, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepare.

        Args:
            ranks: the processes; their `meeting_group` connects the workers.
            codec: of changes.
            shapes: of what this process sends, by name.
        """
        self._ranks, self._codec, self._shapes = ranks, codec, shapes
        self._sent: dict[int, _Sent] = {}
        self._changes: dict[int, list[Change]] = {}
        self.sent_bytes = self.received_bytes = 0

    def send(self, flight: Flight, parts: Mapping[str, Tensor] | None) -> None:
        """Begin to send; what had arrived before a checkpoint is there already."""
        if parts is None:
            return
        numbers = [float(getattr(flight.told, name)) for name in _NUMBERS]
        pieces = [torch.tensor(numbers, dtype=torch.float64), *parts.values()]
        mine = torch.cat([piece.contiguous().flatten().view(torch.uint8) for piece in pieces])
        received = [torch.empty_like(mine) for _ in range(self._ranks.num_learners)]
        work = None
        if self._ranks.meeting_group is None:  # there is one learner
            received = [mine]
        else:
            work = dist.all_gather(received, mine, self._ranks.meeting_group, async_op=True)
            self.sent_bytes += len(mine)
            self.received_bytes += len(mine) * (self._ranks.num_learners - 1)
        layout = {name: (part.dtype, part.shape) for name, part in parts.items()}
        self._sent[flight.round] = _Sent(work, received, layout)

    def meeting(self, flight: Flight, wait: Wait) -> Meeting | None:
        """Wait for all learners, however long it takes."""
        self.flush()
        sent = self._sent.pop(flight.round)
        members: list[WorkerReport] = []
        changes: list[Change] = []
        for learner, buffer in enumerate(sent.received):
            head, parts = _taken_apart(buffer, sent.layout)
            told = dict(zip(_NUMBERS, head.tolist(), strict=True))
            members.append(
                WorkerReport(
                    learner=learner,
                    tokens=int(told["tokens"]),
                    steps=int(told["steps"]),
                    seconds=told["seconds"],
                )
            )
            names = {name.rsplit(":", 1)[0] for name in parts}
            shapes = {name: self._shapes[name] for name in self._shapes if name in names}
            changes.append(decoded(self._codec, parts, shapes))
        self._changes[flight.round] = changes
        plan, _ = planned(
            flight.plan,
            flight.round + 1,
            members,
            (),
            {},
            period_steps=max(flight.plan.budgets.values()),
            by_speed=False,
        )
        return Meeting(
            round=flight.round,
            fragments=flight.fragments,
            members=tuple(members),
            plan=plan,
            is_last=flight.is_last,
        )

    def changes(self, meeting: Meeting, names: Sequence[str]) -> list[Change]:
        """Return received changes."""
        return self._changes.pop(meeting.round)

    def flush(self) -> None:
        """Wait for changes in flight."""
        for sent in self._sent.values():
            if sent.work is not None:
                sent.work.wait()
                sent.work = None

    def close(self) -> None:
        """Do nothing: changes in flight have arrived."""


def _taken_apart(
    buffer: Tensor, layout: Mapping[str, tuple[torch.dtype, torch.Size]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the leading numbers, and the parts that follow."""
    end = 8 * len(_NUMBERS)
    head, parts = buffer[:end].clone().view(torch.float64), {}
    for name, (dtype, shape) in layout.items():
        begin, end = end, end + shape.numel() * dtype.itemsize
        parts[name] = buffer[begin:end].clone().view(dtype).view(shape)  # cloned: aligned
    return head, parts
