"""How long jobs take until they are done, from when they were created and from when they were due."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history import Event

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
    # A retry or kick has its own due time, which may be earlier if the clock was set back.
    first_due = F.min(F.when((F.col("event") != Event.KICKED.value) & (F.col("attempt") <= 1), F.col("due")))
    done_at = F.max(F.when(is_event(Event.DONE), F.col("finished")))
    return (
        events.where(F.col("created").isNotNull())
        # By life, so that a job's groups can be combined without another shuffle.
        .repartition(*LIFE)
        .groupBy(*LIFE, "group")
        .agg(done_at.alias("done_at"), first_due.alias("first_due"))
    )


def _percentiles(ends: DataFrame) -> DataFrame:
    """Both times in one pass, as two rows that differ in `kind`."""
    keys = ["scope", "topic", "group"]
    times = F.array(
        F.struct(F.lit("total").alias("kind"), ms_between("created", "done_at").alias("ms")),
        F.struct(F.lit("after_due").alias("kind"), ms_between("first_due", "done_at").alias("ms")),
    )
    timed = ends.select(*keys, F.explode(times).alias("time")).select(*keys, "time.kind", "time.ms")
    counts = value_counts(timed.where(F.col("ms").isNotNull()), [*keys, "kind"], "ms")
    return (
        counts.groupBy(*keys)
        .agg(*_levels("total", "jobs"), *_levels("after_due", "after_due_jobs"))
        .select(*keys, "jobs", *_names("total"), "after_due_jobs", *_names("after_due"))
    )


def _levels(kind: str, jobs: str) -> list[Column]:
    ms = F.when(F.col("kind") == kind, F.col("ms"))
    values = [*(percentile(ms, at) for at in (0.5, 0.95, 0.99)), F.max(ms)]
    how_many = F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col("n"))), F.lit(0))
    return [how_many.alias(jobs), *(value.alias(name) for value, name in zip(values, _names(kind), strict=True))]


def _names(kind: str) -> list[str]:
    return [f"{kind}_{level}_ms" for level in ("p50", "p95", "p99", "max")]
