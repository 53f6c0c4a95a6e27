"""One HTML page about one run: recipe, curves and cost."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from carbon import __version__
from carbon.io.files import atomic_file
from carbon.progress import TableRow
from carbon.reports.figures import BLUE, GREEN, GREY, INK, ORANGE, PAGE_STYLE, PURPLE, svg_of
from carbon.reports.render import (
    html_answer,
    html_figure,
    html_grid,
    html_page,
    html_section,
    html_table,
)
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
    made = (_answer, _totals, _recipe, _curves, _rounds, _probes, _events)
    small = (
        f"Carbon {__version__}. From the run folder: config.toml, metrics.jsonl, probes.jsonl, "
        "events.jsonl and rounds.jsonl."
    )
    page = html_page(f"Training run {record.name}", small, *(part(record) for part in made))
    with atomic_file(run / "summary.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    return run / "summary.html"


def _answer(record: RunRecord) -> str:
    """Say how far the run has come and what its model reads by now; draw its loss."""
    steps, planned = record.steps, Schedule(record.config).total_steps
    if not steps:
        return html_answer([f"No step has been taken yet; {planned:,} are planned."])
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
    caption = (
        "Nats per base of training rows: the chain is the likelihood of the sequence and means the "
        "same under either objective; the marginals are what FNS trains."
    )
    return html_answer(sentences) + _picture(caption, loss_figure(record))


def _totals(record: RunRecord) -> str:
    steps = record.steps
    if not steps:
        return ""
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
    text = (
        "The time is tokens over tokens a second, summed over steps: start, probes and saves are "
        "not in it, nor are steps that were taken back."
    )
    return html_section("In short", text, html_table(rows))


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


def _recipe(record: RunRecord) -> str:
    config, optimizer = record.config, record.config.optimizer
    text = (
        f"{beginning(config)}; corpus {config.data.corpus}; seed {config.seed}. "
        f"{OPTIMIZERS[optimizer.name].label(optimizer)}; gradients clipped to a norm of "
        f"{optimizer.clip_norm:g}; "
        f"dtype {config.compute.dtype}."
    )
    header, *rows = recipe_rows(record)
    return html_section("Recipe", html.escape(text), html_table(rows, header))


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
_RATE = (_Curve("learning_rate", ""),)
_NORM = (_Curve("gradient_norm", ""),)
_SPEED = (_Curve("tokens_per_second", ""),)
_MFU = (_Curve("mfu", ""),)
_OF_ROUNDS: tuple[tuple[str, str, str, _Axis], ...] = (
    ("Cosine between a worker's pseudo-gradient and the mean, averaged over workers. With K that "
     "have nothing in common it is 1 over the root of K.", "cosine", "cosine", "zero"),
    ("Norm of the mean pseudo-gradient.", "mean_norm", "norm", "log"),
    ("Workers that took part.", "there", "workers", "zero"),
    ("Wait for the other workers.", "wait_seconds", "seconds", "zero"),
)  # fmt: skip


def loss_figure(record: RunRecord) -> Figure | None:
    """Draw nats per base by chain and by marginals, with the phases; None if there are none."""
    return _figure(record, _LOSSES, "nats per base")


def _curves(record: RunRecord) -> str:
    stretch = -(-len(record.steps) // _POINTS)
    means = f" Each point is the mean of about {stretch:,} steps." if stretch > 1 else ""
    pictures = (
        _picture("Learning rate.", _figure(record, _RATE, "rate")),
        _picture(
            "Norm of the gradient before clipping"
            + ("; the band is from the least to the largest." if stretch > 1 else "."),
            _figure(record, _NORM, "norm", axis="log"),
        ),
        _picture("Throughput.", _figure(record, _SPEED, "tokens / s", axis="zero")),
        _picture("Share of peak FLOP/s (MFU).", _figure(record, _MFU, "share", axis="zero")),
    )
    text = f"On training rows.{means} Dashed lines are where a phase begins"
    text += ", crosses are steps that were skipped." if _skipped(record) else "."
    changes = html.escape(" ".join(objective_changes(record)))
    return html_section("Curves", f"{text} {changes}".rstrip(), html_grid(pictures))


def _rounds(record: RunRecord) -> str:
    """Describe how often a worker synchronised, and how far the workers agree."""
    rounds = record.rounds
    if not rounds:
        return ""
    sent, received = (sum(line[name] for line in rounds) for name in ("sent", "received"))
    waited = float(np.nansum(column(rounds, "wait_seconds")))
    text = (
        f"Rounds with other workers: {len(rounds):,}. This worker sent {sent / 1e6:,.1f} MB, "
        f"received {received / 1e6:,.1f} MB and waited {_duration(waited)}."
    )
    there = [line | {"there": len(line.get("workers", ()))} for line in rounds]
    pictures = [
        _picture(caption, _figure(record, (_Curve(name, ""),), unit, there, axis=axis))
        for caption, name, unit, axis in _OF_ROUNDS
    ]
    return html_section("Synchronisation", text, html_grid(pictures))


def _probes(record: RunRecord) -> str:
    if not record.probes:
        return html_section("Probes", "None.")
    lines = [
        line | {"gap": fp32 - bf16}
        for line, fp32, bf16 in zip(
            record.probes,
            column(record.probes, "recovery"),
            column(record.probes, "recovery_bf16"),
            strict=True,
        )
    ]
    heldout = [replace(curve, name=f"heldout_{curve.name}") for curve in _LOSSES]
    probed = record.config.probe
    old_and_new = [_Curve("heldout_nats_per_base", probed.source)] + [
        _Curve(f"{HELDOUT_OF}{name}", name, _OTHERS[place % len(_OTHERS)])
        for place, name in enumerate(probed.also)
    ]
    recovery = (_Curve("recovery", "fp32"), _Curve("recovery_bf16", "bf16", ORANGE))
    pictures = (
        _picture(
            "Nats per base of held-out records.", _figure(record, heldout, "nats per base", lines)
        ),
        _picture(
            "Nats per base of held-out records by source: a rise is what is forgotten.",
            _figure(record, old_and_new, "nats per base", lines) if probed.also else None,
        ),
        _picture(
            "Sequence recovery: share of bases that the most likely continuation of 30 gets right.",
            _figure(record, recovery, "share of bases", lines),
        ),
        _picture(
            "What recovery loses by bf16: fp32 less bf16.",
            _figure(record, (_Curve("gap", "", GREEN),), "share of bases", lines),
        ),
    )
    text = "On held-out records, the same each time."
    return html_section("Probes", text, html_grid(pictures))


def _events(record: RunRecord) -> str:
    listed = [event for event in record.events if event["event"] != "save"]
    saves = len(record.events) - len(listed)
    rows: list[TableRow] = [
        (int(event["step"]), str(event["event"]), str(event["message"]))
        for event in listed[-_MOST_EVENTS:]
    ]
    text = f"{len(listed):,} events; {saves:,} saves are not listed."
    if len(listed) > _MOST_EVENTS:
        text += f" The last {_MOST_EVENTS}; events.jsonl has all."
    if not listed:
        return html_section("Events", text)
    return html_section("Events", text, html_table(rows, ("step", "event", "message")))


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


def _picture(caption: str, figure: Figure | None) -> str:
    return "" if figure is None else html_figure(svg_of(figure), caption)
