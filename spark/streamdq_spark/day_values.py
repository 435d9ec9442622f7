"""What `changes` needs of the days that earlier runs have read, so that the next day does not read two weeks again.

The folder `values-by-day` beside the tables is no table: its name can't be one of SQL's. Days that are in
`values-by-day.json`, with what tells their files from any others, are there as a whole.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.dump.folder import Folder

from .answered import answered, forget, remember
from .dump_files import Dump, GoodFile
from .places import remove_folder, spark_url
from .questions.common import day_number
from .questions.values import COLUMNS, week_of
from .tables import DAY, read_table

_TABLE, _FILE = "values-by-day", "values-by-day.json"
_SCHEMA = f"topic string, kind string, event string, ms long, n long, {DAY} string"
_ANY_SLO = 0


def kept_days(folder: Folder, dump: Dump) -> frozenset[date]:
    """The days of the dump that are there as they are."""
    return answered(folder, dump, _ANY_SLO, _FILE)


def kept(spark: SparkSession, folder: Folder, days: Collection[date], last_ms: int) -> DataFrame | None:
    """week, topic, kind, event, ms, n of these days, each within a week. None: nothing happened in them."""
    if not any(path.endswith(".parquet") for path in folder.files(_TABLE)):
        return None
    weeks = F.create_map(*(F.lit(part) for day in sorted(days) for part in (str(day), week_of(day, last_ms))))
    found = read_table(spark, folder, _TABLE, _SCHEMA).where(F.col(DAY).isin(*map(str, days)))
    return found.select(weeks[F.col(DAY)].alias("week"), *COLUMNS)


def keep(values: DataFrame, folder: Folder, files: Collection[GoodFile], present: Collection[date]) -> None:
    """Keeps the values of the days of these files, except for those that are `present`.

    What a crash leaves: days that are not known to be there, and are written again.
    """
    missing = {file.day for file in files} - set(present)
    if not missing:
        return
    forget(folder, missing, _FILE)
    for day in missing:
        remove_folder(folder, f"{_TABLE}/{DAY}={day}")
    of_days = values.where(F.col("day").isin(*map(day_number, missing)))
    dated = of_days.select(*COLUMNS, F.date_from_unix_date(F.col("day").cast("int")).cast("string").alias(DAY))
    dated.repartition(DAY).write.mode("append").partitionBy(DAY).parquet(spark_url(folder, _TABLE))
    remember(folder, [file for file in files if file.day in missing], _ANY_SLO, _FILE)
