"""How much there will be to do in the coming hours, from the same hours of earlier weeks, the level of the last days,
and the jobs that already wait.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..measures import DEFAULT_TZ, SLO_MS
from .common import (
    DAY_H,
    HOUR_S,
    WEEK_H,
    clock_hour,
    complete_hours,
    count_where,
    hour_number,
    hour_start,
    median,
    quantile,
    share,
)
from .history import History

HOURS = 24
WEEKS = 7
MIN_WEEKS = 2
BACK_DAYS = 28
"""The band is as wide as the forecasts of so many days were wrong."""
MIN_BACK = 7 * DAY_H
BAND = (0.1, 0.9)
DIGITS = 6
"""Of the band's edges, so that what comes as it always does is not outside by the last bit."""
TESTED_DAYS = 14
"""Of so many days at the end the forecasts, with their bands, are compared with what came."""
LOOKBACK_DAYS = 7 * (WEEKS + 1) + 1 + TESTED_DAYS
"""The weeks, the week before the first of them, whose level is needed, one more day, and the days that are tested."""


def forecast(
    history: History,
    waiting: DataFrame | None = None,
    *,
    hours: int = HOURS,
    start: datetime | None = None,
    slo_ms: int = SLO_MS,
    tz: str = DEFAULT_TZ,
) -> DataFrame:
    """By topic and hour, from the hour of ``start``, which is the last event's unless given.

    ``expected``: attempts, the median of the same hour of the week, by the clocks of ``tz``, in at most ``WEEKS``
    earlier weeks, of which there are ``weeks``; each is multiplied by how much more was done in the last seven days
    than in the seven before that hour's day, so that the forecast follows growth. Where these levels are not known for
    ``MIN_WEEKS`` weeks, the median of the weeks as they were; null with fewer.

    ``low`` and ``high``: in between lies what comes in 80 % of the hours, as far as the past tells: forecasts of the
    same kind for each of the last ``BACK_DAYS`` missed by so much, in proportion to the square root of what they
    expected. With fewer than ``MIN_BACK`` such hours, the least and the most of the weeks.

    ``waiting``: what is due in that hour by now (``waiting``: topic, due_hour, jobs), null if that is not known. More
    may still be enqueued, so ``load`` is the larger of the two. All rests on the ``LOOKBACK_DAYS`` before the last
    event.
    """
    told = _told(history, start, hours, slo_ms, tz)
    if waiting is not None:
        # A topic that is new has jobs that wait and no past.
        new = waiting.select("topic").distinct().join(told.select("topic").distinct(), "topic", "left_anti")
        told = told.unionByName(_coming(new, _now(history, start), hours), allowMissingColumns=True)
    return (
        _with_waiting(told.where(F.col("attempts").isNull()), waiting)
        .select(
            "topic",
            hour_start(F.col("at")).alias("hour"),
            "expected",
            "low",
            "high",
            F.coalesce("weeks", F.lit(0)).alias("weeks"),
            "waiting",
        )
        .withColumn("load", F.greatest(F.col("expected"), F.col("waiting").cast("double")))
    )


def forecast_accuracy(
    history: History, *, start: datetime | None = None, hours: int = HOURS, slo_ms: int = SLO_MS, tz: str = DEFAULT_TZ
) -> DataFrame:
    """By topic, how well ``forecast`` did in the last ``TESTED_DAYS``: each of them is forecast, with its band, from
    what was known when it began. ``hours``: how many could be; ``attempts``: what came in them.

    ``error``: the sum of all differences over the sum of what came (WAPE). ``error_last_week``: the same of the
    simplest forecast, the same hour of the week before; of the hours of which both are known. ``covered``: the share of
    hours between ``low`` and ``high``.
    """
    came, expected, before = F.col("attempts"), F.col("expected"), F.col("last_week")
    tested = (F.col("days_ago") <= TESTED_DAYS) & came.isNotNull() & expected.isNotNull() & before.isNotNull()
    in_all = F.sum(came)
    return (
        _told(history, start, hours, slo_ms, tz)
        .where(tested)
        .groupBy("topic")
        .agg(
            F.count("*").alias("hours"),
            in_all.alias("attempts"),
            share(F.sum(F.abs(came - expected)), in_all).alias("error"),
            share(F.sum(F.abs(came - before)), in_all).alias("error_last_week"),
            (count_where((came >= F.col("low")) & (came <= F.col("high"))) / F.count("*")).alias("covered"),
        )
    )


def _now(history: History, start: datetime | None) -> int:
    return history.last_hour if start is None else int(start.timestamp()) // HOUR_S


def _coming(topics: DataFrame, now: int, hours: int) -> DataFrame:
    return topics.select("topic", F.explode(F.sequence(F.lit(now), F.lit(now + hours - 1))).alias("at"))


def _told(history: History, start: datetime | None, hours: int, slo_ms: int, tz: str) -> DataFrame:
    """topic, at, days_ago, attempts, last_week, expected, low, high, weeks: of the coming hours, whose ``attempts`` are
    null, and of those that are tested.
    """

    def told() -> DataFrame:
        last = history.last_hour
        recent = history.hours(slo_ms).where(F.col("hour") >= last - LOOKBACK_DAYS * DAY_H)
        past = complete_hours(recent, ["attempts"], last)
        coming = _coming(recent.select("topic").distinct(), _now(history, start), hours)
        return _with_bands(history.keep(_expected(past, coming, last, tz)))

    return history.once(f"forecast {start} {hours} {slo_ms} {tz}", told)


def _expected(past: DataFrame, coming: DataFrame, last: int, tz: str) -> DataFrame:
    """topic, at, days_ago, attempts, last_week, values, expected: of past hours, and of the coming ones, whose
    `attempts` are null. A past hour is told from what was known when its day began, as the coming ones are; days are
    counted from the last hour.
    """
    days_ago = F.greatest(F.ceil((last - F.col("at")) / DAY_H), F.lit(0))
    week = Window.partitionBy("topic").orderBy("at").rangeBetween(1 - WEEK_H, 0)
    levels = (
        past.withColumn("level", F.sum("attempts").over(week))
        .withColumn("whole", F.count("*").over(week) == WEEK_H)
        .where(F.col("whole") & ((last - 1 - F.col("at")) % DAY_H == 0) & (F.col("level") > 0))
        .select("topic", ((last - 1 - F.col("at")) / DAY_H).cast("long").alias("days_ago"), "level")
    )
    # An hour more and less, as clocks may have been changed in between.
    same_hour = Window.partitionBy("topic", "hour_of_week").orderBy("at")
    earlier = same_hour.rangeBetween(-WEEKS * WEEK_H - 1, 1 - WEEK_H)
    week_before = same_hour.rangeBetween(-WEEK_H - 1, 1 - WEEK_H)
    hours = past.select("topic", "at", "attempts").unionByName(coming, allowMissingColumns=True)
    seen = F.collect_list(F.when(F.col("attempts").isNotNull(), F.struct("attempts", "share"))).over(earlier)
    known = F.filter("earlier", lambda hour: hour["share"].isNotNull())
    adjusted = F.transform(known, lambda hour: hour["share"] * F.col("level"))
    as_it_was = F.transform("earlier", lambda hour: hour["attempts"].cast("double"))
    follows = F.col("level").isNotNull() & (F.size(known) >= MIN_WEEKS)
    return (
        hours.withColumn("days_ago", days_ago)
        .join(levels, ["topic", "days_ago"], "left")
        .withColumn("hour_of_week", clock_hour(F.col("at"), tz) % WEEK_H)
        .withColumn("share", F.col("attempts") / F.col("level"))
        .withColumn("earlier", seen)
        .withColumn("last_week", F.max("attempts").over(week_before))
        .withColumn("values", F.array_sort(F.when(follows, adjusted).otherwise(as_it_was)))
        .withColumn("expected", F.when(F.size("values") >= MIN_WEEKS, median(F.col("values"))))
        .select("topic", "at", "days_ago", "attempts", "last_week", "values", "expected")
    )


def _with_bands(told: DataFrame) -> DataFrame:
    """Adds the bands of the coming hours and of those that are tested; the others are left out."""
    missed = (F.col("attempts") - F.col("expected")) / _spread()
    before = Window.partitionBy("topic").orderBy("days_ago").rangeBetween(1, BACK_DAYS)
    bands = (
        told.groupBy("topic", "days_ago")
        .agg(F.collect_list(missed).alias("missed"))
        .withColumn("missed", F.array_sort(F.flatten(F.collect_list("missed").over(before))))
        .where((F.size("missed") >= MIN_BACK) & (F.col("days_ago") <= TESTED_DAYS))
        .select("topic", "days_ago", *(quantile(F.col("missed"), at).alias(f"off_{n}") for n, at in enumerate(BAND)))
    )
    low, high = (
        F.when(F.col(off).isNotNull(), F.greatest(F.lit(0.0), F.col("expected") + F.col(off) * _spread())).otherwise(
            of_weeks
        )
        for off, of_weeks in (("off_0", F.array_min("values")), ("off_1", F.array_max("values")))
    )
    known = F.col("expected").isNotNull()
    return (
        told.where(F.col("days_ago") <= TESTED_DAYS)
        .join(bands, ["topic", "days_ago"], "left")
        .select(
            "topic", "at", "days_ago", "attempts", "last_week", "expected",
            F.when(known, F.round(low, DIGITS)).alias("low"), F.when(known, F.round(high, DIGITS)).alias("high"),
            F.size("values").alias("weeks"),
        )
    )  # fmt: skip


def _spread() -> Column:
    """What counts vary by, by chance."""
    return F.sqrt(F.greatest(F.col("expected"), F.lit(1.0)))


def _with_waiting(usual: DataFrame, waiting: DataFrame | None) -> DataFrame:
    if waiting is None:
        return usual.withColumn("waiting", F.lit(None).cast("long"))
    due = waiting.groupBy("topic", hour_number(F.col("due_hour")).alias("at")).agg(F.sum("jobs").alias("waiting"))
    return usual.join(due, ["topic", "at"], "left").withColumn("waiting", F.coalesce("waiting", F.lit(0)))
