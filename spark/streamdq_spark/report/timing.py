"""The sections about time: punctuality, and how long jobs took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from ..measures import MIN_LATE
from .charts import matrix, ranges
from .parts import (
    Colours,
    Figure,
    Section,
    TableRow,
    Tables,
    day_of,
    figure,
    grid,
    grouped,
    has_groups,
    subject,
    total,
)
from .svg import Svg
from .words import aim, day, hour, number, percent, span

HEAT_DAYS = 28
FEW_HOURS = 3
MOST_TOPICS = 12
MIN_SLOW = 20  # of fewer jobs, one in twenty is none
LOG_AXIS = "log scale · dot: median, line: to p95, tick: p99"


def missed(tables: Tables, objective: float) -> list[TableRow]:
    """The topics of which fewer than the objective started on time, and that not by two or three attempts."""
    rows = tables.get("punctuality_topics", ())
    late = (row for row in rows if row["attempts"] - row["within_slo"] >= MIN_LATE)
    return [row for row in late if row["share_within_slo"] < objective]


def punctuality(tables: Tables, slo_ms: int, objective: float, colours: Colours) -> Section:
    section = Section(
        "punctuality",
        "Did jobs start on time?",
        f"How late attempts started after they were due, and which share started within {span(slo_ms)}.",
    )
    hours, topics = tables["punctuality"], tables["punctuality_topics"]
    if not topics:
        section.lacking = "No attempt with a due and a start time lies in this period."
        return section
    attempts, within = total(topics, "attempts"), total(topics, "within_slo")
    section.answer = (
        f"{percent(within / attempts)} of {number(attempts)} attempts started within {span(slo_ms)} of their due time; "
        f"the objective is {aim(objective)}."
    )
    below = missed(tables, objective)
    section.calm = not below
    section.brief = f"{percent(within / attempts)} within {span(slo_ms)}; the objective is {aim(objective)}." + (
        f" {below[0]['topic']} misses it." if len(below) == 1 else f" {len(below)} topics miss it." if below else ""
    )
    ranked = sorted(topics, key=lambda row: (-row["budget_burn"], -row["attempts"], row["topic"]))
    slowest = sorted(topics, key=lambda row: -row["p99_ms"])[:MOST_TOPICS]
    section.figures = [_spread("Lateness by topic", slowest, "", colours)]
    if len({row["hour"] for row in hours}) >= FEW_HOURS:
        section.figures = [*_heat(hours, slo_ms, objective), *section.figures]
    section.grids = [
        grid(
            ["Topic", "Attempts", "Median", "p95", "p99", "Latest", "On time", "Late", "Budget used"],
            [
                [
                    row["topic"], number(row["attempts"]), span(row["p50_ms"]), span(row["p95_ms"]),
                    span(row["p99_ms"]), span(row["max_ms"]), percent(row["share_within_slo"]),
                    number(row["attempts"] - row["within_slo"]), f"{number(row['budget_burn'])} ×",
                ]
                for row in ranked
            ],
        )
    ]  # fmt: skip
    section.notes = [
        f"Budget: {aim(1 - objective)} of attempts may start later than {span(slo_ms)}; at 1 × all of it is used.",
        "Percentiles are exact.",
    ]
    return section


def _spread(title: str, rows: Sequence[TableRow], prefix: str, colours: Colours) -> Figure:
    """Of each topic; `prefix`: of the columns with the percentiles."""
    spans = [(row["topic"], *(row[f"{prefix}{level}_ms"] for level in ("p50", "p95", "p99"))) for row in rows]
    text = "; ".join(f"{topic}: median {span(p50)}, p99 {span(p99)}" for topic, p50, _, p99 in spans)
    styles = [colours.style(row["topic"]) for row in rows]
    return figure(title, lambda width: ranges(width, title, text, LOG_AXIS, spans, styles))


def _heat(hours: Sequence[TableRow], slo_ms: int, objective: float) -> list[Figure]:
    """By day and hour: the 99th percentile of the topic where it was highest; and the late ones, if there were any. The
    deepest colour begins where the objective is missed, so that a period in which all was well is pale.
    """
    first, last = (day_of(edge(row["hour"] for row in hours)) for edge in (min, max))
    days = [date for n in range(HEAT_DAYS) if (date := last - timedelta(n)) >= first]
    by_clock = ({**row, "clock": row["hour"].replace(tzinfo=None)} for row in hours)
    by_hour = grouped((row for row in by_clock if row["clock"] >= days[-1]), "clock")
    late = {at: 1 - total(rows, "within_slo") / total(rows, "attempts") for at, rows in by_hour.items()}
    slowest = {at: float(max(row["p99_ms"] for row in rows)) for at, rows in by_hour.items()}
    figures = [_calendar("p99 lateness of the least punctual topic", days, slowest, span, "cool", slo_ms)]
    if any(late.values()):
        what = f"Share of attempts later than {span(slo_ms)}"
        figures.append(_calendar(what, days, late, percent, "hot", round(1 - objective, 9)))
    return figures


def _calendar(
    what: str,
    days: Sequence[datetime],
    values: Mapping[datetime, float],
    show: Callable[[float], str],
    kind: str,
    allowed: float,
) -> Figure:
    cells = [[values.get(date + timedelta(hours=h)) for h in range(24)] for date in days]
    at = max(values, key=values.__getitem__)
    text = f"{what} by day and hour; the most was {show(values[at])}, {hour(at)}."
    title = f"{what}, by hour"
    names, columns = [day(date) for date in days], [f"{h:02}" for h in range(24)]
    across = "hour of the day"

    def draw(width: int) -> Svg:
        return matrix(width, title, text, names, columns, cells, show=show, kind=kind, across=across, top=allowed)

    return figure(title, draw, day(days[0]) if len(days) == 1 else f"{day(days[-1])} to {day(days[0])}")


def time_to_finish(tables: Tables, colours: Colours) -> Section:
    section = Section(
        "finish",
        "How long until a job is done?",
        "From the moment it was enqueued, and from its first due time, until the handler's success; retries included.",
    )
    rows = sorted((row for row in tables["time_to_finish"] if row["scope"] == "job"), key=lambda row: -row["jobs"])
    if not rows:
        section.lacking = "No job was done in this period."
        return section
    known = [row for row in rows if row["after_due_jobs"]]
    section.answer = section.brief = f"{number(total(rows, 'jobs'))} jobs were done."
    if known:
        slowest = _slowest(known)
        section.answer += (
            f" Slowest after the due time: {slowest['topic']}, where one in twenty took longer than "
            f"{span(slowest['after_due_p95_ms'])}."
        )
        section.brief = (
            f"In {slowest['topic']}, the slowest, one in twenty took longer than {span(slowest['after_due_p95_ms'])}."
        )
        section.figures = [
            _spread("From the first due time to done, by topic", known[:MOST_TOPICS], "after_due_", colours)
        ]
    per_group = [row for row in tables["time_to_finish"] if row["scope"] == "group"]
    shown = [*rows, *per_group] if has_groups(per_group) else rows
    section.grids = [
        grid(
            [
                "Topic", "Jobs", "Enqueued → done: median", "p95", "p99", "Due → done: median", "p95", "p99", "Longest",
            ],
            [
                [
                    subject(row, True), number(row["jobs"]),
                    *(span(row[f"total_{level}_ms"]) for level in ("p50", "p95", "p99")),
                    *(span(row[f"after_due_{level}_ms"]) for level in ("p50", "p95", "p99", "max")),
                ]
                for row in shown
            ],
        )
    ]  # fmt: skip
    return section


def _slowest(known: Sequence[TableRow]) -> TableRow:
    """Among those with enough jobs to say so, if there are any."""
    enough = [row for row in known if row["after_due_jobs"] >= MIN_SLOW] or known
    return max(enough, key=lambda row: row["after_due_p95_ms"])
