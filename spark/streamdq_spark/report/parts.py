"""The parts of a report: sections with figures, tables and notes. The template only uses these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Any
from urllib.parse import quote

from .svg import Svg

WIDE, NARROW = 920, 340
MOST_ROWS = 25

TableRow = Mapping[str, Any]
Tables = Mapping[str, Sequence[TableRow]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart, drawn for wide and for narrow screens. The style shows one of them."""

    title: str
    wide: Svg
    narrow: Svg
    span: str = ""


def figure(title: str, draw: Callable[[int], Svg], span: str = "") -> Figure:
    """`span`: the time that it shows; "": its section's."""
    return Figure(title, draw(WIDE), draw(NARROW), span)


MOST_COLOURS = 7
OTHERS = f"s{MOST_COLOURS}"


@dataclass(frozen=True, slots=True)
class Colours:
    """Which topics have a colour of their own, the same in all charts: those with the most attempts."""

    of_topic: Mapping[str, str]

    @classmethod
    def of(cls, rows: Iterable[TableRow]) -> Colours:
        """`rows`: with a column topic, and attempts by how they ended, or at all."""
        sums: dict[str, float] = defaultdict(float)
        for row in rows:
            sums[row["topic"]] += sum(row.get(name) or 0 for name in _ATTEMPTS)
        largest = nsmallest(MOST_COLOURS, sums, key=lambda topic: (-sums[topic], topic))
        return cls({topic: f"s{number}" for number, topic in enumerate(largest)})

    def style(self, topic: object) -> str:
        return self.of_topic.get(str(topic), OTHERS)


_ATTEMPTS = ("done", "retry", "dead", "attempts")


@dataclass(frozen=True, slots=True)
class Link:
    """A cell's text that leads somewhere."""

    text: str
    href: str


Cell = str | Link
_LONGEST_FIGURE = 18  # a time, or two figures
_LONGEST_WORD = 12


def _text_of(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def job_cell(topic: str, id: str, page: str) -> Cell:
    """A job's id, which leads to the job on the operations page at this URL. "": no page, no link."""
    return Link(id, f"{page.rstrip('/')}/topics/{quote(topic, safe='')}/jobs/{quote(id, safe='')}") if page else id


@dataclass(slots=True)
class Grid:
    """A table of texts; columns named in `texts` are aligned as text, all others as figures."""

    columns: list[str]
    rows: list[list[Cell]]
    texts: int = 1
    left_out: int = 0

    @property
    def long(self) -> set[int]:
        """The columns behind the texts with cells that may be broken: ids and hosts may have any length."""
        return {n for n in range(self.texts, len(self.columns)) if self._longest(n) > _LONGEST_FIGURE}

    @property
    def short(self) -> set[int]:
        """The columns of texts, behind the first, that need little room."""
        return {n for n in range(1, self.texts) if self._longest(n) <= _LONGEST_WORD}

    def _longest(self, column: int) -> int:
        return max((len(_text_of(row[column])) for row in self.rows), default=0)


def grid(columns: Sequence[str], rows: Sequence[Sequence[Cell]], texts: int = 1, most: int = MOST_ROWS) -> Grid:
    """`texts`: how many columns at the left hold text."""
    return Grid(list(columns), [list(row) for row in rows[:most]], texts, max(0, len(rows) - most))


@dataclass(slots=True)
class Section:
    """One question. `brief`: its answer in a few words. `calm`: nothing in it asks for attention, so it is shown as a
    line. `span`: the time that its figures are of; "": that of the report. `lacking` says why there is no answer; then
    nothing else is shown.
    """

    id: str
    title: str
    question: str
    brief: str = ""
    answer: str = ""
    span: str = ""
    calm: bool = True
    figures: list[Figure] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lacking: str = ""


def total(rows: Iterable[TableRow], column: str) -> int:
    return sum(row[column] or 0 for row in rows)


def grouped(rows: Iterable[TableRow], *columns: str) -> dict[Any, list[TableRow]]:
    """By one column's value, or by a tuple of several."""
    found: dict[Any, list[TableRow]] = defaultdict(list)
    for row in rows:
        found[row[columns[0]] if len(columns) == 1 else tuple(row[c] for c in columns)].append(row)
    return found


def subject(row: TableRow, several_groups: bool) -> str:
    """The topic, with the group if there are several."""
    group = row.get("group")
    return f"{row['topic']} · {group}" if several_groups and group else str(row["topic"])


def has_groups(rows: Iterable[TableRow]) -> bool:
    """Whether any topic has more than one group."""
    return any(len({row["group"] for row in own}) > 1 for own in grouped(rows, "topic").values())


def day_of(at: datetime) -> datetime:
    """The day by the clock. It has no zone, so it is one day where clocks are changed."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)


@dataclass(frozen=True, slots=True)
class Steps:
    """Rows by the hour, day or week: `times`: all from the first to the last. `rows`: each with its own, as `at`."""

    unit: str
    times: list[datetime]
    rows: list[TableRow]

    @property
    def names(self) -> list[str]:
        return [f"{at:%H:%M}" if self.unit == "hour" else f"{at.day} {at:%b}" for at in self.times]


def in_steps(rows: Sequence[TableRow]) -> Steps:
    """By the unit of which there are neither few nor too many."""
    hours = {row["hour"]: row["hour"] for row in rows}
    first, last = min(hours), max(hours)
    if (days := (last - first).days) < FEW_DAYS:
        times = [first]
        while times[-1] < last:
            at = times[-1] + timedelta(hours=1)
            times.append(hours.get(at, at))  # which has another offset after a change of clocks
        return Steps("hour", times, [{**row, "at": row["hour"]} for row in rows])
    weeks = days > MANY_DAYS

    def place(at: datetime) -> datetime:
        return day_of(at) - timedelta(days=at.weekday() if weeks else 0)

    step = timedelta(weeks=1) if weeks else timedelta(days=1)
    times = [place(first) + step * n for n in range((place(last) - place(first)) // step + 1)]
    return Steps("week" if weeks else "day", times, [{**row, "at": place(row["hour"])} for row in rows])


FEW_DAYS, MANY_DAYS = 3, 120
