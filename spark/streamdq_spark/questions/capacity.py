"""How many workers the coming hours need, so that attempts start within the objective."""

from __future__ import annotations

from datetime import datetime
from statistics import NormalDist

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..measures import BUSY, DEFAULT_TZ, OBJECTIVE, SLO_MS
from .common import (
    DAY_H,
    HOUR_S,
    clock_hour,
    count_where,
    hour_number,
    hour_start,
    is_attempt,
    ms_between,
    percentile,
    ranked,
    value_counts,
)
from .forecast import HOURS, forecast
from .history import HOUR_MS, History
from .pools import pool_numbers
from .retries import waits
from .tried import DAYS, PARTS, QUEUE, arrivals, durations, prefixed, same_queue, tried
from .workers import workers

_BANDS = ("load_low", "load", "load_high")


def capacity(
    history: History,
    waiting: DataFrame | None = None,
    *,
    start: datetime | None = None,
    slo_ms: int = SLO_MS,
    objective: float = OBJECTIVE,
    tz: str = DEFAULT_TZ,
    hours: int = HOURS,
) -> DataFrame:
    """By topic, group and coming hour: ``load``, attempts that come due, and the ``slots`` (attempts at once) and
    ``workers`` that they need, so that the share ``objective`` of them starts within ``slo_ms``; each with a band.

    ``load``: the group's part of the forecast. If what waits is known, this, and of the forecast the part that is not
    enqueued yet, as told by how long before they were due attempts were. Its band is that of the forecast.

    ``slots``: what becomes ready within an attempt's mean time (or the SLO, if that is longer) has to be worked on at
    once. Measured at each attempt of the last ``DAYS``, so bursts count as they come; of the same hour of the day the
    quantile ``objective``. For another load than that hour's mean, what is above the mean grows with the load or its
    root, whichever is more. At least as much as chance alone needs, by the root of the load: the load of a system with
    infinitely many servers and square-root staffing (Jennings, Mandelbaum, Massey, Whitt, Server Staffing to Meet
    Time-Varying Demand, 1996).

    ``pool``: the number of the queues that share workers. ``concurrency``: of one of its workers, the median of the
    most each was seen to run at once. ``workers``, of the whole pool: all its slots over 80 % of the concurrency, the
    same in each row of the pool and hour. ``workers_seen``: how many worked in an hour of the last day, the median.
    What is not known is null.
    """
    if history.last_ms is None and waiting is None:
        return _nothing(history.events.sparkSession)
    coming = _coming(history, waiting, start, hours, slo_ms, tz)
    past = history.keep(_past(history, slo_ms, objective, tz))  # it is joined twice
    needed = _slots(coming, past, slo_ms, objective, tz)
    of_pool = Window.partitionBy("pool", "at")
    staffed = needed.join(_pools(history, slo_ms), same_queue("p"), "left").drop("p_topic", "p_group")
    names = ("low", "", "high")
    totals = {
        _name("workers", name): F.when(
            F.col("concurrency").isNotNull(),
            F.ceil(F.round(F.sum(_name("slots", name)).over(of_pool) / (BUSY * F.col("concurrency")), 6)),
        )
        for name in names
    }
    return staffed.select(
        *QUEUE,
        hour_start(F.col("at")).alias("hour"),
        *_BANDS,
        "attempt_ms",
        *(_name("slots", name) for name in names),
        "pool",
        "concurrency",
        *(column.alias(name) for name, column in totals.items()),
        "workers_seen",
    )


_SCHEMA = (
    "topic string, group string, hour timestamp, load_low double, load double, load_high double, attempt_ms double, "
    "slots_low double, slots double, slots_high double, pool int, concurrency double, workers_low long, workers long, "
    "workers_high long, workers_seen double"
)


def _nothing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], _SCHEMA)


def _name(what: str, end: str) -> str:
    return f"{what}_{end}" if end else what


# -- what comes


def _coming(
    history: History, waiting: DataFrame | None, start: datetime | None, hours: int, slo_ms: int, tz: str
) -> DataFrame:
    """topic, group, at, load_low, load, load_high."""
    told = forecast(history, waiting, hours=hours, start=start, slo_ms=slo_ms, tz=tz)
    told = told.withColumn("at", hour_number(F.col("hour")))
    still: Column = F.lit(1.0)
    if waiting is not None:
        now_ms = history.last_ms if start is None else round(start.timestamp() * 1000)
        told = told.join(F.broadcast(_enqueued_later(history, now_ms or 0, hours)), "topic", "left")
        place = (F.col("at") - (now_ms or 0) // HOUR_MS).cast("int")
        still = F.coalesce(F.get("later", place), F.lit(1.0))
    known = F.col("expected").isNotNull() | F.col("waiting").isNotNull()
    part = F.coalesce("part", F.lit(1.0))
    loads = (
        F.when(known, F.coalesce("waiting", F.lit(0)) + F.coalesce(name, F.lit(0.0)) * still * part).alias(load)
        for name, load in zip(("low", "expected", "high"), _BANDS, strict=True)
    )
    return told.join(F.broadcast(_parts(history)), "topic", "left").select("topic", "group", "at", *loads)


def _parts(history: History) -> DataFrame:
    """topic, group, part: of the topic's attempts."""
    of_groups = durations(history).groupBy(*QUEUE).agg(F.sum("n").alias("attempts"))
    in_all = F.sum("attempts").over(Window.partitionBy("topic"))
    return of_groups.select(*QUEUE, (F.col("attempts") / in_all).alias("part"))


def _enqueued_later(history: History, now_ms: int, hours: int) -> DataFrame:
    """topic, later: for each coming hour, of what is due then the share that is not enqueued by now. That of a retry
    is its wait after the failure.
    """
    recent = F.unix_millis("finished") > F.lit(history.last_ms).cast("long") - DAYS * DAY_H * HOUR_MS
    first = history.events.where(recent & is_attempt() & (F.col("attempt") <= 1) & F.col("due").isNotNull())
    first = first.where(F.col("created").isNotNull()).select("topic", ms_between("created", "due").alias("ahead_ms"))
    ahead = first.unionByName(waits(history).where(recent).select("topic", F.col("wait_ms").alias("ahead_ms")))
    begin = now_ms // HOUR_MS * HOUR_MS
    until = [max(0, begin + k * HOUR_MS + HOUR_MS // 2 - now_ms) for k in range(hours)]
    later = F.array(*(count_where(F.col("ahead_ms") <= ms) / F.count("*") for ms in until))
    return ahead.groupBy("topic").agg(later.alias("later"))


# -- how it came


def _past(history: History, slo_ms: int, objective: float, tz: str) -> DataFrame:
    """topic, group, clock (hour of the day), attempt_ms, window_ms, an_hour, at_once: the mean of what came in such an
    hour, and the quantile of how many were ready within a window.
    """
    same = (*QUEUE, "clock", "attempt_ms", "window_ms")
    # An hour of a queue at a time, so that they are shared evenly; with what came in the windows that end in it.
    of_hour = Window.partitionBy(*QUEUE, "hour")
    window = of_hour.orderBy("bucket").rangeBetween(1 - PARTS, 0)
    begin, end = (F.floor((F.col("bucket") + n) * F.col("window_ms") / PARTS) for n in (0, PARTS))
    counts_in = F.sequence(F.floor((begin - 1) / HOUR_MS), F.floor((end + 1) / HOUR_MS))  # more does no harm
    seen = (
        arrivals(history, slo_ms)
        .withColumn("hour", F.explode(counts_in))
        .repartition(*QUEUE, "hour")  # before they are counted, as there are few in a bucket
        .groupBy(*QUEUE, "hour", "at", "bucket", "attempt_ms", "window_ms")
        .agg(F.count("*").alias("n"))
        # In this order, as the second one needs no other sorting.
        .withColumn("follows", F.lag("at").over(of_hour.orderBy("bucket", "at")).eqNullSafe(F.col("at")))
        .withColumn("at_once", F.sum("n").over(window))
        .where(F.col("at") == F.col("hour"))
        .withColumn("clock", clock_hour(F.col("at"), tz) % DAY_H)
    )
    counted = seen.groupBy(*same, "at_once").agg(F.sum("n").alias("n"), count_where(~F.col("follows")).alias("hours"))
    return (
        ranked(counted, same, "at_once")
        .groupBy(*same)
        .agg((F.sum("n") / F.sum("hours")).alias("an_hour"), percentile(F.col("at_once"), objective).alias("at_once"))
    )


# -- what it takes


def _slots(coming: DataFrame, past: DataFrame, slo_ms: int, objective: float, tz: str) -> DataFrame:
    """Adds attempt_ms, slots_low, slots, slots_high."""
    times = prefixed(past.select(*QUEUE, "attempt_ms").distinct(), "t")
    hours = past.select(*QUEUE, F.col("clock").alias("h_clock"), "an_hour", "at_once")
    z = max(0.0, NormalDist().inv_cdf(objective))
    window_ms = F.greatest("attempt_ms", F.lit(float(slo_ms)))

    def slots(load: str) -> Column:
        mean = F.col(load) * window_ms / HOUR_MS
        by_chance = mean + z * F.sqrt(mean)
        usual = F.col("an_hour") * window_ms / HOUR_MS
        more = F.col(load) / F.col("an_hour")
        as_it_came = mean + F.greatest(F.col("at_once") - usual, F.lit(0.0)) * F.greatest(more, F.sqrt(more))
        jobs = F.greatest(by_chance, as_it_came)
        return F.round(F.when(F.col(load) > 0, jobs * F.col("attempt_ms") / window_ms).otherwise(F.col(load)), 3)

    return (
        coming.withColumn("clock", clock_hour(F.col("at"), tz) % DAY_H)
        .join(times, same_queue("t"), "left")
        .join(prefixed(hours, "h"), [*same_queue("h"), F.col("clock") == F.col("h_clock")], "left")
        .withColumns(
            {
                _name("slots", name): F.when(F.col("attempt_ms").isNotNull(), slots(load))
                for name, load in zip(("low", "", "high"), _BANDS, strict=True)
            }
        )
        .select(*QUEUE, "at", *_BANDS, "attempt_ms", "slots_low", "slots", "slots_high")
    )


def _pools(history: History, slo_ms: int) -> DataFrame:
    """p_topic, p_group, pool, concurrency, workers_seen."""
    arrived = tried(history, slo_ms).where(F.col("known") & F.col("consumer").isNotNull())
    worked = history.keep(arrived.select(*QUEUE, "consumer").distinct())
    sets = worked.groupBy("consumer").agg(F.array_sort(F.collect_list(F.struct(*QUEUE))).alias("queues"))
    numbers = pool_numbers(
        (queue["topic"], queue["group"], n)
        for n, row in enumerate(sets.select("queues").distinct().collect())
        for queue in row["queues"]
    )
    rows = [(topic, group, number + 1) for (topic, group), number in numbers.items()]
    spark = history.events.sparkSession
    pools = spark.createDataFrame(rows, "p_topic string, p_group string, pool int")
    of_consumers = worked.join(F.broadcast(pools), same_queue("p"))
    members = of_consumers.select("pool", F.col("group").alias("p_group"), F.col("consumer").alias("member")).distinct()
    hours = workers_once(history).join(
        members, F.col("p_group").eqNullSafe(F.col("group")) & (F.col("member") == F.col("consumer"))
    )
    hours = hours.where(F.unix_seconds("hour") > (history.last_hour - DAYS * DAY_H) * HOUR_S)
    most = hours.groupBy("pool", "consumer").agg(F.max("most_at_once").alias("slots"), F.sum("ended").alias("n"))
    last_day = F.unix_seconds("hour") > (history.last_hour - DAY_H) * HOUR_S
    there = hours.where(last_day).groupBy("pool", "hour").agg(F.count_distinct("consumer").alias("there"))
    return pools.join(_median(most, "slots", "concurrency"), "pool", "left").join(
        _median(there.withColumn("n", F.lit(1)), "there", "workers_seen"), "pool", "left"
    )


def workers_once(history: History) -> DataFrame:
    """The table of the workers, which is two questions' business."""
    return history.once_counted("workers", lambda: workers(history))


def _median(values: DataFrame, value: str, name: str) -> DataFrame:
    """pool, name: of the values, each of which stands for `n`."""
    counted = value_counts(values.select("pool", value, "n"), ["pool"], value)
    return counted.groupBy("pool").agg(percentile(F.col(value), 0.5).alias(name))
