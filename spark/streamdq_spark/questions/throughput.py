"""How much was done, and what else happened, by topic, group and hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import hour_start, is_event, sum_where
from .history import SNOOZED, History


def throughput(history: History) -> DataFrame:
    """The number of each event; jobs that their handler put off count as ``snoozed``, not ``released``.

    ``peak_done_per_minute``: the most jobs done in one minute of the hour. ``done_bytes``: the size of the bodies of
    the jobs done.
    """
    kinds = [*(event.value for event in Event), SNOOZED]
    done = is_event(Event.DONE)
    return (
        history.moments.groupBy("topic", "group", "hour")
        .agg(
            *(sum_where(F.col("event") == kind).alias(kind) for kind in kinds),
            F.coalesce(F.max(F.when(done, F.col("n"))), F.lit(0)).alias("peak_done_per_minute"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("done_bytes"),
        )
        .select(
            "topic",
            "group",
            hour_start(F.col("hour")).alias("hour"),
            *kinds,
            "peak_done_per_minute",
            "done_bytes",
        )
    )
