"""The command analyze."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from streamdq import terminal
from streamdq.cli.common import Json, commands
from streamdq.errors import MissingExtra
from streamdq.times.durations import to_ms

from ..engines.choice import Name, choose, started
from .options import (
    DAY,
    AskRedis,
    Holidays,
    Master,
    Memory,
    Objective,
    Page,
    Quarantine,
    Slo,
    Tz,
    Verbose,
    check_page,
    date_of,
    dates_in,
    set_aside,
    share_of,
    waiting_of,
)  # fmt: skip

if TYPE_CHECKING:
    from ..analysis import Plan

app = commands()
_NAMES = {Name.DUCKDB: "DuckDB", Name.SPARK: "Spark"}
_Report = Annotated[
    Path | None, typer.Option(help="Also write an HTML report.", metavar="FILE", dir_okay=False, show_default=False)
]
_Only = Annotated[
    list[str] | None, typer.Option(help="Only this table; may be repeated.", metavar="TABLE", show_default=False)
]
_Compare = Annotated[
    tuple[str, str] | None,
    typer.Option(
        help="Compare two time spans, as before and after a release: days, both included, or times.",
        metavar="A..B C..D",
        show_default=False,
    ),
]


@app.command(rich_help_panel="History")
def analyze(
    context: typer.Context,
    dump: Annotated[str, typer.Argument(help="The folder or URL of a dump.", show_default=False)],
    output: Annotated[str, typer.Option(help="The folder or URL for the tables.", show_default=False)],
    first: Annotated[datetime | None, typer.Option("--from", help="The first UTC day [the dump's].", **DAY)] = None,
    last: Annotated[datetime | None, typer.Option("--to", help="The last UTC day [the dump's].", **DAY)] = None,
    report: _Report = None,
    page: Page = None,
    only: _Only = None,
    slo: Slo = "1s",
    objective: Objective = "99%",
    tz: Tz = "UTC",
    holidays: Holidays = None,
    compare: _Compare = None,
    engine: Annotated[
        Name,
        typer.Option(help="Who calculates: DuckDB on this machine, or Spark, also beyond it; auto says which and why."),
    ] = Name.AUTO,
    master: Master = None,
    waiting: AskRedis = False,
    memory: Memory = None,
    verbose: Verbose = False,
    quarantine: Quarantine = False,
    as_json: Json = False,
) -> None:
    """Analyse a dump of the history, with DuckDB or Spark.

    Writes a Parquet table for each question: punctuality, throughput, retries, dead letters, duplicates, advice on TTR
    and retry schedule, unusual hours, the coming load. A repeated run replaces the days it covers. Needs
    streamdq[analytics], or streamdq[spark] for more than one machine takes.
    """
    try:
        from streamdq_spark import analysis

        from ..report import write_report
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyarrow", "analytics") from error
    days = date_of(first), date_of(last)
    questions = analysis.chosen(only or (), compare=compare is not None)
    check_page(page, report)
    plan = analysis.plan(
        dump,
        output,
        *days,
        quarantine=quarantine,
        slo_ms=to_ms(slo, "slo"),
        objective=share_of(objective),
        tz=tz,
        compare=compare,
        holidays=dates_in(holidays),
    )
    asked = waiting_of(context) if waiting else None
    analysis.check_output(plan)
    _check_report(report)
    events = analysis.events_to_read(plan, questions)
    name = _chosen(engine, plan, events, master)
    at_work = started(name, events, master, memory=memory, verbose=verbose)
    with terminal.progress_bar(f"starting {_NAMES[name]}") as bar, at_work as calculates:
        summary = analysis.analyze(
            calculates,
            plan,
            waiting=asked,
            questions=questions,
            progress=bar.work_on,
        )
    if report:
        write_report(plan.target, summary, report, settings=asked.settings if asked else None, page=page or "")
    if as_json:
        terminal.print_json(summary.as_json())
    else:
        _tell(summary.as_json(), plan, output, report)


def _chosen(engine: Name, plan: Plan, events: int, master: str | None) -> Name:
    """The engine. Prints which one, and why, unless the command named it."""
    name, why = choose(engine, (plan.dump.folder, plan.target), events, master)
    if engine is Name.AUTO and master is None:
        terminal.console(stderr=True).print(Text(f"engine: {_NAMES[name]} ({why})", "dim"))
    return name


def _tell(summary: dict[str, Any], plan: Plan, output: str, report: Path | None) -> None:
    terminal.console().print(_view(summary, output))
    if report:
        terminal.console().print(Text(f"report: {report.absolute().as_uri()}"), soft_wrap=True)
    if plan.compare:
        _tell_changes(plan, summary["compare"])


def _tell_changes(plan: Plan, compare: tuple[str, str]) -> None:
    from ..report import load_tables
    from ..report.compared import changed

    found = changed(load_tables(plan.target, ["compared"], plan.first_day, plan.last_day).get("compared", ()))
    if not found:
        terminal.console().print(Text(f"nothing changed from {compare[0]} to {compare[1]} beyond chance", "green"))
        return
    made = terminal.table("changed beyond chance", "", *compare, "", numbers=compare)
    for one in found:
        shown = (Text(text) for text in (one.subject, one.what, one.before, one.after))
        made.add_row(*shown, Text(one.verdict, "red" if one.is_bad else "green"))
    terminal.console().print(made)


def _check_report(report: Path | None) -> None:
    from ..report import check_report

    if report is not None:
        check_report(report)


def _view(summary: dict[str, Any], output: str) -> RenderableType:
    made = terminal.table("table", "rows", numbers=("rows",))
    for name, rows in summary["tables"].items():
        made.add_row(Text(name), terminal.count_cell(rows, ""))
    covered = (
        f"{summary['events']:,} events of {summary['first_day']} to {summary['last_day']} "
        f"in {summary['files']:,} files; the tables are in {output}"
    )
    return Group(made, Text(covered), *(Text(line, "bold yellow") for line in _gaps(summary)))


def _gaps(summary: dict[str, Any]) -> Iterator[str]:
    """Notes on what the figures do not cover."""
    for file in summary["quarantined"]:
        yield f"left out {file['rows']:,} events: {file['path']} {file['problem']}"
    if aside := summary["set_aside"]:
        yield f"set aside {set_aside(aside)}"
    if summary["lost"]:
        lost = f"{summary['lost']:,} events are not in the dump"
        yield f"{lost}: they were trimmed before they were dumped, or deleted with their topic"
    if times := summary["resets"]:
        yield (
            f"Redis lost history or went back to an earlier state {f'{times:,} times' if times > 1 else 'once'}: "
            "rows that were not dumped before are missing; how many is not known"
        )
    if summary["unlisted"]:
        yield f"left out: {summary['unlisted']:,} files that are not in the dump's manifest"
