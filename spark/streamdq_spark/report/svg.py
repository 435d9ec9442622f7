"""Drawing: a small SVG with colours from the page's style, and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from unicodedata import east_asian_width
from zlib import crc32

from markupsafe import Markup, escape

from streamdq.process.logs import visible

CHAR = 7.1  # the mean width of a character of a label, in pixels
_NARROW, _BROAD = frozenset("fijlrtI.,:;|!'()[]/ -"), frozenset("mwMW@%<>=+~#&")


class Svg:
    """A drawing of this size in pixels; screen readers read `title` and `text` instead."""

    def __init__(self, width: float, height: float, title: str, text: str) -> None:
        self.width = width
        self.height = height
        self._title = title
        self._text = text
        self._parts: list[Markup] = []

    def rect(self, x: float, y: float, width: float, height: float, kind: str, title: str = "", **more: object) -> None:
        inside = Markup("<title>{}</title>").format(title) if title else Markup("")
        self._parts.append(
            Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"{}>{}</rect>').format(
                _n(x), _n(y), _n(max(width, 0)), _n(max(height, 0)), kind, _attributes(more), inside
            )
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._parts.append(
            Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(_n(x1), _n(y1), _n(x2), _n(y2), kind)
        )

    def circle(self, x: float, y: float, radius: float, kind: str, title: str = "") -> None:
        self._parts.append(
            Markup('<circle cx="{}" cy="{}" r="{}" class="{}"><title>{}</title></circle>').format(
                _n(x), _n(y), _n(radius), kind, title
            )
        )

    def label(self, x: float, y: float, text: object, kind: str = "", anchor: str = "start") -> None:
        # Not said where it goes without saying: a report has thousands of labels and cells.
        more = _attributes({"text_anchor": anchor} if anchor != "start" else {})
        self._parts.append(Markup('<text x="{}" y="{}" class="{}"{}>{}</text>').format(_n(x), _n(y), kind, more, text))

    def __html__(self) -> Markup:
        # The same drawing gets the same id in each report; ids are unique within a report.
        number = f"{crc32(repr((self._title, self._text, self.width)).encode()):x}"
        return Markup(
            '<svg viewBox="0 0 {} {}" role="img" aria-labelledby="t{n} d{n}"><title id="t{n}">{}</title>'
            '<desc id="d{n}">{}</desc>{}</svg>'
        ).format(_n(self.width), _n(self.height), self._title, self._text, Markup("").join(self._parts), n=number)


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _attributes(more: dict[str, object]) -> Markup:
    return Markup("").join(Markup(' {}="{}"').format(name.replace("_", "-"), _short(v)) for name, v in more.items())


def _short(value: object) -> object:
    """0.06 as .06, which is the same in SVG."""
    return f"{value:g}".lstrip("0") or "0" if isinstance(value, float) else value


def ticks(top: float, most: int = 5) -> list[float]:
    """Round values from 0 to `top` or just above it: steps of 1, 2 or 5."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * n for n in range(math.ceil(top / step - 1e-9) + 1)]


def cut(text: object, pixels: float) -> str:
    """The text, shortened to about this width."""
    whole, room = visible(str(text)), max(pixels, 3 * CHAR)
    if text_width([whole]) <= room:
        return whole
    ends = accumulate(map(_width, whole), initial=CHAR)
    return whole[: sum(end <= room for end in ends) - 1] + "…"


def text_width(texts: Sequence[object]) -> float:
    """Of the longest, about: as the page shows it, in a wide font."""
    return max((sum(map(_width, visible(str(text)))) for text in texts), default=0.0)


def _width(letter: str) -> float:
    if letter in _NARROW:
        return CHAR * 0.7
    if letter in _BROAD:
        return CHAR * 1.75
    if east_asian_width(letter) in "WF":
        return CHAR * 1.9
    return CHAR * (1.25 if letter.isupper() else 1.08 if letter.isalpha() else 1.0)


__all__ = ["CHAR", "Svg", "cut", "escape", "text_width", "ticks"]
