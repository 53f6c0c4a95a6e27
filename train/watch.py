"""What to look for in a run's curves: signs that cross-entropy is at its end.

The technical report finds that training on cross-entropy alone ends in a staircase of the loss,
with a gap between fp32 and bf16 that widens, and that the switch to FNS is best made just before.
All here are pure functions of lists, oldest first; steps and evaluations belong to one phase,
warm-up left out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

WINDOW_STEPS = 200
"""Steps of a window: the median of 200 norms is known to about a tenth of their own spread."""
NORM_FACTOR = 1.5
"""How much larger a gradient has become; medians of a healthy run drift by less."""
NORM_WINDOWS = 3
"""Windows in a row that must all be larger: a bad stretch of data fills one, at most two."""

GAP_PROBES = 5
"""Probes that a line is fitted to: the fewest whose slope has an error worth the name."""
LEAST_GAP = 0.005
"""A gap of recovery of less is fewer than 10 of the 1,920 bases of a default probe."""
SLOPE_ERRORS = 4.5
"""Standard errors that the slope must exceed zero by: five probes without a trend do so in 1 % of
cases (Student's t with three degrees of freedom). Probes are looked at again and again."""


def rises_persistently(norms: Sequence[float]) -> bool:
    """Return whether the gradient's norm has risen and stays high.

    The norms are cut into windows from the first step on, and each is represented by its median,
    which no spike moves. True if the medians of the last `NORM_WINDOWS` whole windows all exceed
    `NORM_FACTOR` times the least median before them. The answer can change only when a window is
    full, so ask once in `WINDOW_STEPS`. A norm that is not finite counts as a very large one.
    """
    medians = [
        float(np.median([x if math.isfinite(x) else math.inf for x in norms[i : i + WINDOW_STEPS]]))
        for i in range(0, len(norms) - WINDOW_STEPS + 1, WINDOW_STEPS)
    ]
    before, last = medians[:-NORM_WINDOWS], medians[-NORM_WINDOWS:]
    return bool(before) and min(last) > NORM_FACTOR * min(before)


def gap_widens(gaps: Sequence[float]) -> bool:
    """Return whether the gap of recovery between fp32 and bf16 (fp32 - bf16) widens.

    True if a line through the last `GAP_PROBES` gaps rises by more than `SLOPE_ERRORS` of its
    standard errors, and their mean exceeds `LEAST_GAP`.
    """
    if len(gaps) < GAP_PROBES:
        return False
    last = np.asarray(gaps[-GAP_PROBES:], dtype=float)
    place = np.arange(GAP_PROBES) - (GAP_PROBES - 1) / 2
    spread = float(place @ place)
    slope = float(place @ last) / spread
    residuals = last - last.mean() - slope * place
    error = math.sqrt(float(residuals @ residuals) / (GAP_PROBES - 2) / spread)
    return bool(slope > SLOPE_ERRORS * error and last.mean() > LEAST_GAP)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseEnd:
    """A sign, and where it is looked for.

    Attributes:
        label: the observed quantity in reports; empty if a phase has all of its tokens.
        reason: the message of a run that sees the sign.
        is_seen: decides from the gradient norms of the phase's good steps after warm-up, and its
            gaps of recovery, one a probe, whether the phase is to end.
        needs_all_norms: of the whole phase; else the guard's window is enough.
        needs_probes: gaps need evaluations, whose settings then affect training.
    """

    label: str = ""
    reason: str = ""
    is_seen: Callable[[Sequence[float], Sequence[float]], bool]
    needs_all_norms: bool = False
    needs_probes: bool = False


def _norm_rises(norms: Sequence[float], gaps: Sequence[float]) -> bool:
    return len(norms) % WINDOW_STEPS == 0 and rises_persistently(norms)


PHASE_ENDS = {
    "tokens": PhaseEnd(is_seen=lambda norms, gaps: False),
    "gradient_norm": PhaseEnd(
        label="gradient norm",
        reason="the gradient norm rises persistently",
        is_seen=_norm_rises,
        needs_all_norms=True,
    ),
    "precision_gap": PhaseEnd(
        label="precision gap",
        reason="the gap between sequence recovery in fp32 and in bf16 widens",
        is_seen=lambda norms, gaps: gap_widens(gaps),
        needs_probes=True,
    ),
}
