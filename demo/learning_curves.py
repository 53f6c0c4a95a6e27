"""How a model learned a region: scans of the region at several training steps, in one small file.

>>> learned = read_learning(BUNDLED_MODELS["yeast"].learning)
>>> learned.nats_per_base.shape
(12, 3200)
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Interval, Reference
from carbon.genome.genome import Genome
from carbon.inference.model import Model
from carbon.inference.options import ScanKeywords
from carbon.inference.scan import join_chunks
from carbon.io.files import atomic_file
from demo import figures as f
from demo.arrays import SMOOTHED_BP, as_lists, smoothed

HOW: ScanKeywords = {"strands": "both", "offsets": "all"}
"""How the region is read: what a base is worth by all that can be known of it."""
# Each caption applies from its step on.
CAPTIONS = {
    0: "Random weights: it guesses like a fair die.",
    25: "It knows which 6-mers are common.",
    100: "Codons appear in {gene}.",
    300: "{gene} lights up.",
    9000: "The end: {gene} stands out.",
}
_MOVE = {"mode": "immediate", "transition": {"duration": 0}}
_SHOW, _PLAY = (_MOVE | {"frame": {"duration": ms, "redraw": True}} for ms in (0, 700))


class Learning(NamedTuple):
    """Scans of one region at several training steps.

    Attributes:
        interval: the region.
        steps: training steps, ascending.
        nats_per_base: (steps, bases) float16, -log p of the reference base; NaN for an N.
    """

    interval: Interval
    steps: tuple[int, ...]
    nats_per_base: NDArray[np.float16]

    @property
    def known_bits(self) -> NDArray[np.float64]:
        """Bits known of each base, (steps, bases): at most 2, 0 for a uniform guess, or less."""
        nats = self.nats_per_base.astype(np.float64)
        bits: NDArray[np.float64] = (np.log(4) - nats) / np.log(2)
        return bits

    def smoothed_bits(self, width_bp: int = SMOOTHED_BP) -> NDArray[np.float64]:
        """Return `known_bits` of each step, smoothed."""
        return np.stack([smoothed(bits, width_bp) for bits in self.known_bits])

    def mean_bits(self, positions: Sequence[int]) -> NDArray[np.float64]:
        """Return the mean of `known_bits` over positions of the contig in the region, (steps,).

        NaN if the region contains no such position.
        """
        start, end = self.interval.start, self.interval.end
        inside = [at - start for at in positions if start <= at < end]
        if not inside:
            return np.full(len(self.steps), np.nan)
        means: NDArray[np.float64] = np.nanmean(self.known_bits[:, inside], axis=1)
        return means


def nats_of(model: Model, reference: Reference, interval: Interval) -> NDArray[np.float16]:
    """Return -log p of every base of a region, (bases,), as `Learning` stores it.

    Raises:
        GenomeError: the region is not in the reference.
    """
    return (-join_chunks(model.scan(reference, interval, **HOW)).log_p_ref).astype(np.float16)


def write_learning(path: Path, learned: Learning) -> None:
    """Write a compressed NumPy archive; equal values give equal bytes.

    Raises:
        OSError: the disk is full, or writing fails for another reason.
    """
    place = learned.interval
    with atomic_file(path) as temporary, temporary.open("wb") as sink:
        np.savez_compressed(
            sink,
            contig=np.array(place.contig),
            span=np.array((place.start, place.end)),
            steps=np.array(learned.steps),
            nats_per_base=learned.nats_per_base,
        )


def read_learning(path: Path) -> Learning:
    """Return the scans that `write_learning` wrote.

    Raises:
        UserError: the file is not such a file.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            start, end = archive["span"].tolist()
            interval = Interval(str(archive["contig"]), start, end)
            return Learning(interval, tuple(archive["steps"].tolist()), archive["nats_per_base"])
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise UserError(f"{path}: holds no scans of a training ({error})") from None


def learning_figure(learned: Learning, genome: Genome, gene: str) -> f.Figure:
    """Return the track above the genes at the last step, and frames of all steps to replay."""
    place, steps, heights = learned.interval, learned.steps, learned.smoothed_bits()
    track = as_lists(heights, 3)
    frames: list[dict[str, Any]] = [
        {"name": f"{step:,}", "traces": [0], "data": [{"y": bits}],
         "layout": {"title": {"text": _caption(step, gene)}}}
        for step, bits in zip(steps, track, strict=True)
    ]  # fmt: skip
    genes = genome.genes_in(place)
    drawn = f.figure(
        [{"type": "scatter", "mode": "lines", "fill": "tozeroy", "x": f.positions(place),
          "y": track[-1], "line": {"color": f.BLUE, "width": 1},
          "name": f"mean of {SMOOTHED_BP} bases"},
         *f.gene_traces(genes, place, "y2")],
        height=460,
        title={"x": 0, "y": 0.97, "yanchor": "top", "font": {"size": 14}}
        | frames[-1]["layout"]["title"],
        margin={"l": 50, "r": 12, "t": 60, "b": 90},
        showlegend=False,
        xaxis=f.position_axis(place, anchor="y2", fixedrange=True),
        yaxis={"domain": [0.4, 1], "fixedrange": True, "title": {"text": "bits, of 2"},
               "range": [float(np.nanmin(heights)), 1.05 * float(np.nanmax(heights))]},
        yaxis2=f.gene_axis((0, 0.36), len(genes)),
        sliders=[_slider([frame["name"] for frame in frames])],
    )  # fmt: skip
    return drawn | {"frames": frames, "plays": _PLAY}


def _slider(names: Sequence[str]) -> dict[str, Any]:
    """Return a slider of frames that stands at the last."""
    steps = [{"label": name, "method": "animate", "args": [[name], _SHOW]} for name in names]
    return {"active": len(names) - 1, "y": -0.2, "pad": {"t": 8},
            "currentvalue": {"visible": False}, "steps": steps}  # fmt: skip


def _caption(step: int, gene: str) -> str:
    text = [text for first, text in CAPTIONS.items() if first <= step][-1]
    return f"<b>Step {step:,} of the training</b><br>{text.format(gene=f.plain(gene))}"
