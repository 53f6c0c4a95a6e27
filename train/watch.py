"""What to look for in a run's curves: signs that cross-entropy is at its end.

The technical report finds that training on cross-entropy alone ends in a staircase of the loss,
with a gap between fp32 and bf16 that widens, and that the switch to FNS is best made just before.
All here are pure functions of lists, oldest first; steps and evaluations belong to one phase,
warm-up left out.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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

LEAST_STAIR = 0.01
"""Nats; below this a stair changes no decision."""
STAIR_ERRORS = 6.0
"""Standard errors that a stair must be high. Every step of a long run is tried, so rare chances
come up; the errors hold for noise that is independent from step to step."""
_PLATEAU_SHARE = 0.5
"""Most that the loss may fall or rise over a plateau, of the height of the stair beside it; on a
smooth descent, however steep, the plateaus fall by more than what is left between them."""
_GAPS = (0.0, 0.125, 0.25)
"""Steps on either side of a stair that count for neither plateau, in windows: stairs are not all
sharp."""
_SPIKE_ERRORS = 6.0
"""Standard deviations off the median of its neighbours at which a single loss is a spike."""


class Stair(NamedTuple):
    """A sudden drop between two plateaus.

    Attributes:
        step: place in the list, from 0, of the first loss that is nearer to the lower plateau.
        height_nats: from plateau to plateau, the slopes of both taken out.
        width_steps: that the drop takes; 1 is sharp.
    """

    step: int
    height_nats: float
    width_steps: int


def rises_persistently(
    norms: Sequence[float],
    *,
    window_steps: int = WINDOW_STEPS,
    factor: float = NORM_FACTOR,
    windows: int = NORM_WINDOWS,
) -> bool:
    """Return whether the gradient's norm has risen and stays high.

    The norms are cut into windows from the first step on, and each is represented by its median,
    which no spike moves. True if the medians of the last `windows` whole windows all exceed
    `factor` times the least median before them. The answer can change only when a window is full,
    so ask once in `window_steps`. A norm that is not finite counts as a very large one.
    """
    medians = [
        float(np.median([x if math.isfinite(x) else math.inf for x in norms[i : i + window_steps]]))
        for i in range(0, len(norms) - window_steps + 1, window_steps)
    ]
    before, last = medians[:-windows], medians[-windows:]
    return bool(before) and min(last) > factor * min(before)


def gap_widens(
    gaps: Sequence[float], *, probes: int = GAP_PROBES, least: float = LEAST_GAP
) -> bool:
    """Return whether the gap of recovery between fp32 and bf16 (fp32 - bf16) widens.

    True if a line through the last `probes` gaps rises by more than `SLOPE_ERRORS` of its standard
    errors, and their mean exceeds `least`.
    """
    if probes < 3:
        raise ValueError(f"probes = {probes}: a line through fewer than 3 has no error")
    if len(gaps) < probes:
        return False
    last = np.asarray(gaps[-probes:], dtype=float)
    place = np.arange(probes) - (probes - 1) / 2
    spread = float(place @ place)
    slope = float(place @ last) / spread
    residuals = last - last.mean() - slope * place
    error = math.sqrt(float(residuals @ residuals) / (probes - 2) / spread)
    return bool(slope > SLOPE_ERRORS * error and last.mean() > least)


def staircase(
    losses: Sequence[float],
    *,
    boundaries: Sequence[int] = (),
    window_steps: int = WINDOW_STEPS,
    least: float = LEAST_STAIR,
) -> list[Stair]:
    """Find the stairs of a loss: sudden drops between plateaus, to where it has never been.

    At every step a line is fitted to the window before it and to the window after it, and the two
    are extended to meet: their difference there is the drop. On a smooth descent both lines
    miss by nearly the same, so that nothing is left; a kink, as where the learning rate begins to
    fall, leaves nothing either. A drop is a stair if it is at least `least` nats and `STAIR_ERRORS`
    standard errors high, if both lines are flat next to it, and if the lower plateau lies below all
    that came before, so that to recover from a spike is none. A drop is found if it takes less than
    half a window, and its width is accurate to about a third; a longer run wants a wider window.

    Args:
        losses: one a step; values that are not finite (skipped steps) are bridged.
        boundaries: places where something else than learning may move the loss, such as the first
            step of a phase. No window reaches over one, so that stairs within a window of one are
            not found.
        window_steps: steps of a plateau.
        least: nats of the lowest stair.
    """
    values = np.asarray(losses, dtype=float)
    known = np.isfinite(values)
    if not known.any():
        return []
    steps = np.arange(len(values))
    values = np.interp(steps, steps[known], values[known])
    edges = sorted({0, len(values), *(b for b in boundaries if 0 < b < len(values))})
    return [
        stair._replace(step=first + stair.step)
        for first, last in itertools.pairwise(edges)
        for stair in _stairs(values[first:last], window_steps, least)
    ]


def _stairs(losses: NDArray[np.float64], window: int, least: float) -> list[Stair]:
    """Return the stairs of one piece, the highest first found, none within a window of another."""
    if len(losses) < 2 * window:
        return []
    smooth = _without_spikes(losses)
    tried = [_drops(smooth, window, round(gap * window), least) for gap in _GAPS]
    errors = np.max(tried, axis=0)
    found = []
    while errors.max() >= STAIR_ERRORS:
        place = int(errors.argmax())
        stair = _fitted(smooth, place, window)
        errors[max(0, place - window) : place + window] = 0
        if stair.height_nats >= least:
            found.append(stair)
    return sorted(found)


def _without_spikes(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Put the median of five in the place of single losses that stand out from it."""
    neighbours = np.lib.stride_tricks.sliding_window_view(np.pad(losses, 2, mode="edge"), 5)
    median = np.median(neighbours, axis=1)
    # 1.4826 medians of a normal variable's absolute value are its deviation.
    deviation = 1.4826 * float(np.median(np.abs(np.diff(losses)))) / math.sqrt(2)
    return np.where(np.abs(losses - median) > _SPIKE_ERRORS * deviation, median, losses)


def _drops(losses: NDArray[np.float64], window: int, gap: int, least: float) -> NDArray[np.float64]:
    """Return how many standard errors high a stair at each place is; 0 where there is none."""
    result = np.zeros(len(losses))
    if len(losses) < 2 * (window + gap):
        return result
    offset = np.arange(window) - (window - 1) / 2
    spread = float(offset @ offset)
    centred = losses - losses.mean()
    mean = np.correlate(centred, np.full(window, 1 / window), "valid")
    slope = np.correlate(centred, offset / spread, "valid")
    squares = np.correlate(centred**2, np.ones(window), "valid")
    variance = (squares - window * mean**2 - spread * slope**2).clip(0) / (window - 2)
    reach = window / 2 + gap  # from the middle of a window to the drop
    left = slice(0, len(mean) - window - 2 * gap)
    right = slice(window + 2 * gap, len(mean))
    height = mean[left] - mean[right] + reach * (slope[left] + slope[right])
    error = np.sqrt((variance[left] + variance[right]) * (1 / window + reach**2 / spread))
    flat = window * np.maximum(np.abs(slope[left]), np.abs(slope[right])) <= _PLATEAU_SHARE * height
    new = np.minimum.accumulate(mean)[left] - mean[right] >= height / 2
    stands = flat & new & (height >= least)
    found = np.where(stands, height / np.maximum(error, 1e-12), 0.0)
    result[window + gap : window + gap + len(found)] = found
    return result


def _fitted(losses: NDArray[np.float64], place: int, window: int) -> Stair:
    """Return the stair near a place: a line with a ramp in it, fitted by least squares.

    Of the widths that fit equally well (within two standard errors) the narrowest is taken.
    """
    first = max(0, place - window)
    segment = losses[first : place + window]
    x = np.arange(first, first + len(segment), dtype=float)
    basis, _ = np.linalg.qr(np.stack([np.ones_like(x), x - place], axis=1))
    rest = segment - basis @ (basis.T @ segment)
    middles = np.arange(place - window // 2, place + window // 2 + 1)
    best: list[tuple[float, Stair]] = []
    for width in _widths(window):
        ramps = ((x - middles[:, None] + 0.5) / width + 0.5).clip(0, 1)
        ramps -= (ramps @ basis) @ basis.T
        inner, norm = ramps @ rest, (ramps**2).sum(axis=1)
        gain = np.where(inner < 0, inner**2 / norm, 0)  # only decreases
        i = int(gain.argmax())
        stair = Stair(int(middles[i]), float(-inner[i] / norm[i]), width)
        best.append((float(gain[i]), stair))
    most = max(gain for gain, _ in best)
    noise = (float(rest @ rest) - most) / max(len(x) - 5, 1)
    return next(stair for gain, stair in best if gain >= most - 4 * noise)


def _widths(window: int) -> Iterator[int]:
    width = 1
    while width <= window // 2:
        yield width
        width = max(width + 1, round(width * 1.5))


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
