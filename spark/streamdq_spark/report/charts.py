"""The kinds of charts. Each takes the width in pixels first, so that one chart is drawn for wide and narrow screens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .svg import Svg, cut, text_width, ticks
from .words import short, span

FORMS = 8  # series colours in the style; what is beyond them shares the last
ROW = 26


@dataclass(frozen=True, slots=True)
class Axis:
    """What is measured, and how its values are written."""

    label: str
    show: Callable[[float], str] = short
    top: float | None = None


def bars(
    width: int, title: str, text: str, axis: Axis, rows: Sequence[tuple[str, float, str]], *, mark: float | None = None
) -> Svg:
    """Horizontal bars: (label, value, the value's text). `mark`: a line across all at this value."""
    narrow = width < 500
    left = 0.0 if narrow else min(text_width([row[0] for row in rows]) + 14, width * 0.42)
    step = ROW + 16 if narrow else ROW
    right = width - 8 - text_width([row[2] for row in rows])
    scale = ticks(axis.top or max([row[1] for row in rows] + [mark or 0.0]), 3 if narrow else 5)
    drawing = Svg(width, step * len(rows) + 40, title, text)
    bottom = step * len(rows)

    def x_of(value: float) -> float:
        return left + (right - left) * min(1.0, value / scale[-1])

    for tick in scale:
        drawing.line(x_of(tick), 0, x_of(tick), bottom, "grid")
        drawing.label(x_of(tick), bottom + 15, axis.show(tick), "tick", "start" if tick == 0 and narrow else "middle")
    drawing.label((left + right) / 2, bottom + 33, axis.label, "axis", "middle")
    for i, (label, value, shown) in enumerate(rows):
        y = i * step + (18 if narrow else 4)
        drawing.label(0, y - 5 if narrow else y + 13, cut(label, width - 10 if narrow else left - 10), "name")
        drawing.rect(left, y, max(x_of(value) - left, 1), ROW - 8, "s0", f"{label}: {shown}")
        drawing.label(x_of(value) + 6, y + 13, shown, "value")
    if mark is not None:
        drawing.line(x_of(mark), 0, x_of(mark), bottom, "mark")
    return drawing


def stacked(
    width: int,
    title: str,
    text: str,
    axis: Axis,
    columns: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    line: tuple[str, Sequence[float | None]] | None = None,
) -> Svg:
    """Stacked columns, one colour for each series, and a line of dots over them."""
    left, top, plot = 46.0, 22.0, 210.0
    names = [name for name, _ in series] + ([line[0]] if line else [])
    legend = _legend_rows(names, width)
    drawing = Svg(width, top + plot + 44 + 20 * len(legend), title, text)
    sums = [sum(values[i] for _, values in series) for i in range(len(columns))]
    over = [value for value in (line[1] if line else []) if value is not None]
    scale = ticks(max([*sums, *over, 0.0]))
    room = (width - left - 4) / max(1, len(columns))
    bottom = top + plot

    def y_of(value: float) -> float:
        return bottom - plot * value / scale[-1]

    for tick in scale:
        drawing.line(left, y_of(tick), width, y_of(tick), "grid")
        drawing.label(left - 6, y_of(tick) + 4, axis.show(tick), "tick", "end")
    drawing.label(0, 11, axis.label, "axis")
    every = max(1, math.ceil(text_width(columns) * 1.25 / room))
    for i, column in enumerate(columns):
        x, y = left + i * room, bottom
        for form, (name, values) in enumerate(series):
            if values[i] > 0:
                height = plot * values[i] / scale[-1]
                y -= height
                drawing.rect(
                    x + room * 0.1, y, room * 0.8, height, _form(form), f"{column}, {name}: {axis.show(values[i])}"
                )
        if i % every == 0:
            fits = x + room / 2 + text_width([column]) / 2 < width
            drawing.label(x + room / 2 if fits else width, bottom + 16, column, "tick", "middle" if fits else "end")
    for i, value in enumerate(line[1] if line else []):
        if value is not None:
            drawing.circle(left + (i + 0.5) * room, y_of(value), 3.5, "dot", f"{columns[i]}: {axis.show(value)}")
    _draw_legend(drawing, legend, bottom + 40, names[-1] if line else None)
    return drawing


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
    log: bool = False,
) -> Svg:
    """Coloured cells, deeper for more; None is no data. `written`: with the values in them, where there is room.
    `log`: for values of several orders of magnitude.
    """
    narrow = width < 500
    above = written and narrow  # names on lines of their own
    left = 0.0 if above else min(text_width(rows) + 8, width * 0.3)
    cell = (width - left) / max(1, len(columns))
    height = 24 if written else 15
    step = height + 18 if above else height
    drawing = Svg(width, 40 + step * len(rows) + 26, title, text)
    values = [value for row in cells for value in row if value is not None]
    most = top or max([*values, 0.0]) or 1.0
    drawing.label(left + (width - left) / 2, 10, across, "axis", "middle")
    every = max(1, math.ceil((text_width(columns) + 6) / cell))
    for j, column in enumerate(columns):
        if j % every == 0:
            drawing.label(left + (j + 0.5) * cell, 28, column, "tick", "middle")
    for i, name in enumerate(rows):
        y = 36 + i * step + (16 if above else 0)
        if above:
            drawing.label(0, y - 4, cut(name, width), "name")
        else:
            drawing.label(0, y + height / 2 + 4, cut(name, left - 4), "name" if written else "tick")
        for j, value in enumerate(cells[i]):
            x, told = left + j * cell, f"{name}, {columns[j]}: "
            if value is None:
                drawing.rect(x + 1, y + 1, cell - 2, height - 2, "none", told + "no data")
                continue
            part = max(0.0, value)  # after a clock was set back, lateness may be negative
            depth = min(1.0, math.log1p(part) / math.log1p(most) if log else part / most)
            shade = round(0.06 + 0.94 * depth, 2)
            drawing.rect(x + 1, y + 1, cell - 2, height - 2, kind, told + show(value), fill_opacity=shade)
            if written and text_width([show(value)]) < cell:
                drawing.label(x + cell / 2, y + height / 2 + 4, show(value), "over" if shade > 0.5 else "in", "middle")
    _key(
        drawing,
        left,
        40 + step * len(rows) + 8,
        kind,
        f"0 to {show(most)}{', log scale' if log else ''}",
        any(None in row for row in cells),
    )
    return drawing


def _key(drawing: Svg, x: float, y: float, kind: str, words: str, gaps: bool) -> None:
    for n in range(5):
        drawing.rect(x + n * 16, y, 15, 10, kind, fill_opacity=0.06 + 0.235 * n)
    drawing.label(x + 88, y + 9, words, "tick")
    if gaps:
        after = x + 88 + text_width([words]) + 16
        drawing.rect(after, y, 15, 10, "none")
        drawing.label(after + 20, y + 9, "no data", "tick")


def ranges(width: int, title: str, text: str, axis: str, rows: Sequence[tuple[str, float, float, float]]) -> Svg:
    """From the median (dot) over the 95th to the 99th percentile (line, tick) of times in ms, on a log scale."""
    narrow = width < 500
    left = 8.0 if narrow else min(text_width([row[0] for row in rows]) + 14, width * 0.35)
    step, right = (ROW + 16 if narrow else ROW), width - 16.0
    bottom = step * len(rows)
    drawing = Svg(width, bottom + 40, title, text)
    marks = log_marks(max(1.0, min(row[1] for row in rows)), max(2.0, *(row[3] for row in rows)))
    low, high = math.log(marks[0]), math.log(marks[-1])

    def x_of(ms: float) -> float:
        return left + (right - left) * min(1, max(0, (math.log(max(ms, 1.0)) - low) / (high - low)))

    room = 0.0
    for mark in marks:
        drawing.line(x_of(mark), 0, x_of(mark), bottom, "grid")
        if x_of(mark) >= room:
            anchor = "start" if mark == marks[0] else "end" if mark == marks[-1] else "middle"
            drawing.label(x_of(mark) + (8 if anchor == "end" else 0), bottom + 15, span(mark), "tick", anchor)
            room = x_of(mark) + text_width([span(mark)]) + 10
    drawing.label((left + right) / 2, bottom + 33, axis, "axis", "middle")
    for i, (label, p50, p95, p99) in enumerate(rows):
        y = i * step + (27 if narrow else 13)
        drawing.label(0, y - 14 if narrow else y + 4, cut(label, width if narrow else left - 10), "name")
        drawing.line(x_of(p50), y, x_of(p99), y, "thin")
        drawing.line(x_of(p50), y, x_of(p95), y, "thick")
        drawing.line(x_of(p99), y - 6, x_of(p99), y + 6, "thick")
        drawing.circle(x_of(p50), y, 5, "s0", f"{label}: median {span(p50)}, p95 {span(p95)}, p99 {span(p99)}")
    return drawing


_MARKS_MS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 7 * 86_400_000)


def log_marks(low: float, high: float) -> list[float]:
    """Round times from one that is not above `low` to one that is not below `high`: two at least. The last step may be
    half of one, so that a short axis is not half empty.
    """
    first = max((mark for mark in _MARKS_MS if mark <= low), default=1)
    last = next((mark for mark in _MARKS_MS if mark >= high and mark > first), max(high, 2 * first))
    marks = [*(float(mark) for mark in _MARKS_MS if first <= mark < last), float(last)]
    half = 3 * marks[-2]
    return [*marks[:-1], half] if len(marks) <= _SHORT and high <= half < last else marks


_SHORT = 4


def _form(number: int) -> str:
    return f"s{min(number, FORMS - 1)}"


def _legend_rows(names: Sequence[str], width: float) -> list[list[tuple[int, str]]]:
    rows: list[list[tuple[int, str]]] = [[]]
    used = 0.0
    for number, name in enumerate(names):
        need = text_width([name]) + 30
        if rows[-1] and used + need > width:
            rows.append([])
            used = 0.0
        rows[-1].append((number, name))
        used += need
    return rows


def _draw_legend(drawing: Svg, rows: Sequence[Sequence[tuple[int, str]]], y: float, dots: str | None) -> None:
    for row in rows:
        x = 0.0
        for number, name in row:
            if name == dots:
                drawing.circle(x + 6, y - 4, 3.5, "dot", name)
            else:
                drawing.rect(x, y - 10, 12, 12, _form(number))
            drawing.label(x + 17, y, cut(name, drawing.width - 20), "name")
            x += text_width([name]) + 30
        y += 20
