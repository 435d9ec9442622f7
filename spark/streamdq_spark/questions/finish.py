"""How long jobs take until they are done, from when they were created and from when they were due."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .common import SORTED_LIFE, percentile, ranks_of_many
from .history import History

_LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
SCOPES = ("group", "job")
_KEYS = ("scope", "topic", "group")


def time_to_finish(history: History) -> DataFrame:
    """By topic and group; ``scope`` is ``group``, or ``job`` (group null) for the job as a whole: until the last of
    its groups is through, of jobs that each group seen has done.

    ``total_…``: from ``created``. ``after_due_…``: from the first due time, over ``after_due_jobs``: those whose first
    attempt is in the data.
    """
    several = F.col("topic").isin(history.topics_of_groups)
    lives = history.lives.where(F.col("created").isNotNull())
    ends = lives.where(F.col("done_at").isNotNull()).withColumn("scope", F.lit("group"))
    if history.topics_of_groups:
        ends = ends.unionByName(_whole(lives.where(several)), allowMissingColumns=True)
    # Where a topic has one group only, that is all of the job.
    scopes = F.when(several | (F.col("scope") == "job"), F.array("scope")).otherwise(F.array(*map(F.lit, SCOPES)))
    return (
        _percentiles(ends.select(*_KEYS, "created", "done_at", "first_due"))
        .withColumn("scope", F.explode(scopes))
        .withColumn("group", F.when(F.col("scope") == "group", F.col("group")))
    )


def _whole(lives: DataFrame) -> DataFrame:
    """The jobs that all of their groups have done."""
    return (
        lives.groupBy(*SORTED_LIFE)
        .agg(
            F.when(F.count("done_at") == F.count("*"), F.max("done_at")).alias("done_at"),
            F.when(F.count("first_due") == F.count("*"), F.min("first_due")).alias("first_due"),
        )
        .where(F.col("done_at").isNotNull())
        .withColumns({"group": F.lit(""), "scope": F.lit("job")})
    )


def _percentiles(ends: DataFrame) -> DataFrame:
    """Both times in one pass, as two rows that differ in `kind`."""
    times = F.array(
        F.struct(F.lit("total").alias("kind"), (F.col("done_at") - F.unix_millis("created")).alias("ms")),
        F.struct(F.lit("after_due").alias("kind"), (F.col("done_at") - F.col("first_due")).alias("ms")),
    )
    timed = ends.select(*_KEYS, F.explode(times).alias("time")).select(*_KEYS, "time.kind", "time.ms")
    ranks = ranks_of_many(timed.where(F.col("ms").isNotNull()), [*_KEYS, "kind"], "ms", [*_LEVELS.values()])
    return (
        ranks.groupBy(*_KEYS)
        .agg(*_levels("total", "jobs"), *_levels("after_due", "after_due_jobs"))
        .select(*_KEYS, "jobs", *_names("total"), "after_due_jobs", *_names("after_due"))
    )


def _levels(kind: str, jobs: str) -> list[Column]:
    ms = F.when(F.col("kind") == kind, F.col("ms"))
    values = [*(percentile(ms, at) for at in _LEVELS.values()), F.max(ms)]
    how_many = F.coalesce(F.max(F.when(F.col("kind") == kind, F.col("of"))), F.lit(0))
    return [how_many.alias(jobs), *(value.alias(name) for value, name in zip(values, _names(kind), strict=True))]


def _names(kind: str) -> list[str]:
    return [f"{kind}_{level}_ms" for level in (*_LEVELS, "max")]
