"""The section about where flows spend their time."""

from __future__ import annotations

from .charts import Axis, bars
from .parts import Colours, Section, TableRow, Tables, figure, grid
from .words import counted, number, percent, span, unit_for

MOST_DRAWN = 12


def flows(tables: Tables, colours: Colours) -> Section:
    section = Section(
        "flows",
        "Where do flows spend their time?",
        "By the critical path of each flow: the jobs that decided when it ended. A job waited, or it ran.",
    )
    whole = next((row for row in tables["flows"] if row["topic"] is None), None)
    if whole is None:
        section.lacking = "No flow has ended in this period."
        return section
    rows = sorted(
        (row for row in tables["flows"] if row["topic"] is not None),
        key=lambda row: (-_took(row), row["topic"]),
    )
    ended = f"{counted(whole['flows'], 'flow')} ended"
    failed = f"{number(whole['failed'])} failed or cancelled"
    if whole["with_path"] < whole["flows"]:
        section.notes.append(f"The critical path of {number(whole['flows'] - whole['with_path'])} is not known.")
    if not rows:
        section.answer = f"{ended}, {failed}. No critical path is known."
        section.brief = section.answer
        return section
    first = rows[0]
    section.answer = (
        f"{ended}, {failed}. {first['topic']} took {percent(first['share'])} of the time on their critical paths: it "
        f"waited {span(first['waited_ms'])} and ran {span(first['ran_ms'])}."
    )
    section.brief = f"{ended}, {failed}; {percent(first['share'])} of their time went to {first['topic']}."
    title = "Time on critical paths"
    unit, unit_ms = unit_for(_took(first))
    drawn = [(row["topic"], _took(row) / unit_ms, span(_took(row))) for row in rows[:MOST_DRAWN]]
    styles = [colours.style(row["topic"]) for row in rows[:MOST_DRAWN]]
    section.figures = [
        figure(title, lambda width: bars(width, title, section.answer, Axis(unit), drawn, styles=styles))
    ]
    section.grids = [
        grid(
            ["Topic", "Flows", "Failed", "Share", "Waited", "Median", "95 %", "Ran", "Median", "95 %"],
            [
                [
                    row["topic"], number(row["flows"]), number(row["failed"]), percent(row["share"]),
                    span(row["waited_ms"]), span(row["waited_p50_ms"]), span(row["waited_p95_ms"]),
                    span(row["ran_ms"]), span(row["ran_p50_ms"]), span(row["ran_p95_ms"]),
                ]
                for row in rows
            ],
        )
    ]  # fmt: skip
    section.notes.append("A job waits for its delay, for a worker, between its attempts, and for jobs of other flows.")
    return section


def _took(row: TableRow) -> int:
    return int(row["waited_ms"] + row["ran_ms"])
