"""How busy consumers are, and how evenly the work is spread."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import DAY_H, HOUR_S, hour_number, hour_start, is_attempt, is_event, share
from .history import History

HOUR_MS = HOUR_S * 1000
MOST_HOURS = 48
"""Only this many last hours of an attempt are counted, because it becomes one row per hour."""
LOOKAHEAD = timedelta(hours=MOST_HOURS)
"""Attempts that end within this time may have been running today."""


def workers(history: History) -> DataFrame:
    """By group, consumer and hour.

    ``busy_ms``: the time from start to end of its attempts, of all topics, that lies in the hour. ``most_at_once``: how
    many ran at the same time. ``slots``: the most that this consumer ran at once on that UTC day, a lower bound of its
    concurrency. ``utilisation``: busy time over an hour of all its slots. ``skew``: the busiest consumer of the group
    in that hour over their mean; 1 is even. ``ended``: attempts that ended in the hour.
    """
    return workers_once(history).drop("most_of_day")


def _workers(history: History) -> DataFrame:
    # Only within the day: a day's rows must not depend on which other days are analyzed.
    of_day = Window.partitionBy("group", "consumer", F.floor(F.col("at") / DAY_H))
    slots = F.max("most_at_once").over(of_day)
    of_hour = Window.partitionBy("group", "at")
    return _hours(_pieces(history.events)).select(
        "group",
        "consumer",
        hour_start(F.col("at")).alias("hour"),
        "ended",
        "busy_ms",
        "most_at_once",
        slots.alias("slots"),
        (F.col("busy_ms") / (slots * HOUR_MS)).alias("utilisation"),
        share(F.max("busy_ms").over(of_hour), F.avg("busy_ms").over(of_hour)).alias("skew"),
        "most_of_day",
    )


def workers_once(history: History) -> DataFrame:
    """The table, and most_of_day: as most_at_once, of the attempts that ended on the day of the hour; null if none
    did. Other questions look at it, too.
    """
    return history.once_counted("workers", lambda: _workers(history))


def _pieces(events: DataFrame) -> DataFrame:
    """Each attempt cut at full hours: group, consumer, at, since and until (ms of the hour), ends_here, of_day (whether
    it ended on the day of the hour).
    """
    first = F.greatest(hour_number(F.col("started")), F.col("last") - (MOST_HOURS - 1))
    hour_ms = F.col("at") * HOUR_MS
    return (
        events.where(
            (is_attempt() | is_event(Event.RELEASED, Event.RECLAIMED))
            & F.col("consumer").isNotNull()
            & (F.col("started") <= F.col("finished"))
        )
        .withColumn("last", hour_number(F.col("finished")))
        .select(
            "group", "consumer", "started", "finished", "last", F.explode(F.sequence(first, F.col("last"))).alias("at")
        )
        .select(
            "group",
            "consumer",
            "at",
            F.greatest(F.unix_millis("started") - hour_ms, F.lit(0)).alias("since"),
            F.least(F.unix_millis("finished") - hour_ms, F.lit(HOUR_MS)).alias("until"),
            (F.col("at") == F.col("last")).alias("ends_here"),
            (F.floor(F.col("at") / DAY_H) == F.floor(F.col("last") / DAY_H)).cast("int").alias("of_day"),
        )
    )


def _hours(pieces: DataFrame) -> DataFrame:
    """group, consumer, at, busy_ms, most_at_once, most_of_day, ended: from starts (+1) and ends (-1), ends first where
    they meet.

    How many run is the sum of the points up to each of them.
    """
    keys = ["at", "consumer", "group"]  # the hour first: Spark compares numbers faster than texts
    busy_ms = F.col("until") - F.col("since")
    # In the order of time, an end before a start of the same millisecond.
    start = F.struct((F.col("since") * 2 + 1).alias("order"), F.lit(1).alias("change"),
                     F.col("of_day").alias("change_of_day"), F.lit(0).alias("ended"),
                     F.lit(0).alias("busy_ms"))  # fmt: skip
    end = F.struct((F.col("until") * 2).alias("order"), F.lit(-1).alias("change"),
                   (-F.col("of_day")).alias("change_of_day"), F.col("ends_here").cast("int").alias("ended"),
                   busy_ms.cast("int").alias("busy_ms"))  # fmt: skip
    so_far = Window.partitionBy(*keys).orderBy("order").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        pieces.repartition(*keys)  # before each becomes two points
        .select(*keys, F.explode(F.array(start, end)).alias("point"))
        .select(*keys, "point.*")
        .withColumn("running", F.sum("change").over(so_far))
        .withColumn("of_day", F.sum("change_of_day").over(so_far))
        .groupBy(*keys)
        .agg(
            F.sum("busy_ms").alias("busy_ms"),
            F.greatest(F.max("running"), F.lit(1)).alias("most_at_once"),
            F.when(F.min("change_of_day") < 0, F.greatest(F.max("of_day"), F.lit(1))).alias("most_of_day"),
            F.sum("ended").alias("ended"),
        )
    )
