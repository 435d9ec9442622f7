"""The command live."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live as Screen
from rich.text import Text

from streamdq import terminal
from streamdq.cli.common import Json, commands, run_until_signal
from streamdq.errors import InvalidInput, MissingExtra
from streamdq.times.durations import show_ms, to_ms

from .options import Master, Memory, Verbose

if TYPE_CHECKING:
    from ..live import Live, Row

app = commands()
_COLUMNS = ("minute", "attempts", "done", "failed", "dead", "late", "p50", "p99")
_HOUR = ("in the hour", "failed ", "late ")


@app.command(rich_help_panel="History")
def live(
    context: typer.Context,
    output: Annotated[str, typer.Option(help="The folder or URL for the table.", show_default=False)],
    every: Annotated[str, typer.Option(help="How often the table is brought up to date.")] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Count what there is, and end.")] = False,
    slo: Annotated[
        str, typer.Option(help="An attempt is late if it starts later than this after its due time.")
    ] = "1s",
    latest: Annotated[
        str, typer.Option(help="How late an event may come, after others that finished later, and still be counted.")
    ] = "10m",
    master: Master = None,
    memory: Memory = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Keep a table of the last hour up to date.

    For each minute, topic and group: attempts, done, failed, dead, late, median and 99th percentile of the lateness.
    Spark follows the history in Redis until Ctrl-C or SIGTERM. Each event counts once, even if the command is killed
    and run again. --json prints a line for each batch. Needs streamdq[spark].
    """
    try:
        from ..live import follow
        from ..session import LIVE, session
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyspark", "spark") from error
    options: dict[str, Any] = {"every_ms": _above_zero(every, "every"), "slo_ms": _above_zero(slo, "slo")}
    options["latest_ms"] = to_ms(latest, "latest")
    screen = Screen(console=terminal.console(), auto_refresh=False, screen=sys.stdout.isatty() and not once)

    options["tell"] = _shown_in(screen, as_json=as_json)

    def run(stopping: Callable[[], bool]) -> None:
        if not follow(spark, output, context.obj.url, context.obj.namespace, once=once, stopping=stopping, **options):
            terminal.complain("some events came later than --latest allows, and are not counted")

    started = session(master, settings=LIVE, memory=memory, verbose=verbose)
    with started as spark, nullcontext() if as_json else screen:
        if once:
            run(lambda: False)
        else:
            run_until_signal(run, 0.0, ())


def _shown_in(screen: Screen, *, as_json: bool) -> Callable[[Live], None]:
    """Shows each batch."""

    def in_json(found: Live) -> None:
        if found.changed:
            rows = [{**row, "minute": row["minute"].isoformat()} for row in found.changed]
            terminal.print_json({"batch": found.batch, "rows": rows})

    return in_json if as_json else lambda found: screen.update(_view(found.rows), refresh=True)


def _above_zero(text: str, name: str) -> int:
    if (ms := to_ms(text, name)) < 1:
        raise InvalidInput(f"{name}: must be at least 1 ms")
    return ms


_STYLES = {"attempts": "", "done": "", "failed": "yellow", "dead": "red", "late": "yellow"}
_OF_HOUR = ("attempts", "failed", "late")


def _view(rows: list[Row]) -> RenderableType:
    """Of each topic and group, the newest minute and the hour."""
    if not rows:
        return Text("no attempt has ended in the last hour")
    made = terminal.table("topic", "group", *_COLUMNS, *_HOUR, numbers=(*_COLUMNS, *_HOUR))
    by_queue = sorted(rows, key=lambda row: (*_queue(row), row["minute"]))
    for (topic, group), found in groupby(by_queue, key=_queue):
        own = list(found)
        made.add_row(Text(topic, "bold"), group, *_newest(own[-1]), *_hour(own))
    newest = max(row["minute"] for row in rows)
    return Group(made, Text(f"the hour until {newest:%Y-%m-%d %H:%M} UTC"))


def _queue(row: Row) -> tuple[str, str]:
    return row["topic"], row["group"] or ""


def _newest(row: Row) -> Iterator[Text]:
    yield Text(f"{row['minute']:%H:%M}")
    for name, style in _STYLES.items():
        yield terminal.count_cell(row[name], style)
    for name in ("p50_ms", "p99_ms"):
        yield Text("–" if row[name] is None else show_ms(row[name]))


def _hour(rows: list[Row]) -> Iterator[Text]:
    for name in _OF_HOUR:
        yield terminal.count_cell(sum(row[name] for row in rows), _STYLES[name])
