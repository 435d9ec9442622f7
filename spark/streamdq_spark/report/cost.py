"""The section about what topics and keys cost."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Axis, bars
from .parts import Colours, Figure, Grid, Section, TableRow, Tables, figure, grid, has_groups, subject, total
from .words import number, percent, size, span, unit_for

MOST_DRAWN = 12


def cost(tables: Tables, colours: Colours) -> Section:
    section = Section(
        "cost",
        "What did it cost?",
        "How long handlers ran, added up, and how much of that was wasted: attempts that failed, or were taken over.",
    )
    rows = sorted(tables["cost_by_topic"], key=lambda row: (-row["worker_ms"], row["topic"], row["group"] or ""))
    spent = total(rows, "worker_ms")
    if not spent:
        section.lacking = "No attempt in this period has both a start and an end."
        return section
    failed, reclaimed = (total(rows, name) / spent for name in ("failed_ms", "reclaimed_ms"))
    several = has_groups(rows)
    section.answer = (
        f"Handlers ran for {span(spent)} in all. {percent(failed)} of it went to attempts that failed, "
        f"{percent(reclaimed)} to those that were taken over. {subject(rows[0], several)} took "
        f"{percent(rows[0]['share'])}."
    )
    section.brief = f"{span(spent)} in handlers, {percent(failed + reclaimed)} of it wasted."
    section.figures = [_by_queue(rows, several, section.answer, colours)]
    section.grids = [_grid(rows, several)]
    if tables["cost_by_key"]:
        section.grids.append(_of_keys(tables["cost_by_key"], several))
    section.notes = [
        "Taken over: until it was noticed; the handler may have ended sooner.",
        "Put back: handed back because the worker stopped, or snoozed by the handler.",
        "Bodies: each job's once.",
    ]
    return section


def _by_queue(rows: Sequence[TableRow], several: bool, text: str, colours: Colours) -> Figure:
    title = "Time that handlers ran"
    unit, unit_ms = unit_for(rows[0]["worker_ms"])
    shown = [(subject(row, several), row["worker_ms"] / unit_ms, span(row["worker_ms"])) for row in rows[:MOST_DRAWN]]
    styles = [colours.style(row["topic"]) for row in rows[:MOST_DRAWN]]
    return figure(title, lambda width: bars(width, title, text, Axis(f"{unit}, added up"), shown, styles=styles))


def _grid(rows: Sequence[TableRow], several: bool) -> Grid:
    names = ["Topic", "Attempts", "Time", "Share", "Failed", "Their part", "Taken over", "Their part",
             "Put back", "Bodies"]  # fmt: skip
    return grid(
        names,
        [
            [
                subject(row, several), number(row["attempts"]), span(row["worker_ms"]),
                percent(row["share"]), span(row["failed_ms"]), percent(row["failed_share"]), span(row["reclaimed_ms"]),
                percent(row["reclaimed_share"]), span(row["put_back_ms"]), size(row["body_bytes"]),
            ]
            for row in rows
        ],
    )  # fmt: skip


def _of_keys(rows: Sequence[TableRow], several: bool) -> Grid:
    """The keys that took most, and last what the others of each topic took."""
    ranked = sorted(rows, key=lambda row: (row["key"] is None, -row["worker_ms"], row["topic"], row["key"] or ""))
    return grid(
        ["Topic", "Key", "Attempts", "Time", "Of its topic", "Failed", "Their part", "Taken over", "Bodies"],
        [
            [
                subject(row, several), row["key"] or f"{number(row['keys'])} others", number(row["attempts"]),
                span(row["worker_ms"]), percent(row["share"]), span(row["failed_ms"]), percent(row["failed_share"]),
                span(row["reclaimed_ms"]), size(row["body_bytes"]),
            ]
            for row in ranked
        ],
        texts=2,
    )  # fmt: skip
