"""The geometry of the pages' charts. The templates draw them as SVG, and their axes as text beside it, which stays
readable at every width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import NamedTuple

from ..activity import Activity, Row
from .overview import Load
from .render import compact, step, with_commas
from .timeline import brief

WIDTH, HEIGHT = 600, 120
_TOP = 6  # room above the highest tick
_LEAST = 2.0  # even the smallest value is visible
_GAP = 0.2  # of a step, between bars


class Bar(NamedTuple):
    """``parts``: rectangles from the bottom up, as (kind, y, height)."""

    x: float
    width: float
    bar: float
    parts: list[tuple[str, float, float]]
    label: str
    known: bool = True


class Dots(NamedTuple):
    """A line of a chart, in pieces: where nothing is known it has none. Each is an SVG path."""

    kind: str
    paths: list[str]


@dataclass(slots=True)
class Chart:
    """``y_ticks``: from the top down; ``x_ticks_ms``: from left to right. Both are spaced evenly."""

    bars: list[Bar]
    y_ticks: list[str]
    x_ticks_ms: list[int]
    lines: list[Dots]

    @property
    def grid(self) -> list[float]:
        """Where the ticks' lines are, but for the bottom's."""
        count = len(self.y_ticks) - 1
        return [round(_TOP + (HEIGHT - _TOP) * i / count, 2) for i in range(count)]


def _nice(most: float) -> int:
    """The end of an axis: 1, or an even number that is easily read."""
    if most <= 1:
        return 1
    size = 10 ** int(log10(most))
    return next(int(size * factor) for factor in (1, 2, 4, 6, 8, 10, 20) if size * factor >= most and size * factor > 1)


def _count_ticks(top: int) -> list[str]:
    return [compact(top), compact(top // 2), "0"] if top > 1 else ["1", "0"]


def _stack(counts: Sequence[tuple[str, float]], top: int) -> list[tuple[str, float, float]]:
    parts, bottom = [], float(HEIGHT)
    for kind, count in counts:
        if count > 0:
            height = max(_LEAST, count / top * (HEIGHT - _TOP))
            bottom -= height
            parts.append((kind, round(bottom, 2), round(height, 2)))
    return parts


def coming(load: Load) -> Chart:
    """The coming load, in equal steps from now."""
    width, top = WIDTH / max(1, len(load.counts)), _nice(load.most)
    bars = [
        Bar(
            round(i * width, 2), round(width, 2), round(width * (1 - _GAP), 2),
            _stack([("bar", count), ("planned", planned)], top),
            f"{step(load.now_ms + i * load.step_ms, load.step_ms)}: {with_commas(count)}"
            + (f", and {with_commas(planned)} planned" if planned else ""),
        )
        for i, (count, planned) in enumerate(zip(load.counts, load.planned, strict=True))
    ]  # fmt: skip
    end_ms = load.now_ms + load.step_ms * len(load.counts)
    return Chart(bars, _count_ticks(top), _ticks(load.now_ms, end_ms), [])


def _ticks(start_ms: int, end_ms: int) -> list[int]:
    return [start_ms + (end_ms - start_ms) * i // 4 for i in range(5)]


def ran(found: Activity) -> Chart:
    """How many attempts were done and failed in each step."""
    width = WIDTH / len(found.rows)
    top = _nice(max((row.done or 0) + row.failed for row in found.rows))
    bars = [
        Bar(
            round(i * width, 2), round(width, 2), round(width * (1 - _GAP), 2),
            _stack([("done", row.done or 0), ("failed", row.failed)], top), _ran_label(row, found.step_ms),
            row.done is not None,
        )
        for i, row in enumerate(found.rows)
    ]  # fmt: skip
    return Chart(bars, _count_ticks(top), _times(found), [])


def _times(found: Activity) -> list[int]:
    return _ticks(found.rows[0].start_ms, found.rows[-1].start_ms + found.step_ms)


def _ran_label(row: Row, step_ms: int) -> str:
    times = step(row.start_ms, step_ms)
    if row.done is None:
        return f"{times}: not known"
    return f"{times}: {with_commas(round(row.done))} done, {with_commas(round(row.failed))} failed"


def lateness(found: Activity) -> Chart:
    """How late attempts began, on a logarithmic scale from 1 ms on."""
    width = WIDTH / len(found.rows)
    most = max((row.p99_ms or 0 for row in found.rows), default=0)
    decades = max(2, ceil(log10(max(1.0, most))))
    bars = [
        Bar(round(i * width, 2), round(width, 2), 0, [], _late_label(row, found.step_ms), row.done is not None)
        for i, row in enumerate(found.rows)
    ]
    lines = [
        Dots("p99", _paths([row.p99_ms for row in found.rows], width, decades)),
        Dots("p50", _paths([row.p50_ms for row in found.rows], width, decades)),
    ]
    return Chart(bars, [_decade(n) for n in range(decades, -1, -1)], _times(found), lines)


def _decade(power: int) -> str:
    return brief(10**power) if power < 5 else {5: "100s", 6: "17m", 7: "2.8h", 8: "28h"}.get(power, f"1e{power - 3}s")


def _late_label(row: Row, step_ms: int) -> str:
    times = step(row.start_ms, step_ms)
    if row.p50_ms is None or row.p99_ms is None:
        return f"{times}: no attempt" if row.done is not None else f"{times}: not known"
    return f"{times}: p50 {brief(round(row.p50_ms))}, p99 {brief(round(row.p99_ms))}"


def _paths(values: Sequence[float | None], width: float, decades: int) -> list[str]:
    """Lines through the middles of the steps. One value between unknown ones is a short line."""
    paths: list[list[tuple[float, float]]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            paths.append([])
        else:
            height = log10(max(1.0, value)) / decades * (HEIGHT - _TOP)
            paths[-1].append(((i + 0.5) * width, HEIGHT - height))
    return [_path(points, width) for points in paths if points]


def _path(points: list[tuple[float, float]], width: float) -> str:
    if len(points) == 1:
        ((x, y),) = points
        points = [(x - width / 2, y), (x + width / 2, y)]
    return "M" + " L".join(f"{x:.2f} {y:.2f}" for x, y in points)
