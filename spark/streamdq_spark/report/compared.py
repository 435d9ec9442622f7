"""The section about two time spans: what changed beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .parts import Section, TableRow, Tables, grid, grouped, has_groups, subject
from .words import number, percent, span

_WORDS = {
    "attempts": "attempts in an hour",
    "failed": "failed attempts",
    "dead": "jobs given up",
    "lateness_p50": "lateness, median",
    "lateness_p99": "lateness, p99",
    "duration_p50": "run time, median",
    "duration_p99": "run time, p99",
}
_BAD, _GOOD = ("new", "worse"), ("gone", "better")
_SHARES = ("failed", "dead", "error")


@dataclass(frozen=True, slots=True)
class Change:
    """One measure of a topic's group that changed, in words."""

    subject: str
    what: str
    before: str
    after: str
    verdict: str

    @property
    def is_bad(self) -> bool:
        return self.verdict in _BAD


def changed(rows: Sequence[TableRow]) -> list[Change]:
    """What changed beyond chance: the bad first, then the greatest change."""
    groups = has_groups(rows)
    found = [row for row in rows if row["verdict"] in _BAD + _GOOD]
    found.sort(key=lambda row: (row["verdict"] in _GOOD, -row["size"]))
    return [
        Change(subject(row, groups), _what(row), _shown(row, "before"), _shown(row, "after"), row["verdict"])
        for row in found
    ]


def compared(tables: Tables, spans: tuple[str, str]) -> Section:
    section = Section(
        "compared",
        "What changed?",
        f"From {spans[0]} to {spans[1]}: what differs by more than chance makes of it, the greatest change first.",
    )
    rows = tables["compared"]
    if not rows:
        section.lacking = "No attempt ended in these time spans."
        return section
    found = changed(rows)
    bad = sum(one.is_bad for one in found)
    judged = sum(row["chance"] is not None for row in rows)
    section.answer = (
        f"{number(bad)} of {number(judged)} measures got worse, {number(len(found) - bad)} better."
        if found
        else f"Nothing, as far as {number(judged)} measures tell."
        if judged
        else "There are too few attempts in these time spans to say."
    )
    section.brief, section.calm = section.answer, not found
    section.span = f"{spans[0]} and {spans[1]}"
    section.grids = [
        grid(
            ["Topic", "What", "Verdict", *spans],
            [[one.subject, one.what, one.verdict, one.before, one.after] for one in found],
            texts=3,
        ),
        grid(["Topic", *(f"{_WORDS[name]}".capitalize() for name in _WORDS)], _whole(rows), most=40),
    ]
    section.notes = [
        "If nothing changed, the first table has any row at all in one comparison of 20 at most.",
        "Attempts of one hour are taken to be alike, so one bad hour is no change.",
        "The second table has all topics: before → after. How many attempts there were is not judged.",
    ]  # fmt: skip
    return section


def _whole(rows: Sequence[TableRow]) -> list[list[str]]:
    groups = has_groups(rows)
    queues = sorted(grouped(rows, "topic", "group").values(), key=lambda own: -_attempts(own))
    table = []
    for own in queues:
        of_measure = {row["measure"]: row for row in own if row["measure"] != "error"}
        cells = (
            f"{_shown(row, 'before')} → {_shown(row, 'after')}" if (row := of_measure.get(name)) else "–"
            for name in _WORDS
        )
        table.append([subject(own[0], groups), *cells])
    return table


def _attempts(own: Sequence[TableRow]) -> int:
    return max(int(row["of_before"] + row["of_after"]) for row in own)


def _what(row: TableRow) -> str:
    return f"attempts that failed with {row['error']}" if row["measure"] == "error" else _WORDS[row["measure"]]


def _shown(row: TableRow, when: str) -> str:
    value = row[when]
    if row["measure"] == "attempts":
        return number(value)
    return percent(value) if row["measure"] in _SHARES else span(value)
