"""Was anything done twice, and how often did a consumer lose a job it had taken?"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .common import share
from .history import History


def duplicates(history: History) -> DataFrame:
    """By topic and group.

    ``done_again``: ends as done beyond the first of the same life and group; ``jobs_done_again`` had any. A life is
    topic, id and ``created``: an id that is used again after its job ended is another job. ``reclaimed``: attempts
    taken over because their TTR passed; ``released``: handed back by a consumer that stopped, or lost with one before
    it was started. ``share_reclaimed``: of all that was started. ``most_reclaimed``: of one job, whose id is
    ``most_reclaimed_id``.
    """
    sums = ("jobs", "attempts", "done_again", "jobs_done_again", "reclaimed", "jobs_reclaimed", "released")
    return (
        history.jobs.groupBy("topic", "group")
        .agg(*(F.sum(name).alias(name) for name in sums), F.max("worst").alias("worst"))
        .select(
            "topic",
            "group",
            *sums,
            share(F.col("reclaimed"), F.col("attempts") + F.col("reclaimed")).alias("share_reclaimed"),
            F.coalesce(F.col("worst.reclaimed"), F.lit(0)).alias("most_reclaimed"),
            F.col("worst.id").alias("most_reclaimed_id"),
        )
    )
