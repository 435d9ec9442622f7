"""An analysis's tables as Spark reads and writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date

from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamdq.dump.folder import Folder

from .places import spark_url, to_read
from .table_files import DAY, FROM_DAY, days_in, remove_days, remove_leftovers, table_files

_AT_ONCE = 16  # footers are small; waiting for a distant store is what takes time


def write_table(
    rows: DataFrame, folder: Folder, table: str, first_day: date, last_day: date, *, few: bool = False
) -> int:
    """Writes the rows of `of_days` and returns how many; those that the table had of the same days are gone. If there
    are none, a file without rows tells the columns.

    What a crash leaves: each day's rows are the old ones or the new ones; of one day they may be gone, as Spark removes
    the old ones before it puts the new ones in their place. Writing again completes it.
    """
    remove_leftovers(folder, table)
    before = set(table_files(folder, table))
    keys = [key for key in (DAY, FROM_DAY) if key in rows.columns]
    # One file per day: there are few rows. `few`: so few that one task writes all of them.
    placed = rows.coalesce(1) if few else rows.repartition(*keys)
    placed.write.mode("overwrite").partitionBy(*keys).parquet(spark_url(folder, table))
    # Spark chooses new names for each write.
    written = [path for path in table_files(folder, table) if path not in before]
    if FROM_DAY not in keys:
        remove_days(folder, table, days_in(table, before) - days_in(table, written), first_day, last_day)
    if not written:
        whole = f"/{FROM_DAY}={first_day}" if FROM_DAY in keys else ""
        nowhere = spark_url(folder, f"{table}/{DAY}={last_day}{whole}")
        rows.drop(*keys).limit(0).write.mode("overwrite").parquet(nowhere)
    return _count(folder, written)


def read_table(spark: SparkSession, folder: Folder, table: str, schema: StructType | str | None = None) -> DataFrame:
    """All days of a table, `dt` and `from_dt` as text. Without a schema, its columns are those of all days: an older
    version may have written some with fewer.
    """
    read = spark.read.schema(schema) if schema else spark.read.option("mergeSchema", "true")
    found = read.parquet(to_read(folder, table))
    return found.withColumns({key: F.col(key).cast("string") for key in (DAY, FROM_DAY) if key in found.columns})


def of_days(rows: DataFrame, day: str | None, first_day: date, last_day: date) -> DataFrame:
    """The rows with their `dt`, of these days alone. `day`: the timestamp that tells it; None: they are of the whole
    time, and have its `from_dt`, too.
    """
    if day is None:
        return rows.withColumns({DAY: F.lit(str(last_day)), FROM_DAY: F.lit(str(first_day))})
    dated = rows.withColumn(DAY, F.date_format(day, "yyyy-MM-dd"))
    return dated.where(F.col(DAY).between(str(first_day), str(last_day)))


def _count(folder: Folder, paths: list[str]) -> int:
    """How many rows are in these files. Spark's own count of a write is lost if its plan turns out to be empty."""

    def rows(path: str) -> int:
        with folder.open(path) as file:
            return int(parquet.read_metadata(file).num_rows)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(rows, paths))
