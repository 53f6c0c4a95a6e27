"""The report's pages: one self-contained HTML, one Markdown table, a CSV for every picture."""

import base64
import csv
import html
import io
from collections.abc import Sequence
from pathlib import Path

from carbon.io.files import atomic_file
from carbon.uncertainty import inside_noise
from eval.drawing import (
    Row,
    html_answer,
    html_figure,
    html_page,
    html_section,
    html_table,
    interval,
    svg_of,
)
from eval.records import Stored, check_folder
from eval.report.collect import (
    Comparison,
    Section,
    comparisons_of,
    precision_gaps,
    sections_of,
    skipped_of,
)
from eval.report.pictures import Picture, Table, cost_picture, overview, pictures_of

_MARKDOWN = "report.md"
_HTML = "report.html"
_MOST_TOLD = 3  # models that the page opens with


def write_report(folders: Sequence[Path], output: Path, title: str) -> Path:
    """Write `report.html`, `report.md` and `csv/` and return the path of the page.

    Args:
        folders: what `run` wrote; records of one task stand beside one another.
        output: folder to write to.
        title: of the page.

    Raises:
        ConfigError: a folder has no records, or they cannot stand in one report.
        UserError: the output is a file.
    """
    check_folder(output)
    sections = sections_of(folders)
    compared = {section.task["name"]: comparisons_of(section) for section in sections}
    gaps = [gap for section in sections for gap in precision_gaps(section)]
    tasks = [(section, list(pictures_of(section))) for section in sections]
    first = [overview(sections), cost_picture(sections)]
    tables = {p.name: p.table for p in [*first, *(p for _, found in tasks for p in found)]}
    tables["comparisons"] = _comparison_table([c for found in compared.values() for c in found])
    tables["precision-gap"] = _comparison_table(gaps)
    body = [
        _answer(sections, [c for found in compared.values() for c in found]), _drawn(first[0]),
        html_section("In short", "", html_table(*_headline_table(sections))),
        *(_task_part(section, found, compared[section.task["name"]]) for section, found in tasks),
        _gap_part(gaps), _cost_part(first[1]), _machine_part(sections),
    ]  # fmt: skip
    small = (
        "Brackets are 95 % bootstrap intervals. Published figures are of other checkpoints and "
        "datasets as they are published; only what was run here is compared."
    )
    output.mkdir(parents=True, exist_ok=True)
    (output / "csv").mkdir(exist_ok=True)
    for name, table in tables.items():
        _write(output / "csv" / f"{name}.csv", _csv_of(table))
    _write(output / _MARKDOWN, _markdown(title, sections, compared, gaps))
    _write(output / _HTML, html_page(title, small, *body))
    return output / _HTML


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _csv_of(table: Table) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(table)
    return sink.getvalue()


def _drawn(picture: Picture) -> str:
    """Return a picture with its data to save, inside the page."""
    data = base64.b64encode(_csv_of(picture.table).encode()).decode()
    link = f" <a download='{picture.name}.csv' href='data:text/csv;base64,{data}'>CSV</a>"
    return html_figure(svg_of(picture.figure), picture.caption, link)


def _answer(sections: Sequence[Section], compared: Sequence[Comparison]) -> str:
    """Say how many were measured, and how each model stands beside the best baselines."""
    models = list(dict.fromkeys(s.entrant for each in sections for s in each.models))
    sentences = [
        f"Models measured: {len(models):,}, on {len(sections):,} task{'s' * (len(sections) != 1)}, "
        "each beside baselines that know no genomes."
    ]
    for name in models[:_MOST_TOLD]:
        found = [c for c in compared if c.first.entrant == name and c.second.is_baseline]
        ahead, behind = (sum(sign * c.difference.value > 0 and not inside_noise(c.difference)
                             for c in found) for sign in (1, -1))  # fmt: skip
        sentences.append(
            f"{name} is ahead of the best baseline on {ahead} of {len(found)} tasks, behind on "
            f"{behind}, and no difference is shown on {len(found) - ahead - behind}."
        )
    return html_answer(sentences)


def _headlines(section: Section) -> tuple[list[Row], Row]:
    """Return a row an entrant: value, other numbers, samples."""
    summaries = [s.record["summary"] for s in section.all if s.record["summary"]]
    others = list(dict.fromkeys(name for summary in summaries for name in summary["others"]))
    rows = [_headline(stored, others) for stored in section.all]
    rows += [
        (f"{name} (published)", f"{value:g}", *["" for _ in others], "")
        for name, value in section.task["published"].items()
    ]
    metric = section.task["metric"].replace("_", " ")
    return rows, ("", metric, *(name.replace("_", " ") for name in others), "samples")


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
    metric = section.task["metric"].replace("_", " ")
    return (section.task["name"], metric, *values, shown, "-" if chance is None else f"{chance:g}")


def _task_part(
    section: Section, pictures: Sequence[Picture], compared: Sequence[Comparison]
) -> str:
    task = section.task
    skipped = "".join(
        f"<li>{html.escape(stored.entrant)} skipped {count:,}: {html.escape(reason)}</li>"
        for stored, reason, count in skipped_of(section)
    )
    notes = dict.fromkeys(
        note for s in section.all if s.record["summary"] for note in s.record["summary"]["notes"]
    )
    said = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    compared_rows = _comparison_rows(compared)
    return (
        f"<h2>{task['name']}</h2><p>{html.escape(task['measures'])}. Version {task['version']}. "
        f"Published: {html.escape(task['source'])}.</p>"
        + html_table(*_headlines(section))
        + (html_table(compared_rows, _COMPARED) if compared_rows else "")
        + (f"<ul>{said}{skipped}</ul>" if said or skipped else "")
        + "".join(map(_drawn, pictures))
    )


_COMPARED = ("first", "second", "difference", "common samples", "")


def _comparison_rows(compared: Sequence[Comparison]) -> list[Row]:
    return [
        (
            c.first.entrant,
            c.second.entrant,
            interval(c.difference._asdict()),
            f"{c.difference.num_samples:,}",
            c.verdict,
        )
        for c in compared
    ]


def _comparison_table(compared: Sequence[Comparison]) -> Table:
    header = ("task", "first", "second", "difference", "low", "high", "samples", "verdict")
    return [header] + [
        (c.first.task, c.first.entrant, c.second.entrant, *c.difference, c.verdict)
        for c in compared
    ]


def _gap_part(gaps: Sequence[Comparison]) -> str:
    if not gaps:
        return ""
    rows = [(gap.first.task, *row) for gap, row in zip(gaps, _comparison_rows(gaps), strict=True)]
    return (
        "<h2>float32 against bfloat16</h2><p>The same weights, rounded. A gap that is more than "
        "noise tells that the logits are too large for bfloat16.</p>"
        + html_table(rows, ("task", *_COMPARED))
    )


def _cost_part(picture: Picture) -> str:
    header, *rows = picture.table
    shown = [tuple("-" if c is None else _number(c) for c in row) for row in rows]
    return (
        "<h2>Throughput and memory</h2>"
        + _drawn(picture)
        + html_table(shown, tuple(str(cell).replace("_", " ") for cell in header))
    )


def _number(cell: str | float | int) -> str:
    return cell if isinstance(cell, str) else f"{cell:,.4g}"


def _machine_part(sections: Sequence[Section]) -> str:
    """Say with what, on what and from what everything was measured."""
    rows: dict[Row, None] = {}
    for section in sections:
        for stored in section.models or section.all:
            record = stored.record
            options, software, hardware = record["options"], record["software"], record["hardware"]
            gpus = ", ".join(hardware["gpus"]) or "no GPU"
            context_bp = record["model"]["context_bp"]
            rows[
                (
                    section.task["name"],
                    stored.entrant,
                    "any" if context_bp is None else f"{context_bp:,} bp",
                    f"{record['data']['source']} ({record['data']['identity'][:12]})",
                    f"{options['seed']}",
                    f"Carbon {software['carbon']}, {(software['git_revision'] or 'no git')[:12]}",
                    f"{hardware['machine']}, {hardware['cores']} cores, {gpus}",
                )
            ] = None
    header = ("task", "model", "context", "data", "seed", "software", "hardware")
    return "<h2>Where from</h2>" + html_table(list(rows), header)


def _markdown(
    title: str,
    sections: Sequence[Section],
    compared: dict[str, list[Comparison]],
    gaps: Sequence[Comparison],
) -> str:
    parts = [f"# {title}", _markdown_table(*_headline_table(sections))]
    for section in sections:
        parts += [f"## {section.task['name']}", _markdown_table(*_headlines(section))]
        if rows := _comparison_rows(compared[section.task["name"]]):
            parts.append(_markdown_table(rows, _COMPARED))
        parts += [
            f"- {stored.entrant} skipped {count:,}: {reason}"
            for stored, reason, count in skipped_of(section)
        ]
    if gaps:
        parts += ["## float32 against bfloat16", _markdown_table(_comparison_rows(gaps), _COMPARED)]
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: Sequence[Row], header: Row) -> str:
    def line(cells: Row) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), line(tuple("---" for _ in header)), *map(line, rows)])
