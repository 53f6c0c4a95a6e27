"""Workers of one launch: each process exchanges with its counterparts in other workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from carbon.errors import UserError
from train.codecs import Codec, decoded
from train.diloco.rounds import (
    Exchange,
    PseudoGradient,
    RoundRecord,
    Wait,
    WorkerReport,
    plan_after,
)
from train.distributed.mesh import Ranks
from train.distributed.recipes import other_recipe

_NUMBERS = ("tokens", "steps", "seconds")
"""Of a report, sent as fp64 in front of the pseudo-gradient."""


def check_alike(settings: Mapping[str, Any], ranks: Ranks) -> None:
    """Compare the settings of all workers of a launch.

    Raises:
        UserError: two workers differ, in one line on all processes.
    """
    if ranks.sync_group is None:
        return
    of_all: list[Mapping[str, Any]] = [{}] * ranks.num_workers
    dist.all_gather_object(of_all, settings, group=ranks.sync_group)
    for number, other in enumerate(of_all):
        if refusal := other_recipe("worker", number, of_all[0], other):
            raise UserError(refusal)


@dataclass(slots=True)
class _Sent:
    work: Any
    received: list[Tensor]
    layout: dict[str, tuple[torch.dtype, torch.Size]]


class Group:
    """All-gathers encoded pseudo-gradients over gloo, from the CPU's memory, during the training.

    Every worker takes part in every round. Sums are in the order of workers on all of them, so
    that outer parameters are alike to the bit.
    """

    def __init__(self, ranks: Ranks, codec: Codec, shapes: Mapping[str, Sequence[int]]) -> None:
        """Prepare.

        Args:
            ranks: the processes; their `sync_group` connects the workers.
            codec: of pseudo-gradients.
            shapes: of the tensors that this process sends, by name.
        """
        self._ranks, self._codec, self._shapes = ranks, codec, shapes
        self._sent: dict[int, _Sent] = {}
        self._received: dict[int, list[PseudoGradient]] = {}
        self.sent_bytes = self.received_bytes = 0

    def send(self, exchange: Exchange, parts: Mapping[str, Tensor] | None) -> None:
        """Begin to send; a checkpoint is written when all has arrived, so nothing is sent again."""
        if parts is None:
            return
        numbers = [float(getattr(exchange.report, name)) for name in _NUMBERS]
        pieces = [torch.tensor(numbers, dtype=torch.float64), *parts.values()]
        own = torch.cat([piece.contiguous().flatten().view(torch.uint8) for piece in pieces])
        received = [torch.empty_like(own) for _ in range(self._ranks.num_workers)]
        work = None
        if self._ranks.sync_group is None:  # there is one worker
            received = [own]
        else:
            work = dist.all_gather(received, own, self._ranks.sync_group, async_op=True)
            self.sent_bytes += len(own)
            self.received_bytes += len(own) * (self._ranks.num_workers - 1)
        layout = {name: (part.dtype, part.shape) for name, part in parts.items()}
        self._sent[exchange.round] = _Sent(work, received, layout)

    def wait_for(self, exchange: Exchange, wait: Wait) -> RoundRecord | None:
        """Wait for all workers, however long it takes."""
        self.flush()
        sent = self._sent.pop(exchange.round)
        opened = [_opened(buffer, sent.layout) for buffer in sent.received]
        members = tuple(
            WorkerReport(worker=worker, tokens=int(tokens), steps=int(steps), seconds=seconds)
            for worker, ((tokens, steps, seconds), _) in enumerate(opened)
        )
        names = {name.rsplit(":", 1)[0] for name in sent.layout}
        shapes = {name: shape for name, shape in self._shapes.items() if name in names}
        self._received[exchange.round] = [decoded(self._codec, p, shapes) for _, p in opened]
        period = max(exchange.plan.budgets.values())
        plan, _ = plan_after(exchange.plan, exchange.round + 1, members, period_steps=period)
        return RoundRecord(
            round=exchange.round,
            fragments=exchange.fragments,
            members=members,
            plan=plan,
            is_last=exchange.is_last,
        )

    def pseudo_gradients(
        self, record: RoundRecord, names: Sequence[str]
    ) -> Sequence[PseudoGradient]:
        """Return received pseudo-gradients."""
        return self._received.pop(record.round)

    def flush(self) -> None:
        """Wait for pseudo-gradients that are on their way."""
        for sent in self._sent.values():
            if sent.work is not None:
                sent.work.wait()
                sent.work = None

    def close(self) -> None:
        """Do nothing: all has arrived."""


def _opened(
    buffer: Tensor, layout: Mapping[str, tuple[torch.dtype, torch.Size]]
) -> tuple[list[float], dict[str, Tensor]]:
    """Return the leading numbers, and the parts that follow."""
    end = 8 * len(_NUMBERS)
    numbers: list[float] = buffer[:end].clone().view(torch.float64).tolist()
    parts = {}
    for name, (dtype, shape) in layout.items():
        begin, end = end, end + shape.numel() * dtype.itemsize
        parts[name] = buffer[begin:end].clone().view(dtype).view(shape)  # cloned: aligned
    return numbers, parts
