"""Why jobs were given up: by reason and error."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import SORTED_LIFE, count_where, entry_order, is_event, share
from .history import History


def dead_letters(history: History) -> DataFrame:
    """By topic, group, reason (exhausted, buried, invalid, crashed) and error, an exception's class or null.

    ``share``: of the group's burials. ``kicked``: how many of them were sent back afterwards. ``last_id``: the job
    buried last, as an example to look at. A job that was kicked and buried again counts twice, and once as kicked.
    """
    of_job = Window.partitionBy(*SORTED_LIFE, "group").orderBy(entry_order())
    first, last = F.min("finished").alias("first"), F.max("finished").alias("last")
    return (
        history.troubled.where(is_event(Event.DEAD, Event.KICKED))
        .withColumn("next", F.lead("event").over(of_job))
        .where(is_event(Event.DEAD))
        .groupBy("topic", "group", "reason", "error")
        .agg(
            F.count("*").alias("dead"),
            count_where(F.col("next") == Event.KICKED.value).alias("kicked"),
            F.max("attempt").alias("most_attempts"),
            first,
            last,
            F.max(F.struct(entry_order().alias("order"), "id")).alias("latest"),
        )
        .select(
            "topic",
            "group",
            "reason",
            "error",
            "dead",
            "kicked",
            share(F.col("dead"), F.sum("dead").over(Window.partitionBy("topic", "group"))).alias("share"),
            "most_attempts",
            "first",
            "last",
            F.col("latest.id").alias("last_id"),
        )
    )
