"""How much was done, and what else happened, by topic, group and hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamdq.store.history import Event

from .common import count_where, hour_start, is_event, is_released, is_snoozed

MINUTES = 60


def throughput(events: DataFrame) -> DataFrame:
    """The number of each event; jobs that their handler put off count as ``snoozed``, not ``released``.

    ``peak_done_per_minute``: the most jobs done in one minute of the hour. ``done_bytes``: the size of the bodies of
    the jobs done.
    """
    done = is_event(Event.DONE)
    kinds = {event.value: is_event(event) for event in Event}
    kinds |= {Event.RELEASED.value: is_released(), "snoozed": is_snoozed()}
    minutes = events.groupBy(
        "topic", "group", F.floor(F.unix_seconds(F.col("finished")) / MINUTES).alias("minute")
    ).agg(
        *(count_where(condition).alias(kind) for kind, condition in kinds.items()),
        F.sum(F.when(done, F.col("body_bytes"))).alias("done_bytes"),
    )
    return (
        minutes.groupBy("topic", "group", F.floor(F.col("minute") / MINUTES).alias("at"))
        .agg(
            *(F.sum(kind).alias(kind) for kind in kinds),
            F.max(Event.DONE.value).alias("peak_done_per_minute"),
            F.coalesce(F.sum("done_bytes"), F.lit(0)).alias("done_bytes"),
        )
        .select(
            "topic",
            "group",
            hour_start(F.col("at")).alias("hour"),
            *kinds,
            "peak_done_per_minute",
            "done_bytes",
        )
    )
