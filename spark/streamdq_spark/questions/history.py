"""What the questions share: the events of some days, and what several answers are made of, computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import (
    DAY_H,
    FAILED,
    HOUR_S,
    LIFE,
    SORTED_LIFE,
    WEEK_H,
    count_where,
    hour_number,
    is_attempt,
    is_event,
    is_released,
    is_snoozed,
    late,
    ms_between,
    sum_where,
)
from .once import Once, T

MINUTE_S = 60
HOUR_MIN = 60
SNOOZED = "snoozed"
"""What `counts` calls the event of a job that its handler put off; in the history it is one of the released."""
HOUR_MS = HOUR_S * 1000
_OLDER = 2
_OF_A_SLOT = 20_000
"""Events, so that partitions of several slots are about the same size."""
SUMS = ("attempts", "failed", "reclaimed", "released", "worker_ms", "failed_ms", "reclaimed_ms", "put_back_ms",
        "body_bytes", "read_bytes")  # fmt: skip
"""Of lives, what may be added up."""
_OTHER, _DONE, _FAILED, _RECLAIMED, _RELEASED, _SNOOZED = range(6)
"""How a claim ended; other events have none."""
_TYPES = {
    "group": "string", "event": "string", "minute": "long", "hour": "long", "day": "int", "week": "int",
    "late_ms": "long", "step": "int", "timed_out": "boolean", "run_ms": "long",
}  # fmt: skip


class KeptDays:
    """What an earlier run kept of days, as rows of `ByDay`, and what is made with them."""

    def __init__(self, rows: DataFrame | None = None) -> None:
        self.rows = rows
        self.once = Once()


class History:
    """The events that a question may look at. `last_ms`: when the last of them finished; None: Spark looks for it.
    `size`: about how many they are. `many`: whether they are so many that several tasks should share even what is
    counted of them. Otherwise that is kept in one partition, so that what is computed from it needs no shuffle.

    What it computes stays in Spark's cache, or on disk where there is no room, until `forget`. Questions may be asked
    in several threads.
    """

    def __init__(self, events: DataFrame, last_ms: int | None = None, size: int = 0, *, many: bool = True) -> None:
        self.events = events
        self._slots = 1 + size // _OF_A_SLOT
        self._last_ms = last_ms
        self._many = many
        self._past: DataFrame | None = None
        self._kept: list[DataFrame] = []
        self._of_events = Once()
        self._tables = Once()
        self._days = KeptDays()

    def forget(self) -> None:
        for kept in self._kept:
            kept.unpersist()
        self._kept.clear()

    def after(self, past: DataFrame, last_ms: int | None) -> History:
        """The same events after others, of which only the `hours` are known. `last_ms`: of all of them."""
        later = copy(self)  # which shares what is made of the events alone
        later._past, later._last_ms, later._tables = past, last_ms, Once()
        return later

    def beside(self, days: KeptDays) -> History:
        """The same, where of some days before what was kept of each is known."""
        more = copy(self)
        more._days = days
        return more

    @property
    def last_ms(self) -> int | None:
        """When the last event finished, in ms since 1970; None if there is none."""
        if self._last_ms is None:
            self._last_ms = self.events.agg(F.unix_millis(F.max("finished"))).head()[0]  # type: ignore[index]
        return self._last_ms

    @property
    def last_hour(self) -> int:
        """The hour of the last event, as by `hour_number`; 0 if there is none."""
        return (self.last_ms or 0) // HOUR_MS

    @property
    def counts(self) -> DataFrame:
        """How often everything that is counted occurs, `n`, in one pass; `bytes`: of the bodies of jobs done;
        `mover_ms`: how much of the lateness had passed when the jobs were moved.

        Three kinds of rows: `moments`, `lateness` and `durations`; what does not belong to a kind is null in it.
        """
        return self._of_events.get("counts", self._counts)

    def _counts(self) -> DataFrame:
        hour = hour_number(F.col("finished"))
        events = self.events.select(
            "topic",
            "group",
            F.when(is_snoozed(), SNOOZED).otherwise(F.col("event")).alias("event"),
            F.floor(F.unix_seconds("finished") / MINUTE_S).alias("minute"),
            hour.alias("hour"),
            F.floor(hour / DAY_H).cast("int").alias("day"),
            self.week_of(hour).alias("week"),
            "step",
            (F.col("error") == "TimeoutError").alias("timed_out"),
            F.when(late(), ms_between("due", "started")).alias("late_ms"),
            F.when(
                (is_attempt() | is_event(Event.RECLAIMED)) & (F.col("started") <= F.col("finished")),
                ms_between("started", "finished"),
            ).alias("run_ms"),
            F.when(is_event(Event.DONE), F.col("body_bytes")).alias("bytes"),
            F.when(
                late() & F.col("moved").isNotNull(),  # `least` passes over nulls
                F.greatest(F.least(ms_between("due", "moved"), ms_between("due", "started")), F.lit(0)),
            ).alias("mover_ms"),
        )
        # Not by grouping sets: Spark does not find them in its cache where they occur twice in a plan.
        kinds = F.array(
            _row("group", "event", "minute"),
            _row("hour", "late_ms"),
            _row("group", "event", "day", "week", "step", "timed_out", "run_ms"),
        )
        sums = ("bytes", "mover_ms")
        rows = events.select("topic", F.inline(kinds), *sums)
        added = (F.sum(name).alias(name) for name in sums)
        return self.keep_counted(rows.groupBy("topic", *_TYPES).agg(F.count("*").alias("n"), *added))

    @property
    def moments(self) -> DataFrame:
        """topic, group, event, minute (since 1970), hour, n, bytes: of all events."""
        hour = F.floor(F.col("minute") / HOUR_MIN).alias("hour")
        return self.counts.where(F.col("minute").isNotNull()).select(
            "topic", "group", "event", "minute", hour, "n", "bytes"
        )

    @property
    def lateness(self) -> DataFrame:
        """topic, hour, late_ms, n, mover_ms: of the attempts whose lateness is known."""
        known = F.col("hour").isNotNull() & F.col("late_ms").isNotNull()
        return self.counts.where(known).select("topic", "hour", "late_ms", "n", "mover_ms")

    @property
    def durations(self) -> DataFrame:
        """topic, group, event, day (since 1970), week, step, timed_out, run_ms, n: of attempts, also of those that were
        taken over. `run_ms` is null if the start is not known or is after the end.
        """
        rest = F.col("minute").isNull() & F.col("hour").isNull()
        return self.counts.where(rest & (is_attempt() | is_event(Event.RECLAIMED))).select(
            "topic", "group", "event", "day", "week", "step", "timed_out", "run_ms", "n"
        )

    def week_of(self, hour: Column) -> Column:
        """The week of an hour, as by `hour_number`: 0 are the seven days that end with the hour of the last event, 1
        the seven days before, 2 all before.
        """
        return F.least(F.floor((F.lit(self.last_hour) - hour) / WEEK_H), F.lit(_OLDER)).cast("int")

    def hours(self, slo_ms: int) -> DataFrame:
        """topic, hour, attempts, done, failed, late: of each hour in which anything happened. `late`: attempts that
        started later than `slo_ms`.
        """
        return self.once(f"hours {slo_ms}", lambda: self._counted_hours(slo_ms))

    def _counted_hours(self, slo_ms: int) -> DataFrame:
        # Rows of moments have an event, those of lateness a lateness.
        hour = F.coalesce("hour", F.floor(F.col("minute") / HOUR_MIN))
        hours = self.counts.where(hour.isNotNull()).groupBy("topic", hour.alias("hour"))
        counted = hours.agg(
            sum_where(is_attempt()).alias("attempts"),
            sum_where(is_event(Event.DONE)).alias("done"),
            sum_where(F.col("event").isin(*FAILED)).alias("failed"),
            sum_where(F.col("late_ms") > slo_ms).alias("late"),
        )
        return counted if self._past is None else counted.unionByName(self._past)

    @property
    def jobs(self) -> DataFrame:
        """By topic, group and key (null: none), and in slots, so that no row is of too many: jobs, whose lives these
        are; the sums of what `lives` tells of them; jobs_done_again, done_again, jobs_reclaimed; worst:
        reclaimed and id of the job that was taken over most often. Of those that are done: total and after_due, how
        long each took, in ms, from when it was created, and from its first due time; where these are known.
        """
        return self._of_events.get("jobs", self._jobs)

    def _jobs(self) -> DataFrame:
        is_lost = F.col("reclaimed") > 0
        known = F.col("created").isNotNull()
        return self.keep(
            self.lives()
            # Here, as to keep each life takes as long as to find it.
            .groupBy("slot", "topic", "group", "key")
            .agg(
                F.count("*").alias("jobs"),
                *(F.sum(name).alias(name) for name in SUMS),
                count_where(F.col("done") > 1).alias("jobs_done_again"),
                F.sum(F.greatest(F.col("done") - 1, F.lit(0))).alias("done_again"),
                count_where(is_lost).alias("jobs_reclaimed"),
                F.max(F.when(is_lost, F.struct("reclaimed", "id"))).alias("worst"),
                F.collect_list(F.when(known, F.col("done_at") - F.unix_millis("created"))).alias("total"),
                F.collect_list(F.when(known, F.col("done_at") - F.col("first_due"))).alias("after_due"),
            )
        )

    def lives(self, topics: Collection[str] | None = None) -> DataFrame:
        """One row for each life of a job in a group, of all topics or these: topic, id, created, group; attempts, done,
        reclaimed, released: how often; failed: of the attempts; done_at (null: not done) and first_due (null: not
        seen), in ms; worker_ms: how long attempts ran, also those that did not count; failed_ms, reclaimed_ms,
        put_back_ms: parts of it; body_bytes: of the job's body; read_bytes: once for each of its claims; key: null: it
        has none. slot: lives of a job have the same, by which the rows are partitioned.
        """
        # A retry or kick has its own due time, which may be earlier if the clock was set back.
        first = (F.col("event") != Event.KICKED.value) & (F.col("attempt") <= 1)
        ran = F.when(F.col("started") <= F.col("finished"), ms_between("started", "finished"))
        claimed = F.col("how") != _OTHER
        events = self.events if topics is None else self.events.where(F.col("topic").isin(*topics))
        needed = events.withColumn("how", _how()).select(
            *LIFE,
            F.pmod(F.xxhash64("created", "id"), F.lit(self._slots)).alias("slot"),
            "group",
            "how",
            F.when(claimed, F.coalesce(ran, F.lit(0))).alias("ran_ms"),
            "body_bytes",
            "key",
            F.when(F.col("how") == _DONE, F.unix_millis("finished")).alias("done_at"),
            F.when(first, F.unix_millis("due")).alias("first_due"),
        )
        ended = F.col("how").isin
        # By slot, so that lives can be combined without another shuffle; before the events are counted, as hardly any
        # two of them are of one life.
        return (
            needed.repartition("slot")
            .groupBy(*SORTED_LIFE, "slot", "group")
            .agg(
                count_where(ended(_DONE, _FAILED)).alias("attempts"),
                count_where(ended(_DONE)).alias("done"),
                count_where(ended(_RECLAIMED)).alias("reclaimed"),
                count_where(ended(_RELEASED)).alias("released"),
                count_where(ended(_FAILED)).alias("failed"),
                _sum_of("ran_ms").alias("worker_ms"),
                _sum_of("ran_ms", ended(_FAILED)).alias("failed_ms"),
                _sum_of("ran_ms", ended(_RECLAIMED)).alias("reclaimed_ms"),
                _sum_of("ran_ms", ended(_RELEASED, _SNOOZED)).alias("put_back_ms"),
                F.coalesce(F.max("body_bytes"), F.lit(0)).alias("body_bytes"),
                F.max("key").alias("key"),
                _sum_of("body_bytes", F.col("ran_ms").isNotNull()).alias("read_bytes"),
                F.max("done_at").alias("done_at"),
                F.min("first_due").alias("first_due"),
            )
        )

    @property
    def troubled(self) -> DataFrame:
        """The events of jobs that did not end at their first attempt, as far as they tell of retries, of burials and of
        what was sent back.
        """
        return self._of_events.get("troubled", self._troubled)

    def _troubled(self) -> DataFrame:
        needed = ("entry", "event", "group", "consumer", "attempt", "step", "due", "finished", "error", "reason")
        not_first = is_event(Event.RETRY, Event.DEAD, Event.KICKED) | (F.col("attempt") > 1)
        return self.keep(self.events.where(not_first).select(*LIFE, *needed))

    @property
    def topics_of_groups(self) -> list[str]:
        """The topics that several groups work on."""
        return self._of_events.get("topics_of_groups", self._topics_of_groups)

    def _topics_of_groups(self) -> list[str]:
        groups = self.moments.groupBy("topic").agg(F.count_distinct("group").alias("groups"))
        return [row["topic"] for row in groups.where(F.col("groups") > 1).collect()]

    def once(self, name: str, table: Callable[[], DataFrame]) -> DataFrame:
        """A table that another question uses, too."""
        return self._tables.get(name, lambda: self.keep(table()))

    def once_of_events(self, name: str, table: Callable[[], DataFrame]) -> DataFrame:
        """The same, of a table for which it does not matter what is known of other days."""
        return self._of_events.get(name, lambda: self.keep(table()))

    def once_of_days(self, name: str, make: Callable[[DataFrame | None], T]) -> T:
        """What is made of the events and of what was kept of days before."""
        return self._days.once.get(name, lambda: make(self._days.rows))

    def once_counted(self, name: str, table: Callable[[], DataFrame]) -> DataFrame:
        """The same, in one partition unless there are `many` events."""
        return self._of_events.get(name, lambda: self.keep_counted(table()))

    def keep(self, table: DataFrame) -> DataFrame:
        """The table, which Spark computes once."""
        self._kept.append(table.persist())
        return table

    def keep_counted(self, table: DataFrame) -> DataFrame:
        """The same, in one partition unless there are `many` events."""
        return self.keep(table if self._many else table.coalesce(1))


def _how() -> Column:
    """How a claim of the job ended, as a number, which takes less room in a shuffle than texts or a column for each."""
    return (
        F.when(is_event(Event.DONE), _DONE)
        .when(F.col("event").isin(*FAILED), _FAILED)
        .when(is_event(Event.RECLAIMED), _RECLAIMED)
        .when(is_released(), _RELEASED)
        .when(is_event(Event.RELEASED), _SNOOZED)
        .otherwise(_OTHER)
    )


def _sum_of(name: str, condition: Column | None = None) -> Column:
    """Where the condition is met; 0 where nothing is known."""
    value = F.col(name) if condition is None else F.when(condition, F.col(name))
    return F.coalesce(F.sum(value), F.lit(0))


def _row(*columns: str) -> Column:
    """These columns of the events; the others are null."""
    nothing = F.lit(None)
    return F.struct(
        *((F.col(name) if name in columns else nothing).cast(kind).alias(name) for name, kind in _TYPES.items())
    )
