"""One HTML page about one run: recipe, curves and cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from carbon import __version__
from carbon.io.files import atomic_file
from carbon.progress import TableRow
from carbon.reports.figures import BLUE, GREEN, GREY, INK, ORANGE, PAGE_STYLE, PURPLE, svg_of
from carbon.reports.render import html_table, render_page
from carbon.run_folder import Line, column, reduced, stretches
from train.optim import OPTIMIZERS
from train.runs.record import (
    HELDOUT_OF,
    RunRecord,
    beginning,
    objective_changes,
    read_run,
    recipe_rows,
    results_of,
)
from train.schedule import Schedule

_POINTS = 300
_FEW = 40  # points that get a mark each
_NAME_LETTERS = 14
_THOUSAND = 1000
_MOST_EVENTS = 200


def write_summary(run: Path) -> Path:
    """Write `summary.html` into the run folder and return its path.

    Raises:
        ConfigError: config.toml is missing, or a file of the folder is malformed.
    """
    record = read_run(run)
    config, optimizer = record.config, record.config.optimizer
    header, *recipe = recipe_rows(record)
    listed = [event for event in record.events if event["event"] != "save"]
    events: list[TableRow] = [
        (int(event["step"]), str(event["event"]), str(event["message"]))
        for event in listed[-_MOST_EVENTS:]
    ]
    page = render_page(
        "train.html",
        f"Training run {record.name}",
        f"Carbon {__version__}. From the run folder: config.toml, metrics.jsonl, probes.jsonl, "
        "events.jsonl and rounds.jsonl.",
        run=record,
        config=config,
        beginning=beginning(config),
        optimizer=OPTIMIZERS[optimizer.name].label(optimizer),
        answer=_answer(record),
        totals=Markup(html_table(_totals(record))),
        recipe=Markup(html_table(recipe, header)),
        stretch=-(-len(record.steps) // _POINTS),
        skipped=_skipped(record),
        changes=objective_changes(record),
        waited=_duration(float(np.nansum(column(record.rounds, "wait_seconds")))),
        listed=listed,
        most_events=_MOST_EVENTS,
        events=Markup(html_table(events, ("step", "event", "message"))),
        pictures={
            name: figure and Markup(svg_of(figure)) for name, figure in _figures(record).items()
        },
    )
    with atomic_file(run / "summary.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    return run / "summary.html"


def _answer(record: RunRecord) -> list[str]:
    """Say how far the run has come and what its model reads by now."""
    steps, planned = record.steps, Schedule(record.config).total_steps
    if not steps:
        return [f"No step has been taken yet; {planned:,} are planned."]
    seconds = _seconds(record)
    within = f" in {_duration(seconds)} of computing" if seconds else ""
    sentences = [
        f"{steps[-1]['step']:,} of {planned:,} planned steps are taken: {steps[-1]['tokens']:,} "
        f"tokens{within}."
    ]
    results = {
        name: f"{value:.4f} nats per base at step {step:,}"
        for name, step, value in results_of(record)
    }
    sentences += [
        f"{what} {results[name]}; {math.log(4):.4f} is knowing nothing."
        for what, name in (
            ("Its model reads what is held out at", "held-out nats per base, chain"),
            ("Its model reads training rows at", "nats per base of training rows, chain"),
        )
        if name in results
    ][:1]
    if skipped := len(_skipped(record)):
        sentences.append(f"Steps that were skipped: {skipped:,}.")
    return sentences


def _totals(record: RunRecord) -> list[TableRow]:
    steps = record.steps
    if not steps:
        return []
    rows: list[TableRow] = [
        ("steps", f"{steps[-1]['step']:,} of {Schedule(record.config).total_steps:,} planned"),
        ("steps skipped", f"{len(_skipped(record)):,}"),
        ("tokens", f"{steps[-1]['tokens']:,}"),
    ]
    if seconds := _seconds(record):
        read = _tokens_of_steps(record)[_timed(record)]
        rows.append(("time of computing", _duration(seconds)))
        rows.append(("tokens a second, mean", f"{read.sum() / seconds:,.0f}"))
    used = column(steps, "mfu")
    if np.isfinite(used).any():
        rows.append(("share of peak FLOP/s (MFU), mean", f"{100 * np.nanmean(used):.1f} %"))
    rows += [(name, f"{value:.4f} at step {step:,}") for name, step, value in results_of(record)]
    return rows


def _seconds(record: RunRecord) -> float:
    timed = _timed(record)
    speeds = column(record.steps, "tokens_per_second")
    return float((_tokens_of_steps(record)[timed] / speeds[timed]).sum())


def _timed(record: RunRecord) -> NDArray[np.bool_]:
    speeds = column(record.steps, "tokens_per_second")
    return np.isfinite(speeds) & (speeds > 0)


def _tokens_of_steps(record: RunRecord) -> NDArray[np.float64]:
    """Return the tokens of each step; workers record the total over all of them."""
    if record.config.workers.count:
        schedule = Schedule(record.config)
        batches = [schedule.at(line["step"] - 1).phase.batch_tokens for line in record.steps]
        return np.array(batches, np.float64)
    read = np.diff(column(record.steps, "tokens"), prepend=0)
    read[0] /= record.steps[0]["step"]  # the only line may be of a later step
    return read


def _duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} hours"
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"


@dataclass(frozen=True, slots=True)
class _Curve:
    name: str
    label: str
    colour: str = BLUE


_OTHERS = (ORANGE, GREEN, PURPLE)
_Axis = Literal["plain", "log", "zero"]
"""Of values: as they come, logarithmic, from zero."""
_LOSSES = (
    _Curve("nats_per_base", "chain"),
    _Curve("marginal_nats_per_base", "marginals", ORANGE),
)


def loss_figure(record: RunRecord) -> Figure | None:
    """Draw nats per base by chain and by marginals, with the phases; None if there are none."""
    return _figure(record, _LOSSES, "nats per base")


def _figures(record: RunRecord) -> dict[str, Figure | None]:
    """Return the curves of steps, of synchronisation rounds and of periodic evaluations."""
    rounds = [line | {"there": len(line.get("workers", ()))} for line in record.rounds]
    recovered = (column(record.probes, name) for name in ("recovery", "recovery_bf16"))
    probes = [
        line | {"gap": fp32 - bf16}
        for line, fp32, bf16 in zip(record.probes, *recovered, strict=True)
    ]
    heldout = [replace(curve, name=f"heldout_{curve.name}") for curve in _LOSSES]
    probed = record.config.probe
    old_and_new = [_Curve("heldout_nats_per_base", probed.source)] + [
        _Curve(f"{HELDOUT_OF}{name}", name, _OTHERS[place % len(_OTHERS)])
        for place, name in enumerate(probed.also)
    ]
    recovery = (_Curve("recovery", "fp32"), _Curve("recovery_bf16", "bf16", ORANGE))

    def one(
        name: str, unit: str, lines: list[Line] | None = None, axis: _Axis = "plain"
    ) -> Figure | None:
        return _figure(record, (_Curve(name, ""),), unit, lines, axis=axis)

    return {
        "loss": loss_figure(record),
        "rate": one("learning_rate", "rate"),
        "norm": one("gradient_norm", "norm", axis="log"),
        "speed": one("tokens_per_second", "tokens / s", axis="zero"),
        "mfu": one("mfu", "share", axis="zero"),
        "cosine": one("cosine", "cosine", rounds, "zero"),
        "mean_norm": one("mean_norm", "norm", rounds, "log"),
        "there": one("there", "workers", rounds, "zero"),
        "wait": one("wait_seconds", "seconds", rounds, "zero"),
        "heldout": _figure(record, heldout, "nats per base", probes),
        "sources": _figure(record, old_and_new if probed.also else (), "nats per base", probes),
        "recovery": _figure(record, recovery, "share of bases", probes),
        "gap": _figure(record, (_Curve("gap", "", GREEN),), "share of bases", probes),
    }


@matplotlib.rc_context(PAGE_STYLE)
def _figure(
    record: RunRecord,
    curves: Sequence[_Curve],
    unit: str,
    lines: Sequence[Line] | None = None,
    *,
    axis: _Axis = "plain",
) -> Figure | None:
    """Draw curves over the steps of `lines`, or of the run; None if there is nothing to draw."""
    groups = stretches(len(record.steps), record.boundaries, _POINTS)
    if lines is not None:
        groups = stretches(len(lines), [], _POINTS)
    lines = record.steps if lines is None else lines
    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    axes = figure.subplots()
    steps = reduced(column(lines, "step"), groups, np.mean)
    found = [(curve, column(lines, curve.name)) for curve in curves]
    found = [(curve, values) for curve, values in found if np.isfinite(values).any()]
    if not found:
        return None
    for curve, values in found:
        values = np.where(values > 0, values, np.nan) if axis == "log" else values
        means = reduced(values, groups, np.mean)
        marker = "o" if len(groups) <= _FEW else ""
        axes.plot(steps, means, color=curve.colour, label=curve.label, marker=marker, markersize=4)
        if axis == "log":
            least, most = reduced(values, groups, np.min), reduced(values, groups, np.max)
            axes.fill_between(steps, least, most, color=curve.colour, alpha=0.25, linewidth=0)
    _finish(axes, unit, axis)
    _mark_phases(axes, record)
    if len(found) > 1:
        figure.legend(frameon=False, loc="outside upper right", ncols=len(found))
    return figure


def _finish(axes: Any, unit: str, axis: _Axis) -> None:
    axes.set(xlabel="step", ylabel=unit)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    if axis == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    if axis == "zero":
        axes.set_ylim(bottom=0)
    if axes.get_ylim()[1] >= _THOUSAND:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _mark_phases(axes: Any, record: RunRecord) -> None:
    """Draw where phases begin, with their names above, and skipped steps."""
    if not record.steps:
        return
    over = axes.get_xaxis_transform()
    first, last = axes.get_xlim()
    free = [first, first]  # where the two lines of names have room from
    for place in (0, *record.boundaries):
        step, name = record.steps[place]["step"], record.steps[place]["phase"][:_NAME_LETTERS]
        if place:
            axes.axvline(step - 0.5, color=GREY, linestyle="--", linewidth=1)
        width = (last - first) * (0.01 + 0.02 * len(name))
        start = min(step, last - width)
        row = next((row for row in (0, 1) if start >= free[row]), None)
        if row is not None:
            height = 1.01 + 0.07 * row
            axes.text(start, height, name, transform=over, color=GREY, size=9, parse_math=False)
            free[row] = start + width
    if skipped := _skipped(record):
        axes.plot(skipped, [0.03] * len(skipped), "x", transform=over, color=INK, markersize=5)


def _skipped(record: RunRecord) -> list[int]:
    return [line["step"] for line in record.steps if "skipped" in line]
