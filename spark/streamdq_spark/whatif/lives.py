"""The lives of jobs, and the pools of workers that ran them, by Spark."""

from __future__ import annotations

from enum import IntEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from ..questions.pools import Queue, pool_numbers


class Kind(IntEnum):
    """How a row of the history matters to a replay."""

    DONE = 0
    FAILED = 1  # whether or not another attempt followed
    BURIED = 2  # given up, whatever the schedule
    CRASHED = 3  # given up because its consumers were lost
    LOST = 4  # taken over
    HANDED_BACK = 5
    SNOOZED = 6
    EXPIRED = 7
    CANCELLED = 8
    KICKED = 9


_LIFE = ("topic", "id", "created")
"""Identifies one life of a job: after it has ended, its id may be used again, with another ``created``."""
_NUMBERS = ("step", "consumer", "due", "moved", "started", "finished")
UNKNOWN = -1


def lives(events: DataFrame) -> DataFrame:
    """One row for each life of a job in a group: topic, group, shard, key (of the life, a hash), rows: what happened to
    it, in order. Times are in ms; what is not known is -1. What was handed back before it started is left out.
    """
    never_started = _is(Event.RELEASED) & F.col("started").isNull()
    # The order in a shard. Times are not enough, as clocks may be set back, and a millisecond is long.
    ms, number = (F.substring_index("entry", "-", at) for at in (1, -1))
    row = F.struct(
        F.struct(ms.cast("long").alias("ms"), number.cast("decimal(20,0)").alias("number")).alias("order"),
        _kind().cast("tinyint").alias("kind"),
        _is(Event.DEAD).alias("dead"),
        F.coalesce(F.col("error") == "TimeoutError", F.lit(False)).alias("timed_out"),
        F.coalesce("step", F.lit(UNKNOWN)).cast("long").alias("step"),
        F.xxhash64(F.coalesce("consumer", F.lit(""))).alias("consumer"),
        *(F.coalesce(F.unix_millis(name), F.lit(UNKNOWN)).alias(name) for name in _NUMBERS[2:]),
    )
    kept = F.transform("rows", lambda held: F.struct(*(held[name].alias(name) for name in _FIELDS)))
    return (
        events.where(~F.coalesce(never_started, F.lit(False)))
        .groupBy(*_LIFE, "group")
        .agg(F.max("shard").alias("shard"), F.sort_array(F.collect_list(row)).alias("rows"))
        .select("topic", "group", "shard", F.xxhash64(*_LIFE, "group").alias("key"), kept.alias("rows"))
    )


_FIELDS = ("kind", "dead", "timed_out", *_NUMBERS)


def _is(event: Event) -> Column:
    return F.col("event") == event.value


def _kind() -> Column:
    failed = _is(Event.RETRY) | (_is(Event.DEAD) & (F.coalesce("reason", F.lit("exhausted")) == "exhausted"))
    return (
        F.when(_is(Event.DONE), Kind.DONE)
        .when(failed, Kind.FAILED)
        .when(_is(Event.DEAD) & (F.col("reason") == "crashed"), Kind.CRASHED)
        .when(_is(Event.DEAD), Kind.BURIED)
        .when(_is(Event.RECLAIMED), Kind.LOST)
        .when(_is(Event.RELEASED) & F.col("error").isNotNull(), Kind.SNOOZED)
        .when(_is(Event.RELEASED), Kind.HANDED_BACK)
        .when(_is(Event.EXPIRED), Kind.EXPIRED)
        .when(_is(Event.CANCELLED), Kind.CANCELLED)
        .otherwise(Kind.KICKED)
    )


def pools(events: DataFrame) -> dict[Queue, int]:
    """The number of each queue's pool: queues that a worker worked on together are in one, as they compete for it."""
    worked = events.where(F.col("consumer").isNotNull()).select("topic", "group", "consumer").distinct().collect()
    return pool_numbers((row["topic"], row["group"], row["consumer"]) for row in worked)
