"""How reports look: pages that need no other file, with one stylesheet and one set of pictures.

Colours are those of Okabe and Ito (2008), told apart by any eye. On a page each is a variable, so
that pictures follow light, dark and paper. Drawing needs matplotlib.
"""

import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from carbon.progress import TableRow, shown
from carbon.reports.figures import PICTURE_STYLE

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
INK, GREY = "#1a1a1b", "#767677"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#e69f00", "#56b4e9", INK)
_VARIABLES = {INK: "ink", GREY: "faint", "#e5e5e5": "line", "#e69f00": "amber", "#56b4e9": "sky"}
_VARIABLES |= {BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple"}

PAGE_STYLE: dict[Any, Any] = PICTURE_STYLE | {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    **{f"{what}.color": INK for what in ("text", "xtick", "ytick")},
    **{f"axes.{what}": INK for what in ("edgecolor", "labelcolor")},
}
"""What is drawn for a page is drawn in this context."""

_LIGHT = """--paper: #fff; --ink: #1a1a1a; --faint: #595959; --line: #ccc; --blue: #0072B2;
  --orange: #D55E00; --green: #009E73; --purple: #CC79A7; --amber: #E69F00; --sky: #56B4E9;
  --A: #00714f; --C: #0060a0; --G: #8a5a00; --T: #b8432f;"""
_DARK = """--paper: #15181c; --ink: #e8e8e8; --faint: #adadad; --line: #444a50; --blue: #56B4E9;
  --orange: #F08A4B; --green: #33C79B; --purple: #E39BC7; --amber: #F2B84B; --sky: #A5D8F7;
  --A: #33C79B; --C: #56B4E9; --G: #F2B84B; --T: #F08A4B;"""
_STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 1.5rem auto;
       padding: 0 1rem; color: var(--ink); background: var(--paper); overflow-wrap: anywhere; }}
h1 {{ margin: 0; }} h2 {{ margin: 2.2rem 0 .3rem; }} small, figcaption {{ color: var(--faint); }}
a {{ color: var(--blue); }} .answer {{ font-size: 1.15rem; max-width: 46rem; }}
.scroll {{ overflow-x: auto; }} table {{ border-collapse: collapse; font-size: .9rem;
        margin: .6rem 0; }}
td, th {{ padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
         border-bottom: 1px solid var(--line); overflow-wrap: normal; }}
td {{ min-width: 4rem; font-variant-numeric: tabular-nums; }}
.n {{ text-align: right; white-space: nowrap; }}
.grid {{ display: grid; gap: 1rem 2rem;
        grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }}
.grid figure {{ max-width: 36rem; }} figure {{ margin: .6rem 0; }}
figcaption {{ font-size: .9rem; }}
.bars {{ max-width: 26rem; }} svg {{ max-width: 100%; height: auto; display: block; }}
.grid svg {{ width: 100%; }}
svg text {{ font-family: system-ui, sans-serif !important; }}
.sequence {{ font: 14px/1.6 ui-monospace, monospace; overflow-wrap: anywhere; }}
.A {{ color: var(--A); }} .C {{ color: var(--C); }} .G {{ color: var(--G); }}
.T {{ color: var(--T); }}
@media print {{ body {{ font-size: 11pt; margin: 0; max-width: none; }}
  h2 {{ break-after: avoid; }} figure, tr {{ break-inside: avoid; }}
  .scroll {{ overflow: visible; }} }}
"""

Row = tuple[str, ...]


def axes_of(width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure of so many inches and its axes, open at the top and on the right."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


@rc_context(PAGE_STYLE)
def svg_of(figure: Figure) -> str:
    """Return a figure as an `svg` element; equal figures give equal bytes.

    Colours of this module become variables of the page; no address and no name of a group is left,
    so that several pictures may stand on one page.
    """
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None}
    )
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    for colour, name in _VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def html_figure(picture: str, caption: str = "", more: str = "") -> str:
    """Put a picture under its caption, which is text; `more` is HTML that follows it."""
    told = f"<figcaption>{html.escape(caption)}{more}</figcaption>" if caption or more else ""
    return f"<figure>{told}{picture}</figure>"


def html_grid(figures: Iterable[str]) -> str:
    """Put pictures side by side, as many as there is room for."""
    return f"<div class='grid'>{''.join(figures)}</div>"


def html_table(rows: Sequence[TableRow], header: Row = ()) -> str:
    """Return a table of text and numbers; columns that begin with a number are set on the right."""
    if not rows:
        return "<p>None.</p>"
    is_number = [not isinstance(cell, str) for cell in rows[0]]

    def line(cells: Sequence[str], tag: str) -> str:
        texts = (
            f"<{tag}{' class=n' * right}>{html.escape(cell)}</{tag}>"
            for cell, right in zip(cells, is_number, strict=True)
        )
        return f"<tr>{''.join(texts)}</tr>"

    lines = [line(header, "th")] if header else []
    lines += [line([*map(shown, row)], "td") for row in rows]
    return f"<div class='scroll'><table>{''.join(lines)}</table></div>"


def html_paragraph(text: str) -> str:
    """Return plain text as a paragraph."""
    return f"<p>{html.escape(text)}</p>"


def html_answer(sentences: Iterable[str]) -> str:
    """Return what a page opens with: the answer in two to four plain sentences."""
    return f"<p class='answer'>{html.escape(' '.join(sentences))}</p>"


def html_section(title: str, text: str, *parts: str) -> str:
    """Return a heading, a paragraph of HTML where there is one, and what follows it."""
    told = f"<p>{text}</p>" if text else ""
    return f"<h2>{html.escape(title)}</h2>{told}{''.join(parts)}"


def interval(estimate: dict[str, Any], digits: int = 3) -> str:
    """Write a value and its interval; a dash where there is none."""
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return "-" if value is None else f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def html_page(title: str, small: str, *sections: str) -> str:
    """Return a whole page that needs nothing but itself; the title is text, all else HTML."""
    title = html.escape(title)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f"<small>{small}</small>{''.join(sections)}</html>\n"
    )


_NO_LICENCE = """\
# Not chosen yet: put the identifier of a licence here, such as apache-2.0, and drop its name.
license: other
license_name: unknown
"""


def plain(text: str) -> str:
    r"""Escape what Markdown or HTML would take for more than text.

    >>> plain("a|b <c>")
    'a\\|b &lt;c&gt;'
    """
    for mark in "\\`*[]|":
        text = text.replace(mark, f"\\{mark}")
    return html.escape(" ".join(text.split()), quote=False)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a table; cells are text."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(plain(cell) for cell in cells) + " |\n"

    return line(header) + "|---" * len(header) + "|\n" + "".join(map(line, rows))


def card_front(library: str, pipeline: str, licence: str | None = None, measured: str = "") -> str:
    """Return what a model card of the Hub begins with; no licence says that none is chosen.

    Args:
        library: that loads the model.
        pipeline: what the Hub calls the task.
        licence: identifier of a licence.
        measured: lines of YAML, `model-index` with what was measured.

    Source: huggingface.co/docs/hub/model-cards, "Model card metadata".
    """
    chosen = f"license: {licence}\n" if licence else _NO_LICENCE
    tags = "".join(f"- {tag}\n" for tag in ("dna", "genomics", "biology", "carbon"))
    what = f"library_name: {library}\npipeline_tag: {pipeline}\n{chosen}"
    return f"---\n{what}tags:\n{tags}{measured}---\n"
