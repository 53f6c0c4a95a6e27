"""Palette, styles and output of all figures; functions that draw need matplotlib.

Colours are by Okabe and Ito (2008), distinguishable with any colour vision. On a page each colour
of the palette becomes a CSS variable, so figures follow the light, dark and print styles.
"""

import io
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
AMBER, SKY, OLIVE = "#e69f00", "#56b4e9", "#999900"
INK, GREY, LINE = "#1a1a1b", "#767677", "#e5e5e5"
DARK_GREY, LIGHT_GREY, LIGHT_BLUE = "#444444", "#9a9a9a", "#80b9d9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, INK)
"""For curves and groups, in this order."""
_VARIABLES = {INK: "ink", GREY: "faint", LINE: "line", AMBER: "amber", SKY: "sky"}
_VARIABLES |= {BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple"}

# Without time and library version, equal data gives equal files.
PICTURE_METADATA = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
PICTURE_STYLE: dict[Any, Any] = {"svg.hashsalt": "carbon", "svg.fonttype": "none", "font.size": 9}
"""matplotlib settings for figures in files of their own."""
PAGE_STYLE: dict[Any, Any] = PICTURE_STYLE | {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick")},
    **{f"axes.{part}": INK for part in ("edgecolor", "labelcolor")},
}
"""matplotlib settings for figures on pages."""


def check_picture(path: Path | None) -> None:
    """Raise UserError if a figure file has an unknown ending, or matplotlib is not installed."""
    if path is None:
        return
    if path.suffix not in PICTURE_METADATA:
        raise UserError(f"{path}: end the picture with one of {', '.join(PICTURE_METADATA)}")
    check_installed("matplotlib")


def check_installed(package: str, extra: str = "scan") -> None:
    """Raise UserError if a package of an extra is not installed."""
    if find_spec(package) is None:
        raise UserError(f"{package} is not installed; run: pip install 'carbon-dna[{extra}]'")


def axes_of(width: float, height: float) -> "tuple[Figure, Any]":
    """Return a figure of this size in inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a figure as .png (150 dpi), .svg or .pdf; equal figures give equal bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "carbon", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, metadata=PICTURE_METADATA[path.suffix])


def svg_of(figure: "Figure") -> str:
    """Return a figure as an `svg` element; equal figures give equal bytes.

    Replaces the colours of the palette by CSS variables. Removes addresses and ids of groups, so
    that several figures can be on one page.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context(PAGE_STYLE):
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
