"""The attempts of the last two weeks, as far as they tell how they come, and how they end on each host: in one pass."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history import Event

from .common import DAY_H, FAILED, is_attempt, is_event, ms_between, percentile, value_counts
from .history import HOUR_MS, History

DAYS = 14
PARTS = 10
"""A window has so many buckets."""
SLOW = 0.9
"""An attempt is slow that takes longer than this share of those of its topic and group that were done."""
QUEUE = ("topic", "group")


def tried(history: History, slo_ms: int) -> DataFrame:
    """topic, group, consumer, hour (in which it ended), at and bucket (hour and bucket in which it became ready),
    attempt_ms, window_ms; n: how many such attempts; failed, timed, slow: of them. `timed`: those that were done and
    whose time is known.

    A window is the mean time of the queue's attempts, or the SLO if that is longer; null if no time is known.
    """
    return history.once(f"tried {slo_ms}", lambda: _tried(history, slo_ms))


def durations(history: History) -> DataFrame:
    """Those of `History.durations` that are of attempts of the last two weeks."""
    return history.durations.where(is_attempt() & (F.col("week") < 2))


def same_queue(prefix: str) -> list[Column]:
    """The group may be null."""
    return [F.col(f"{prefix}_{key}").eqNullSafe(F.col(key)) for key in QUEUE]


def prefixed(rows: DataFrame, prefix: str) -> DataFrame:
    return rows.withColumnsRenamed({key: f"{prefix}_{key}" for key in QUEUE})


def _tried(history: History, slo_ms: int) -> DataFrame:
    since = (history.last_ms or 0) - DAYS * DAY_H * HOUR_MS
    recent = F.col("finished") > F.timestamp_millis(F.lit(since))  # so that Spark skips the files of other days
    ready = F.unix_millis(F.coalesce(F.greatest("moved", "due"), "started"))
    took = F.when(is_event(Event.DONE) & (F.col("started") <= F.col("finished")), ms_between("started", "finished"))
    return (
        history.events.where(recent & is_attempt())
        .join(F.broadcast(prefixed(_times(history, slo_ms), "t")), same_queue("t"), "left")
        .select(
            *QUEUE, "consumer", "attempt_ms", "window_ms",
            F.floor(F.unix_millis("finished") / HOUR_MS).alias("hour"),
            F.floor(ready / HOUR_MS).alias("at"),
            F.floor(ready * PARTS / F.col("window_ms")).alias("bucket"),
            F.col("event").isin(*FAILED).cast("int").alias("failed"),
            took.isNotNull().cast("int").alias("timed"),
            F.coalesce(took > F.col("limit"), F.lit(False)).cast("int").alias("slow"),
        )
        .groupBy(*QUEUE, "consumer", "hour", "at", "bucket", "attempt_ms", "window_ms")
        .agg(F.count("*").alias("n"), *(F.sum(name).alias(name) for name in ("failed", "timed", "slow")))
    )  # fmt: skip


def _times(history: History, slo_ms: int) -> DataFrame:
    """topic, group, attempt_ms, window_ms, limit."""
    took = durations(history).where(F.col("run_ms").isNotNull()).withColumn("done", is_event(Event.DONE))
    of_done = F.when(F.col("done"), F.col("run_ms"))
    window_ms = F.greatest("attempt_ms", F.lit(float(slo_ms))).alias("window_ms")
    return (
        value_counts(took, [*QUEUE, "done"], "run_ms")
        .groupBy(*QUEUE)
        .agg(
            F.greatest(F.sum(F.col("run_ms") * F.col("n")) / F.sum("n"), F.lit(1.0)).alias("attempt_ms"),
            percentile(of_done, SLOW).alias("limit"),
        )
        .select(*QUEUE, "attempt_ms", window_ms, "limit")
    )
