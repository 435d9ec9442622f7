"""What topics and keys cost: workers' time, how much of it was in vain, and bytes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .common import share
from .history import History

_SUMS = ("attempts", "failed", "reclaimed", "worker_ms", "failed_ms", "reclaimed_ms", "put_back_ms", "body_bytes",
         "read_bytes")  # fmt: skip

MOST_KEYS = 20


def cost_by_topic(history: History) -> DataFrame:
    """By topic and group.

    ``worker_ms``: how long handlers ran, or held their place, added up; ``share``: of that of all topics. Of it,
    ``failed_ms`` went to attempts that failed, ``reclaimed_ms`` to those that were taken over, until it was noticed,
    and ``put_back_ms`` to those that were handed back or snoozed; ``failed_share`` and ``reclaimed_share`` are parts of
    ``worker_ms``. An attempt without a start, or with one after its end, adds nothing. ``body_bytes``: the bodies of
    the jobs, each once; ``read_bytes``: once for each time that it was claimed.
    """
    costs = _of_keys(history).groupBy("topic", "group").agg(F.sum("jobs").alias("jobs"), *sums())
    everything = F.sum("worker_ms").over(Window.partitionBy(F.lit(0)))
    return costs.select("topic", "group", *figures(everything))


def cost_by_key(history: History) -> DataFrame:
    """By topic, group and key, of the jobs that have one; in each group the MOST_KEYS that took most time, by ``rank``.

    What the others took is in one row, without a key; ``keys`` says how many they are. ``share``: of the time of all
    jobs of the topic and group, also those without a key. The rest as in ``cost_by_topic``.
    """
    of_queue = Window.partitionBy("topic", "group")
    ranked = (
        _of_keys(history)
        .withColumn("everything", F.sum("worker_ms").over(of_queue))
        .where(F.col("key").isNotNull())
        .withColumn("rank", F.row_number().over(of_queue.orderBy(F.desc("worker_ms"), "key")))
    )
    is_named = F.col("rank") <= MOST_KEYS
    kept = (
        "topic",
        "group",
        F.when(is_named, F.col("rank")).alias("rank"),
        F.when(is_named, F.col("key")).alias("key"),
    )
    named = ranked.groupBy(*kept).agg(
        F.count("*").alias("keys"), F.sum("jobs").alias("jobs"), *sums(), F.max("everything").alias("everything")
    )
    return named.select("topic", "group", "rank", "key", "keys", *figures(F.col("everything")))


def _of_keys(history: History) -> DataFrame:
    """topic, group, key, jobs, and the sums of their lives."""

    def summed() -> DataFrame:
        return history.lives.groupBy("topic", "group", "key").agg(F.count("*").alias("jobs"), *sums())

    return history.once_counted("costs", summed)


def sums() -> list[Column]:
    """Of lives, what they cost."""
    return [F.sum(name).alias(name) for name in _SUMS]


def figures(everything: Column) -> list[Column]:
    """The columns of a table. ``everything``: the ``worker_ms`` that ``share`` is of."""
    worker_ms = F.col("worker_ms")
    return [
        F.col("jobs"),
        F.col("attempts"),
        F.col("failed"),
        F.col("reclaimed"),
        worker_ms,
        share(worker_ms, everything).alias("share"),
        F.col("failed_ms"),
        share(F.col("failed_ms"), worker_ms).alias("failed_share"),
        F.col("reclaimed_ms"),
        share(F.col("reclaimed_ms"), worker_ms).alias("reclaimed_share"),
        F.col("put_back_ms"),
        F.col("body_bytes"),
        F.col("read_bytes"),
    ]
