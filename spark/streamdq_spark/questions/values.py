"""How often each lateness and running time occurred, by day: enough for `changes`, and small enough to be kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history import Event

from .common import DAY_H, HOUR_S, WEEK_H, day_number, is_attempt, is_event, late, ms_between

LATENESS, DURATION = "lateness", "duration"
COLUMNS = ("topic", "kind", "event", "ms", "n")
_DAY_MS = DAY_H * HOUR_S * 1000
_WEEK_MS = WEEK_H * HOUR_S * 1000


def week_of(day: date, last_ms: int) -> int | None:
    """In which week before the last event all of this UTC day is: 0, the seven days that end with it, and so on. None:
    the day is of two weeks, or not over.
    """
    start = day_number(day) * _DAY_MS
    first, last = ((last_ms - ms) // _WEEK_MS for ms in (start, start + _DAY_MS - 1))
    return first if first == last else None


def on_days(days: Iterable[date]) -> Column:
    """Whether an event finished on one of these UTC days."""
    return _day().isin(sorted({day_number(day) for day in days}))


def values_of(events: DataFrame, last_ms: int | None) -> DataFrame:
    """By day (since 1970), week, topic, kind, event and ms: ``n``. ``lateness``: of attempts of which it is known;
    ``event`` is null. ``duration``: of all attempts; ``ms``, how long they ran, is null if they were not done or it is
    not known.
    """
    age_ms = F.lit(last_ms).cast("long") - F.unix_millis("finished")
    ran = F.when(is_event(Event.DONE) & (F.col("started") <= F.col("finished")), ms_between("started", "finished"))
    kinds = F.array(
        F.struct(
            F.lit(LATENESS).alias("kind"),
            F.lit(None).cast("string").alias("event"),
            F.when(late(), ms_between("due", "started")).alias("ms"),
        ),
        F.struct(F.lit(DURATION).alias("kind"), F.col("event"), ran.alias("ms")),
    )
    week = F.floor(age_ms / _WEEK_MS).cast("int")
    keys = ("day", "week", "topic", "kind", "event", "ms")
    return (
        events.where(is_attempt())
        .select(_day().alias("day"), week.alias("week"), "topic", F.explode(kinds).alias("one"))
        .select("day", "week", "topic", "one.*")
        .where((F.col("kind") == DURATION) | F.col("ms").isNotNull())
        .groupBy(*keys)
        .agg(F.count("*").alias("n"))
    )


def _day() -> Column:
    return F.floor(F.unix_millis("finished") / _DAY_MS)
