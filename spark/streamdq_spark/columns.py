"""What parts that are written for Spark's DataFrames share: which rows are attempts, durations, the order of events."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

ATTEMPTS = (Event.DONE.value, Event.RETRY.value, Event.DEAD.value)
"""Attempts that ended by themselves: the handler returned or failed, or the job was refused."""
FAILED = (Event.RETRY.value, Event.DEAD.value)
LIFE = ("topic", "id", "created")
"""Identifies one life of a job: after it has ended, its id may be used again, with another ``created``."""


def is_attempt() -> Column:
    return F.col("event").isin(*ATTEMPTS)


def is_event(*events: Event) -> Column:
    return F.col("event").isin(*(event.value for event in events))


def is_snoozed() -> Column:
    """Whether the handler snoozed the job. Its row is that of a released attempt, with the handler's exception."""
    return is_event(Event.RELEASED) & F.col("error").isNotNull()


def is_released() -> Column:
    """Whether the job was handed back because its worker stopped, or was lost before it started the job."""
    return is_event(Event.RELEASED) & F.col("error").isNull()


def entry_order() -> Column:
    """The order of events within a shard. Times are not enough, as clocks may be set back, and a millisecond is
    long.
    """
    ms, number = (F.substring_index("entry", "-", at) for at in (1, -1))
    return F.struct(ms.cast("long").alias("ms"), number.cast("decimal(20,0)").alias("number"))


def late() -> Column:
    """Whether an attempt's lateness is known."""
    return is_attempt() & F.col("started").isNotNull() & F.col("due").isNotNull()


def share(part: Column, whole: Column) -> Column:
    """``part / whole``; null if ``whole`` is 0."""
    return F.when(whole > 0, part / whole)


def ms_between(earlier: str, later: str) -> Column:
    return F.unix_millis(F.col(later)) - F.unix_millis(F.col(earlier))
