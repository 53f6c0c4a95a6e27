"""How a learner that comes late gets to the anchor that the others have."""

from collections.abc import Callable

from torch import Tensor

from train.diloco.outer import Tensors
from train.diloco.outer_params import OuterParams
from train.diloco.rounds import Meeting
from train.diloco.store import SharedStore


def catch_up(
    anchor: OuterParams,
    mailbox: SharedStore,
    mean: Callable[[Meeting], tuple[Tensors, Tensor]],
    lacked: str,
) -> str:
    """Bring an anchor to the newest meeting, by changes or by an anchor that was kept.

    Args:
        anchor: of a process that keeps all weights.
        mailbox: of the run.
        mean: gives the mean of the changes of a meeting, and how far they agree.
        lacked: what this returned before; only a kept anchor is looked for then.

    Returns:
        What the mailbox lacks that leads there, such as a change that was torn after its meeting;
        nothing where the anchor is there.
    """
    is_far = mailbox.newest() - anchor.landed > mailbox.anchor_every
    if (is_far or lacked) and not _take_kept(anchor, mailbox) and lacked:
        return lacked
    while anchor.landed < mailbox.newest():
        number = anchor.landed + 1
        try:
            meeting = mailbox.record(number)
            if meeting is None:
                raise FileNotFoundError(f"the record of meeting {number} is not whole")
            change, _ = mean(meeting)
            anchor.step(meeting, change)
        except FileNotFoundError as error:
            if not _take_kept(anchor, mailbox):
                return str(error)
    return ""


def _take_kept(anchor: OuterParams, mailbox: SharedStore) -> bool:
    """Take the newest anchor of the mailbox, if there is a later one than here."""
    kept = mailbox.anchors.newest(anchor.landed)
    if kept is None:
        return False
    records = map(mailbox.record, range(max(0, kept.round + 1 - anchor.num_plans), kept.round + 1))
    anchor.take(kept, [record for record in records if record])
    return True
