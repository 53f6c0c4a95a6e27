"""The curves of a training run, one above another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carbon.losses.objectives import objective_named
from demo.figures import BLUE, GREY, Figure, figure, plain, stacked_axes

_ROW_PIXELS = 105
_HEAD_PIXELS = 75
_FOOT_PIXELS = 110
_GAP_PIXELS = 34


@dataclass(frozen=True, slots=True)
class _Curve:
    """A curve: a column of `metrics.jsonl`, or of another file of JSON lines."""

    column: str
    label: str
    color: str
    file: str = "points"
    """What of the answer has the column: `points` of the steps, `probes` or `rounds`."""
    dash: str = "solid"


@dataclass(frozen=True, slots=True)
class _Row:
    """Curves that share a y axis."""

    title: str
    curves: tuple[_Curve, ...]
    axis: Mapping[str, Any]
    height: int = 1
    names_units: bool = False
    """Whether the title goes on with the unit of each objective of the run."""


_ROWS = (
    _Row("nats per base", (
        _Curve("nats_per_base", "chain", BLUE),
        _Curve("marginal_nats_per_base", "marginals", BLUE, dash="dot"),
        _Curve("heldout_nats_per_base", "chain, held out", GREY, "probes"),
        _Curve("heldout_marginal_nats_per_base", "marginals, held out", GREY, "probes", "dot"),
    ), {}, 2),
    _Row("loss", (_Curve("loss", "loss", BLUE),), {}, names_units=True),
    _Row("recovery of held-out bases", (
        _Curve("recovery", "fp32", BLUE, "probes"),
        _Curve("recovery_bf16", "bf16", BLUE, "probes", "dot"),
    ), {}),
    _Row("workers: cosine of a pseudo-gradient with the mean", (
        _Curve("cosine", "cosine", BLUE, "rounds"),
    ), {"rangemode": "tozero"}),
    _Row("workers: seconds of waiting for the others", (
        _Curve("wait_seconds", "seconds", BLUE, "rounds"),
    ), {"rangemode": "tozero"}),
    _Row("learning rate", (_Curve("learning_rate", "learning rate", BLUE),),
         {"rangemode": "tozero", "exponentformat": "power"}),
    _Row("gradient norm", (
        _Curve("gradient_norm", "norm, mean", BLUE),
        _Curve("gradient_norm_most", "norm, largest", GREY),
    ), {"type": "log", "dtick": 1}),
    _Row("tokens / s", (_Curve("tokens_per_second", "tokens / s", BLUE),),
         {"rangemode": "tozero"}),
    _Row("MFU", (_Curve("mfu", "MFU", BLUE),), {"rangemode": "tozero", "tickformat": ".0%"}),
)  # fmt: skip
STEP_COLUMNS = tuple(c.column for row in _ROWS for c in row.curves if c.file == "points")


def run_curves(result: Mapping[str, Any], axis: str, zoom_key: str) -> Figure:
    """Return the curves, one above another, with the training phases in the background.

    Args:
        result: the panel's answer.
        axis: `steps` or `tokens`.
        zoom_key: the zoom persists until this value, the run or the axis changes.
    """
    along = {"steps": "step", "tokens": "tokens"}[axis]
    rows = [(row, curves) for row in _ROWS if (curves := _traces(row, result, along))]
    pixels = sum(row.height for row, _ in rows) * _ROW_PIXELS
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    titles = []
    top = 1.0
    suffixes = stacked_axes(len(rows))
    for suffix, (row, curves) in zip(suffixes, rows, strict=False):
        bottom = max(0.0, top - row.height * _ROW_PIXELS / pixels)
        domain = [bottom, top - _GAP_PIXELS / pixels]
        axes[f"yaxis{suffix}"] = {"domain": domain, "automargin": True, **row.axis}
        titles.append(_note(_title(row, result["switches"]), 0, domain[1]) | {"xref": "paper"})
        traces += [trace | {"yaxis": f"y{suffix}"} for trace in curves]
        top = bottom
    shapes, names = _phases(result, along)
    return figure(
        traces,
        height=pixels + _HEAD_PIXELS + _FOOT_PIXELS,
        margin={"l": 50, "r": 12, "t": _HEAD_PIXELS, "b": _FOOT_PIXELS},
        xaxis={"title": {"text": along}, "anchor": f"y{suffixes[-1]}"},
        legend={"orientation": "h", "y": -55 / max(pixels, 1), "yanchor": "top", "x": 0},
        hovermode="x",
        uirevision=f"{result['run']} {axis} {zoom_key}",
        shapes=shapes,
        annotations=[*titles, *names],
        **axes,
    )


def _traces(row: _Row, result: Mapping[str, Any], along: str) -> list[dict[str, Any]]:
    traces = []
    for curve in row.curves:
        if curve.file == "points":
            x, y = result["points"][along], result["points"].get(curve.column, [])
        else:
            x = [line.get(along) for line in result[curve.file]]
            y = [line.get(curve.column) for line in result[curve.file]]
        if any(value is not None for value in y):
            few = curve.file != "points" or len(y) == 1
            traces.append({
                "type": "scatter", "mode": "lines+markers" if few else "lines", "x": x, "y": y,
                "name": curve.label, "showlegend": len(row.curves) > 1,
                "line": {"color": curve.color, "dash": curve.dash, "width": 1.5},
            })  # fmt: skip
    return traces


def _phases(
    result: Mapping[str, Any], along: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the phases' shapes, a start line and a shade by objective, and their labels."""
    switches = result["switches"]
    starts = [switch[along] for switch in switches]
    ends = [*starts, result[along]][1:]
    shapes, names = [], []
    for n, (switch, start, end) in enumerate(zip(switches, starts, ends, strict=True)):
        over = {"x0": start, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        if shade := objective_named(str(switch["objective"])).shade:
            shapes.append(over | {"type": "rect", "x1": end, "fillcolor": shade,
                                  "line": {"width": 0}})  # fmt: skip
        if n:
            shapes.append(over | {"type": "line", "x1": start,
                                  "line": {"color": GREY, "width": 1, "dash": "dash"}})  # fmt: skip
        names.append(_note(_phase_name(switch), start, 1) | {"yshift": 4 + 14 * (n % 3)})
    return shapes, names


def _title(row: _Row, switches: Sequence[Mapping[str, Any]]) -> str:
    if not row.names_units:
        return row.title
    names = dict.fromkeys(str(switch["objective"]) for switch in switches)
    known = [entry for entry in map(objective_named, names) if entry.unit]
    units = " or ".join(f"{entry.unit} ({entry.short})" for entry in known)
    return f"{row.title}, {units}" if units else row.title


def _phase_name(switch: Mapping[str, Any]) -> str:
    name, objective = str(switch["phase"])[:16], objective_named(str(switch["objective"])).short
    return objective if name.upper() == objective.upper() else f"{name} ({objective})"


def _note(text: str, x: float, y: float) -> dict[str, Any]:
    return {
        "x": x, "y": y, "yref": "paper", "xanchor": "left", "yanchor": "bottom",
        "showarrow": False, "font": {"size": 11}, "text": plain(text),
    }  # fmt: skip
