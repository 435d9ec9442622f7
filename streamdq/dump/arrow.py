"""The history's columns in Apache Arrow, as in a dump's Parquet files. pyarrow is imported when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import HistoryUnreadable, MissingExtra
from ..store.history.history_reads import RawEntry
from ..store.history.rows import (
    COLUMNS,
    FIELDS,
    SCHEMA_VERSION,
    SEPARATOR,
    VERSION_KEY,
    ColumnType,
    Event,
)

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSION = "zstd"
HOUR_MS = 3_600_000
_LAST_MS = 253_402_300_799_999  # of the year 9999
_NUMBERS = {"attempt": "int32", "step": "int32", "body_bytes": "int64", "finished_ms": "int64"} | {
    f"{name}_ms": "int64" for name in ("created", "due", "moved", "started")
}

_REPEATED = [
    column.name for column in COLUMNS if column.type is not ColumnType.TIMESTAMP and column.name not in ("entry", "id")
]
"""Hardly any value of the other columns is there twice: a dictionary of them takes more room, and more time to read."""


@cache
def pyarrow() -> Any:
    """The module pyarrow, with its parquet, compute and csv parts.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "dump") from error
    return pa


@cache
def arrow_schema() -> pa.Schema:
    """The columns of a dump, with the schema's version in the metadata."""
    lib = pyarrow()
    types = {
        ColumnType.STRING: lib.string(),
        ColumnType.INT32: lib.int32(),
        ColumnType.INT64: lib.int64(),
        ColumnType.TIMESTAMP: lib.timestamp("us", tz="UTC"),
    }
    fields = [lib.field(column.name, types[column.type], column.nullable) for column in COLUMNS]
    return lib.schema(fields, metadata={VERSION_KEY: SCHEMA_VERSION})


def write_parquet(table: pa.Table, file: BinaryIO) -> None:
    """Writes a complete Parquet file. Times stay in microseconds, so that no reader rounds or refuses them."""
    pyarrow().parquet.write_table(table, file, **parquet_options())


def parquet_options() -> dict[str, Any]:
    return {"compression": COMPRESSION, "coerce_timestamps": "us", "allow_truncated_timestamps": False,
            "use_dictionary": _REPEATED}  # fmt: skip


def table_in(topic: str, shard: int, entries: Sequence[RawEntry]) -> pa.Table:
    """The rows of a shard's history stream with the columns of a dump. Entries that are not rows are left out: compare
    the numbers.
    """
    lib = pyarrow()
    try:
        return _read(topic, shard, entries)
    except (lib.ArrowInvalid, HistoryUnreadable):
        half = len(entries) // 2
        if not half:
            return arrow_schema().empty_table()
        # Halves of halves find the few that are wrong.
        return lib.concat_tables([table_in(topic, shard, entries[:half]), table_in(topic, shard, entries[half:])])


def _read(topic: str, shard: int, entries: Sequence[RawEntry]) -> pa.Table:
    """Parses all entries at once with Arrow's reader of delimited text: some ten times as fast as row by row.

    Raises:
        HistoryUnreadable, ArrowInvalid: an entry is not a row.
    """
    lib = pyarrow()
    separator = SEPARATOR.encode()
    text = b"\n".join([entry + separator + fields[1] for entry, fields in entries])
    if text.count(b"\n") != len(entries) - 1:
        raise HistoryUnreadable("a line break")
    names = ("entry", *FIELDS)
    types = {name: getattr(lib, _NUMBERS.get(name, "string"))() for name in names}
    found = lib.csv.read_csv(
        lib.BufferReader(text),
        lib.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
        lib.csv.ParseOptions(delimiter=SEPARATOR, quote_char=False, ignore_empty_lines=False),
        lib.csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True),
    )
    events = lib.array([str(event) for event in Event])
    if not lib.compute.all(lib.compute.is_in(found["event"], value_set=events)).as_py():
        raise HistoryUnreadable("an unknown event")
    return _shaped(topic, shard, {name: found[name] for name in names}, len(entries))


def _shaped(topic: str, shard: int, found: dict[str, Any], count: int) -> pa.Table:
    """Turns columns in Redis's units into those of a dump.

    Raises:
        HistoryUnreadable: a required value is missing, or a time is impossible.
    """
    lib = pyarrow()
    ends = lib.compute.min_max(found["finished_ms"]).as_py()
    if (ends["min"] or 0) < 0 or (ends["max"] or 0) > _LAST_MS:
        raise HistoryUnreadable("a time that no calendar has")
    found["topic"] = lib.repeat(topic, count)
    found["shard"] = lib.repeat(lib.scalar(shard, lib.int32()), count)
    columns = []
    for column in COLUMNS:
        values = found[column.name] if column.name in found else _times(found[f"{column.name}_ms"])
        if values.null_count and not column.nullable:
            raise HistoryUnreadable(f"no {column.name}")
        columns.append(values)
    return lib.table(columns, schema=arrow_schema())


def _times(ms: Any) -> Any:
    lib = pyarrow()
    return ms.cast(lib.timestamp("ms", tz="UTC")).cast(lib.timestamp("us", tz="UTC"))


def by_hour(table: pa.Table) -> dict[int, pa.Table]:
    """The rows of each hour (hours since 1970, UTC), in order."""
    lib = pyarrow()
    finished = table["finished"].cast(lib.int64())
    hours = lib.compute.divide(finished, HOUR_MS * 1000)
    return {
        hour: table.filter(lib.compute.equal(hours, hour)) for hour in sorted(lib.compute.unique(hours).to_pylist())
    }
