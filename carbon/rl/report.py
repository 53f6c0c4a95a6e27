"""The page of an RL fine-tuned model: reward curves, and the diversity of its samples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context

from carbon.design.benchmark_functions import CHANCE_NATS
from carbon.genome.sequences import read_records
from carbon.io.files import atomic_file
from carbon.io.structured import JSON_OBJECT, read_json_lines
from carbon.reports.figures import BLUE, GREY, ORANGE, PAGE_STYLE, axes_of, svg_of
from carbon.reports.render import render_page
from carbon.rl.config import RLConfig
from carbon.rl.folder import samples_file
from carbon.run_folder import METRICS, Values, column

SUMMARY = "summary.html"
_SHARE = 10  # the first and the last tenth of the steps are compared
_NUM_SAMPLES = 5

Lines = Sequence[dict[str, Any]]


class Metric(NamedTuple):
    """A column of `metrics.jsonl`, and the caption of its figure."""

    column: str
    caption: str
    colour: str = BLUE


_CURVES = (
    Metric("nats_per_base", "Entropy of the next 6-mer, nats per base. Random bases have 1.386."),
    Metric("kl_nats_per_base", "Divergence from the starting model, nats per base.", ORANGE),
)


def write_page(folder: Path, config: RLConfig, names: Sequence[str]) -> None:
    """Write `summary.html` of a finished run.

    Args:
        folder: of the run.
        config: of the run.
        names: of the scoring functions.
    """
    lines = [line for _, line in read_json_lines(folder / METRICS, JSON_OBJECT)]
    samples = list(read_records(samples_file(folder, config.steps)))
    values = [Metric(name, f"Mean value of {name} in the group.") for name in names]
    page = render_page(
        "rl.html",
        f"RL fine-tuning on {', '.join(names)}",
        f"{config.steps:,} steps of {config.group} samples of {config.length_bp} bases",
        summary=_summary(lines, [sample.bases for sample in samples]),
        rewards=Markup(_rewards(lines)),
        curves=[
            {"svg": Markup(_figure(curve, lines)), "caption": curve.caption}
            for curve in (*values, *_CURVES)
            if lines[0].get(curve.column) is not None
        ],
        samples=[(sample.name, sample.bases) for sample in samples[:_NUM_SAMPLES]],
    )
    with atomic_file(folder / SUMMARY) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _summary(lines: Lines, drawn: Sequence[str]) -> list[str]:
    before, after = _ends(lines, "reward")
    nats_before, nats_after = _ends(lines, "nats_per_base")
    return [
        f"The mean reward went from {before:.4g} to {after:.4g}, by the first and the last tenth "
        "of the steps.",
        f"The entropy of the next 6-mer went from {nats_before:.3f} to {nats_after:.3f} nats per "
        f"base, where random bases have {CHANCE_NATS:.3f}.",
        f"Of the {len(drawn)} samples of the last step {len(set(drawn))} are distinct: inspect "
        "them before you trust a reward.",
    ]


def _ends(lines: Lines, name: str) -> tuple[float, float]:
    """Return the means over the first and the last tenth of the steps (at least one step)."""
    count = max(len(lines) // _SHARE, 1)
    values = column(lines, name)
    return float(np.mean(values[:count])), float(np.mean(values[-count:]))


def _columns(lines: Lines, *names: str) -> list[Values]:
    return [column(lines, name) for name in names]


@rc_context(PAGE_STYLE)
def _rewards(lines: Lines) -> str:
    steps, mean, spread = _columns(lines, "step", "reward", "reward_std")
    figure, axes = axes_of(9, 3.2)
    axes.fill_between(steps, mean - spread, mean + spread, color=GREY, alpha=0.25, linewidth=0)
    axes.plot(steps, mean, color=BLUE)
    axes.set_xlabel("step")
    axes.set_ylabel("reward")
    return svg_of(figure)


@rc_context(PAGE_STYLE)
def _figure(curve: Metric, lines: Lines) -> str:
    steps, values = _columns(lines, "step", curve.column)
    figure, axes = axes_of(5, 2.6)
    axes.plot(steps, values, color=curve.colour)
    axes.set_xlabel("step")
    return svg_of(figure)
