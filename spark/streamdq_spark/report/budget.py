"""The section about the objective's error budget, and which incidents spent it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import ceil

from ..measures import BUDGET_DAYS, BURN_LIMITS, MIN_LATE, SLO_MS
from .charts import Axis, bars
from .parts import Colours, Figure, Grid, Section, TableRow, Tables, figure, grid, total
from .todo import Advised
from .words import aim, hour, number, percent, span

MOST_BARS = 12
MOST_DRAWN = 400.0
MOST_TO_DO = 2
_ALERTS = {"page": "burns fast: now", "ticket": "burns: this week", "none": "–"}
_HALF = 0.5
_WINDOWS = {"burn_1h": "1 h", "burn_6h": "6 h", "burn_3d": "3 days"}


def budget(tables: Tables, slo_ms: int, objective: float, colours: Colours) -> Section:
    section = Section(
        "budget",
        "How much of the error budget is left?",
        f"{aim(1 - objective)} of the attempts of {BUDGET_DAYS} days may start later than {span(slo_ms)}. How much of "
        "that is spent, how fast, and on what?",
    )
    rows = sorted(tables["budget"], key=lambda row: (-row["spent"], -row["attempts"], row["topic"]))
    if not rows:
        section.lacking = "Of no attempt in this period is it known when it started."
        return section
    section.answer = _in_words(rows)
    section.calm = all(row["left"] >= 0 and row["alert"] == "none" for row in rows)
    section.brief = section.answer
    days = min(BUDGET_DAYS, ceil(max(row["days"] for row in rows)))
    section.span = f"the last {days} days" if days > 1 else "the last day"
    section.figures = [_spent(rows, colours)]
    incidents = sorted(tables["budget_incidents"], key=lambda row: -row["spent"])
    section.grids = [_topics(rows), _incidents(incidents, tables["lateness_causes"])]
    section.notes = [
        "Burn: late attempts over what the objective allows; at 1 the budget lasts exactly as long as its days.",
        "Alerts: from "
        + ", ".join(f"{BURN_LIMITS[name]:.2g} × on in {window}" for name, window in _WINDOWS.items())
        + ".",
        f"Incidents: hours in which more was late than allowed, at least 1 % of the budget and {MIN_LATE} attempts.",
    ]
    short = min(row["days"] for row in rows)
    if short < BUDGET_DAYS - 1:
        section.notes.append(f"Topics that are known for fewer than {BUDGET_DAYS} days have the budget of these days.")
    return section


def _in_words(rows: Sequence[TableRow]) -> str:
    """Of topics, the one that has spent most first."""
    over, worst = [row for row in rows if row["left"] < 0], rows[0]
    if not worst["spent"]:
        return "Nothing of it is spent."
    if not over:
        return (
            f"All of {len(rows)} topics have some left, {worst['topic']} the least: {_part_of_budget(worst['left'])}."
        )
    have = "has" if len(over) == 1 else "have"
    most = f"{worst['topic']} most: {_part_of_budget(worst['spent'])} spent."
    return f"{len(over)} of {len(rows)} topics {have} overdrawn it, {most}"


def overdrawn(tables: Tables, slo_ms: int = SLO_MS) -> list[Advised]:
    """Topics whose budget is spent, and what made them late."""
    rows = sorted(tables.get("budget", ()), key=lambda row: -row["spent"])
    over = (row for row in rows if row["left"] < 0 and row["late"] >= MIN_LATE)
    return [_advice(row, tables, slo_ms) for row in over][:MOST_TO_DO]


def _advice(row: TableRow, tables: Tables, slo_ms: int) -> Advised:
    allowed = row["late"] / row["spent"]
    effect = (
        f"{number(row['late'])} of {number(row['attempts'])} attempts of {_how_long(row['days'])} started "
        f"later than {span(slo_ms)}; {number(round(allowed))} were allowed."
    )
    own = [one for one in tables.get("budget_incidents", ()) if one["topic"] == row["topic"]]
    causes = tables.get("lateness_causes", ())
    if own:
        worst = max(own, key=lambda one: one["spent"])
        effect += f" The largest incident, {_when(worst)}, spent {_part_of_budget(worst['spent'])}"
        by_worker = _worker_part(worst, causes)
        effect += "." if by_worker is None else f"; {_cause(by_worker)}."
    of_all = _part([one for one in causes if one["topic"] == row["topic"]])
    note = "" if of_all is None else _CURES[of_all >= _HALF]
    spent = f"{_part_of_budget(row['spent'])} spent"
    return Advised(str(row["topic"]), "Error budget", spent, "100 % at most", effect, "", note, (0, -row["late"]))


_CURES = {
    True: "It takes more workers, or more handlers at once in each.",
    False: "See that a mover runs at all times, and that the topic's rate and limits of keys let so many pass.",
}


def _part_of_budget(value: float) -> str:
    return percent(value) if 0 <= value < 1 else f"{value * 100:,.0f} %"


def _cause(by_worker: float) -> str:
    if by_worker >= _HALF:
        return f"{percent(by_worker)} of the lateness was waiting for a worker"
    return f"{percent(1 - by_worker)} of the lateness was waiting for the mover, a rate or a limit of keys"


def _worker_part(incident: TableRow, causes: Sequence[TableRow]) -> float | None:
    first, last = incident["first_hour"], incident["last_hour"]
    return _part([row for row in causes if row["topic"] == incident["topic"] and first <= row["hour"] <= last])


def _part(causes: Sequence[TableRow]) -> float | None:
    """The worker's part of the lateness; None: there was none."""
    late = total(causes, "late_ms")
    return total(causes, "worker_ms") / late if late else None


def _how_long(days: float) -> str:
    return f"{number(round(days, 1))} days" if days >= 2 else span(days * 86_400_000)


def _when(incident: TableRow) -> str:
    first, end = incident["first_hour"], incident["last_hour"] + timedelta(hours=1)
    return f"{hour(first)} to {f'{end:%H:%M}' if end - first < timedelta(days=1) else hour(end)}"


def _spent(rows: Sequence[TableRow], colours: Colours) -> Figure:
    shown = [(str(row["topic"]), row["spent"] * 100, _part_of_budget(row["spent"])) for row in rows[:MOST_BARS]]
    title = "Error budget that is spent, by topic"
    styles = [colours.style(row["topic"]) for row in rows]
    text = "; ".join(f"{label}: {value}" for label, _, value in shown)
    # So that the line is seen where one topic is far beyond it.
    top = min(MOST_DRAWN, max(MOST_DRAWN / 4, *(value for _, value, _ in shown)))
    axis = Axis("% of the budget; the line is all of it", lambda value: f"{value:g} %", top)
    return figure(title, lambda width: bars(width, title, text, axis, shown, styles=styles, mark=100.0))


def _topics(rows: Sequence[TableRow]) -> Grid:
    return grid(
        ["Topic", "Attempts", "Late", "On time", "Spent", "Left", "Burn, 1 h", "6 h", "3 days", "Alert"],
        [
            [
                str(row["topic"]), number(row["attempts"]), number(row["late"]), percent(row["on_time"]),
                _part_of_budget(row["spent"]), _part_of_budget(row["left"]),
                *(_burn(row[name]) for name in _WINDOWS), _ALERTS[row["alert"]],
            ]
            for row in rows
        ],
    )  # fmt: skip


def _burn(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} ×"


def _incidents(incidents: Sequence[TableRow], causes: Sequence[TableRow]) -> Grid:
    def cause(row: TableRow) -> str:
        by_worker = _worker_part(row, causes)
        return "–" if by_worker is None else percent(by_worker)

    return grid(
        ["Topic", "Incident", "Hours", "Late", "Of attempts", "Budget spent", "Waited for a worker"],
        [
            [
                str(row["topic"]), _when(row), number(row["hours"]), number(row["late"]),
                percent(row["late"] / row["attempts"]), _part_of_budget(row["spent"]), cause(row),
            ]
            for row in incidents
        ],
        texts=2,
        most=15,
    )  # fmt: skip
