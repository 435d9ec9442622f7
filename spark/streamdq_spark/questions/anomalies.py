"""Which hours were unlike the same hour of earlier weeks?"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .common import DAY_H, WEEK_H, complete_hours, day_number, hour_start, median
from .history import History
from .punctuality import SLO_MS

WEEKS = 8
MIN_WEEKS = 3
THRESHOLD = 3.5
TO_SIGMA = 0.6745
"""The MAD of a normal distribution, in standard deviations."""
MIN_MAD = 3.0
MIN_MAD_SHARE = 0.05


def lookback_days(weeks: int) -> int:
    """The weeks and one more day, so that the first hour counts for a topic that has events every day."""
    return 7 * weeks + 1


def anomalies(
    history: History,
    *,
    slo_ms: int = SLO_MS,
    weeks: int = WEEKS,
    min_weeks: int = MIN_WEEKS,
    until: date | None = None,
) -> DataFrame:
    """By topic, complete hour and measure: ``done``, ``failed`` (attempts) and ``late`` (attempts that started later
    than ``slo_ms``). An hour without events counts as 0. ``until``: later
    events are known to be there, so that the hours up to the end of that day are complete.

    ``usual``: the median of the same hour of the week in at most ``weeks`` earlier weeks, ``weeks`` says how many there
    were. What a row says rests on its day and the ``lookback_days`` before alone, whatever else is in the data.
    ``score``: the modified z-score 0.6745 (value - usual) / MAD (Iglewicz and Hoaglin, 1993), beyond ± 3.5 an anomaly;
    null with fewer than ``min_weeks``. The MAD used is at least 3, 5 % of the median, and what chance alone makes of
    counts (0.6745 √median), so that a quiet hour is not an anomaly for a handful of jobs.
    """
    measures = ("done", "failed", "late")
    end = history.last_hour if until is None else (day_number(until) + 1) * DAY_H
    hours = complete_hours(history.hours(slo_ms), measures, end)
    values = hours.unpivot(["topic", "at", "before"], list(measures), "measure", "value")
    same_hour = Window.partitionBy("topic", "measure", F.col("at") % WEEK_H).orderBy("at").rowsBetween(-weeks, -1)
    begin = (F.floor(F.col("at") / DAY_H) - lookback_days(weeks)) * DAY_H
    earlier = F.filter(
        F.collect_list(F.struct("before", "value")).over(same_hour), lambda hour: hour["before"] >= F.col("begin")
    )
    return (
        values.withColumn("begin", begin)
        .withColumn("earlier", earlier)
        .where(F.col("before") >= F.col("begin"))
        .withColumn("before", F.array_sort(F.transform("earlier", lambda hour: hour["value"])))
        .withColumn("usual", F.when(F.size("before") > 0, median(F.col("before"))))
        .withColumn("off", F.array_sort(F.transform("before", lambda value: F.abs(value - F.col("usual")))))
        .withColumn("mad", F.when(F.size("before") > 0, median(F.col("off"))))
        .withColumn("score", F.when(F.size("before") >= min_weeks, _score()))
        .select(
            "topic",
            hour_start(F.col("at")).alias("hour"),
            "measure",
            "value",
            "usual",
            "mad",
            F.size("before").alias("weeks"),
            "score",
            F.coalesce(F.abs(F.col("score")) > THRESHOLD, F.lit(False)).alias("anomaly"),
        )
    )


def _score() -> Column:
    usual = F.col("usual")
    floor = F.greatest(F.lit(MIN_MAD), usual * MIN_MAD_SHARE, F.sqrt(usual) * TO_SIGMA)
    return (F.col("value") - usual) * TO_SIGMA / F.greatest(F.col("mad"), floor)
