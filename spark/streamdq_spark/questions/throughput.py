"""How much was done, and what else happened, by topic, group and hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamdq.history import Event

from .common import count_where, hour_start, is_event

MINUTES = 60


def throughput(events: DataFrame) -> DataFrame:
    """Rows of each event. ``peak_done_per_minute``: the most that were done in one minute of the hour.
    ``done_bytes``: the bodies of what was done.
    """
    done = is_event(Event.DONE)
    minutes = events.groupBy(
        "topic", "group", F.floor(F.unix_seconds(F.col("finished")) / MINUTES).alias("minute")
    ).agg(
        *(count_where(is_event(event)).alias(event.value) for event in Event),
        F.sum(F.when(done, F.col("body_bytes"))).alias("done_bytes"),
    )
    return (
        minutes.groupBy("topic", "group", F.floor(F.col("minute") / MINUTES).alias("at"))
        .agg(
            *(F.sum(event.value).alias(event.value) for event in Event),
            F.max(Event.DONE.value).alias("peak_done_per_minute"),
            F.coalesce(F.sum("done_bytes"), F.lit(0)).alias("done_bytes"),
        )
        .select(
            "topic",
            "group",
            hour_start(F.col("at")).alias("hour"),
            *(event.value for event in Event),
            "peak_done_per_minute",
            "done_bytes",
        )
    )
