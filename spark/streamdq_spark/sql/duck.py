"""SQL by DuckDB, which reads the files itself and starts at once."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import duckdb

from streamdq.dump.local import LocalFolder

from ..table_files import table_files
from . import EVENTS_VIEW, Found, Source, answers_nothing, found_in, refused

_ADDED = {
    "late_ms": "epoch_ms(started) - epoch_ms(due)",
    "mover_ms": "epoch_ms(moved) - epoch_ms(due)",
    "run_ms": "epoch_ms(finished) - epoch_ms(started)",
    "hour": "date_trunc('hour', finished)",
}


def can_read(source: Source) -> bool:
    """Whether all of it is on this machine's disks."""
    return isinstance(source.dump.folder, LocalFolder) and isinstance(source.tables, LocalFolder | None)


def ask(source: Source, query: str, most: int | None = None) -> Found:
    """The answer, at most so many rows.

    Raises:
        InvalidInput: DuckDB can't make sense of the query, or it is none.
    """
    # What is too large for the memory would go into the folder in which the command was typed.
    with (
        TemporaryDirectory(prefix="streamdq-sql-") as spilled,
        duckdb.connect(config={"temp_directory": spilled}) as database,
    ):
        database.execute("SET TimeZone = 'UTC'")
        for view, select in _views(source).items():
            database.execute(f'CREATE VIEW "{view}" AS {select}')
        try:
            kinds = [statement.type for statement in database.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise answers_nothing()
            answer = database.sql(query)
            table = (answer if most is None else answer.limit(most + 1)).to_arrow_table()
        except duckdb.Error as error:
            raise refused(_said(error), query, source) from error
    return found_in(table, most)


def _said(error: Exception) -> str:
    """What is wrong, and the names that were perhaps meant; without the query, which DuckDB repeats."""
    return " ".join(str(error).partition("\nLINE ")[0].split())


def _views(source: Source) -> dict[str, str]:
    folder = source.dump.folder
    assert isinstance(folder, LocalFolder)
    files = ", ".join(_text(str(folder.root / file.path)) for file in source.files)
    added = ", ".join(f"{what} AS {name}" for name, what in _ADDED.items())
    read = f"read_parquet([{files}], hive_partitioning = false)"
    views = {EVENTS_VIEW: f"SELECT *, {added} FROM {read}"}  # noqa: S608
    for name in source.names:
        assert isinstance(source.tables, LocalFolder)
        own = [source.tables.root / path for path in table_files(source.tables, name)]
        listed = ", ".join(_text(str(path)) for path in own)
        views[name] = f"SELECT * FROM read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"  # noqa: S608
    return views


def _text(value: str) -> str:
    """As a text of SQL. DuckDB reads names as patterns: what is special in them stands in brackets for itself."""
    escaped = "".join(f"[{c}]" if c in "*?[" else c for c in value)
    return "'" + escaped.replace("'", "''") + "'"
