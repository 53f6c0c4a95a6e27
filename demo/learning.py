"""An animated figure of how the current model learned a gene."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from demo import figures as f
from demo.arrays import SMOOTHED_BP, as_lists
from demo.lab import Lab
from demo.learning_curves import CAPTIONS

_MOVE = {"mode": "immediate", "transition": {"duration": 0}}
_SHOW, _PLAY = (_MOVE | {"frame": {"duration": ms, "redraw": True}} for ms in (0, 700))


def learning_figure(lab: Lab) -> f.Figure | None:
    """Return the track above the genes at the last step, and frames of all steps to replay.

    None if the training was not recorded.
    """
    if lab.learned is None:
        return None
    gene, place, steps = lab.example.name, lab.learned.interval, lab.learned.steps
    heights = lab.learned.smoothed_bits()
    track = as_lists(heights, 3)
    frames: list[dict[str, Any]] = [
        {"name": f"{step:,}", "traces": [0], "data": [{"y": bits}],
         "layout": {"title": {"text": _caption(step, gene)}}}
        for step, bits in zip(steps, track, strict=True)
    ]  # fmt: skip
    genes = lab.genome.genes_in(place)
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
    return f"<b>Step {step:,}</b><br>{text.format(gene=f.plain(gene))}"
