"""The command capacity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from streamdq import terminal
from streamdq.cli.common import Json, commands
from streamdq.dump.open_folder import open_folder
from streamdq.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from ..report.pools import Pool, PoolHour

app = commands()
_TABLE = "capacity"
_COLUMNS = ("attempts", "slots", "low", "workers", "high")


@app.command(rich_help_panel="History")
def capacity(
    tables: Annotated[str, typer.Argument(help="The output folder or URL of analyze.", show_default=False)],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="The handlers at once of each worker [as seen].", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """How many workers the coming hours need.

    Shows the table `capacity` of the newest analysis in that folder: for queues that share workers, hour by hour, so
    that attempts start within the objective of that analysis. Needs streamdq[analytics]. For the next
    minutes: streamdq scale.
    """
    try:
        from ..report import load_tables
        from ..report.pools import pools
        from ..table_files import runs_of, table_files
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyarrow", "analytics") from error
    folder = open_folder(tables)
    runs = runs_of(folder, _TABLE)
    if not runs and not list(table_files(folder, _TABLE)):
        raise InvalidInput(f"there is no table {_TABLE} in {folder.url}: pass the output folder of streamdq analyze")
    rows = load_tables(folder, [_TABLE], runs[-1][1], runs[-1][0])[_TABLE] if runs else ()
    found = pools(rows, concurrency)
    if as_json:
        terminal.print_json([asdict(pool) | {"hours": [_as_json(hour) for hour in pool.hours]} for pool in found])
    else:
        terminal.console().print(_view(found))


def _as_json(hour: PoolHour) -> dict[str, object]:
    return asdict(hour) | {"hour": hour.hour.isoformat()}


def _view(found: Sequence[Pool]) -> RenderableType:
    if not any(hour.load is not None for pool in found for hour in pool.hours):
        return Text("Nothing is known of the coming hours: this takes two weeks of history, or analyze --waiting")
    return Group(*(part for pool in found for part in _of_pool(pool)))


def _of_pool(pool: Pool) -> Iterator[RenderableType]:
    made = terminal.table("from (UTC)", *_COLUMNS, numbers=_COLUMNS)
    for hour in pool.hours:
        enough = hour not in pool.short
        made.add_row(
            _moment(hour.hour), _number(hour.load), _number(hour.slots, 1), _number(hour.workers_low),
            Text(_number(hour.workers), "" if enough else "bold yellow"), _number(hour.workers_high),
        )  # fmt: skip
    yield Text(pool.name, "bold")
    yield made
    if pool.concurrency is None:
        yield Text("No worker was seen there: pass --concurrency for how many handlers one will run at once\n", "dim")
    else:
        seen = "" if pool.seen is None else f"; {_number(pool.seen)} worked lately"
        each = terminal.counted(round(pool.concurrency), "handler")
        yield Text(f"Counted with {each} at once in each worker{seen}\n", "dim")


def _moment(at: datetime) -> str:
    return f"{at:%a} {at.day} {at:%b %H:%M}"


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
