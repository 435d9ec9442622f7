"""The events of a dump as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from streamdq.store.history.rows import COLUMNS, ColumnType

from .dump_files import Dump, GoodFile, of_each, open_dump, read_file
from .places import check_reach, spark_url, to_read

_TYPES: dict[ColumnType, DataType] = {
    ColumnType.STRING: StringType(),
    ColumnType.INT32: IntegerType(),
    ColumnType.INT64: LongType(),
    ColumnType.TIMESTAMP: TimestampType(),
}
# All are nullable, because Spark sees every file that way.
EVENTS = StructType([StructField(column.name, _TYPES[column.type]) for column in COLUMNS])


def read_events(
    spark: SparkSession,
    input: str,
    first_day: date = date.min,
    last_day: date = date.max,
    *,
    quarantine: bool = False,
) -> DataFrame:
    """The events of these days (UTC, both included) of the dump in the folder `input`, with the columns of `EVENTS`.

    Raises:
        HistoryUnreadable: there is no dump.
        BadDump: a file is bad and `quarantine`, which leaves such files out, is off.
        AnalysisError: Spark can't reach the folder.
    """
    dump = open_dump(input, quarantine=quarantine)
    check_reach(spark, dump.folder)
    return read_files(spark, dump, dump.between(first_day, last_day))


def read_files(spark: SparkSession, dump: Dump, files: Sequence[GoodFile]) -> DataFrame:
    """The events of these files of the dump, which Spark must be able to reach.

    It reads whole days where these hold nothing else: whenever it has written a table, it looks for each path that
    anything it keeps was read from.
    """
    if not files:
        return spark.createDataFrame([], EVENTS)
    reader = spark.read.schema(EVENTS).option("recursiveFileLookup", "true")  # hour=… is no column
    days = {file.path.partition("/dt=")[0] + f"/dt={file.day}" for file in files}
    found = reader.parquet(*(to_read(dump.folder, day) for day in sorted(days)))
    if {unquote(url) for url in found.inputFiles()} == {spark_url(dump.folder, file.path) for file in files}:
        return found
    return reader.parquet(*(to_read(dump.folder, file.path) for file in files))


def read_few(spark: SparkSession, dump: Dump, files: Sequence[GoodFile]) -> DataFrame:
    """The same by the driver, for as many events as it can hold: a dump has a file for each hour, and to open one takes
    Spark ten times as long.

    Raises:
        BadDump: a file is damaged.
    """
    if not files:
        return spark.createDataFrame([], EVENTS)
    tables = of_each(dump.folder, files, partial(read_file, dump.folder))
    return spark.createDataFrame(pa.concat_tables(tables).combine_chunks(), EVENTS)
