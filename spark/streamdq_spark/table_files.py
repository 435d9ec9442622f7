"""The tables in an analysis's output folder, as Parquet: a file for each quarter of a year, whatever engine calculated
them. Nothing here needs an engine.

Two columns say what a row belongs to: `dt`, its UTC day, or, in tables about the whole time of a run, its last day;
there `from_dt` is its first. So results of runs over other days stay beside it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from streamdq.dump.folder import Folder

DAY, FROM_DAY = "dt", "from_dt"
_FILE = "rows.parquet"
_HIDDEN = (".", "_")
"""What the names of folders and files begin with that are not part of a table."""


def table_files(folder: Folder, table: str = "") -> list[str]:
    """The Parquet files of a table, or of all."""
    return [path for path in folder.files(table) if path.endswith(".parquet") and not _is_hidden(path)]


def write_table(folder: Folder, table: str, rows: pa.Table, first: date, last: date, day: str | None) -> int:
    """Writes the table's rows of these days in place of those that were there; returns how many. `day`: the column by
    whose UTC day they are replaced; None: they are about the whole time. If there are none, a file without rows tells
    the columns.

    What a crash leaves: each quarter's rows are the old ones or the new ones. Writing again completes it.
    """
    new = _dated(rows, first, last, day)
    parts = {quarter: new.filter(pc.equal(_quarters(new), quarter)) for quarter in _quarters(new).unique().to_pylist()}
    path_of = {path.split("/")[1].removeprefix("quarter="): path for path in table_files(folder, table)}
    covered = {quarter for quarter in path_of if _quarter(str(first)) <= quarter <= _quarter(str(last))}
    for quarter in sorted(parts.keys() | covered or {_quarter(str(last))}):
        own = parts.get(quarter, new.slice(0, 0))
        left = _left(folder, path_of.get(quarter), own.schema, first, last)
        with folder.writing(f"{table}/quarter={quarter}/{_FILE}", durable=False) as file:
            parquet.write_table(pa.concat_tables([left, own]), file, compression="zstd")
    return int(new.num_rows)


def read_rows(folder: Folder, table: str, first: date, last: date) -> pa.Table | None:
    """The table's rows of these days, both included; of a table about the whole time, those of a run over exactly these
    days. None: it was never calculated.
    """
    files = table_files(folder, table)
    found = [parquet.ParquetFile(BytesIO(folder.read(path) or b"")).read() for path in sorted(files)]
    if not found:
        return None
    own = pa.concat_tables([rows.filter(_of_run(rows, first, last)) for rows in found], promote_options="default")
    return own.drop_columns([name for name in (DAY, FROM_DAY) if name in own.column_names])


def runs_of(folder: Folder, table: str) -> list[tuple[date, date]]:
    """The last and the first day of each run that left rows of a table about the whole time."""
    found = set()
    for path in table_files(folder, table):
        rows = parquet.ParquetFile(BytesIO(folder.read(path) or b"")).read()
        if FROM_DAY in rows.column_names:
            found |= set(zip(rows[DAY].to_pylist(), rows[FROM_DAY].to_pylist(), strict=True))
    return sorted((date.fromisoformat(last), date.fromisoformat(first)) for last, first in found)


def _dated(rows: pa.Table, first: date, last: date, day: str | None) -> pa.Table:
    if day is None:
        for name, value in ((DAY, last), (FROM_DAY, first)):
            rows = rows.append_column(name, pa.array([str(value)] * rows.num_rows, pa.string()))
        return rows
    rows = rows.append_column(DAY, pc.strftime(rows[day], "%Y-%m-%d"))
    return rows.filter(_of_run(rows, first, last))


def _left(folder: Folder, path: str | None, schema: pa.Schema, first: date, last: date) -> pa.Table:
    """What stays of a file."""
    with suppress(pa.ArrowException, KeyError):  # it can't be read, or an earlier version wrote other columns
        if path and (content := folder.read(path)):
            rows = parquet.ParquetFile(BytesIO(content)).read().select(schema.names).cast(schema)
            return rows.filter(pc.invert(_of_run(rows, first, last)))
    return schema.empty_table()


def _of_run(rows: pa.Table, first: date, last: date) -> pa.Array:
    if FROM_DAY in rows.column_names:
        return pc.and_(pc.equal(rows[DAY], str(last)), pc.equal(rows[FROM_DAY], str(first)))
    return pc.and_(pc.greater_equal(rows[DAY], str(first)), pc.less_equal(rows[DAY], str(last)))


def _quarters(rows: pa.Table) -> pa.ChunkedArray:
    days = rows[DAY].dictionary_encode().combine_chunks()
    names = pa.array([_quarter(day) for day in days.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([names.take(days.indices)])


def _quarter(day: str) -> str:
    return f"{day[:4]}Q{(int(day[5:7]) + 2) // 3}"


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))
