"""What ends a stage: its tokens, or before them a sign that cross-entropy is at its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from train.watch import WINDOW_STEPS, gap_widens, rises_persistently


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEnd:
    """A sign, and where it is looked for.

    Attributes:
        label: what is looked at, as reports say it; nothing if a stage has all of its tokens.
        reason: what a run says when it sees the sign.
        is_seen: tells by the gradient norms of the stage's good steps, warm-up left out, and by its
            gaps of recovery, one a probe, whether the stage is to end.
        needs_all_norms: those of the whole stage; else the guard's window of them is enough.
        needs_probes: there are no gaps without probes, and what they measure decides numbers.
    """

    label: str = ""
    reason: str = ""
    is_seen: Callable[[Sequence[float], Sequence[float]], bool]
    needs_all_norms: bool = False
    needs_probes: bool = False


def _norm_rises(norms: Sequence[float], gaps: Sequence[float]) -> bool:
    return len(norms) % WINDOW_STEPS == 0 and rises_persistently(norms)


STAGE_ENDS = {
    "tokens": StageEnd(is_seen=lambda norms, gaps: False),
    "gradient_norm": StageEnd(
        label="gradient norm",
        reason="the gradient norm rises persistently",
        is_seen=_norm_rises,
        needs_all_norms=True,
    ),
    "precision_gap": StageEnd(
        label="precision gap",
        reason="the gap between sequence recovery in fp32 and in bf16 widens",
        is_seen=lambda norms, gaps: gap_widens(gaps),
        needs_probes=True,
    ),
}
