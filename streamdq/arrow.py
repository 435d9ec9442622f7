"""The history's columns in Apache Arrow, as a dump's Parquet files have them. pyarrow is imported when first needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

from .errors import MissingExtra
from .history import COLUMNS, SCHEMA_VERSION, VERSION_KEY, ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSION = "zstd"


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
    """A whole Parquet file. Times are kept in microseconds, as they are: no reader rounds or refuses them."""
    pyarrow().parquet.write_table(table, file, **parquet_options())


def parquet_options() -> dict[str, Any]:
    return {"compression": COMPRESSION, "coerce_timestamps": "us", "allow_truncated_timestamps": False}
