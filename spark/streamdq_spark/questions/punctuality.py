"""Did attempts start when they were due? How late, by topic and hour, and what that burns of the error budget."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .common import hour_number, hour_start, is_attempt, ms_between, percentile, share, value_counts

SLO_MS = 1000
OBJECTIVE = 0.99


def punctuality(events: DataFrame, *, slo_ms: int = SLO_MS, objective: float = OBJECTIVE) -> DataFrame:
    """By topic and hour.

    An attempt counts in the hour it ended in. ``budget_burn``: the share that started later than ``slo_ms``, over the
    share that ``objective`` allows; above 1 the budget is used up faster than it comes in (Google, The Site Reliability
    Workbook, chapter 5: burn rate).
    """
    return _lateness(events, ["topic", "at"], slo_ms, objective).select(
        "topic",
        hour_start(F.col("at")).alias("hour"),
        *_figures(),
    )


def punctuality_topics(events: DataFrame, *, slo_ms: int = SLO_MS, objective: float = OBJECTIVE) -> DataFrame:
    """By topic, over all of the data: percentiles can't be computed from those of the hours."""
    return _lateness(events, ["topic"], slo_ms, objective).select("topic", *_figures())


def late() -> Column:
    """Whether an attempt's lateness is known."""
    return is_attempt() & F.col("started").isNotNull() & F.col("due").isNotNull()


def _lateness(events: DataFrame, keys: Sequence[str], slo_ms: int, objective: float) -> DataFrame:
    attempts = events.where(late()).select(
        "topic", hour_number(F.col("finished")).alias("at"), ms_between("due", "started").alias("late_ms")
    )
    within = F.sum(F.when(F.col("late_ms") <= slo_ms, F.col("n")).otherwise(0))
    return (
        value_counts(attempts, keys, "late_ms")
        .groupBy(*keys)
        .agg(
            F.sum("n").alias("attempts"),
            percentile(F.col("late_ms"), 0.5).alias("p50_ms"),
            percentile(F.col("late_ms"), 0.95).alias("p95_ms"),
            percentile(F.col("late_ms"), 0.99).alias("p99_ms"),
            F.max("late_ms").alias("max_ms"),
            within.alias("within_slo"),
        )
        .withColumn("share_within_slo", share(F.col("within_slo"), F.col("attempts")))
        .withColumn("budget_burn", (1 - F.col("share_within_slo")) / F.lit(1 - objective))
    )


def _figures() -> list[str]:
    return ["attempts", "p50_ms", "p95_ms", "p99_ms", "max_ms", "within_slo", "share_within_slo", "budget_burn"]
