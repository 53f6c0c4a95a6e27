"""Designs side by side as a page: their values, their constraints and their differing bases."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from markupsafe import Markup

from carbon.design.benchmark_functions import CHANCE_NATS
from carbon.io.tables import Columns, Write, text_of
from carbon.progress import TableRow
from carbon.reports.render import render_page

_LINE_BP = 60


@contextmanager
def write_html(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write one page when all designs are there."""
    designs: list[dict[str, Any]] = []
    yield lambda row: designs.append(dict(zip(columns, row, strict=True)))
    path.write_text(designs_page(designs, settings), encoding="utf-8")


def designs_page(designs: Sequence[dict[str, Any]], settings: dict[str, Any]) -> str:
    """Return the page: a column per design, then the bases of all designs below one another."""
    names = [design["name"] for design in designs]
    properties = [
        name
        for name in designs[0]
        if name not in ("name", "bases") and any(design[name] is not None for design in designs)
    ]
    return render_page(
        "designs.html",
        f"{len(designs)} designs",
        f"by the model {settings['model']}; scoring functions: {settings['functions']}",
        summary=_summary(designs),
        header=("", *names),
        rows=[(name, *(_cell(design[name]) for design in designs)) for name in properties],
        blocks=list(_blocks(names, [design["bases"] for design in designs])),
        settings=[(name, text_of(value)) for name, value in settings.items() if value is not None],
    )


def _summary(designs: Sequence[dict[str, Any]]) -> list[str]:
    first, nats = designs[0]["name"], [design["nats_per_base"] for design in designs]
    return [
        f"{first} is the best by the goals, or one of the best.",
        f"The designs have {min(nats):.3f} to {max(nats):.3f} nats per base; random bases have "
        f"{CHANCE_NATS:.3f}.",
        "A design is a hypothesis: a scoring function may be wrong about it.",
    ]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else text_of(value)


def _blocks(names: Sequence[str], sequences: Sequence[str]) -> Iterator[list[TableRow]]:
    """Yield rows of position, name and bases for each 60 bases of all designs."""
    for start in range(0, len(sequences[0]), _LINE_BP):
        first = sequences[0][start : start + _LINE_BP]
        yield [
            (str(start + 1), name, _marked(bases[start : start + _LINE_BP], first))
            for name, bases in zip(names, sequences, strict=True)
        ]


def _marked(bases: str, first: str) -> Markup:
    """Return bases as HTML, those that differ from the first design's in bold."""
    return Markup("").join(
        Markup("<span class={}>{}</span>").format(base, base)
        if base == other
        else Markup("<b class={}>{}</b>").format(base, base)
        for base, other in zip(bases, first, strict=True)
    )
