"""The attempts of the last two weeks: how they come, and how they end on each host."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history import Event

from .common import DAY_H, FAILED, hour_number, is_attempt, is_event, ms_between, percentile, value_counts
from .history import HOUR_MS, History
from .workers import MOST_HOURS

DAYS = 14
PARTS = 10
"""A window has so many buckets."""
SLOW = 0.9
"""An attempt is slow that takes longer than this share of those of its topic and group that were done."""
QUEUE = ("topic", "group")


def tried(history: History, slo_ms: int) -> DataFrame:
    """topic, group, consumer, hour (in which it ended), known (whether it is among the `arrivals`); n: how many such
    attempts; failed, timed, slow: of them. `timed`: those that were done and whose time is known.
    """

    def counted() -> DataFrame:
        took = F.when(is_event(Event.DONE) & (F.col("started") <= F.col("finished")), ms_between("started", "finished"))
        return (
            _recent(history, slo_ms)
            .select(
                *QUEUE, "consumer",
                hour_number(F.col("finished")).alias("hour"),
                _bucket().isNotNull().alias("known"),
                F.col("event").isin(*FAILED).cast("int").alias("failed"),
                took.isNotNull().cast("int").alias("timed"),
                F.coalesce(took > F.col("limit"), F.lit(False)).cast("int").alias("slow"),
            )
            .groupBy(*QUEUE, "consumer", "hour", "known")
            .agg(F.count("*").alias("n"), *(F.sum(name).alias(name) for name in ("failed", "timed", "slow")))
        )  # fmt: skip

    return history.once(f"tried {slo_ms}", counted)


def arrivals(history: History, slo_ms: int) -> DataFrame:
    """topic, group, at and bucket (hour and bucket in which it became ready), attempt_ms, window_ms: a row for each
    attempt of which that is known.

    A window is the mean time of the queue's attempts, or the SLO if that is longer; null if no time is known. It is
    never of more hours than count of an attempt, so that what becomes ready is within few windows although a clock was
    wrong by years.
    """
    at = F.floor(_ready_ms() / HOUR_MS).alias("at")
    rows = _recent(history, slo_ms).select(*QUEUE, at, _bucket().alias("bucket"), "attempt_ms", "window_ms")
    return rows.where(F.col("bucket").isNotNull())


def durations(history: History) -> DataFrame:
    """Those of `History.durations` that are of attempts of the last two weeks."""
    return history.durations.where(is_attempt() & (F.col("week") < 2))


def same_queue(prefix: str) -> list[Column]:
    """The group may be null."""
    return [F.col(f"{prefix}_{key}").eqNullSafe(F.col(key)) for key in QUEUE]


def prefixed(rows: DataFrame, prefix: str) -> DataFrame:
    return rows.withColumnsRenamed({key: f"{prefix}_{key}" for key in QUEUE})


def _recent(history: History, slo_ms: int) -> DataFrame:
    """The attempts of the last two weeks, with attempt_ms, window_ms and limit of their queue."""
    since = (history.last_ms or 0) - DAYS * DAY_H * HOUR_MS
    recent = F.col("finished") > F.timestamp_millis(F.lit(since))  # so that Spark skips the files of other days
    times = history.once(f"times {slo_ms}", lambda: prefixed(_times(history, slo_ms), "t"))
    return history.events.where(recent & is_attempt()).join(F.broadcast(times), same_queue("t"), "left")


def _ready_ms() -> Column:
    return F.unix_millis(F.coalesce(F.greatest("moved", "due"), "started"))


def _bucket() -> Column:
    return F.floor(_ready_ms() * PARTS / F.col("window_ms"))


def _times(history: History, slo_ms: int) -> DataFrame:
    """topic, group, attempt_ms, window_ms, limit."""
    took = durations(history).where(F.col("run_ms").isNotNull()).withColumn("done", is_event(Event.DONE))
    of_done = F.when(F.col("done"), F.col("run_ms"))
    counted = F.least("run_ms", F.lit(MOST_HOURS * HOUR_MS)) * F.col("n")
    window_ms = F.greatest("attempt_ms", F.lit(float(slo_ms))).alias("window_ms")
    return (
        value_counts(took, [*QUEUE, "done"], "run_ms")
        .groupBy(*QUEUE)
        .agg(
            F.greatest(F.sum(counted) / F.sum("n"), F.lit(1.0)).alias("attempt_ms"),
            percentile(of_done, SLOW).alias("limit"),
        )
        .select(*QUEUE, "attempt_ms", window_ms, "limit")
    )
