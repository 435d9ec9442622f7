"""What `ByDay` keeps of days that a run has read, in the output folder beside the tables.

It is no table: `streamdq sql` does not offer it, and its columns may change with any version.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.dump.folder import Folder

from .answered import Record
from .dump_files import GoodFile
from .places import remove_folder, spark_url, to_read
from .questions import History
from .questions.by_day import DAYS, KEPT, by_day
from .questions.common import DAY_H, WEEK_H, day_number
from .questions.history import HOUR_MS
from .table_files import table_files
from .tables import DAY, days_in, remove_leftovers

_FOLDER = "values-by-day"
_NEEDED = frozenset(("capacity", "changes", "error_classes", "hosts"))
VALUES = Record(f"{_FOLDER}.json", _NEEDED, (_FOLDER,), version=1)
"""The version is that of what `ByDay` computes: another one for each change of it."""
_LEFT_DAYS = 2 * DAYS
"""So many are left, for runs that are repeated."""
_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in KEPT.items())


def is_split(day: date, last_ms: int) -> bool:
    """Whether a day is of two weeks, as weeks end with the hour of the last event; then what is kept of it does not
    tell how much is of each.
    """
    hour = day_number(day) * DAY_H
    first, last = ((last_ms // HOUR_MS - at) // WEEK_H for at in (hour, hour + DAY_H - 1))
    return first != last


def kept(spark: SparkSession, folder: Folder, days: Collection[date]) -> DataFrame:
    """The rows of these days, with the columns `KEPT`."""
    of_days = tuple(f"{_FOLDER}/{DAY}={day}/" for day in days)
    paths = [to_read(folder, path) for path in table_files(folder, _FOLDER) if path.startswith(of_days)]
    if not paths:  # nothing that counts happened in them
        return spark.createDataFrame([], _SCHEMA)
    return spark.read.schema(_SCHEMA).parquet(*paths)


def keep(
    history: History,
    folder: Folder,
    files: Collection[GoodFile],
    present: Collection[date],
    slo_ms: int,
    looked_at: Collection[date] = (),
) -> None:
    """Keeps what was computed of the days of these files, which are those of the history, as far as the next run may
    need it, and it is not `present`. Older days go, but none that is `looked_at`, as questions of this run may be.

    What a crash leaves: days that are not known to be there, and are written again.
    """
    oldest = history.last_hour // DAY_H - DAYS + 1
    new = [file for file in files if day_number(file.day) >= oldest and file.day not in present]
    days = {file.day for file in new}
    if not days:
        return
    again, left = {str(day) for day in days}, str(min({*days, *looked_at}) - timedelta(days=_LEFT_DAYS - 1))

    def goes(day: str) -> bool:
        return day in again or day < left

    VALUES.forget(folder, goes)
    remove_leftovers(folder, _FOLDER)
    for day in filter(goes, days_in(_FOLDER, table_files(folder, _FOLDER))):
        remove_folder(folder, f"{_FOLDER}/{DAY}={day}")
    rows = by_day(history, slo_ms).to_keep(days)
    dated = rows.withColumn(DAY, F.date_from_unix_date("day").cast("string"))
    # Not to append: Hadoop would take tasks of a killed run for those of this one.
    dated.repartition(DAY).write.mode("overwrite").partitionBy(DAY).parquet(spark_url(folder, _FOLDER))
    VALUES.remember(folder, new, slo_ms)
