"""The files of a report: a self-contained page, Markdown, JSON, and a CSV for each figure."""

import base64
import csv
import io
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from carbon.genome import read_sequences
from carbon.genome.alphabet import gc_share
from carbon.io.files import atomic_file
from carbon.losses.objectives import objective_named
from carbon.reports.render import Row, interval, render_card, render_page
from carbon.run_folder import RunLines, column, read_lines, reduced
from carbon.uncertainty import inside_noise
from eval.metrics import METRICS
from eval.records import Json, Stored, as_json, check_folder
from eval.report.collect import (
    Comparison,
    Section,
    comparisons_of,
    precision_gaps,
    sections_of,
    skipped_of,
)
from eval.report.figures import (
    Picture,
    Table,
    cost_picture,
    overview,
    pictures_of,
    training_loss,
)

_MARKDOWN = "report.md"
_HTML = "report.html"
_NUMBERS = "results.json"
_LAST_STEPS = 20  # of a training run, whose mean loss is reported
_MOST_OPENING = 3  # models in the opening of the page
_COMPARED = ("first", "second", "difference", "common samples", "")


def write_report(
    folders: Sequence[Path],
    output: Path,
    title: str,
    *,
    run: Path | None = None,
    generated: Path | None = None,
) -> Path:
    """Write `report.html`, `report.md`, `results.json` and `csv/`; return the path of the page.

    Args:
        folders: outputs of `eval run`; records of one task are in one section.
        output: folder to write to.
        title: of the page.
        run: folder of a training run, whose loss is shown, too.
        generated: FASTA of `carbon generate` to show.

    Raises:
        ConfigError: a folder has no records, or they do not belong into one report.
        UserError: the output is a file.
    """
    check_folder(output)
    sections = sections_of(folders)
    compared = [comparisons_of(section) for section in sections]
    every = [comparison for found in compared for comparison in found]
    gaps = [gap for section in sections for gap in precision_gaps(section)]
    pictures = [pictures_of(section) for section in sections]
    training = _training(run) if run else None
    first = [overview(sections), cost_picture(sections)]
    shown = [*first, *(p for found in pictures for p in found)]
    tables = {picture.name: picture.table for picture in shown}
    tables |= {"comparisons": _comparison_table(every), "precision-gap": _comparison_table(gaps)}
    shared = {
        "headlines": _as_table(*_headline_table(sections)),
        "tasks": [_task(*each) for each in zip(sections, pictures, compared, strict=True)],
        "compared_header": _COMPARED,
    }
    page = render_page(
        "eval.html",
        title,
        "Brackets are 95 % bootstrap intervals. Published values are of other checkpoints and of "
        "datasets as they are published; only results of these runs are compared.",
        answer=_answer(sections, every),
        overview=_drawn(first[0]),
        training=training,
        gaps=[(gap.first.task, *_comparison_row(gap)) for gap in gaps],
        cost=_cost(first[1]),
        machines=_as_table(*_machines(sections)),
        generated=_generated(generated) if generated else None,
        **shared,
    )
    (output / "csv").mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        _write(output / "csv" / f"{name}.csv", _csv_of(rows))
    rounded = list(map(_comparison_row, gaps))
    _write(output / _MARKDOWN, render_card("eval.md", title=title, gaps=rounded, **shared))
    numbers = as_json(_numbers(sections, compared, run))
    _write(output / _NUMBERS, json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    _write(output / _HTML, page)
    return output / _HTML


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _csv_of(table: Table) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(table)
    return sink.getvalue()


def _drawn(picture: Picture) -> dict[str, Any]:
    """Return a figure with a link to its data, which is inside the page."""
    data = base64.b64encode(_csv_of(picture.table).encode()).decode()
    link = f" <a download='{picture.name}.csv' href='data:text/csv;base64,{data}'>CSV</a>"
    return {"svg": Markup(picture.svg), "caption": picture.caption, "link": Markup(link)}


def _as_table(rows: Sequence[Row], header: Row) -> dict[str, Any]:
    return {"rows": rows, "header": header}


def _answer(sections: Sequence[Section], compared: Sequence[Comparison]) -> list[str]:
    """Return how many models and tasks there are, and each model next to the best baselines."""
    models = list(dict.fromkeys(s.entrant for each in sections for s in each.models))
    sentences = [
        f"Models: {len(models):,}, on {len(sections):,} task{'s' * (len(sections) != 1)}, each "
        "next to baselines that know no genomes."
    ]
    for name in models[:_MOST_OPENING]:
        found = [c for c in compared if c.first.entrant == name and c.second.is_baseline]
        shown = [c for c in found if not inside_noise(c.difference)]
        ahead = sum(c.ahead is c.first for c in shown)
        sentences.append(
            f"{name} is ahead of the best baseline on {ahead} of {len(found)} tasks, behind on "
            f"{len(shown) - ahead}, and no difference is shown on {len(found) - len(shown)}."
        )
    return sentences


def _metric(section: Section) -> str:
    """Return the name of the metric, with its direction where lower is better."""
    name: str = section.task["metric"]
    lower = "" if METRICS[name].higher_is_better else " (lower is better)"
    return name.replace("_", " ") + lower


def _headlines(section: Section) -> tuple[list[Row], Row]:
    """Return a row for each entrant: value, other numbers, samples."""
    summaries = [s.record["summary"] for s in section.all if s.record["summary"]]
    others = list(dict.fromkeys(name for summary in summaries for name in summary["others"]))
    rows = [_headline(stored, others) for stored in section.all]
    rows += [
        (f"{name} (published)", f"{value:g}", *["" for _ in others], "")
        for name, value in section.task["published"].items()
    ]
    return rows, ("", _metric(section), *(name.replace("_", " ") for name in others), "samples")


def _headline(stored: Stored, others: Sequence[str]) -> Row:
    summary, counts = stored.record["summary"], stored.record["counts"]
    samples = f"{counts['measured']:,} of {counts['examples']:,}"
    if summary is None:
        return (stored.entrant, "-", *("" for _ in others), samples)
    found = [interval(summary["others"][n]) if n in summary["others"] else "" for n in others]
    return (stored.entrant, interval(summary["value"]), *found, samples)


def _headline_table(sections: Sequence[Section]) -> tuple[list[Row], Row]:
    """Return tasks by models, with the best baseline and chance of each."""
    names = list(dict.fromkeys(s.entrant for section in sections for s in section.models))
    header = ("task", "metric", *names, "best baseline", "chance")
    return [_cells(section, names) for section in sections], header


def _cells(section: Section, names: Sequence[str]) -> Row:
    by_name = {stored.entrant: stored for stored in section.models}
    values = []
    for name in names:
        summary = by_name[name].record["summary"] if name in by_name else None
        values.append(interval(summary["value"]) if summary else "-")
    best = section.best_baseline
    shown = "-" if best is None else f"{interval(best.record['summary']['value'])} {best.entrant}"
    chance = section.task["chance"]
    last = "-" if chance is None else f"{chance:.4g}"
    return (section.task["name"], _metric(section), *values, shown, last)


def _task(
    section: Section, pictures: Sequence[Picture], compared: Sequence[Comparison]
) -> dict[str, Any]:
    """Return the variables of a task's section."""
    return {
        **{name: section.task[name] for name in ("name", "measures", "version", "source")},
        "headlines": _as_table(*_headlines(section)),
        "compared": list(map(_comparison_row, compared)),
        "notes": _notes(section),
        "skipped": [
            f"{stored.entrant} skipped {count:,}: {reason}"
            for stored, reason, count in skipped_of(section)
        ],
        "figures": list(map(_drawn, pictures)),
    }


def _comparison_row(c: Comparison) -> Row:
    found = interval(as_json(c.difference))
    return (c.first.entrant, c.second.entrant, found, f"{c.difference.num_samples:,}", c.verdict)


def _comparison_table(compared: Sequence[Comparison]) -> Table:
    header = ("task", "first", "second", "difference", "low", "high", "samples", "verdict")
    rows = ((c, as_json(c.difference).values()) for c in compared)
    return [header] + [
        (c.first.task, c.first.entrant, c.second.entrant, *numbers, c.verdict)
        for c, numbers in rows
    ]


def _numbers(
    sections: Sequence[Section], compared: Sequence[Sequence[Comparison]], run: Path | None
) -> Json:
    """Return the values of all entrants, their differences, and how a training run began and ended.

    The layout is in docs/evaluation.md.
    """
    tasks = {
        section.task["name"]: {
            "values": {s.entrant: _value(s) for s in section.all},
            "differences": [
                {
                    "first": c.first.entrant,
                    "second": c.second.entrant,
                    **c.difference._asdict(),
                    "verdict": c.verdict,
                }
                for c in found
            ],
            "notes": _notes(section),
        }
        for section, found in zip(sections, compared, strict=True)
    }
    return {"tasks": tasks, **({"training": _ends(run)} if run else {})}


def _value(stored: Stored) -> Json | None:
    """Return the headline of an entrant with its other numbers and groups."""
    summary = stored.record["summary"]
    if summary is None:
        return None
    return {**summary["value"], "others": summary["others"], "groups": summary["groups"]}


def _notes(section: Section) -> list[str]:
    notes = (s.record["summary"]["notes"] for s in section.all if s.record["summary"])
    return list(dict.fromkeys(chain.from_iterable(notes)))


def _ends(run: Path) -> Json:
    """Return nats per base of training rows at the first step and at the last ones.

    Skipped steps have none.
    """
    lines = read_lines(run)
    nats = column(lines.steps, "nats_per_base")
    return {
        "steps": lines.steps[-1]["step"],
        "tokens": lines.steps[-1]["tokens"],
        "phase_changes": [lines.steps[place]["step"] for place in lines.boundaries],
        "nats_per_base_first": float(nats[0]),
        "nats_per_base_last": float(reduced(nats, [np.arange(len(nats))[-_LAST_STEPS:]])[0]),
    }


def objective_changes(lines: RunLines) -> list[str]:
    """Return a sentence for each change of the objective of a training run."""
    pairs = [(lines.steps[place - 1], lines.steps[place]) for place in lines.boundaries]
    return [
        f"At step {after['step']} the objective changes from "
        f"{objective_named(before['objective']).label} to "
        f"{objective_named(after['objective']).label}."
        for before, after in pairs
        if before["objective"] != after["objective"]
    ]


def _training(run: Path) -> dict[str, Any]:
    """Return the variables of the section on a training run."""
    lines, picture = training_loss(run)
    steps = lines.steps
    text = [
        f"Training run {lines.name}: {steps[-1]['step']:,} steps, {steps[-1]['tokens']:,} tokens."
    ]
    text += objective_changes(lines)
    return {"text": text, "loss": _drawn(picture)}


def _generated(path: Path) -> dict[str, Any]:
    bases = "".join(sequence for _, sequence in read_sequences(path)).upper()
    return {"bases": bases, "gc": gc_share(bases) if bases else 0.0}


def _cost(picture: Picture) -> dict[str, Any]:
    header, *rows = picture.table
    cells = [tuple("-" if c is None else _number(c) for c in row) for row in rows]
    names = tuple(str(cell).replace("_", " ") for cell in header)
    return {"figure": _drawn(picture), **_as_table(cells, names)}


def _number(cell: str | float | int) -> str:
    return cell if isinstance(cell, str) else f"{cell:,.4g}"


def _machines(sections: Sequence[Section]) -> tuple[list[Row], Row]:
    """Return the context, data, software and hardware of each task and model."""
    rows: dict[Row, None] = {}
    for section in sections:
        for stored in section.models or section.all:
            record = stored.record
            options, software, hardware = record["options"], record["software"], record["hardware"]
            gpus = ", ".join(hardware["gpus"]) or "no GPU"
            context_bp = record["model"]["context_bp"]
            row = (
                section.task["name"],
                stored.entrant,
                "any" if context_bp is None else f"{context_bp:,} bp",
                f"{record['data']['source']} ({record['data']['identity'][:12]})",
                f"{options['seed']}",
                f"Carbon {software['carbon']}, {(software['git_revision'] or 'no git')[:12]}",
                f"{hardware['machine']}, {hardware['cores']} cores, {gpus}",
            )
            rows[row] = None
    return list(rows), ("task", "model", "context", "data", "seed", "software", "hardware")
