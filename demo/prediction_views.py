"""Views of the panel `predict`."""

from collections.abc import Iterator, Sequence
from typing import Any

from carbon.genome import fasta_text
from demo.figures import BLUE, GREY, ORANGE, Figure, figure, plain, stacked_axes
from demo.markup import download, facts, paragraph, shortened, table, tsv
from demo.panel import Result
from demo.words import named

_MOST_DRAWN = 8  # outputs that the figure draws
_MOST_ROWS = 300  # rows of the table on the page; the download has all
_ROW_HEIGHT, _LEAST_HEIGHT, _GAP = 130, 320, 0.06


def prediction_facts(result: Result) -> str:
    """Return a description of the model and of the variant's effect on its predictions."""
    pairs = [
        ("model", result["model"]),
        ("method", result["method"]),
        ("task", result["task"]),
        ("strands", result["strands"]),
        ("sequences", f"{len(result['names']):,}"),
    ]
    markup = facts(pairs)
    if variant := result["variant"]:
        header = ("output", "with ALT", "with REF", "ALT - REF")
        columns = (result["outputs"], variant["alt"], variant["ref"], variant["delta"])
        caption = f"{named(variant['variant'])}, in {variant['window_bp']:,} bases"
        markup += table(header, zip(*columns, strict=True), caption)
    if len(result["outputs"]) > _MOST_DRAWN:
        markup += paragraph(f"The figure has the first {_MOST_DRAWN} outputs, the download all.")
    return markup


def prediction_figure(result: Result) -> Figure:
    """Return a row for each output: bars of sequences, or lines along the bases of the first."""
    outputs = result["outputs"][:_MOST_DRAWN]
    per_base, suffixes, height = result["per_base"], stacked_axes(len(outputs)), 1 / len(outputs)
    axes = {
        f"yaxis{suffix}": {
            "domain": [1 - (n + 1) * height + _GAP * height, 1 - n * height - _GAP * height],
            "title": {"text": plain(shortened(output))},
            **({} if result["task"] in ("numbers", "tracks") else {"range": [0, 1]}),
        }
        for n, (suffix, output) in enumerate(zip(suffixes, outputs, strict=True))
    }
    along = f"base of {shortened(result['names'][0])}" if per_base else ""
    kind = {} if per_base else {"type": "category"}
    return figure(
        list((_lines if per_base else _bars)(result, suffixes)),
        height=max(_LEAST_HEIGHT, _ROW_HEIGHT * len(outputs)),
        showlegend=False,
        xaxis={"anchor": f"y{suffixes[-1]}", "title": {"text": plain(along)}, **kind},
        **axes,
    )


def prediction_tables(result: Result, fasta_name: str) -> str:
    """Return the table, and links that save all rows and the sequences."""
    if not result["names"]:
        return ""
    place = ("name", "position", "base") if result["per_base"] else ("name", "bases")
    chosen = ("predicted",) if any(result["classes"]) else ()
    header = (*place, *chosen, *(f"predicted_{name}" for name in result["outputs"]))
    rows = list(_rows(result))
    caption = f"The first {_MOST_ROWS} of {len(rows):,} rows" if len(rows) > _MOST_ROWS else ""
    pairs = zip(result["names"], result["sequences"], strict=True)
    shown = table(header, rows[:_MOST_ROWS], caption)
    saved = download("predictions.tsv", tsv(header, rows)) + download(fasta_name, fasta_text(pairs))
    return f'{saved}<div class="tall">{shown}</div>'


def _rows(result: Result) -> Iterator[Sequence[Any]]:
    """Yield the rows in the format of `carbon predict`."""
    columns = (result["names"], result["sequences"], result["predictions"], result["classes"])
    for name, bases, predicted, classes in zip(*columns, strict=True):
        if not result["per_base"]:
            yield (name, len(bases), *classes, *predicted)
            continue
        for n, (base, values) in enumerate(zip(bases, predicted, strict=True)):
            yield (name, n + 1, base, *classes[n : n + 1], *values)


def _bars(result: Result, suffixes: Sequence[str]) -> Iterator[dict[str, Any]]:
    names = [plain(shortened(name)) for name in result["names"]]
    values, colors = list(result["predictions"]), [BLUE] * len(names)
    if variant := result["variant"]:
        names += ["REF", "ALT"]
        values += [variant["ref"], variant["alt"]]
        colors += [GREY, ORANGE]
    # Two sequences with the same name need two bars.
    labels = [
        name if names.count(name) == 1 else f"{name} ({n})" for n, name in enumerate(names, 1)
    ]
    for at, suffix in enumerate(suffixes):
        yield {
            "type": "bar", "x": labels, "y": [each[at] for each in values],
            "yaxis": f"y{suffix}", "marker": {"color": colors},
        }  # fmt: skip


def _lines(result: Result, suffixes: Sequence[str]) -> Iterator[dict[str, Any]]:
    first = result["predictions"][0]
    for at, suffix in enumerate(suffixes):
        yield {
            "type": "scatter", "mode": "lines", "x": list(range(1, len(first) + 1)),
            "y": [each[at] for each in first], "yaxis": f"y{suffix}",
            "line": {"color": BLUE, "width": 1.5},
        }  # fmt: skip
