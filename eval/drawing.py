"""Figures of evaluations, in the style of `carbon.reports`."""

import matplotlib

from carbon.reports.figures import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE_STYLE,
    axes_of,
    svg_of,
)
from carbon.reports.render import (
    Row,
    html_answer,
    html_figure,
    html_page,
    html_paragraph,
    html_section,
    html_table,
    interval,
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
