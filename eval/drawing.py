"""How eval draws: as `carbon.pages` says, in the whole process, which draws nothing else."""

import matplotlib

from carbon.pages import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE_STYLE,
    Row,
    axes_of,
    html_answer,
    html_figure,
    html_page,
    html_paragraph,
    html_section,
    html_table,
    interval,
    svg_of,
)

__all__ = [
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "Row",
    "axes_of",
    "html_answer",
    "html_figure",
    "html_page",
    "html_paragraph",
    "html_section",
    "html_table",
    "interval",
    "svg_of",
]

matplotlib.use("svg")
matplotlib.rcParams.update(PAGE_STYLE)
