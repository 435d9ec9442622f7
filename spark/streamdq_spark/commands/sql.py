"""The command sql."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from streamdq import terminal
from streamdq.cli.common import Json, commands
from streamdq.errors import InvalidInput, MissingExtra
from streamdq.terminal import counted

from ..engines.choice import Name, choose
from .options import DAY, Master, Memory, Quarantine, Verbose, date_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..sql import Found, Source
    from ..sql.examples import Example

app = commands()
MOST_SHOWN, MOST_COLUMNS = 100, 12


@app.command(name="sql", no_args_is_help=True, rich_help_panel="History")
def ask(
    dump: Annotated[str | None, typer.Argument(help="The folder or URL of a dump.", show_default=False)] = None,
    query: Annotated[str | None, typer.Argument(help="A query, such as 'select …'.", show_default=False)] = None,
    tables: Annotated[
        str | None, typer.Option(help="The output of analyze, whose tables can be asked, too.", metavar="FOLDER")
    ] = None,
    example: Annotated[str | None, typer.Option(help="Ask this example.", metavar="NAME")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="Show the examples.")] = False,
    engine: Annotated[
        Name, typer.Option(help="Who answers: DuckDB if it is installed and there is no --master, else Spark.")
    ] = Name.AUTO,
    first: Annotated[datetime | None, typer.Option("--from", help="The first UTC day [the dump's].", **DAY)] = None,
    last: Annotated[datetime | None, typer.Option("--to", help="The last UTC day [the dump's].", **DAY)] = None,
    master: Master = None,
    memory: Memory = None,
    verbose: Verbose = False,
    quarantine: Quarantine = False,
    as_json: Json = False,
) -> None:
    """Ask a dump of the history in SQL.

    The view events has the columns of the history, and late_ms, mover_ms, run_ms and hour; with --tables, each table
    of an analysis is a view. DuckDB answers in seconds where it is installed (streamdq[analytics]) and the folders are
    local; else Spark.
    """
    try:
        from ..sql.examples import EXAMPLES
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyarrow", "analytics") from error
    if examples:
        _show({name: (held.what, held.query) for name, held in EXAMPLES.items()}, as_json)
        return
    if dump is None or (query is None) == (example is None):
        raise InvalidInput("sql needs a dump, and either a query or --example NAME; --examples shows them")
    asked = _query_of(example, EXAMPLES) if query is None else query
    source = _source(dump, tables, date_of(first), date_of(last), quarantine)
    most = None if as_json else MOST_SHOWN
    if _by_duckdb(engine, source, master):
        from ..sql import duck

        found = duck.ask(source, asked, most, memory=memory)
    else:
        found = _by_spark(source, asked, most, {"master": master, "memory": memory, "verbose": verbose})
    _tell(found, as_json)


def _query_of(example: str | None, examples: Mapping[str, Example]) -> str:
    if example is None or example not in examples:
        raise InvalidInput(f"no example {example!r}; there are {', '.join(examples)}")
    return examples[example].query


def _source(dump: str, tables: str | None, first: Any, last: Any, quarantine: bool) -> Source:
    from streamdq.dump.open_folder import open_folder

    from ..days import open_days
    from ..sql import Source, tables_in

    days = open_days(dump, first, last, quarantine=quarantine)
    if tables is None:
        return Source(days.dump, days.files)
    folder = open_folder(tables)
    if not (names := tables_in(folder)):
        raise InvalidInput(f"there are no tables in {folder.url}: pass the output folder of streamdq analyze")
    return Source(days.dump, days.files, folder, names)


def _by_duckdb(engine: Name, source: Source, master: str | None) -> bool:
    if engine is Name.AUTO:
        return master is None and find_spec("duckdb") is not None and source.is_local
    choose(engine, (), source.events, master)
    if engine is Name.DUCKDB and not source.is_local:
        raise InvalidInput("DuckDB reads local folders alone: leave --engine out, and Spark answers")
    return engine is Name.DUCKDB


def _by_spark(source: Source, query: str, most: int | None, options: dict[str, Any]) -> Found:
    try:
        from ..session import session, settings_for
        from ..sql import by_spark
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyspark", "spark") from error
    master = options.pop("master")
    settings = settings_for(source.events, master)
    with terminal.progress_bar("starting Spark") as bar, session(master, settings=settings, **options) as spark:
        bar.work_on("asking", 0, 1)
        return by_spark.ask(spark, source, query, most)


# -- for people


def _show(examples: dict[str, tuple[str, str]], as_json: bool) -> None:
    if as_json:
        terminal.print_json({name: query for name, (_, query) in examples.items()})
        return
    parts: list[Text] = []
    for name, (what, query) in examples.items():
        parts += [Text.assemble((name, "bold cyan"), f"  {what}"), Text(query, "dim"), Text("")]
    terminal.console().print(Group(*parts, Text("streamdq sql DUMP --example NAME")), soft_wrap=True)


def _tell(found: Found, as_json: bool) -> None:
    if as_json:
        terminal.print_json([dict(zip(found.columns, row, strict=True)) for row in found.rows])
        return
    shown = _records(found) if len(found.columns) > MOST_COLUMNS else _table(found)
    lines = [Text(f"the first {MOST_SHOWN}: --json has all", "yellow")] if found.more else []
    terminal.console().print(Group(shown, *lines, Text(counted(len(found.rows), "row"), "dim")))


def _table(found: Found) -> RenderableType:
    numbers = [
        name
        for at, name in enumerate(found.columns)
        if any(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in found.rows)
    ]
    made = terminal.table(*found.columns, numbers=numbers)
    for row in found.rows:
        made.add_row(*map(_cell, row))
    return made


def _records(found: Found) -> RenderableType:
    """Too many columns for a table: one below the other."""
    made = terminal.table("", "")
    for row in found.rows:
        for name, value in zip(found.columns, row, strict=True):
            made.add_row(Text(name, "cyan"), _cell(value))
        made.add_section()
    return made


def _cell(value: Any) -> Text:
    if value is None:
        return Text("–", "dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}")
    if isinstance(value, datetime):
        return Text(f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}")
    return Text(str(value))
