"""How long jobs take until they are done, from when they were created and from when they were due."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .common import SORTED_LIFE, percentile, ranks_of_many
from .history import History

_LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
SCOPES = ("group", "job")
KINDS = ("total", "after_due")
_KEYS = ("scope", "topic", "group")


def time_to_finish(history: History) -> DataFrame:
    """By topic and group; ``scope`` is ``group``, or ``job`` (group null) for the job as a whole: until the last of
    its groups is through, of jobs that each group seen has done.

    ``total_…``: from ``created``. ``after_due_…``: from the first due time, over ``after_due_jobs``: those whose first
    attempt is in the data.
    """
    several = history.topics_of_groups
    times = _times(history.jobs.withColumn("scope", F.lit("group")))
    if several:
        times = times.unionByName(history.keep(_times(_whole(history.lives(several)))))
    # Where a topic has one group only, that is all of the job.
    scopes = F.when(F.col("topic").isin(several) | (F.col("scope") == "job"), F.array("scope"))
    return (
        _percentiles(times)
        .withColumn("scope", F.explode(scopes.otherwise(F.array(*map(F.lit, SCOPES)))))
        .withColumn("group", F.when(F.col("scope") == "group", F.col("group")))
    )


def _whole(lives: DataFrame) -> DataFrame:
    """The jobs that all of their groups have done."""
    known = lives.where(F.col("created").isNotNull())
    return (
        known.groupBy(*SORTED_LIFE, "slot")
        .agg(
            F.when(F.count("done_at") == F.count("*"), F.max("done_at")).alias("done_at"),
            F.when(F.count("first_due") == F.count("*"), F.min("first_due")).alias("first_due"),
        )
        .select(
            F.lit("job").alias("scope"),
            "topic",
            F.lit("").alias("group"),
            F.array(F.col("done_at") - F.unix_millis("created")).alias("total"),
            F.array(F.col("done_at") - F.col("first_due")).alias("after_due"),
        )
    )


def _times(jobs: DataFrame) -> DataFrame:
    """scope, topic, group, kind, ms: a row for each time of `total` and `after_due`."""
    kinds = F.array(*(F.struct(F.lit(kind).alias("kind"), F.col(kind).alias("each")) for kind in KINDS))
    of_kind = jobs.select(*_KEYS, F.explode(kinds).alias("one")).select(*_KEYS, "one.*")
    return of_kind.select(*_KEYS, "kind", F.explode("each").alias("ms")).where(F.col("ms").isNotNull())


def _percentiles(times: DataFrame) -> DataFrame:
    ranks = ranks_of_many(times, [*_KEYS, "kind"], "ms", [*_LEVELS.values()])
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
