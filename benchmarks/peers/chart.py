"""The chart of docs/comparison.md: a dot for each queue's median, with the range of its runs, the best queue on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from statistics import median
from typing import Any, NamedTuple

from .table import TABLES, Column

Results = Mapping[str, Any]

SHOWN = (("drain", "per_second"), ("one", "per_second"), ("stampede", "p99_ms"), ("trickle", "p99_ms"))
_OURS = "streamdq"
_PANEL, _NAMES, _VALUES, _ROW, _TOP, _GAP = 430, 96, 76, 20, 46, 18
STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #3d4852 } .h { font-weight: 600; fill: #1b242c } .v { fill: #66737f }
    .b { fill: #ffffff } .g { stroke: #e3e8ec } .r { stroke: #9fb3c4; stroke-width: 2 } .d { fill: #7590a6 }
    .us { font-weight: 600; fill: #b3470f } .r.us { stroke: #e8935f } .d.us { fill: #d9601a }
    @media (prefers-color-scheme: dark) {
      text { fill: #c3ccd4 } .h { fill: #f0f4f7 } .v { fill: #93a1ad } .b { fill: #12181d } .g { stroke: #2b353d }
      .r { stroke: #4f667a } .d { fill: #8fabc2 }
      .us { fill: #f5a673 } .r.us { stroke: #a8602f } .d.us { fill: #f58a45 }
    }"""


class Row(NamedTuple):
    name: str
    low: float
    mid: float
    high: float


def chart(results: Results) -> str:
    """SVG. Queues without a figure, or that failed, are left out of its panel."""
    columns = {(column.workload, column.figure): column for part in TABLES.values() for column in part}
    panels = [(columns[key], rows(results, columns[key])) for key in SHOWN]
    panels = [(column, found) for column, found in panels if found]
    height = _TOP + _ROW * max((len(found) for _, found in panels), default=0) + _GAP
    lines = [part for n, panel in enumerate(panels) for part in _panel(*panel, n % 2 * _PANEL, n // 2 * height)]
    size = f"{2 * _PANEL} {height * ((len(panels) + 1) // 2)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">',
            "<title>streamdq beside other queues</title>",
            f"<style>{STYLE}\n</style>",
            '<rect class="b" width="100%" height="100%" rx="6"/>',
            *lines,
            "</svg>\n",
        ]
    )


def rows(results: Results, column: Column) -> list[Row]:
    """The best queue first."""
    found = []
    for name, peer in results["peers"].items():
        values = [run[column.figure] for run in peer["runs"].get(column.workload, []) if column.figure in run]
        if values and min(values) > 0:
            found.append(Row(name, min(values), median(values), max(values)))
    return sorted(found, key=lambda row: row.mid, reverse=column.more_is_better)


def _panel(column: Column, found: Sequence[Row], left: float, top: float) -> list[str]:
    """On a logarithmic scale from the decade of the least to that of the most."""
    first = int(log10(min(row.low for row in found)) // 1)
    last = max(first + 1, -int(-log10(max(row.high for row in found)) // 1))
    width, bottom = _PANEL - _NAMES - _VALUES, top + _TOP + _ROW * len(found)

    def x(value: float) -> float:
        return round(left + _NAMES + (log10(value) - first) / (last - first) * width, 1)

    lines = [
        f'<text class="h" x="{left + 16}" y="{top + 28}">{escape(column.title)}</text>',
        *(f'<path class="g" d="M{x(10.0**power)} {top + _TOP - 8}V{bottom - 4}"/>' for power in range(first, last + 1)),
    ]
    for n, row in enumerate(found):
        ours, y, edge = " us" * (row.name == _OURS), top + _TOP + _ROW * n + 6, left + _NAMES - 8
        lines += [
            f'<text class="n{ours}" text-anchor="end" x="{edge}" y="{y + 4}">{escape(row.name)}</text>',
            f'<path class="r{ours}" d="M{x(row.low)} {y}H{x(row.high)}"/>',
            f'<circle class="d{ours}" cx="{x(row.mid)}" cy="{y}" r="4.5"/>',
            f'<text class="v{ours}" x="{x(row.high) + 9}" y="{y + 4}">{row.mid:,.{column.digits}f}</text>',
        ]
    return lines
