"""Where lateness came from: waiting for the mover, or for a worker; and how long retries had to wait."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .common import hour_number, hour_start
from .history import History
from .retries import waits

_SUMS = ("attempts", "late_ms", "mover_ms", "retries", "retry_ms")


def lateness_causes(history: History) -> DataFrame:
    """By topic and the hour in which the attempts ended.

    ``late_ms``: the lateness of all attempts that have one, added up. ``mover_ms``: what of it had passed when the jobs
    were moved to the ready stream; ``worker_ms``: the rest, in which they waited for a worker. ``retry_ms``: how long
    the ``retries``, attempts after a failure, had to wait before they were due, by the schedule or by the handler's
    `Retry(delay=…)`; that is no lateness.
    """
    nothing = F.lit(None).cast("long")
    late = history.lateness.groupBy("topic", "hour").agg(
        F.sum("n").alias("attempts"),
        F.sum(F.greatest(F.col("late_ms"), F.lit(0)) * F.col("n")).alias("late_ms"),
        F.sum("mover_ms").alias("mover_ms"),
    )
    retried = (
        waits(history)
        .groupBy("topic", hour_number(F.col("finished")).alias("hour"))
        .agg(F.count("*").alias("retries"), F.sum(F.greatest("wait_ms", F.lit(0))).alias("retry_ms"))
    )
    both = late.withColumns(dict.fromkeys(_SUMS[3:], nothing)).unionByName(
        retried.withColumns(dict.fromkeys(_SUMS[:3], nothing))
    )
    return (
        both.groupBy("topic", "hour")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS))
        .select(
            "topic",
            hour_start(F.col("hour")).alias("hour"),
            "attempts",
            "late_ms",
            "mover_ms",
            (F.col("late_ms") - F.col("mover_ms")).alias("worker_ms"),
            "retries",
            "retry_ms",
        )
    )
