"""Previews of states: the title, sentence and picture that a shared link shows elsewhere."""

import io
import textwrap
from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

_STORED, _DRAWN = 2000, 64
_SIZE = (1200, 630)
_INK, _GROUND, _CURVE = "#ffffff", "#10243e", "#fee838"
_LETTERS_PER_LINE, _MOST_LINES = 58, 4
_CURVE_TOP, _CURVE_BOTTOM = 400, 600  # pixels from the top
_MARGIN = 60
_POINTS = 1080


class Card(NamedTuple):
    """Preview of a state.

    Attributes:
        title: a few words.
        sentence: the answer in one sentence.
        heights: values along a curve or track, which become the picture.
    """

    title: str
    sentence: str
    heights: tuple[float, ...] = ()


class Previews:
    """Cards of pages by their paths, and of the states that were answered last by their links."""

    def __init__(self, pages: Iterable[tuple[str, Card]]) -> None:
        self.pages = dict(pages)
        self._states: OrderedDict[str, Card] = OrderedDict()

    def store(self, link: str, card: Card) -> None:
        """Store the card of an answered state."""
        self._states[link] = card
        while len(self._states) > _STORED:
            self._states.popitem(last=False)

    def card_of(self, link: str) -> Card | None:
        """Return the card of a link, or of its page; None if there is no such page."""
        return self._states.get(link) or self.pages.get(link.partition("?")[0])


@lru_cache(_DRAWN)
def draw_card(card: Card) -> bytes:
    """Return a card as a PNG of 1,200 x 630 pixels."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", _SIZE, _GROUND)
    draw = ImageDraw.Draw(image)
    lines = textwrap.wrap(card.sentence, _LETTERS_PER_LINE)[:_MOST_LINES]
    title = textwrap.shorten(card.title, 36, placeholder=" ...")
    draw.text((_MARGIN, 50), title, _INK, ImageFont.load_default(60))
    draw.text((_MARGIN, 145), "\n".join(lines), _INK, ImageFont.load_default(38), spacing=14)
    draw.text((1030, 20), "Carbon", _CURVE, ImageFont.load_default(32))
    if len(card.heights) > 1:
        draw.polygon(_outline(card.heights), fill=_CURVE)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _outline(heights: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return the curve as a polygon that stands on its lowest value, or on 0."""
    values = np.nan_to_num(np.asarray(heights, dtype=float))
    at = np.linspace(0, len(values) - 1, _POINTS)
    y = np.interp(at, np.arange(len(values)), values)
    low, high = min(0.0, float(y.min())), max(0.0, float(y.max()))
    span = (high - low) or 1.0
    pixels = _CURVE_BOTTOM - (y - low) / span * (_CURVE_BOTTOM - _CURVE_TOP)
    zero = _CURVE_BOTTOM + low / span * (_CURVE_BOTTOM - _CURVE_TOP)
    curve = [(_MARGIN + n, float(pixel)) for n, pixel in enumerate(pixels)]
    return [(_MARGIN, zero), *curve, (_MARGIN + _POINTS, zero)]
