"""An animated figure of how the current model learned a gene."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from demo import figures as f
from demo.lab import Lab
from demo.learning_curves import CAPTIONS, CODON_BASES
from demo.panel import Result

PLAYED = "all, one after the other"
_WIDTH_BP = 61
_LETTERS = 42  # letters per caption line, to fit the width of a phone
_MOVE = {"mode": "immediate", "transition": {"duration": 0}}
_SHOW, _PLAY = (_MOVE | {"frame": {"duration": ms, "redraw": True}} for ms in (0, 1200))


def learning_facts(lab: Lab) -> Result | None:
    """Return the example region's learning curves by step; None if they were not recorded."""
    transcript = lab.example.transcript
    if lab.learned is None or transcript is None:
        return None
    return lab.learned.told(transcript, lab.genome.genes_in(lab.learned.interval), _WIDTH_BP)


def learning_figure(lab: Lab, found: Result | None, step: str) -> f.Figure | None:
    """Return the track above the genes, bars, and a slider of steps; it plays if none is chosen."""
    if found is None or lab.learned is None:
        return None
    gene, place = lab.example.name, lab.learned.interval
    steps, track, bars = found["steps"], found["smoothed_bits"], found["mean_bits"]
    shown = len(steps) - 1 if step == PLAYED else steps.index(int(step))
    frames: list[dict[str, Any]] = [
        {"name": f"{each:,}", "traces": [0, 1], "layout": {"title": {"text": _caption(each, gene)}},
         "data": [{"y": track[n]}, {"y": [bar[n] for bar in bars.values()]}]}
        for n, each in enumerate(steps)
    ]  # fmt: skip
    track_y, bars_y = frames[shown]["data"]
    genes = lab.genome.genes_in(place)
    drawn = f.figure(
        [{"type": "scatter", "mode": "lines", "fill": "tozeroy", "x": f.positions(place),
          "line": {"color": f.BLUE, "width": 1}, "name": f"mean of {_WIDTH_BP} bases"} | track_y,
         {"type": "bar", "x": [name.replace(" ", "<br>", 1) for name in bars],
          "xaxis": "x2", "yaxis": "y3", "name": "mean",
          "marker": {"color": [f.ORANGE] * len(CODON_BASES) + [f.GREY]}} | bars_y,
         *f.gene_traces(genes, place, "y2")],
        height=640,
        title={"x": 0, "y": 0.97, "yanchor": "top", "font": {"size": 14}}
        | frames[shown]["layout"]["title"],
        margin={"l": 50, "r": 12, "t": 110, "b": 90},
        showlegend=False,
        xaxis={"title": {"text": f"position on {f.plain(place.contig)}"}, "tickformat": ",d",
               "nticks": 4, "anchor": "y2", "fixedrange": True,
               "range": [place.start, place.end + 1]},
        yaxis=_bits("bits known, of 2", track, [0.6, 1]),
        yaxis2=f.gene_axis((0.38, 0.58), len(genes)),
        xaxis2={"anchor": "y3", "fixedrange": True, "tickangle": 0},
        yaxis3=_bits(f"bits, {f.plain(gene)}", bars.values(), [0, 0.22]),
        **_controls([frame["name"] for frame in frames], shown),
    )  # fmt: skip
    return drawn | {"frames": frames, "plays": _PLAY if step == PLAYED else None}


def _controls(names: Sequence[str], shown: int) -> dict[str, Any]:
    """Return a slider of frames, and a button that plays them."""
    steps = [{"label": name, "method": "animate", "args": [[name], _SHOW]} for name in names]
    button = {"label": "▶ Play", "method": "animate", "args": [None, _PLAY]}
    menu = {"type": "buttons", "x": 0, "y": -0.14, "xanchor": "left", "yanchor": "top",
            "pad": {"t": 14}, "showactive": False, "buttons": [button]}  # fmt: skip
    slider = {"active": shown, "y": -0.14, "x": 0.16, "len": 0.84, "pad": {"t": 8},
              "currentvalue": {"visible": False}, "steps": steps}  # fmt: skip
    return {"sliders": [slider], "updatemenus": [menu]}


def _bits(title: str, rows: Iterable[Sequence[float]], domain: list[float]) -> dict[str, Any]:
    """Return an axis whose range includes the values of all steps, so that steps are comparable."""
    values = [value for row in rows for value in row]
    span = [min(values), 1.05 * max(values)]
    return {"domain": domain, "range": span, "fixedrange": True, "title": {"text": title}}


def _caption(step: int, gene: str) -> str:
    said = [text for first, text in CAPTIONS.items() if first <= step][-1]
    lines = textwrap.wrap(said.format(gene=f.plain(gene)), _LETTERS)
    return "<br>".join([f"<b>Step {step:,}</b>", *lines])
