"""The measured figures, their targets, and their output: a table and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

_DECIMALS = {"s": 2, "ms": 2, "µs": 1}
_VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: "[dim]-[/]"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, its floor for comparison, and its bounds; without bounds it is only for orientation."""

    workload: str
    what: str
    value: float
    unit: str  # "/s", "s", "ms", "µs", "bytes" or "jobs"
    floor: float | None = None
    floor_is: str = ""
    at_least: float | None = None
    at_most: float | None = None
    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Value over floor."""
        return self.value / self.floor if self.floor else None

    @property
    def met(self) -> bool | None:
        """Whether every bound is kept; None when there is none. A bound on a ratio that has no floor is missed."""
        checks = [
            *_checks(self.value, self.at_least, self.at_most),
            *_checks(self.ratio, self.ratio_at_least, self.ratio_at_most),
        ]
        return all(checks) if checks else None

    @property
    def must_reach(self) -> str:
        bounds = (
            ("≥", self.ratio_at_least, " x floor"),
            ("≤", self.ratio_at_most, " x floor"),
            ("≥", self.at_least, ""),
            ("≤", self.at_most, ""),
        )
        said = [
            f"{sign} {bound:.3g}{what}" if what else f"{sign} {_round(bound, self.unit)}"
            for sign, bound, what in bounds
            if bound is not None
        ]
        return " and ".join(said)

    def as_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "floor": self.floor,
            "floor_is": self.floor_is,
            "ratio": self.ratio,
            "must_reach": self.must_reach,
            "met": self.met,
            "raw": dict(self.raw),
        }


def _checks(value: float | None, at_least: float | None, at_most: float | None) -> Iterable[bool]:
    if at_least is not None:
        yield value is not None and value >= at_least
    if at_most is not None:
        yield value is not None and value <= at_most


def shown(value: float, unit: str) -> str:
    """The value in a form for people."""
    if unit == "/s" and value >= 1000:
        return f"{value / 1000:.1f} k/s"
    if unit in _DECIMALS:
        return f"{value:.{_DECIMALS[unit]}f} {unit}"
    return f"{value:.1f} {unit}" if value % 1 else f"{value:.0f} {unit}"


def _round(bound: float, unit: str) -> str:
    return f"{bound / 1000:g} k/s" if unit == "/s" and bound >= 1000 else f"{bound:g} {unit}"


def table(figures: Iterable[Figure]) -> Table:
    """One line per figure; the workload's name is in its first line."""
    out = Table("workload", "", "measured", "floor", "ratio", "must reach", "verdict", title="streamdq, measured")
    before = ""
    for figure in figures:
        floor = f"{shown(figure.floor, figure.unit)}\n[dim]{figure.floor_is}[/]" if figure.floor is not None else ""
        if before and figure.workload != before:
            out.add_section()
        out.add_row(
            figure.workload if figure.workload != before else "",
            figure.what,
            shown(figure.value, figure.unit),
            floor,
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.must_reach,
            _VERDICTS[figure.met],
        )
        before = figure.workload
    return out
