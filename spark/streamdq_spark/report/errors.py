"""The sections about classes of errors, and about hosts that are worse than the others."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import matrix
from .parts import Figure, Section, TableRow, Tables, figure, grid, grouped, has_groups, job_cell, subject, total
from .svg import Svg
from .todo import Advised
from .words import day, hour, number, percent

MOST_DRAWN = 6
HEAT_DAYS = 14
MOST_TO_DO = 2
_URGENT = ("new", "spreading")
_ORDER = {"new": 0, "spreading": 1}
_MEASURES = {"failed": "failed attempts", "slow": "slow attempts"}


def errors(tables: Tables, page: str) -> Section:
    section = Section(
        "errors",
        "Which errors are new, or spread?",
        "The classes of errors with which attempts failed: since when, how often on each day, and on which hosts.",
    )
    classes = sorted(tables["error_classes"], key=lambda row: (_ORDER.get(row["verdict"], 2), -row["failed"]))
    if not classes:
        section.lacking = "No attempt failed with a known error in this period."
        return section
    found = {name: sum(row["verdict"] == name for row in classes) for name in _URGENT}
    section.answer = (
        f"{number(len(classes))} {'class' if len(classes) == 1 else 'classes'} of errors: {number(found['new'])} new "
        f"in the last seven days, {number(found['spreading'])} more frequent than in the seven before."
    )
    section.calm = not any(found.values())
    kinds = f"{number(len(classes))} {'class' if len(classes) == 1 else 'classes'}"
    section.brief = f"{kinds}: {number(found['new'])} new, {number(found['spreading'])} spreading."
    groups = has_groups(classes)
    section.figures = [_by_day(tables["errors"], groups)]
    section.grids = [
        grid(
            [
                "Topic", "Error", "Verdict", "First seen", "Failed", "Week before", "Now", "Hosts",
                "For example",
            ],
            [
                [
                    subject(row, groups), row["error"], row["verdict"], hour(row["first"]), number(row["failed"]),
                    percent(row["before"]), percent(row["now"]), _on(row),
                    job_cell(row["topic"], row["last_id"], page),
                ]
                for row in classes
            ],
            texts=3,
        )
    ]  # fmt: skip
    section.notes = [
        "Week before and now: the share of attempts that failed with it, in the last seven days and the seven before.",
        "If nothing changed, a class is called new, spreading, fading or gone in one report of 20 at most.",
    ]
    return section


def _on(row: TableRow) -> str:
    most = f"; {percent(row['of_host'])} on {row['host']}" if row["host"] else ""
    return f"{number(row['hosts'])}{most}"


def new_errors(tables: Tables) -> list[Advised]:
    """Classes of errors that are new or spread."""
    urgent = [row for row in tables.get("error_classes", ()) if row["verdict"] in _URGENT]
    return [_look_at(row) for row in sorted(urgent, key=lambda row: (_ORDER[row["verdict"]], -row["failed"]))][
        :MOST_TO_DO
    ]


def _look_at(row: TableRow) -> Advised:
    where = f"{percent(row['of_host'])} of them on {row['host']}" if row["hosts"] > 1 else f"all on {row['host']}"
    since = f" since {hour(row['first'])}" if row["verdict"] == "new" else ""
    on = f", {where}" if row["host"] else ""
    return Advised(
        str(row["topic"]),
        f"Attempts that fail with {row['error']}",
        percent(row["now"]),
        percent(row["before"]),
        f"{row['verdict'].capitalize()}{since}: {number(row['failed'])} attempts{on}. The last was of job "
        f"{row['last_id']}.",
        "",
        "See what was deployed then, and what the handler's log says.",
        (1, -row["failed"]),
    )


def _by_day(rows: Sequence[TableRow], groups: bool) -> Figure:
    days = sorted({row["day"] for row in rows})[-HEAT_DAYS:]
    named = grouped(({**row, "name": f"{subject(row, groups)} · {row['error']}"} for row in rows), "name")
    names = sorted(named, key=lambda name: (-total(named[name], "failed"), name))[:MOST_DRAWN]
    of_day = {(name, row["day"]): float(row["share"]) for name in names for row in named[name]}
    cells = [[of_day.get((name, at), 0.0) for at in days] for name in names]
    title = "Attempts that failed with each error, by day"
    worst = max(of_day, key=of_day.__getitem__)
    text = f"The most on one day: {worst[0]}, {day(worst[1])}, {percent(of_day[worst])} of the attempts."

    def draw(width: int) -> Svg:
        return matrix(
            width, title, text, names, [str(at.day) for at in days], cells, show=percent, kind="hot",
            across=f"{day(days[0])} to {day(days[-1])}",
        )  # fmt: skip

    return figure(title, draw, f"{day(days[0])} to {day(days[-1])}")


def hosts(tables: Tables) -> Section:
    section = Section(
        "hosts",
        "Is a host worse than the others?",
        "Attempts that failed or were slow on each host, beside as many as there would be if it were as the others in "
        "the same hours and topics.",
    )
    rows = sorted(tables["hosts"], key=lambda row: (row["verdict"] != "bad", -_times(row), str(row["host"])))
    if not rows:
        section.lacking = "No two hosts had attempts of the same topic in the same hour."
        return section
    bad = [row for row in rows if row["verdict"] == "bad"]
    judged = {row["host"] for row in rows if row["verdict"] != "too little"}
    section.answer = (
        " ".join(_in_words(row) for row in bad[:3])
        if bad
        else f"No: {number(len(judged))} hosts are alike."
        if judged
        else "Unknown: there is too little to compare."
    )
    section.brief = section.answer
    section.calm = not bad
    section.span = "the last 14 days"
    section.grids = [
        grid(
            ["Host", "Group", "What", "Verdict", "Of attempts", "Seen", "As the others", "Times"],
            [
                [
                    row["host"], row["group"] or "–", _MEASURES[row["measure"]], row["verdict"],
                    number(row["attempts"]), number(row["seen"]), number(round(row["usual"], 1)),
                    f"{_times(row):.2f} ×" if row["usual"] else "–",
                ]
                for row in rows
                if row["chance"] is not None
            ],
            texts=4,
        )
    ]  # fmt: skip
    section.notes = [
        "Slow: longer than nine of ten attempts of the topic that were done.",
        "If all hosts were alike, one is called bad in one report of 20 at most.",
    ]
    return section


def bad_hosts(tables: Tables) -> list[Advised]:
    """Hosts that fail more often or are slower than the others."""
    bad = [row for row in tables.get("hosts", ()) if row["verdict"] == "bad"]
    return [_stop(row) for row in sorted(bad, key=lambda row: row["usual"] - row["seen"])][:MOST_TO_DO]


def _stop(row: TableRow) -> Advised:
    more = row["seen"] - row["usual"]
    return Advised(
        f"Host {row['host']}",
        _MEASURES[row["measure"]].capitalize(),
        f"{number(row['seen'])} of {number(row['attempts'])}",
        f"{number(round(row['usual']))}, as the others",
        f"{number(round(more))} more than the other hosts of group {row['group']} had in the same hours and topics.",
        "",
        "See what is different there: version, network, disk, load. Until then, stop its workers.",
        (1, -round(more)),
    )


def _times(row: TableRow) -> float:
    return float(row["seen"] / row["usual"]) if row["usual"] else 0.0


def _in_words(row: TableRow) -> str:
    return (
        f"{row['host']} has {_times(row):.1f} times as many {_MEASURES[row['measure']]} as the others "
        f"({number(row['seen'])}, not {number(round(row['usual']))})."
    )
