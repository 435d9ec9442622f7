"""The lives of jobs, and the pools of workers that ran them, by Spark."""

from __future__ import annotations

from enum import IntEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from ..columns import LIFE, entry_order, is_event, is_released, is_snoozed
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


_NUMBERS = ("step", "consumer", "due", "moved", "started", "finished")
UNKNOWN = -1


def lives(events: DataFrame) -> DataFrame:
    """One row for each life of a job in a group: topic, group, shard, key (of the life, a hash), rows: what happened to
    it, in order. Times are in ms; what is not known is -1. What was handed back before it started is left out.
    """
    never_started = is_event(Event.RELEASED) & F.col("started").isNull()
    row = F.struct(
        entry_order().alias("order"),
        _kind().cast("tinyint").alias("kind"),
        is_event(Event.DEAD).alias("dead"),
        F.coalesce(F.col("error") == "TimeoutError", F.lit(False)).alias("timed_out"),
        F.coalesce("step", F.lit(UNKNOWN)).cast("long").alias("step"),
        F.xxhash64(F.coalesce("consumer", F.lit(""))).alias("consumer"),
        *(F.coalesce(F.unix_millis(name), F.lit(UNKNOWN)).alias(name) for name in _NUMBERS[2:]),
    )
    kept = F.transform("rows", lambda held: F.struct(*(held[name].alias(name) for name in _FIELDS)))
    return (
        events.where(~F.coalesce(never_started, F.lit(False)))
        .groupBy(*LIFE, "group")
        .agg(F.max("shard").alias("shard"), F.sort_array(F.collect_list(row)).alias("rows"))
        .select("topic", "group", "shard", F.xxhash64(*LIFE, "group").alias("key"), kept.alias("rows"))
    )


_FIELDS = ("kind", "dead", "timed_out", *_NUMBERS)


def _kind() -> Column:
    failed = is_event(Event.RETRY) | (is_event(Event.DEAD) & (F.coalesce("reason", F.lit("exhausted")) == "exhausted"))
    return (
        F.when(is_event(Event.DONE), Kind.DONE)
        .when(failed, Kind.FAILED)
        .when(is_event(Event.DEAD) & (F.col("reason") == "crashed"), Kind.CRASHED)
        .when(is_event(Event.DEAD), Kind.BURIED)
        .when(is_event(Event.RECLAIMED), Kind.LOST)
        .when(is_snoozed(), Kind.SNOOZED)
        .when(is_released(), Kind.HANDED_BACK)
        .when(is_event(Event.EXPIRED), Kind.EXPIRED)
        .when(is_event(Event.CANCELLED), Kind.CANCELLED)
        .otherwise(Kind.KICKED)
    )


def pools(events: DataFrame) -> dict[Queue, int]:
    """The number of each queue's pool: queues that a worker worked on together are in one, as they compete for it."""
    worked = events.where(F.col("consumer").isNotNull()).select("topic", "group", "consumer").distinct().collect()
    return pool_numbers((row["topic"], row["group"], row["consumer"]) for row in worked)
