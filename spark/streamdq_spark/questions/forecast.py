"""How much there will be to do in the coming hours, from the same hours of earlier weeks, the level of the last days,
and the jobs that already wait.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .common import DAY_H, HOUR_S, WEEK_H, complete_hours, hour_number, hour_start, median
from .history import History
from .punctuality import SLO_MS

HOURS = 24
WEEKS = 7
MIN_WEEKS = 2
BACK_DAYS = 28
"""The forecasts of these last days are compared with what came."""
MIN_BACK = 7 * DAY_H
BAND = (0.1, 0.9)
LOOKBACK_DAYS = 7 * (WEEKS + 1) + 1
"""The weeks, the week before the first of them, whose level is needed, and one more day."""


def forecast(
    history: History,
    waiting: DataFrame | None = None,
    *,
    hours: int = HOURS,
    weeks: int = WEEKS,
    min_weeks: int = MIN_WEEKS,
    start: datetime | None = None,
    slo_ms: int = SLO_MS,
) -> DataFrame:
    """By topic and hour, from the hour of ``start``, which is the last event's unless given.

    ``expected``: attempts, the median of the same hour of the week in at most ``weeks`` earlier weeks, of which there
    are ``weeks``; each is multiplied by how much more was done in the last seven days than in the seven before that
    hour's day, so that the forecast follows growth. Where these levels are not known for ``min_weeks`` weeks, the
    median of the weeks as they were; null with fewer.

    ``low`` and ``high``: in between lies what comes in 80 % of the hours, as far as the past tells: forecasts of the
    same kind for each of the last ``BACK_DAYS`` missed by so much, in proportion to the square root of what they
    expected. With fewer than ``MIN_BACK`` such hours, the least and the most of the weeks.

    ``waiting``: what is due in that hour by now (``waiting``: topic, due_hour, jobs), null if that is not known. More
    may still be enqueued, so ``load`` is the larger of the two. All rests on the ``LOOKBACK_DAYS`` before the last
    event.
    """
    last = history.last_hour
    recent = history.hours(slo_ms).where(F.col("hour") >= last - LOOKBACK_DAYS * DAY_H)
    past = complete_hours(recent, ["attempts"], last)
    now = last if start is None else int(start.timestamp()) // HOUR_S
    topics = recent.select("topic")
    if waiting is not None:
        topics = topics.unionByName(waiting.select("topic"))  # includes new topics
    coming = topics.distinct().select("topic", F.explode(F.sequence(F.lit(now), F.lit(now + hours - 1))).alias("at"))
    told = _expected(past, coming, last, weeks, min_weeks)
    missed = (F.col("attempts") - F.col("expected")) / _spread()
    bands = (
        told.where(F.col("attempts").isNotNull() & (F.col("at") >= last - BACK_DAYS * DAY_H))
        .groupBy("topic")
        .agg(F.count(missed).alias("compared"), F.percentile(missed, F.array(*map(F.lit, BAND))).alias("band"))
    )
    known = F.col("compared") >= MIN_BACK
    edges = {
        name: F.when(known, F.greatest(F.lit(0.0), F.col("expected") + F.col("band")[at] * _spread())).otherwise(
            F.when(F.col("expected").isNotNull(), edge("values"))
        )
        for at, (name, edge) in enumerate((("low", F.array_min), ("high", F.array_max)))
    }
    usual = told.where(F.col("attempts").isNull()).join(bands, ["topic"], "left").withColumns(edges)
    return (
        _with_waiting(usual, waiting)
        .select(
            "topic",
            hour_start(F.col("at")).alias("hour"),
            "expected",
            "low",
            "high",
            F.size("values").alias("weeks"),
            "waiting",
        )
        .withColumn("load", F.greatest(F.col("expected"), F.col("waiting").cast("double")))
    )


def _expected(past: DataFrame, coming: DataFrame, last: int, weeks: int, min_weeks: int) -> DataFrame:
    """topic, at, attempts, values, expected: of past hours, and of the coming ones, whose `attempts` are null. A past
    hour is told from what was known when its day began, as the coming ones are; days are counted from the last hour.
    """
    days_ago = F.greatest(F.ceil((last - F.col("at")) / DAY_H), F.lit(0))
    week = Window.partitionBy("topic").orderBy("at").rangeBetween(1 - WEEK_H, 0)
    levels = (
        past.withColumn("level", F.sum("attempts").over(week))
        .withColumn("whole", F.count("*").over(week) == WEEK_H)
        .where(F.col("whole") & ((last - 1 - F.col("at")) % DAY_H == 0) & (F.col("level") > 0))
        .select("topic", ((last - 1 - F.col("at")) / DAY_H).cast("long").alias("days_ago"), "level")
    )
    earlier = Window.partitionBy("topic", F.col("at") % WEEK_H).orderBy("at").rangeBetween(-weeks * WEEK_H, -1)
    hours = past.select("topic", "at", "attempts").unionByName(coming, allowMissingColumns=True)
    seen = F.collect_list(F.when(F.col("attempts").isNotNull(), F.struct("attempts", "share"))).over(earlier)
    known = F.filter("earlier", lambda hour: hour["share"].isNotNull())
    adjusted = F.transform(known, lambda hour: hour["share"] * F.col("level"))
    as_it_was = F.transform("earlier", lambda hour: hour["attempts"].cast("double"))
    follows = F.col("level").isNotNull() & (F.size(known) >= min_weeks)
    return (
        hours.withColumn("days_ago", days_ago)
        .join(levels, ["topic", "days_ago"], "left")
        .withColumn("share", F.col("attempts") / F.col("level"))
        .withColumn("earlier", seen)
        .withColumn("values", F.array_sort(F.when(follows, adjusted).otherwise(as_it_was)))
        .withColumn("expected", F.when(F.size("values") >= min_weeks, median(F.col("values"))))
        .select("topic", "at", "attempts", "values", "expected")
    )


def _spread() -> Column:
    """What counts vary by, by chance."""
    return F.sqrt(F.greatest(F.col("expected"), F.lit(1.0)))


def _with_waiting(usual: DataFrame, waiting: DataFrame | None) -> DataFrame:
    if waiting is None:
        return usual.withColumn("waiting", F.lit(None).cast("long"))
    due = waiting.groupBy("topic", hour_number(F.col("due_hour")).alias("at")).agg(F.sum("jobs").alias("waiting"))
    return usual.join(due, ["topic", "at"], "left").withColumn("waiting", F.coalesce("waiting", F.lit(0)))
