"""The command report."""

from __future__ import annotations

import dataclasses
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from streamdq import terminal
from streamdq.cli.common import commands
from streamdq.errors import MissingExtra
from streamdq.times.durations import to_ms

from .options import (
    DAY,
    AskRedis,
    Holidays,
    Memory,
    Objective,
    Page,
    Quarantine,
    Slo,
    Tz,
    check_page,
    date_of,
    dates_in,
    share_of,
    waiting_of,
)  # fmt: skip

app = commands()
_DAYS = 7
_Out = Annotated[Path, typer.Option(help="The HTML file.", metavar="FILE", dir_okay=False)]
_Open = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]


@app.command(rich_help_panel="History")
def report(
    context: typer.Context,
    dump: Annotated[str, typer.Argument(help="The folder or URL of a dump.", show_default=False)],
    out: _Out = Path("report.html"),
    first: Annotated[
        datetime | None, typer.Option("--from", help=f"The first UTC day [of the last {_DAYS}].", **DAY)
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", help="The last UTC day [the dump's].", **DAY)] = None,
    show: _Open = False,
    page: Page = None,
    slo: Slo = "1s",
    objective: Objective = "99%",
    tz: Tz = "UTC",
    holidays: Holidays = None,
    waiting: AskRedis = False,
    memory: Memory = None,
    quarantine: Quarantine = False,
) -> None:
    """Write the report of a week, as one HTML file.

    What to do, what happened and what is coming, from a dump. DuckDB calculates, and no tables are kept. Needs
    streamdq[analytics]. To keep tables, or for more than one machine takes: streamdq analyze.
    """
    try:
        from streamdq_spark import analysis

        from ..engines.duck import DuckDB
        from ..report import check_report, write_report
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyarrow", "analytics") from error
    check_page(page, out)
    with tempfile.TemporaryDirectory(prefix="streamdq-report-") as tables:
        plan = analysis.plan(
            dump,
            tables,
            date_of(first),
            date_of(last),
            quarantine=quarantine,
            slo_ms=to_ms(slo, "slo"),
            objective=share_of(objective),
            tz=tz,
            holidays=dates_in(holidays),
        )
        if first is None:
            week = plan.last_day - timedelta(days=_DAYS - 1)
            plan = dataclasses.replace(plan, first_day=max(plan.first_day, week))
        check_report(out)
        asked = waiting_of(context) if waiting else None
        with terminal.progress_bar("analysing") as bar:
            summary = analysis.analyze(DuckDB(memory), plan, waiting=asked, progress=bar.work_on)
        write_report(plan.target, summary, out, settings=asked.settings if asked else None, page=page or "")
    where = out.absolute().as_uri()
    terminal.console().print(Text(f"report: {where}"), soft_wrap=True)
    if show:
        typer.launch(where)
