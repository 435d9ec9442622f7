"""The kinds of charts. Each takes the width in pixels first, so that one chart is drawn for wide and narrow screens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .svg import Svg, cut, text_width, ticks
from .words import short, span

PLAIN = "plain"
"""The style of what is no topic."""
ROW = 26
NARROW_BELOW = 500
KEY_LINE = 18
NO_DATA = "no data"


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis measures, and how its values are written."""

    label: str
    show: Callable[[float], str] = short
    top: float | None = None


@dataclass(frozen=True, slots=True)
class _NamedRows:
    """Rows with names: to their left, or above them if the screen is narrow."""

    width: int
    left: float
    narrow: bool

    @classmethod
    def of(cls, width: int, names: Sequence[str], share: float, margin: float = 0.0) -> _NamedRows:
        """`share`: of the width, for names at most. `margin`: what stays free at the left where they are above."""
        if width < NARROW_BELOW:
            return cls(width, margin, True)
        return cls(width, min(text_width(names) + 14, width * share), False)

    @property
    def step(self) -> int:
        return ROW + 16 if self.narrow else ROW

    def middle(self, number: int) -> int:
        return number * self.step + (27 if self.narrow else 13)

    def draw_name(self, drawing: Svg, number: int, name: str) -> None:
        y = self.middle(number)
        if self.narrow:
            drawing.label(0, y - 14, cut(name, self.width - 10), "name")
        else:
            drawing.label(0, y + 4, cut(name, self.left - 10), "name")


def bars(
    width: int,
    title: str,
    text: str,
    axis: Axis,
    rows: Sequence[tuple[str, float, str]],
    *,
    styles: Sequence[str] = (),
    mark: float | None = None,
) -> Svg:
    """Horizontal bars: (label, value, the value's text). `styles`: of each bar. `mark`: a line across all at this
    value.
    """
    named = _NamedRows.of(width, [row[0] for row in rows], 0.42)
    left, right = named.left, width - 8 - text_width([row[2] for row in rows])
    scale = ticks(axis.top or max([row[1] for row in rows] + [mark or 0.0]), 3 if named.narrow else 5)
    bottom = named.step * len(rows)
    drawing = Svg(width, bottom + 40, title, text)

    def x_of(value: float) -> float:
        return left + (right - left) * min(1.0, value / scale[-1])

    _draw_value_ticks(drawing, axis, scale, x_of, bottom, at_edge=named.narrow)
    drawing.label((left + right) / 2, bottom + 33, axis.label, "axis", "middle")
    for i, (label, value, shown) in enumerate(rows):
        y = named.middle(i) - 9
        named.draw_name(drawing, i, label)
        style = styles[i] if styles else PLAIN
        drawing.rect(left, y, max(x_of(value) - left, 1), ROW - 8, style, f"{label}: {shown}")
        drawing.label(x_of(value) + 6, y + 13, shown, "value")
    if mark is not None:
        drawing.line(x_of(mark), 0, x_of(mark), bottom, "mark")
    return drawing


def _draw_value_ticks(
    drawing: Svg, axis: Axis, scale: Sequence[float], x_of: Callable[[float], float], bottom: float, *, at_edge: bool
) -> None:
    """`at_edge`: the axis begins at the drawing's left edge, where half of the first label would be cut off."""
    for tick in scale:
        anchor = "start" if tick == 0 and at_edge else "middle"
        drawing.line(x_of(tick), 0, x_of(tick), bottom, "grid")
        drawing.label(x_of(tick), bottom + 15, axis.show(tick), "tick", anchor)


DOT = "dot"


@dataclass(frozen=True, slots=True)
class Series:
    """A part of each column."""

    name: str
    values: Sequence[float]
    style: str


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where columns are drawn: from `left` on with `room` for each, from `bottom` up; `most` is `height` high."""

    left: float
    room: float
    bottom: float
    height: float
    most: float

    def x(self, number: float) -> float:
        return self.left + number * self.room

    def y(self, value: float) -> float:
        return self.bottom - self.height * value / self.most


def stacked(
    width: int,
    title: str,
    text: str,
    axis: Axis,
    columns: Sequence[str],
    series: Sequence[Series],
    *,
    line: tuple[str, Sequence[float | None]] | None = None,
) -> Svg:
    """Stacked columns, and a line of dots over them."""
    left, top, height = 46.0, 22.0, 170.0 if width >= NARROW_BELOW else 130.0
    over, dots = line or (None, ())
    legend = _legend_rows([(one.style, one.name) for one in series] + ([(DOT, over)] if over else []), width)
    drawing = Svg(width, top + height + 28 + 20 * len(legend), title, text)
    scale = ticks(_highest([one.values for one in series], dots))
    plot = _Columns(left, (width - left - 4) / max(1, len(columns)), top + height, height, scale[-1])
    for tick in scale:
        drawing.line(left, plot.y(tick), width, plot.y(tick), "grid")
        drawing.label(left - 6, plot.y(tick) + 4, axis.show(tick), "tick", "end")
    drawing.label(0, 11, axis.label, "axis")
    for i, column in enumerate(columns):
        _draw_stack(drawing, plot, i, column, series, axis)
    _draw_column_names(drawing, plot, columns)
    for i, value in enumerate(dots):
        if value is not None:
            drawing.circle(plot.x(i + 0.5), plot.y(value), 3.5, DOT, f"{columns[i]}: {axis.show(value)}")
    _draw_legend(drawing, legend, plot.bottom + 40)
    return drawing


def _highest(series: Sequence[Sequence[float]], dots: Sequence[float | None]) -> float:
    """The highest value of the stacks and of the dots over them."""
    stacks = [float(sum(parts)) for parts in zip(*series, strict=True)]
    return max([0.0, *stacks, *(value for value in dots if value is not None)])


def _draw_stack(drawing: Svg, plot: _Columns, number: int, column: str, series: Sequence[Series], axis: Axis) -> None:
    y = plot.bottom
    for one in series:
        value = one.values[number]
        if value > 0:
            height = plot.bottom - plot.y(value)
            y -= height
            x, width = plot.x(number + 0.1), plot.room * 0.8
            drawing.rect(x, y, width, height, one.style, f"{column}, {one.name}: {axis.show(value)}")


def _draw_column_names(drawing: Svg, plot: _Columns, columns: Sequence[str]) -> None:
    """Draws as many names as there is room for."""
    every = max(1, math.ceil(text_width(columns) * 1.25 / plot.room))
    for i in range(0, len(columns), every):
        middle = plot.x(i + 0.5)
        fits = middle + text_width([columns[i]]) / 2 < drawing.width
        x, anchor = (middle, "middle") if fits else (drawing.width, "end")
        drawing.label(x, plot.bottom + 16, columns[i], "tick", anchor)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Where a matrix has its cells. `above`: each row's name is on a line of its own."""

    left: float
    width: float
    height: int
    above: bool

    @property
    def step(self) -> int:
        return self.height + 18 if self.above else self.height

    def x(self, column: float) -> float:
        return self.left + column * self.width

    def y(self, row: int) -> int:
        return 36 + row * self.step + (16 if self.above else 0)


@dataclass(frozen=True, slots=True)
class _Shades:
    """How the values of a matrix are shown: deeper for more, up to `most`."""

    kind: str
    show: Callable[[float], str]
    most: float
    more: bool  # whether there are values above it

    def of(self, value: float) -> float:
        part = max(0.0, value)  # after a clock was set back, lateness may be negative
        return round(0.06 + 0.94 * min(1.0, part / self.most), 2)


def _draw_heads(drawing: Svg, places: _Cells, columns: Sequence[str]) -> None:
    """As many of them as there is room for."""
    every = max(1, math.ceil((text_width(columns) + 6) / places.width))
    for j in range(0, len(columns), every):
        drawing.label(places.x(j + 0.5), 28, columns[j], "tick", "middle")


def matrix(
    width: int,
    title: str,
    text: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    show: Callable[[float], str],
    kind: str,
    written: bool = False,
    top: float | None = None,
    across: str = "",
) -> Svg:
    """Coloured cells, deeper for more, up to `top`, or else to the most; None is no data. `written`: with the values in
    them, where there is room.
    """
    above = written and width < NARROW_BELOW
    left = 0.0 if above else min(text_width(rows) + 8, width * 0.3)
    places = _Cells(left, (width - left) / max(1, len(columns)), 24 if written else 15, above)
    most = top or _most_in(cells)
    shades = _Shades(kind, show, most, _most_in(cells) > most)
    key = _Key(left, 40 + places.step * len(rows) + 8, shades, any(None in row for row in cells))
    drawing = Svg(width, key.y + 18 + (KEY_LINE if key.breaks(width) else 0), title, text)
    drawing.label(left + (width - left) / 2, 12, across, "axis", "middle")
    _draw_heads(drawing, places, columns)
    for i, name in enumerate(rows):
        _draw_row_name(drawing, places, i, name, "name" if written else "tick")
        for j, value in enumerate(cells[i]):
            _draw_cell(drawing, places, (i, j), f"{name}, {columns[j]}", value, shades, written=written)
    key.draw(drawing)
    return drawing


def _most_in(cells: Sequence[Sequence[float | None]]) -> float:
    return max([0.0, *(value for row in cells for value in row if value is not None)]) or 1.0


def _draw_row_name(drawing: Svg, places: _Cells, row: int, name: str, kind: str) -> None:
    y = places.y(row)
    if places.above:
        drawing.label(0, y - 4, cut(name, drawing.width), "name")
    else:
        drawing.label(0, y + places.height / 2 + 4, cut(name, places.left - 4), kind)


def _draw_cell(
    drawing: Svg, places: _Cells, at: tuple[int, int], what: str, value: float | None, shades: _Shades, *, written: bool
) -> None:
    x, y, width, height = places.x(at[1]), places.y(at[0]), places.width, places.height
    if value is None:
        drawing.rect(x + 1, y + 1, width - 2, height - 2, "none", f"{what}: no data")
        return
    shade, shown = shades.of(value), shades.show(value)
    drawing.rect(x + 1, y + 1, width - 2, height - 2, shades.kind, f"{what}: {shown}", fill_opacity=shade)
    if written and text_width([shown]) < width:
        drawing.label(x + width / 2, y + height / 2 + 4, shown, "over" if shade > 0.5 else "in", "middle")


@dataclass(frozen=True, slots=True)
class _Key:
    """What the shades mean, from `x` on; `gaps`: and what cells without data look like, on a line of its own where the
    first is too long.
    """

    x: float
    y: float
    shades: _Shades
    gaps: bool

    @property
    def words(self) -> str:
        return f"0 to {self.shades.show(self.shades.most)}{' and more' if self.shades.more else ''}"

    @property
    def end(self) -> float:
        return self.x + 88 + text_width([self.words]) + 16

    def breaks(self, width: float) -> bool:
        return self.gaps and self.end + 20 + text_width([NO_DATA]) > width

    def draw(self, drawing: Svg) -> None:
        for n in range(5):
            drawing.rect(self.x + n * 16, self.y, 15, 10, self.shades.kind, fill_opacity=0.06 + 0.235 * n)
        drawing.label(self.x + 88, self.y + 9, self.words, "tick")
        if self.gaps:
            x, y = (self.x, self.y + KEY_LINE) if self.breaks(drawing.width) else (self.end, self.y)
            drawing.rect(x, y, 15, 10, "none")
            drawing.label(x + 20, y + 9, NO_DATA, "tick")


def ranges(
    width: int,
    title: str,
    text: str,
    axis: str,
    rows: Sequence[tuple[str, float, float, float]],
    styles: Sequence[str],
) -> Svg:
    """From the median (dot) over the 95th to the 99th percentile (line, tick) of times in ms, on a log scale.
    `styles`: of each row.
    """
    named = _NamedRows.of(width, [row[0] for row in rows], 0.35, margin=8.0)
    left, right = named.left, width - 16.0
    bottom = named.step * len(rows)
    drawing = Svg(width, bottom + 40, title, text)
    marks = log_marks(max(1.0, min(row[1] for row in rows)), max(2.0, *(row[3] for row in rows)))
    low, high = math.log(marks[0]), math.log(marks[-1])

    def x_of(ms: float) -> float:
        return left + (right - left) * min(1, max(0, (math.log(max(ms, 1.0)) - low) / (high - low)))

    _draw_log_ticks(drawing, marks, x_of, bottom)
    drawing.label((left + right) / 2, bottom + 33, axis, "axis", "middle")
    for i, ((label, p50, p95, p99), style) in enumerate(zip(rows, styles, strict=True)):
        y = named.middle(i)
        named.draw_name(drawing, i, label)
        drawing.rect(x_of(p50), y - 0.75, x_of(p99) - x_of(p50), 1.5, style)
        drawing.rect(x_of(p50), y - 2, x_of(p95) - x_of(p50), 4, style)
        drawing.rect(x_of(p99) - 2, y - 6, 4, 12, style)
        drawing.circle(x_of(p50), y, 5, style, f"{label}: median {span(p50)}, p95 {span(p95)}, p99 {span(p99)}")
    return drawing


def _draw_log_ticks(drawing: Svg, marks: Sequence[float], x_of: Callable[[float], float], bottom: float) -> None:
    """Draws a line for each mark, and its text if that does not overlap the one before."""
    free = 0.0
    for mark in marks:
        x, width = x_of(mark), text_width([span(mark)])
        drawing.line(x, 0, x, bottom, "grid")
        anchor = "start" if mark == marks[0] else "end" if mark == marks[-1] else "middle"
        end = x + {"start": width, "middle": width / 2, "end": 8}[anchor]
        if end - width >= free:
            drawing.label(x + (8 if anchor == "end" else 0), bottom + 15, span(mark), "tick", anchor)
            free = end + 6


_MARKS_MS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 7 * 86_400_000)


def log_marks(low: float, high: float) -> list[float]:
    """Round times that cover `low` to `high`; at least two. The last step may be a half step, so that a short axis is
    not half empty.
    """
    first = max((mark for mark in _MARKS_MS if mark <= low), default=1)
    last = next((mark for mark in _MARKS_MS if mark >= high and mark > first), max(high, 2 * first))
    marks = [*(float(mark) for mark in _MARKS_MS if first <= mark < last), float(last)]
    half = 3 * marks[-2]
    return [*marks[:-1], half] if len(marks) <= _SHORT and high <= half < last else marks


_SHORT = 4


def _legend_rows(names: Sequence[tuple[str, str]], width: float) -> list[list[tuple[str, str]]]:
    """Of (style, name), as many in a row as there is room for."""
    rows: list[list[tuple[str, str]]] = [[]]
    used = 0.0
    for style, whole in names:
        name = cut(whole, width - 20)
        need = text_width([name]) + 30
        if rows[-1] and used + need > width:
            rows.append([])
            used = 0.0
        rows[-1].append((style, name))
        used += need
    return rows


def _draw_legend(drawing: Svg, rows: Sequence[Sequence[tuple[str, str]]], y: float) -> None:
    for row in rows:
        x = 0.0
        for style, name in row:
            if style == DOT:
                drawing.circle(x + 6, y - 4, 3.5, DOT, name)
            else:
                drawing.rect(x, y - 10, 12, 12, style)
            drawing.label(x + 17, y, name, "name")
            x += text_width([name]) + 30
        y += 20
