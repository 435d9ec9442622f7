"""How much there will be to do in the coming hours, from the same hour of earlier weeks and the jobs that already
wait.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .anomalies import lookback_days
from .common import DAY_H, WEEK_H, complete_hours, count_where, hour_number, hour_start, is_attempt

HOURS = 24
WEEKS = 8
MIN_WEEKS = 2


def forecast(
    events: DataFrame,
    waiting: DataFrame | None = None,
    *,
    hours: int = HOURS,
    weeks: int = WEEKS,
    min_weeks: int = MIN_WEEKS,
    start: datetime | None = None,
) -> DataFrame:
    """By topic and hour, from the hour of ``start``, which is the last event's unless given.

    ``expected``: attempts, the median of the same hour of the week in at most ``weeks`` earlier weeks, of which there
    are ``weeks``; ``low`` and ``high`` are the least and the most of them. Null with fewer than ``min_weeks``.
    ``waiting``: what is due in that hour by now (``waiting``: topic, due_hour, jobs), null if that is not known. More
    may still be enqueued, so ``load`` is the larger of the two. All rests on the ``lookback_days`` before the last
    event.
    """
    now = events.agg(hour_number(F.max("finished")).alias("now"))
    hour = hour_number(F.col("finished"))
    recent = events.crossJoin(F.broadcast(now)).where(hour >= F.col("now") - lookback_days(weeks) * DAY_H)
    past = complete_hours(recent, attempts=count_where(is_attempt()))
    if start is not None:
        now = now.select(hour_number(F.lit(start)).alias("now"))
    topics = recent.select("topic")
    if waiting is not None:
        topics = topics.unionByName(waiting.select("topic"))  # includes new topics
    coming = (
        topics.distinct()
        .crossJoin(F.broadcast(now))
        .select("topic", F.explode(F.sequence(F.col("now"), F.col("now") + hours - 1)).alias("coming"))
        .withColumn(
            "at", F.explode(F.sequence(F.col("coming") - weeks * WEEK_H, F.col("coming") - WEEK_H, F.lit(WEEK_H)))
        )
    )
    usual = (
        coming.join(past, ["topic", "at"], "left")
        .groupBy("topic", "coming")
        .agg(
            F.count("attempts").alias("weeks"),
            F.percentile("attempts", F.lit(0.5)).alias("expected"),
            F.min("attempts").alias("low"),
            F.max("attempts").alias("high"),
        )
    )
    enough = F.col("weeks") >= min_weeks
    return (
        _with_waiting(usual, waiting)
        .select(
            "topic",
            hour_start(F.col("coming")).alias("hour"),
            *(F.when(enough, F.col(name)).alias(name) for name in ("expected", "low", "high")),
            "weeks",
            "waiting",
        )
        .withColumn("load", F.greatest(F.col("expected"), F.col("waiting").cast("double")))
    )


def _with_waiting(usual: DataFrame, waiting: DataFrame | None) -> DataFrame:
    if waiting is None:
        return usual.withColumn("waiting", F.lit(None).cast("long"))
    due = waiting.groupBy("topic", hour_number(F.col("due_hour")).alias("coming")).agg(F.sum("jobs").alias("waiting"))
    return usual.join(due, ["topic", "coming"], "left").withColumn("waiting", F.coalesce("waiting", F.lit(0)))
