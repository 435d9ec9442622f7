"""The tables by DuckDB, in this process: it needs no Java and starts at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from streamdq.dump.arrow import arrow_schema
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder

from ..dump_files import GoodFile, of_each, read_file
from ..errors import AnalysisError, BadDump
from ..memory import heap
from ..questions import FACTS, Statement, declared, event_view, functions, needed, statement_of, tables
from .base import Answers, Engine, Work, pools_of

_TYPES = {
    "text": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE", "numbers": "DOUBLE[]", "flag": "BOOLEAN",
    "time": "BIGINT",  # ms, until it is written
}  # fmt: skip
MANY_EVENTS = 3_000_000
"""Fewer are read once and held; of more, each table reads the columns that it needs."""


class DuckDB(Engine):
    """`memory`: what it may use, such as 2g; what finds no room there goes to the temporary folder. None: by DuckDB's
    own rule, most of the machine's.
    """

    def __init__(self, memory: str | None = None) -> None:
        self._memory = memory

    def check(self, *folders: Folder) -> None:
        """Whatever fsspec reaches, it reads."""

    @contextmanager
    def answers(self, work: Work) -> Iterator[Answers]:
        with database(self._memory) as opened:
            yield _OfEvents(opened, work)


@contextmanager
def database(memory: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty one, which is gone after the block."""
    with TemporaryDirectory(prefix="streamdq-duckdb-") as spilled:
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": spilled,
            "preserve_insertion_order": "false",
        }
        if memory:
            config["memory_limit"] = f"{heap(memory)}b"
        with duckdb.connect(config=config) as opened:
            yield opened


class DuckAnswers(Answers):
    """Of what Python hands in, and of the views that it is given."""

    def __init__(self, database: duckdb.DuckDBPyConnection, work: Work) -> None:
        self._database, self._work = database, work
        self._made: set[str] = set()
        database.execute("SET TimeZone = 'UTC'")
        for function in functions("duckdb", work.values):
            database.execute(function)
        _give(database, FACTS, work.known_facts)
        _give(database, "waiting", work.waiting)

    def rows(self, name: str) -> pa.Table:
        """Raises: BadDump, AnalysisError."""
        statement = statement_of(name)
        with _plain_errors(name):
            for view in needed(name, there=self._made):
                self._make(view, view.rendered(self._work.values))
            source = f"(\n{statement.rendered(self._work.values)}\n)" if name in tables() else name
            return self._database.sql(declared(statement, source, _TYPES)).to_arrow_table()

    def give(self, view: Statement, rows: pa.Table) -> None:
        """The rows of a view that were counted elsewhere."""
        if view.name not in self._made:
            with _plain_errors(view.name):
                self._database.register(f"{view.name}_rows", rows)
                self._make(view, f"SELECT * FROM {view.name}_rows")  # noqa: S608
                self._database.unregister(f"{view.name}_rows")

    def _make(self, view: Statement, query: str) -> None:
        if "pools" in view.sources and "pools" not in self._made:
            _give(self._database, "pools", pools_of(self._database.sql("FROM worked_on").fetchall()))
            self._made.add("pools")
        self._database.execute(f"CREATE TEMP TABLE {view.name} AS {view.with_known(query)}")
        self._made.add(view.name)


class _OfEvents(DuckAnswers):
    """And of the events."""

    def __init__(self, database: duckdb.DuckDBPyConnection, work: Work) -> None:
        with _plain_errors(work.dump.folder.url):
            super().__init__(database, work)
            try:
                _read_events(database, work)
            except duckdb.Error:
                _rows_of(work.dump.folder, work.all_files)  # says which file is damaged, which DuckDB does not
                raise


def _read_events(database: duckdb.DuckDBPyConnection, work: Work) -> None:
    if held := work.events < MANY_EVENTS:
        query = event_view(_source(database, "all_rows", work, work.all_files), work.columns, work.values, work.where)
        database.execute(f"CREATE TEMP TABLE all_events AS {query}")
    for name, files in work.files.items():
        if held:
            days = sorted({(file.day - date(1970, 1, 1)).days for file in files})
            query = f"SELECT * FROM all_events WHERE list_contains({days}, day)"  # noqa: S608
        else:
            query = event_view(_source(database, f"{name}_rows", work, files), work.columns, work.values, work.where)
        database.execute(f"CREATE TEMP VIEW {name} AS {query}")


def _source(database: duckdb.DuckDBPyConnection, name: str, work: Work, files: Sequence[GoodFile]) -> str:
    """What these files hold, as SQL reads from."""
    if isinstance(work.dump.folder, LocalFolder) and files:
        return parquet_files(work.dump.folder.root / file.path for file in files)
    database.register(name, _rows_of(work.dump.folder, files))
    return name


def _give(database: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    database.register(f"{name}_rows", rows)
    database.execute(f"CREATE TEMP TABLE {name} AS FROM {name}_rows")
    database.unregister(f"{name}_rows")


def _rows_of(folder: Folder, files: Sequence[GoodFile]) -> pa.Table:
    """The events of files that DuckDB does not reach by itself."""
    found = of_each(folder, files, partial(read_file, folder))
    return pa.concat_tables([arrow_schema().empty_table(), *found])


@contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    """Turns DuckDB's failures within the block into errors in plain words."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise AnalysisError(
            f"{what}: DuckDB ran out of memory: give it more (--memory 4g), analyze fewer days at once (--from, --to), "
            "or take Spark (--engine spark)"
        ) from error
    except duckdb.Error as error:
        said = said_by(error)
        if ".parquet" in said:
            raise BadDump(
                f"{what}: {said}; restore the file, or remove it and leave its events out: --quarantine"
            ) from error
        raise AnalysisError(f"{what}: {said}") from error


def said_by(error: duckdb.Error) -> str:
    """What is wrong, and the names that were perhaps meant; without the query, which DuckDB repeats."""
    return " ".join(str(error).partition("\nLINE ")[0].split())


def parquet_files(paths: Iterable[Path], *, union: bool = False) -> str:
    """Files on this machine, as SQL reads from. `union`: with the columns of all of them, by name."""
    listed = ", ".join(_text(str(path)) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false, union_by_name = {str(union).lower()})"


def _text(value: str) -> str:
    """As a text of SQL. DuckDB reads names as patterns: what is special in them stands in brackets for itself."""
    escaped = "".join(f"[{c}]" if c in "*?[" else c for c in value)
    return "'" + escaped.replace("'", "''") + "'"
