"""An analysis's tables: Parquet folders, one per question, partitioned by the UTC day `dt` and replaced by the day."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamdq.dump.folder import Folder

from .places import remove_folder, spark_url, to_read

DAY = "dt"


def write_table(rows: DataFrame, folder: Folder, table: str, first_day: date, last_day: date) -> int:
    """Writes the rows of these days and returns how many; those that the table had of them are gone.

    What a crash leaves: each day's rows are the old ones or the new ones. Writing again completes it.
    """
    seen = Observation()
    observed = rows.observe(seen, F.count(F.lit(1)).alias("rows"), F.collect_set(DAY).alias("days"))
    # A day is one file; so few rows need no more.
    observed.repartition(DAY).write.mode("overwrite").partitionBy(DAY).parquet(spark_url(folder, table))
    written = seen.get
    for day in _held(folder, table) - set(written["days"]):  # a dynamic overwrite leaves these alone
        if str(first_day) <= day <= str(last_day):
            remove_folder(folder, f"{table}/{DAY}={day}")
    return int(written["rows"])


def read_table(spark: SparkSession, folder: Folder, table: str, schema: StructType | None = None) -> DataFrame:
    """All days of a table, `dt` as text."""
    read = spark.read.schema(schema) if schema else spark.read
    return read.parquet(to_read(folder, table)).withColumn(DAY, F.col(DAY).cast("string"))


def of_days(rows: DataFrame, day: str | None, first_day: date, last_day: date) -> DataFrame:
    """The rows with their `dt`, of these days alone. `day`: the timestamp that tells it; None: the last day."""
    if day is None:
        return rows.withColumn(DAY, F.lit(str(last_day)))
    dated = rows.withColumn(DAY, F.date_format(day, "yyyy-MM-dd"))
    return dated.where(F.col(DAY).between(str(first_day), str(last_day)))


def _held(folder: Folder, table: str) -> set[str]:
    """The days that the table has; a bucket is asked once, however long the time is."""
    return {path.removeprefix(f"{table}/{DAY}=").partition("/")[0] for path in folder.files(table)}
