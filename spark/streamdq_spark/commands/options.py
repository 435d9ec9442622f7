"""What the commands of the analytics share."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamdq.cli.common import open_queue
from streamdq.errors import InvalidInput

if TYPE_CHECKING:
    from ..waiting import Waiting

DAY: dict[str, Any] = {"formats": ["%Y-%m-%d"], "metavar": "YYYY-MM-DD", "show_default": False}

Memory = Annotated[
    str | None,
    typer.Option(
        envvar="STREAMDQ_SPARK_MEMORY",
        show_envvar=True,
        show_default=False,
        metavar="SIZE",
        help="Memory for Java's heap, such as 4g [half of the machine's, at most 4g], or for DuckDB [most of it].",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs; sc://HOST:PORT is a Spark Connect server [local[*]].", show_default=False),
]
Page = Annotated[
    str | None,
    typer.Option(help="The operations page, to which the report's job ids lead.", metavar="URL", show_default=False),
]
Objective = Annotated[
    str, typer.Option(help="The share of attempts that should be on time: 99.9% or 0.999.", metavar="SHARE")
]
Slo = Annotated[str, typer.Option(help="An attempt is on time if it starts within this of its due time.")]
Tz = Annotated[
    str, typer.Option(help="The time zone by whose clocks hours are shown, and compared with those of earlier weeks.")
]
Holidays = Annotated[
    str | None,
    typer.Option(
        help="Holidays, past and coming, for the forecast: 2026-04-03,2026-04-06.", metavar="DATES", show_default=False
    ),
]
AskRedis = Annotated[
    bool,
    typer.Option(
        "--waiting",
        help="Ask Redis for the jobs that wait, for the forecast, and for today's settings, for the report.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's log on stderr.")]
Quarantine = Annotated[bool, typer.Option("--quarantine", help="Leave bad files out, and report them.")]


def date_of(day: datetime | None) -> date | None:
    return day.date() if day else None


def dates_in(text: str | None) -> tuple[date, ...]:
    """
    Raises:
        InvalidInput: one is no date.
    """
    try:
        return tuple(date.fromisoformat(one.strip()) for one in (text or "").split(",") if one.strip())
    except ValueError as error:
        raise InvalidInput(f"holidays: {text!r}: write dates as 2026-04-03, with commas between them") from error


def set_aside(events: int) -> str:
    return f"{events:,} events that can't be: later than the dump, or with impossible times or sizes"


def check_page(page: str | None, report: Path | None) -> None:
    """
    Raises:
        InvalidInput: it is not a URL, or there is to be no report.
    """
    if page is None:
        return
    if report is None:
        raise InvalidInput("--page is for the report: pass --report FILE as well")
    if not page.startswith(("http://", "https://")):
        raise InvalidInput(f"page: {page!r} is not a URL; write https://… as in the browser")


def share_of(text: str) -> float:
    """99.9% or 0.999, as a share."""
    number, percent, rest = text.strip().partition("%")
    try:
        share = round(float(number) / (100 if percent else 1), 9)
    except ValueError:
        share = 0.0
    if rest or not 0 < share < 1:
        raise InvalidInput(f"objective: {text!r} is not a share between 0 and 1; write 99.9% or 0.999")
    return share


def waiting_of(context: typer.Context) -> Waiting:
    from ..waiting import waiting_in

    with open_queue(context) as queue:
        return waiting_in(queue)
