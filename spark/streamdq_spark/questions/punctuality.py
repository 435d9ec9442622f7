"""Did attempts start when they were due? How late, by topic and hour, and what that burns of the error budget."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..measures import OBJECTIVE, SLO_MS
from .common import hour_start, percentile, share, sum_where, value_counts
from .history import History


def punctuality(history: History, *, slo_ms: int = SLO_MS, objective: float = OBJECTIVE) -> DataFrame:
    """By topic and hour.

    An attempt counts in the hour it ended in. ``budget_burn``: the share that started later than ``slo_ms``, over the
    share that ``objective`` allows; above 1 the budget is used up faster than it comes in (Google, The Site Reliability
    Workbook, chapter 5: burn rate).
    """
    return _lateness(history, ["topic", "hour"], slo_ms, objective).select(
        "topic",
        hour_start(F.col("hour")).alias("hour"),
        *_figures(),
    )


def punctuality_topics(history: History, *, slo_ms: int = SLO_MS, objective: float = OBJECTIVE) -> DataFrame:
    """By topic, over all of the data: percentiles can't be computed from those of the hours."""
    return _lateness(history, ["topic"], slo_ms, objective).select("topic", *_figures())


def _lateness(history: History, keys: Sequence[str], slo_ms: int, objective: float) -> DataFrame:
    within = sum_where(F.col("late_ms") <= slo_ms)
    return (
        value_counts(history.lateness, keys, "late_ms")
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
