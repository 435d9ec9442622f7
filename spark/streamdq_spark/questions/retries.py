"""Which step of the retry schedule still helps: attempts and successes by step."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import (
    FAILED,
    SORTED_LIFE,
    entry_order,
    is_attempt,
    is_event,
    ms_between,
    percentile,
    share,
    sum_where,
    value_counts,
)
from .history import History

STEP = ("topic", "group", "step")


def retries(history: History) -> DataFrame:
    """By topic, group and step; step 0 are the attempts before any step was used.

    ``wait_ms``: the median wait that led to the step, from the failure before to the due time, as observed; null for
    step 0 and where it was not seen; the delay of a `Retry(delay=…)` leads to no step. ``success_rate``: done over
    attempts that came to an end. ``lost``: taken over from a consumer that had gone. ``share_of_done``,
    ``done_so_far``: of all that was done, the part at this step, and up to it.
    """
    return history.once("retries", lambda: _retries(history))


def _retries(history: History) -> DataFrame:
    steps = (
        history.durations.where(F.col("step").isNotNull())
        .groupBy(*STEP)
        .agg(
            sum_where(is_attempt()).alias("attempts"),
            sum_where(is_event(Event.DONE)).alias("done"),
            sum_where(F.col("event").isin(*FAILED)).alias("failed"),
            sum_where(is_event(Event.DEAD)).alias("dead"),
            sum_where(is_event(Event.RECLAIMED)).alias("lost"),
        )
    )
    of_group = Window.partitionBy("topic", "group")
    so_far = of_group.orderBy("step").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    all_done = F.sum("done").over(of_group)
    return steps.join(_waits(history), [F.col(f"w_{key}").eqNullSafe(F.col(key)) for key in STEP], "left").select(
        *STEP,
        "wait_ms",
        "attempts",
        "done",
        "failed",
        "dead",
        "lost",
        share(F.col("done"), F.col("attempts")).alias("success_rate"),
        share(F.col("done"), all_done).alias("share_of_done"),
        share(F.sum("done").over(so_far), all_done).alias("done_so_far"),
    )


def waits(history: History) -> DataFrame:
    """topic, group, step, finished, wait_ms, by_schedule: of each attempt that followed a failure, how long it had to
    wait, by a step of the schedule or by the delay of a `Retry(delay=…)`, which uses none. Most jobs are done at the
    first attempt and have none.
    """
    return history.once_counted("retry_waits", lambda: _each_wait(history))


def _each_wait(history: History) -> DataFrame:
    tried_again = history.troubled.where(is_event(Event.RETRY) | (F.col("attempt") > 1))
    life = Window.partitionBy(*SORTED_LIFE, "group").orderBy(entry_order())
    return (
        tried_again.withColumn("before", F.lag(F.struct("event", "step", "finished")).over(life))
        .where(
            is_attempt()
            & F.col("due").isNotNull()
            & (F.col("before.event") == Event.RETRY.value)
            & (F.col("step") - F.col("before.step")).isin(0, 1)
        )
        .withColumn("failed_at", F.col("before.finished"))
        .select(
            *STEP,
            "finished",
            ms_between("failed_at", "due").alias("wait_ms"),
            (F.col("step") > F.col("before.step")).alias("by_schedule"),
        )
    )


def _waits(history: History) -> DataFrame:
    """w_topic, w_group, w_step, wait_ms: the median of each step."""
    stepped = waits(history).where("by_schedule").withColumn("n", F.lit(1))
    return (
        value_counts(stepped, STEP, "wait_ms")
        .groupBy(*STEP)
        .agg(percentile(F.col("wait_ms"), 0.5).alias("wait_ms"))
        .select(*(F.col(key).alias(f"w_{key}") for key in STEP), "wait_ms")
    )
