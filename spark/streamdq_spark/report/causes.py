"""The section about what made jobs late."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import PLAIN, Axis, Series, stacked
from .parts import Figure, Grid, Section, TableRow, Tables, figure, grid, grouped, in_steps, total
from .timing import missed
from .words import hour, number, percent, span

MOST_HOURS = 12
HOUR_MIN = 60
HOUR_MS = 3_600_000
_EACH = "each with as many at once as it was seen to run on that day"
MOVER, WORKER = "waiting for the mover", "waiting for a worker"


def causes(tables: Tables, objective: float) -> Section:
    section = Section(
        "causes",
        "Where did lateness come from?",
        "What had passed when jobs became ready, which is the mover's part or that of a rate, and how long they then "
        "waited for a worker.",
    )
    rows = tables["lateness_causes"]
    late = total(rows, "late_ms")
    if not late:
        section.lacking = "No attempt in this period started late, or none has a due and a start time."
        return section
    mover = total(rows, "mover_ms") / late
    section.answer = (
        f"Of {span(late)} of lateness, added up over {number(total(rows, 'attempts'))} attempts, jobs spent "
        f"{percent(mover)} waiting for the mover and {percent(1 - mover)} waiting for a worker."
    )
    section.calm = not missed(tables, objective)
    section.brief = f"{percent(mover)} was waiting for the mover, {percent(1 - mover)} for a worker."
    section.figures = _by_time(rows, section.answer)
    section.grids = [_by_topic(rows), _worst_hours(rows, tables["workers"])]
    section.notes = [
        "Retries: how long attempts after a failure had to wait before they were due. That is no lateness.",
        f"Busy: how long handlers ran in that hour, as a share of what the workers could have run, {_EACH}.",
    ]
    return section


def _by_time(rows: Sequence[TableRow], text: str) -> list[Figure]:
    """None of a single hour."""
    steps = in_steps(rows)
    if len(steps.times) < 2:
        return []
    own = grouped(steps.rows, "at")
    series = [
        Series(name, [total(own.get(at, ()), column) / 1000 for at in steps.times], style)
        for name, column, style in ((MOVER, "mover_ms", "hot"), (WORKER, "worker_ms", PLAIN))
    ]
    title = f"Lateness by cause, per {steps.unit}"
    axis = Axis("seconds, all attempts added up")
    return [figure(title, lambda width: stacked(width, title, text, axis, steps.names, series))]


def _by_topic(rows: Sequence[TableRow]) -> Grid:
    ranked = sorted(grouped(rows, "topic").items(), key=lambda item: -total(item[1], "late_ms"))
    return grid(
        ["Topic", "Attempts", "Lateness, mean", "Mover", "Worker", "Worker's part", "Retries", "Their wait, mean"],
        [
            [
                topic, number(total(own, "attempts")),
                *(_mean(own, column, "attempts") for column in ("late_ms", "mover_ms", "worker_ms")),
                percent(total(own, "worker_ms") / late) if (late := total(own, "late_ms")) else "–",
                number(total(own, "retries")), _mean(own, "retry_ms", "retries"),
            ]
            for topic, own in ranked
        ],
    )  # fmt: skip


def _mean(rows: Sequence[TableRow], sums: str, count: str) -> str:
    counted = total(rows, count)
    return span(round(total(rows, sums) / counted, 1)) if counted else "–"


def _worst_hours(rows: Sequence[TableRow], workers: Sequence[TableRow]) -> Grid:
    """The hours with the most lateness of a topic, and how busy all workers were in them."""
    busy = {at: total(own, "busy_ms") / (total(own, "slots") * HOUR_MS) for at, own in grouped(workers, "hour").items()}
    worst = sorted((row for row in rows if row["late_ms"]), key=lambda row: (-row["late_ms"], row["topic"]))
    return grid(
        ["Topic", "Most lateness in", "Attempts a minute", "Lateness, mean", "Mover", "Worker", "Busy"],
        [
            [
                row["topic"], hour(row["hour"]), number(round(row["attempts"] / HOUR_MIN, 1)),
                span(round(row["late_ms"] / row["attempts"], 1)), percent(row["mover_ms"] / row["late_ms"]),
                percent(row["worker_ms"] / row["late_ms"]), percent(busy.get(row["hour"])),
            ]
            for row in worst[:MOST_HOURS]
        ],
        texts=2,
    )  # fmt: skip
