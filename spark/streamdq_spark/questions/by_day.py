"""What the questions about the last two weeks need of each UTC day, computed from the attempts that ended on that day
alone. So it is kept (`day_values`), and a later run reads the events of its own days only.

It grows with queues, workers, hours and classes of errors, and with how many different times there were in whole
milliseconds, not with jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import (
    DAY_H,
    FAILED,
    HOUR_S,
    day_number,
    entry_order,
    hour_number,
    is_attempt,
    is_event,
    ms_between,
    percentile,
    value_counts,
)
from .history import HOUR_MS, History
from .once import Once
from .workers import MOST_HOURS, workers_once

DAYS = 14
PARTS = 10
"""A window has so many buckets."""
SLOW = 0.9
"""An attempt is slow that takes longer than this share of those of its topic, group and day that were done."""
QUEUE = ("topic", "group")
PROCESS = r"-\d+-[0-9a-z]{10}$"
"""What comes after the host in a consumer's name: its process and when that began."""
KEPT = {
    "kind": "string", "day": "int", "topic": "string", "group": "string", "event": "string", "ms": "long",
    "consumer": "string", "hour": "long", "known": "boolean", "n": "long", "failed": "long", "timed": "long",
    "slow": "long", "slots": "double", "most": "long", "ended": "long", "error": "string", "host": "string",
    "first": "long", "last": "long",
    "newest": "struct<at:bigint,entry:struct<ms:bigint,number:decimal(20,0)>,id:string>",
}  # fmt: skip
"""The columns of what is kept, and their types; those that a kind of rows does not have are null in it."""


class ByDay:
    """The days of a history, and days before of which rows were kept, with the columns `KEPT`. No row depends on the
    events of another day.
    """

    def __init__(self, history: History, slo_ms: int, past: DataFrame | None) -> None:
        self.history, self.slo_ms = history, slo_ms
        self._past = past
        self._own = Once()

    def took(self) -> DataFrame:
        """topic, group, event, day, week, ms, n: attempts of the last two weeks, by how long they ran (null: not
        known).
        """
        return self._recent("took")

    def late(self) -> DataFrame:
        """topic, day, week, ms, n: attempts of the last two weeks whose lateness is known, by that."""
        return self._recent("late")

    def tried(self) -> DataFrame:
        """topic, group, consumer, day, hour (in which it ended), known (whether it is among the `ready`); n: how many
        such attempts of the last two weeks; failed, timed, slow: of them. `timed`: those that were done and whose time
        is known.
        """
        return self._recent("tried")

    def ready(self) -> DataFrame:
        """topic, group, day, hour, slots, n: so many attempts of the last two weeks became ready in this hour when so
        many slots were needed: those that became ready within a window run beside each other.

        A window is the mean time of the queue's attempts of the day, or the SLO if that is longer. Attempts without a
        time of which it is known when they were ready are left out on days without any.
        """
        return self._recent("ready")

    def ran(self) -> DataFrame:
        """group, consumer, day, hour, most, ended: how many attempts ran at once at most, of those that ended on the
        day of the hour, and how many ended in it.
        """
        return self._rows("ran")

    def failed(self) -> DataFrame:
        """The rows of `failures`, of all days."""
        return self._rows("failed")

    def to_keep(self, days: Collection[date]) -> DataFrame:
        """All of these days of the history, with the columns `KEPT`."""
        numbers = [day_number(day) for day in days]
        kinds = (
            self.of_history(kind).where(F.col("day").isin(numbers)).withColumn("kind", F.lit(kind)) for kind in _KINDS
        )
        rows = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), kinds)
        return rows.select(*(F.col(name).cast(kind).alias(name) for name, kind in KEPT.items()))

    def _recent(self, kind: str) -> DataFrame:
        return self._rows(kind, F.col("week") < 2)

    def _rows(self, kind: str, wanted: Column | None = None) -> DataFrame:
        """`wanted`: of what was kept; of the history's own events, there is nothing else."""
        own = self.of_history(kind)
        if self._past is None:
            return own
        past = self._past.where(F.col("kind") == kind).withColumn("week", self.history.week_of(F.col("day") * DAY_H))
        return own.unionByName((past if wanted is None else past.where(wanted)).select(*own.columns))

    def of_history(self, kind: str) -> DataFrame:
        """The rows of this kind that are of the history's own events."""
        return self._own.get(kind, lambda: _KINDS[kind](self))

    def times(self) -> DataFrame:
        """t_topic, t_group, t_day, attempt_ms, window_ms, limit: of the history's own events."""
        return self._own.get("times", lambda: self.history.keep(prefixed(_times(self), "t")))


def by_day(history: History, slo_ms: int) -> ByDay:
    return history.once_of_days(f"by day {slo_ms}", lambda past: ByDay(history, slo_ms, past))


def failures(history: History) -> DataFrame:
    """topic, group, error, host, day, hour, n, first and last (ms), newest (with its id)."""

    def found() -> DataFrame:
        ended = F.unix_millis("finished")
        hour = hour_number(F.col("finished"))
        failed = history.troubled.where(F.col("event").isin(*FAILED) & F.col("error").isNotNull())
        return failed.groupBy(*QUEUE, "error", host().alias("host"), _day(hour), hour.alias("hour")).agg(
            F.count("*").alias("n"),
            F.min(ended).alias("first"),
            F.max(ended).alias("last"),
            F.max(F.struct(ended.alias("at"), entry_order().alias("entry"), "id")).alias("newest"),
        )

    return history.once_of_events("failures", found)


def host() -> Column:
    return F.regexp_replace("consumer", PROCESS, "")


def same_queue(prefix: str) -> list[Column]:
    """The group may be null."""
    return [F.col(f"{prefix}_{key}").eqNullSafe(F.col(key)) for key in QUEUE]


def prefixed(rows: DataFrame, prefix: str) -> DataFrame:
    return rows.withColumnsRenamed({key: f"{prefix}_{key}" for key in QUEUE})


def mean_ms() -> Column:
    """Of attempts, each row of which stands for `n`; at least 1. No more hours of an attempt count than `workers` has
    of it, so that what becomes ready within a window is within few hours although a clock was wrong by years.
    """
    counted = F.least("ms", F.lit(MOST_HOURS * HOUR_MS))
    return F.greatest(F.sum(counted * F.col("n")) / F.sum("n"), F.lit(1.0))


def window_ms(slo_ms: int) -> Column:
    return F.greatest("attempt_ms", F.lit(float(slo_ms)))


# -- of the events of a history


def _took(days: ByDay) -> DataFrame:
    rows = days.history.durations.where(is_attempt() & (F.col("week") < 2)).withColumnRenamed("run_ms", "ms")
    of_day = rows.groupBy(*QUEUE, "event", "day", "week", "ms").agg(F.sum("n").alias("n"))
    return days.history.keep_counted(of_day)


def _late(days: ByDay) -> DataFrame:
    week = days.history.week_of(F.col("hour"))
    rows = days.history.lateness.withColumn("week", week).where(F.col("week") < 2)
    of_day = rows.groupBy("topic", _day(F.col("hour")), "week", F.col("late_ms").alias("ms"))
    return of_day.agg(F.sum("n").alias("n"))


def _tried(days: ByDay) -> DataFrame:
    took = F.when(is_event(Event.DONE) & (F.col("started") <= F.col("finished")), ms_between("started", "finished"))
    return days.history.keep(
        _attempts(days)
        .select(
            *QUEUE, "consumer", "day",
            hour_number(F.col("finished")).alias("hour"),
            _bucket().isNotNull().alias("known"),
            F.col("event").isin(*FAILED).cast("int").alias("failed"),
            took.isNotNull().cast("int").alias("timed"),
            F.coalesce(took > F.col("limit"), F.lit(False)).cast("int").alias("slow"),
        )
        .groupBy(*QUEUE, "consumer", "day", "hour", "known")
        .agg(F.count("*").alias("n"), *(F.sum(name).alias(name) for name in ("failed", "timed", "slow")))
    )  # fmt: skip


def _ready(days: ByDay) -> DataFrame:
    # An hour of a queue at a time, so that they are shared evenly; with what came in the windows that end in it.
    of_hour = Window.partitionBy(*QUEUE, "day", "hour")
    window = of_hour.orderBy("bucket").rangeBetween(1 - PARTS, 0)
    begin, end = (F.floor((F.col("bucket") + n) * F.col("window_ms") / PARTS) for n in (0, PARTS))
    counts_in = F.sequence(F.floor((begin - 1) / HOUR_MS), F.floor((end + 1) / HOUR_MS))  # more does no harm
    arrived = _attempts(days).select(
        *QUEUE, "day", F.floor(_ready_ms() / HOUR_MS).alias("at"), _bucket().alias("bucket"), "attempt_ms", "window_ms"
    )
    return days.history.keep(
        arrived.where(F.col("bucket").isNotNull())
        .withColumn("hour", F.explode(counts_in))
        .repartition(*QUEUE, "hour")  # before they are counted, as there are few in a bucket
        .groupBy(*QUEUE, "day", "hour", "at", "bucket", "attempt_ms", "window_ms")
        .agg(F.count("*").alias("n"))
        .withColumn("slots", F.sum("n").over(window) * F.col("attempt_ms") / F.col("window_ms"))
        .where(F.col("at") == F.col("hour"))
        .groupBy(*QUEUE, "day", "hour", "slots")
        .agg(F.sum("n").alias("n"))
    )


def _ran(days: ByDay) -> DataFrame:
    hour = hour_number(F.col("hour"))
    of_day = workers_once(days.history).where(F.col("most_of_day").isNotNull())
    return of_day.select(
        "group", "consumer", _day(hour), hour.alias("hour"), F.col("most_of_day").cast("long").alias("most"), "ended"
    )


def _failed(days: ByDay) -> DataFrame:
    return failures(days.history)


_KINDS: dict[str, Callable[[ByDay], DataFrame]] = {
    "took": _took, "late": _late, "tried": _tried, "ready": _ready, "ran": _ran, "failed": _failed
}  # fmt: skip


def _attempts(days: ByDay) -> DataFrame:
    """The attempts of the last two weeks, with their day, and its attempt_ms, window_ms and limit of their queue."""
    since = (days.history.last_hour - DAYS * DAY_H + 1) * HOUR_MS
    recent = F.col("finished") >= F.timestamp_millis(F.lit(since))  # so that Spark skips the files of other days
    attempts = days.history.events.where(recent & is_attempt())
    attempts = attempts.withColumn("day", F.floor(F.unix_seconds("finished") / (DAY_H * HOUR_S)).cast("int"))
    return attempts.join(F.broadcast(days.times()), [*same_queue("t"), F.col("t_day") == F.col("day")], "left")


def _times(days: ByDay) -> DataFrame:
    """topic, group, t_day, attempt_ms, window_ms, limit."""
    known = days.of_history("took").where(F.col("ms").isNotNull()).withColumn("done", is_event(Event.DONE))
    of_done = F.when(F.col("done"), F.col("ms"))
    return (
        value_counts(known, [*QUEUE, "day", "done"], "ms")
        .groupBy(*QUEUE, F.col("day").alias("t_day"))
        .agg(mean_ms().alias("attempt_ms"), percentile(of_done, SLOW).alias("limit"))
        .select(*QUEUE, "t_day", "attempt_ms", window_ms(days.slo_ms).alias("window_ms"), "limit")
    )


def _ready_ms() -> Column:
    return F.unix_millis(F.coalesce(F.greatest("moved", "due"), "started"))


def _bucket() -> Column:
    return F.floor(_ready_ms() * PARTS / F.col("window_ms"))


def _day(hour: Column) -> Column:
    return F.floor(hour / DAY_H).cast("int").alias("day")
