"""How long jobs take from the moment they were made, and from the moment they were due, until they are done."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamdq.history import Event

from .common import LIFE, is_event, ms_between, percentile, value_counts


def time_to_finish(events: DataFrame) -> DataFrame:
    """By topic and group; ``scope`` is ``group``, or ``job`` (group null) for the job as a whole: until the last of
    its groups is through, of jobs that each group seen has done.

    ``total_…``: from ``created``. ``after_due_…``: from the first due time, over ``after_due_jobs``: those whose first
    attempt is in the data.
    """
    ends = _ends(events)
    of_group = ends.where(F.col("done_at").isNotNull()).withColumn("scope", F.lit("group"))
    whole = (
        ends.groupBy(*LIFE)
        .agg(
            F.when(F.count("done_at") == F.count("*"), F.max("done_at")).alias("done_at"),
            F.when(F.count("first_due") == F.count("*"), F.min("first_due")).alias("first_due"),
        )
        .where(F.col("done_at").isNotNull())
        .select("topic", F.lit(None).cast("string").alias("group"), "created", "done_at", "first_due")
        .withColumn("scope", F.lit("job"))
    )
    columns = ["scope", "topic", "group", "created", "done_at", "first_due"]
    return _percentiles(of_group.select(*columns).unionByName(whole.select(*columns)))


def _ends(events: DataFrame) -> DataFrame:
    """One row for each life and group: when it was done (null: not), and when it was first due (null: not seen)."""
    tried = F.col("event") != Event.KICKED.value  # a kick's due time is its own
    first_seen = F.min(F.when(tried, F.col("attempt"))) <= 1
    done_at = F.max(F.when(is_event(Event.DONE), F.col("finished")))
    return (
        events.where(F.col("created").isNotNull())
        # By life, so that the groups of a job come together without another shuffle.
        .repartition(*LIFE)
        .groupBy(*LIFE, "group")
        .agg(done_at.alias("done_at"), F.when(first_seen, F.min(F.when(tried, F.col("due")))).alias("first_due"))
    )


def _percentiles(ends: DataFrame) -> DataFrame:
    keys = ["scope", "topic", "group"]
    total = _over(ends.withColumn("ms", ms_between("created", "done_at")), keys, "total")
    after_due = _over(
        ends.where(F.col("first_due").isNotNull()).withColumn("ms", ms_between("first_due", "done_at")),
        keys,
        "after_due",
    )
    same = [total[key].eqNullSafe(after_due[key]) for key in keys]
    return total.join(after_due, same, "left").select(
        *(total[key] for key in keys),
        F.col("total_jobs").alias("jobs"),
        *(f"total_{name}_ms" for name in ("p50", "p95", "p99", "max")),
        F.coalesce("after_due_jobs", F.lit(0)).alias("after_due_jobs"),
        *(f"after_due_{name}_ms" for name in ("p50", "p95", "p99", "max")),
    )


def _over(ends: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    return (
        value_counts(ends, keys, "ms")
        .groupBy(*keys)
        .agg(
            F.sum("n").alias(f"{name}_jobs"),
            percentile("ms", 0.5).alias(f"{name}_p50_ms"),
            percentile("ms", 0.95).alias(f"{name}_p95_ms"),
            percentile("ms", 0.99).alias(f"{name}_p99_ms"),
            F.max("ms").alias(f"{name}_max_ms"),
        )
    )
