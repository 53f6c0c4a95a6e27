"""One HTML page about one run: what it was, how it went, what it cost."""

import html
import io
import re
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
from carbon.console import TableRow, shown
from carbon.files import atomic_file
from carbon.run_folder import Line, column, reduced, stretches
from train.planning.course import Course
from train.run_folder.record import (
    HELDOUT_OF,
    RunRecord,
    beginning,
    objective_changes,
    read_run,
    recipe_rows,
    results_of,
)

# Okabe and Ito's colours, told apart by any eye. On the page each is a variable, so that the
# pictures follow light and dark.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
_INK, _FAINT = "#1a1a1b", "#767677"
_VARIABLES = {BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple"}
_VARIABLES |= {_INK: "ink", _FAINT: "faint"}
_RC: dict[Any, Any] = {
    # Equal input gives equal bytes: no random identifiers, text kept as text.
    "svg.hashsalt": "carbon",
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    **{f"{what}.color": _INK for what in ("text", "xtick", "ytick")},
    **{f"axes.{what}": _INK for what in ("edgecolor", "labelcolor")},
}
_POINTS = 300
_FEW = 40  # points that get a mark each
_NAME_LETTERS = 14
_THOUSAND = 1000
_MOST_EVENTS = 200
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --faint: #595959; --line: #ccc;
        --blue: #0072B2; --orange: #D55E00; --green: #009E73; --purple: #CC79A7; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e8e8e8; --faint: #adadad;
        --line: #444a50; --blue: #56B4E9; --orange: #E69F00; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 1.5rem auto;
       padding: 0 1rem; color: var(--ink); background: var(--paper); overflow-wrap: anywhere; }
h1 { margin: 0; } h2 { margin: 2.2rem 0 .3rem; } small, figcaption { color: var(--faint); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem;
        margin: .6rem 0; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
         border-bottom: 1px solid var(--line); overflow-wrap: normal; }
td { min-width: 4rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.grid { display: grid; gap: 1rem 2rem;
        grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
figure { margin: .6rem 0; max-width: 36rem; } figcaption { font-size: .9rem; }
svg { width: 100%; height: auto; display: block; }
svg text { font-family: system-ui, sans-serif !important; }
"""


def write_summary(run: Path) -> Path:
    """Write `summary.html` into the run folder and return its path.

    Raises:
        ConfigError: there is no config.toml, or a file of the folder is malformed.
    """
    record = read_run(run)
    title = html.escape(f"Run {record.name}")
    made = (_totals, _recipe, _curves, _meetings, _probes, _events)
    sections = [section(record) for section in made]
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f"<small>Carbon {__version__}. From the run folder: config.toml, metrics.jsonl, "
        f"probes.jsonl, events.jsonl and rounds.jsonl.</small>{''.join(sections)}</html>\n"
    )
    with atomic_file(run / "summary.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    return run / "summary.html"


def _totals(record: RunRecord) -> str:
    steps, planned = record.steps, Course(record.config).total_steps
    if not steps:
        return _section("In short", f"No step has been taken yet; {planned:,} are planned.")
    speeds = column(steps, "tokens_per_second")
    read = _tokens_of_steps(record)
    timed = np.isfinite(speeds) & (speeds > 0)
    seconds = float((read[timed] / speeds[timed]).sum())
    rows: list[TableRow] = [
        ("steps", f"{steps[-1]['step']:,} of {planned:,} planned"),
        ("steps skipped", f"{sum('skipped' in line for line in steps):,}"),
        ("tokens", f"{steps[-1]['tokens']:,}"),
    ]
    if seconds:
        rows.append(("time of computing", _duration(seconds)))
        rows.append(("tokens a second, mean", f"{read[timed].sum() / seconds:,.0f}"))
    used = column(steps, "mfu")
    if np.isfinite(used).any():
        rows.append(("share of peak FLOP/s (MFU), mean", f"{100 * np.nanmean(used):.1f} %"))
    rows += [(name, f"{value:.4f} at step {step:,}") for name, step, value in results_of(record)]
    text = (
        "The time is tokens over tokens a second, summed over steps: start, probes and saves are "
        "not in it, nor are steps that were taken back."
    )
    return _section("In short", text, _table(rows))


def _tokens_of_steps(record: RunRecord) -> NDArray[np.float64]:
    """Return the tokens of each step; learners write down those of all of them together."""
    if record.config.learners.count:
        course = Course(record.config)
        batches = [course.at(line["step"] - 1).stage.batch_tokens for line in record.steps]
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
    config = record.config
    adam = config.optimizer
    text = (
        f"{beginning(config)}; corpus {config.data.corpus}; seed {config.seed}. AdamW "
        f"with betas {adam.beta1:g} and {adam.beta2:g}, epsilon {adam.epsilon:g}, weight decay "
        f"{adam.weight_decay:g}; gradients clipped to a norm of {adam.clip_norm:g}; "
        f"dtype {config.compute.dtype}."
    )
    header, *rows = recipe_rows(record)
    return _section("Recipe", html.escape(text), _table(rows, header))


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
_OF_MEETINGS: tuple[tuple[str, str, str, _Axis], ...] = (
    ("Cosine between a learner's change and the mean of all, mean of the learners. With K that "
     "have nothing in common it is 1 over the root of K.", "cosine", "cosine", "zero"),
    ("Norm of the mean change.", "mean_norm", "norm", "log"),
    ("Learners that took part.", "there", "learners", "zero"),
    ("Wait for a meeting.", "wait_seconds", "seconds", "zero"),
)  # fmt: skip


def loss_figure(record: RunRecord) -> Figure | None:
    """Draw nats per base by chain and by marginals, with the stages; None if there are none."""
    return _figure(record, _LOSSES, "nats per base")


def _curves(record: RunRecord) -> str:
    stretch = -(-len(record.steps) // _POINTS)
    means = f" Each point is the mean of about {stretch:,} steps." if stretch > 1 else ""
    pictures = (
        _picture(
            "Nats per base: the chain is the likelihood of the sequence and means the same under "
            "either objective; the marginals are what FNS trains.",
            loss_figure(record),
        ),
        _picture("Learning rate.", _figure(record, _RATE, "rate")),
        _picture(
            "Norm of the gradient before clipping"
            + ("; the band is from the least to the largest." if stretch > 1 else "."),
            _figure(record, _NORM, "norm", axis="log"),
        ),
        _picture("Throughput.", _figure(record, _SPEED, "tokens / s", axis="zero")),
        _picture("Share of peak FLOP/s (MFU).", _figure(record, _MFU, "share", axis="zero")),
    )
    text = f"On training rows.{means} Dashed lines are where a stage begins"
    text += ", crosses are steps that were skipped." if _skipped(record) else "."
    changes = html.escape(" ".join(objective_changes(record)))
    return _section("Curves", f"{text} {changes}".rstrip(), _grid(pictures))


def _meetings(record: RunRecord) -> str:
    """Say how often a learner has met the others, and how far they agree; nothing of other runs."""
    rounds = record.rounds
    if not rounds:
        return ""
    sent, received = (sum(line[name] for line in rounds) for name in ("sent", "received"))
    waited = float(np.nansum(column(rounds, "wait_seconds")))
    text = (
        f"Meetings with other learners: {len(rounds):,}. This one sent {sent / 1e6:,.1f} MB, "
        f"received {received / 1e6:,.1f} MB and waited {_duration(waited)}."
    )
    there = [line | {"there": len(line.get("learners", ()))} for line in rounds]
    pictures = [
        _picture(caption, _figure(record, (_Curve(name, ""),), unit, there, axis=axis))
        for caption, name, unit, axis in _OF_MEETINGS
    ]
    return _section("Meetings", text, _grid(pictures))


def _probes(record: RunRecord) -> str:
    if not record.probes:
        return _section("Probes", "None.")
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
    return _section("Probes", text, _grid(pictures))


def _events(record: RunRecord) -> str:
    told = [event for event in record.events if event["event"] != "save"]
    saves = len(record.events) - len(told)
    rows: list[TableRow] = [
        (int(event["step"]), str(event["event"]), str(event["message"]))
        for event in told[-_MOST_EVENTS:]
    ]
    text = f"{len(told):,} events; {saves:,} saves are not listed."
    if len(told) > _MOST_EVENTS:
        text += f" The last {_MOST_EVENTS}; events.jsonl has all."
    if not told:
        return _section("Events", text)
    return _section("Events", text, _table(rows, ("step", "event", "message")))


@matplotlib.rc_context(_RC)
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
    _mark_stages(axes, record)
    if len(found) > 1:
        axes.legend(frameon=False)
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


def _mark_stages(axes: Any, record: RunRecord) -> None:
    """Draw where stages begin, with their names above, and what was skipped."""
    if not record.steps:
        return
    over = axes.get_xaxis_transform()
    first, last = axes.get_xlim()
    free = [first, first]  # where the two lines of names have room from
    for place in (0, *record.boundaries):
        step, name = record.steps[place]["step"], record.steps[place]["stage"][:_NAME_LETTERS]
        if place:
            axes.axvline(step - 0.5, color=_FAINT, linestyle="--", linewidth=1)
        width = (last - first) * (0.01 + 0.02 * len(name))
        start = min(step, last - width)
        row = next((row for row in (0, 1) if start >= free[row]), None)
        if row is not None:
            height = 1.01 + 0.07 * row
            axes.text(start, height, name, transform=over, color=_FAINT, size=9, parse_math=False)
            free[row] = start + width
    if skipped := _skipped(record):
        axes.plot(skipped, [0.03] * len(skipped), "x", transform=over, color=_INK, markersize=5)


def _skipped(record: RunRecord) -> list[int]:
    return [line["step"] for line in record.steps if "skipped" in line]


@matplotlib.rc_context(_RC)
def _svg(figure: Figure) -> str:
    """Return a figure as an element of a page: its colours variables, no address in it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # several pictures would share them
    for colour, name in _VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _picture(caption: str, figure: Figure | None) -> str:
    if figure is None:
        return ""
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{_svg(figure)}</figure>"


def _grid(pictures: Sequence[str]) -> str:
    return f"<div class='grid'>{''.join(pictures)}</div>"


def _section(title: str, text: str, *parts: str) -> str:
    """Return a section; `text` is HTML already."""
    return f"<h2>{title}</h2><p>{text}</p>{''.join(parts)}"


def _table(rows: Sequence[TableRow], header: TableRow = ()) -> str:
    def line(row: TableRow, tag: str) -> str:
        cells = (
            f"<{tag}{' class=n' * (not isinstance(cell, str))}>{html.escape(shown(cell))}</{tag}>"
            for cell in row
        )
        return f"<tr>{''.join(cells)}</tr>"

    lines = (line(header, "th") if header else "") + "".join(line(row, "td") for row in rows)
    return f"<div class='scroll'><table>{lines}</table></div>"
