"""Self-contained HTML pages and Markdown cards by jinja2 templates, with one stylesheet.

Text is escaped everywhere: in pages by jinja2, in cards by the filter `plain`. Arguments that are
documented as HTML are inserted unchanged.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from carbon.progress import TableRow, shown
from carbon.reports.card import plain, table

_FOLDER = Path(__file__).parent
_TEMPLATES = _FOLDER / "templates"
Row = tuple[str, ...]


@cache
def templates_in(folder: Path) -> Environment:
    """Return the templates of a folder; those whose names end in `.html` escape text."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=lambda name: name is None or name.endswith(".html"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    environment.filters |= {"plain": plain, "labelled": _labelled}
    environment.globals |= {"table": table, "data_table": lambda *each: Markup(html_table(*each))}
    return environment


def _labelled(picture: Markup, caption: str) -> Markup:
    """Add the caption to an `svg` element as its alternative text."""
    if not caption:
        return picture
    return picture.replace("<svg", Markup("<svg role='img' aria-label='{}'").format(caption), 1)


def render_page(template: str, title: str, small: str | Markup, **context: Any) -> str:
    """Return a page that needs no other file.

    Args:
        template: a file of `templates/` that extends `page.html`.
        title: text.
        small: line below the title; text, or HTML as `Markup`.
        **context: variables of the template; HTML as `Markup`.
    """
    style = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))
    page = templates_in(_TEMPLATES).get_template(template)
    return page.render(title=title, small=small, style=style, **context)


def render_card(template: str, **context: Any) -> str:
    """Return a Markdown card.

    Args:
        template: a `.md` file of `templates/`; it has the filter `plain` and the function `table`.
        **context: variables of the template.
    """
    return templates_in(_TEMPLATES).get_template(template).render(**context)


def html_page(title: str, small: str, *sections: str) -> str:
    """Return a page of sections; the title is text, everything else HTML."""
    return render_page(
        "page.html", title, Markup(small), sections=[Markup(section) for section in sections]
    )


def _part(name: str, *arguments: Any) -> str:
    macro = getattr(templates_in(_TEMPLATES).get_template("parts.html").module, name)
    return str(macro(*arguments))


def html_figure(picture: str, caption: str = "", more: str = "") -> str:
    """Return a picture (HTML) with a caption (text), and `more` (HTML) after the caption."""
    return _part("figure", Markup(picture), caption, Markup(more))


def html_grid(figures: Iterable[str]) -> str:
    """Return figures (HTML) side by side, as many as fit."""
    return _part("grid", list(map(Markup, figures)))


def html_table(rows: Sequence[TableRow], header: Row = ()) -> str:
    """Return a table of text and numbers; columns that begin with a number are right-aligned."""
    is_number = [not isinstance(cell, str) for cell in rows[0]] if rows else []
    return _part("table", [list(map(shown, row)) for row in rows], header, is_number)


def html_answer(sentences: Iterable[str]) -> str:
    """Return the opening of a page: its result in two to four sentences, which are text."""
    return _part("answer", list(sentences))


def html_section(title: str, text: str, *parts: str) -> str:
    """Return a section: heading (text), paragraph (HTML, may be empty) and parts (HTML)."""
    return _part("section", title, Markup(text), list(map(Markup, parts)))


def interval(estimate: dict[str, Any], digits: int = 3) -> str:
    """Return a value and its interval as text; a dash for a missing value."""
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return "-" if value is None else f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
