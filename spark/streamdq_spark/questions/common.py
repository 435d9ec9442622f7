"""What the questions share: which rows are attempts, hours, durations, exact percentiles, and complete hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from streamdq.store.history.rows import Event

from ..measures import DEFAULT_TZ

ATTEMPTS = (Event.DONE.value, Event.RETRY.value, Event.DEAD.value)
"""Attempts that ended by themselves: the handler returned or failed, or the job was refused."""

FAILED = (Event.RETRY.value, Event.DEAD.value)
LIFE = ("topic", "id", "created")
"""Identifies one life of a job: after it has ended, its id may be used again, with another ``created``."""
SORTED_LIFE = ("created", "id", "topic")
"""The same, where rows are sorted by it: numbers are compared faster than texts, and hardly any two are alike."""

HOUR_S = 3600
DAY_H = 24
_BUCKETS = 256
WEEK_H = 7 * DAY_H


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


def count_where(condition: Column) -> Column:
    """How many rows meet the condition; null counts as false."""
    return F.count(F.when(condition, 1))


def sum_where(condition: Column) -> Column:
    """How many rows meet the condition, where each stands for `n`; null counts as false."""
    return F.sum(F.when(condition, F.col("n")).otherwise(0))


def late() -> Column:
    """Whether an attempt's lateness is known."""
    return is_attempt() & F.col("started").isNotNull() & F.col("due").isNotNull()


def share(part: Column, whole: Column) -> Column:
    """``part / whole``; null if ``whole`` is 0."""
    return F.when(whole > 0, part / whole)


def hour_number(moment: Column) -> Column:
    """Whole hours since 1970 UTC. Computed by arithmetic, so that the session's time zone does not matter."""
    return F.floor(F.unix_seconds(moment) / HOUR_S)


def hour_start(number: Column) -> Column:
    return F.timestamp_seconds(number * HOUR_S)


def ms_between(earlier: str, later: str) -> Column:
    return F.unix_millis(F.col(later)) - F.unix_millis(F.col(earlier))


def value_counts(counts: DataFrame, keys: Sequence[str], value: str, apart: Sequence[str] = ()) -> DataFrame:
    """keys, apart, value, n, up_to, of: how often each value occurs, how many values of the same keys are not above it,
    and how many there are. Each row of ``counts`` stands for ``n``. Nulls are counted by themselves; rows that differ
    in ``apart`` are not put together.

    Durations in whole milliseconds take few values. Where they take many they are sorted, which may spill to disk, and
    never held in memory, as the aggregate function `percentile` holds them.
    """
    counted = counts.groupBy(*keys, *apart, value).agg(F.sum("n").alias("n"))
    return ranked(counted, [*keys, F.col(value).isNull()], value)


def ranked(counted: DataFrame, same: Sequence[Column | str], value: str) -> DataFrame:
    """Adds up_to and of: how many values of the same keys are not above this one, and how many there are."""
    of_same = Window.partitionBy(*same)
    not_above = of_same.orderBy(value).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return counted.withColumn("up_to", F.sum("n").over(not_above)).withColumn("of", F.sum("n").over(of_same))


def ranks_of_many(values: DataFrame, keys: Sequence[str], value: str, levels: Sequence[float]) -> DataFrame:
    """The rows of ``value_counts`` from which ``percentile`` takes these levels and the maximum. For values, none of
    them null, of which there are too many to be sorted: they are read twice, should be cached, and are not shuffled.
    The keys can't be null.

    The first time they are counted in buckets: 256 for each power of two, so that a bucket never holds much more than
    its share. The second time the few values are sorted that lie in the same bucket as one that is looked for.
    """
    size = F.log2(F.abs(value) + 1)
    bucket = F.floor(F.signum(value) * size * _BUCKETS)
    placed = values.select(*keys, value, bucket.alias("bucket"))
    counted = placed.groupBy(*keys, "bucket").agg(F.count("*").alias("n"))
    last = F.col("of") - 1
    ranks = [rounded(last * at) for at in levels for rounded in (F.floor, F.ceil)]
    below = F.col("up_to") - F.col("n")
    looked_for = [(rank >= below) & (rank < F.col("up_to")) for rank in (*ranks, last)]
    buckets = (
        ranked(counted, keys, "bucket")
        .where(reduce(Column.__or__, looked_for))
        .select(*keys, "bucket", below.alias("below"), "of")
    )
    found = placed.join(F.broadcast(buckets), [*keys, "bucket"]).groupBy(*keys, "bucket", "below", "of", value)
    in_bucket = Window.partitionBy(*keys, "bucket").orderBy(value)
    so_far = F.sum("n").over(in_bucket.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return found.agg(F.count("*").alias("n")).withColumn("up_to", F.col("below") + so_far)


def percentile(value: Column, at: float, over: WindowSpec | None = None) -> Column:
    """Exact, over the rows of ``value_counts`` where ``value`` is not null; they are those of one of its keys.

    Between two values by linear interpolation.
    """

    def of_rows(aggregate: Column) -> Column:
        return aggregate if over is None else aggregate.over(over)

    place = (F.col("of") - 1) * at
    low = of_rows(F.min(F.when(F.col("up_to") > F.floor(place), value)))
    high = of_rows(F.min(F.when(F.col("up_to") > F.ceil(place), value)))
    return low + (high - low) * of_rows(F.max(F.when(value.isNotNull(), place - F.floor(place))))


def median(values: Column) -> Column:
    """The median of a sorted array that is not empty."""
    return quantile(values, 0.5)


def quantile(values: Column, at: float) -> Column:
    """Of a sorted array that is not empty; between two values by linear interpolation."""
    place = (F.size(values) - 1) * F.lit(at)
    low, high = (F.get(values, rounded(place).cast("int")) for rounded in (F.floor, F.ceil))
    return low + (high - low) * (place - F.floor(place))


def clock_hour(number: Column, tz: str) -> Column:
    """The hour that the clocks of the zone show in the hour with this ``hour_number``, counted in the same way; so the
    same hour of the week has the same remainder all year. Where clocks are set back two hours have the same.
    """
    if tz == DEFAULT_TZ:
        return number
    return F.floor(F.unix_seconds(F.from_utc_timestamp(hour_start(number), tz)) / HOUR_S)


def complete_hours(hours: DataFrame, counters: Sequence[str], end: int, longest: int | None = None) -> DataFrame:
    """topic, at, before, counters: one row for each topic and complete hour of the data, zero where nothing happened.
    ``hours``: topic, hour and counters of those in which anything did.

    ``at`` is a ``hour_number``, ``before`` that of the topic's latest event in an earlier hour. The hour of the first
    event and ``end`` and later are left out, as the data may begin or end in their midst. A topic's rows begin with
    the hour after its first event. ``longest``: so many hours after an event there are none until the next one.
    """
    of_topic = Window.partitionBy("topic").orderBy("hour")
    here = F.col("at") == F.col("hour")
    until = F.coalesce("next", "end") - 1
    if longest is not None:
        until = F.least(until, F.col("hour") + longest)
    return (
        hours.withColumn("end", F.lit(end))
        .withColumn("last", F.lag("hour").over(of_topic))
        .withColumn("next", F.lead("hour").over(of_topic))
        .where(F.col("hour") < F.col("end"))
        # Each hour is followed by the empty ones after it.
        .withColumn("at", F.explode(F.sequence("hour", until)))
        .withColumn("before", F.when(here, F.col("last")).otherwise(F.col("hour")))
        .where(F.col("before").isNotNull() & (F.col("at") < F.col("end")))
        .select("topic", "at", "before", *(F.when(here, F.col(name)).otherwise(0).alias(name) for name in counters))
    )


def day_number(day: date) -> int:
    """Whole days since 1970."""
    return (day - date(1970, 1, 1)).days
