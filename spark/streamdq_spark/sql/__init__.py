"""SQL over a dump and the tables of an analysis: by DuckDB where it is installed, else by Spark.

`duck` and `by_spark` each make the same views, so that a query need not know which of them answers; `examples` are
queries for a start, written for both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.errors import InvalidInput

from ..dump_files import Dump, GoodFile
from ..table_files import table_files

EVENTS_VIEW = "events"


def event_columns(ms_of: str) -> list[str]:
    """What the view has of each event, as SQL. `ms_of`: the engine's function that makes ms of a moment."""
    between = {"late_ms": ("due", "started"), "mover_ms": ("due", "moved"), "run_ms": ("started", "finished")}
    added = (f"{ms_of}({end}) - {ms_of}({begin}) AS {name}" for name, (begin, end) in between.items())
    return ["*", *added, "date_trunc('hour', finished) AS hour"]


@dataclass(frozen=True, slots=True)
class Source:
    """What can be asked: the view `events` of these files of a dump, and a view of each table below a folder."""

    dump: Dump
    files: tuple[GoodFile, ...]
    tables: Folder | None = None
    names: tuple[str, ...] = ()

    @property
    def events(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def is_local(self) -> bool:
        """Whether all of it is on this machine's disks, where DuckDB reads it."""
        return isinstance(self.dump.folder, LocalFolder) and isinstance(self.tables, LocalFolder | None)


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of an answer; `more`: there are others, which were not asked for."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool = False


_BARE_GROUP = re.compile(r"(?<!within)(?<!\s)\s+group\b(?!\s{1,60}by\b)", re.IGNORECASE)
_NO_SUCH_TABLE, _NO_SYNTAX = re.compile("Table with name|TABLE_OR_VIEW_NOT_FOUND"), re.compile("syntax", re.IGNORECASE)


def refused(said: str, query: str, source: Source) -> InvalidInput:
    """What an engine said of the query, and what to do about the two slips that this schema invites."""
    error = InvalidInput(f"sql: {said}")
    if source.tables is None and _NO_SUCH_TABLE.search(said):
        error.add_note("the tables of an analysis are there with --tables FOLDER, the output of streamdq analyze")
    if _NO_SYNTAX.search(said) and _BARE_GROUP.search(query):
        error.add_note('group is a word of SQL: write the column as "group", with its quotes')
    return error


def answers_nothing() -> InvalidInput:
    return InvalidInput("sql: this answers nothing; write a query, such as 'select count(*) from events'")


def found_in(table: pa.Table, most: int | None) -> Found:
    """The first rows of an answer. Sums and the like that an engine has as decimals become plain numbers."""
    columns = [_plain(column) for column in table.columns]
    rows = list(zip(*columns, strict=True))
    return Found(table.column_names, rows[:most], more=most is not None and len(rows) > most)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if not pa.types.is_decimal(column.type):
        return values
    number = float if column.type.scale else int
    return [None if value is None else number(value) for value in values]


def tables_in(folder: Folder) -> tuple[str, ...]:
    """The names of the tables below the folder: those of its folders that hold Parquet files."""
    paths = (path.split("/") for path in table_files(folder))
    return tuple(sorted({parts[0] for parts in paths if len(parts) > 1 and parts[0].isidentifier()} - {EVENTS_VIEW}))
