"""How many workers the coming hours need, so that attempts start within the objective."""

from __future__ import annotations

from datetime import datetime
from statistics import NormalDist

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..measures import BUSY, DEFAULT_TZ, OBJECTIVE, SLO_MS
from .by_day import DAYS, QUEUE, ByDay, by_day, mean_ms, prefixed, same_queue, window_ms
from .common import (
    DAY_H,
    clock_hour,
    count_where,
    hour_number,
    hour_start,
    is_attempt,
    ms_between,
    percentile,
    value_counts,
)
from .forecast import HOURS, forecast
from .history import HOUR_MS, History
from .pools import pool_numbers
from .retries import waits

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
    once. Measured at each attempt of the last ``DAYS``, by the mean time of its day, among those that ended on the same
    day, so bursts count as they come; of the same hour of the day the quantile ``objective``. For another load than
    that hour's mean, what is above the mean grows with the load or its root, whichever is more. At least as much as
    chance alone needs, by the root of the load: the load of a system with infinitely many servers and square-root
    staffing (Jennings, Mandelbaum, Massey, Whitt, Server Staffing to Meet Time-Varying Demand, 1996).

    ``pool``: the number of the queues that share workers. ``concurrency``: of one of its workers, the median of the
    most each was seen to run at once, of attempts that ended on the same day. ``workers``, of the whole pool: all its
    slots over 80 % of the concurrency, the same in each row of the pool and hour. ``workers_seen``: how many worked in
    an hour of the last day, the median. What is not known is null.
    """
    if history.last_ms is None and waiting is None:
        return _nothing(history.events.sparkSession)
    days = by_day(history, slo_ms)
    coming = _coming(history, waiting, start, hours, slo_ms, tz)
    needed = _slots(coming, days, objective, tz)
    of_pool = Window.partitionBy("pool", "at")
    staffed = needed.join(_pools(days), same_queue("p"), "left").drop("p_topic", "p_group")
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
    return told.join(F.broadcast(_parts(by_day(history, slo_ms))), "topic", "left").select(
        "topic", "group", "at", *loads
    )


def _parts(days: ByDay) -> DataFrame:
    """topic, group, part: of the topic's attempts."""
    of_groups = days.took().groupBy(*QUEUE).agg(F.sum("n").alias("attempts"))
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


def _past(days: ByDay, objective: float, tz: str) -> DataFrame:
    """topic, group, clock (hour of the day), an_hour, at_once: the mean of what came in such an hour, and the quantile
    of the slots that were needed.
    """
    same = [*QUEUE, "clock"]
    seen = days.ready().withColumn("clock", clock_hour(F.col("hour"), tz) % DAY_H)
    return (
        value_counts(seen, same, "slots", apart=["hour"])
        .groupBy(*same)
        .agg(
            (F.sum("n") / F.count_distinct("hour")).alias("an_hour"),
            percentile(F.col("slots"), objective).alias("at_once"),
        )
    )


# -- what it takes


def _slots(coming: DataFrame, days: ByDay, objective: float, tz: str) -> DataFrame:
    """Adds attempt_ms, slots_low, slots, slots_high."""
    took = days.took().where(F.col("ms").isNotNull())
    times = prefixed(took.groupBy(*QUEUE).agg(mean_ms().alias("attempt_ms")), "t")
    hours = prefixed(_past(days, objective, tz).withColumnRenamed("clock", "h_clock"), "h")
    z = max(0.0, NormalDist().inv_cdf(objective))
    window = window_ms(days.slo_ms)

    def slots(load: str) -> Column:
        mean = F.col(load) * window / HOUR_MS
        by_chance = (mean + z * F.sqrt(mean)) * F.col("attempt_ms") / window
        needed, usual = (of * F.col("attempt_ms") / HOUR_MS for of in (F.col(load), F.col("an_hour")))
        more = F.col(load) / F.col("an_hour")
        as_it_came = needed + F.greatest(F.col("at_once") - usual, F.lit(0.0)) * F.greatest(more, F.sqrt(more))
        return F.round(F.when(F.col(load) > 0, F.greatest(by_chance, as_it_came)).otherwise(F.col(load)), 3)

    return (
        coming.withColumn("clock", clock_hour(F.col("at"), tz) % DAY_H)
        .join(times, same_queue("t"), "left")
        .join(hours, [*same_queue("h"), F.col("clock") == F.col("h_clock")], "left")
        .withColumns(
            {
                _name("slots", name): F.when(F.col("attempt_ms").isNotNull(), slots(load))
                for name, load in zip(("low", "", "high"), _BANDS, strict=True)
            }
        )
        .select(*QUEUE, "at", *_BANDS, "attempt_ms", "slots_low", "slots", "slots_high")
    )


def _pools(days: ByDay) -> DataFrame:
    """p_topic, p_group, pool, concurrency, workers_seen."""
    history = days.history
    arrived = days.tried().where(F.col("known") & F.col("consumer").isNotNull())
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
    hours = days.ran().where(F.col("hour") > history.last_hour - DAYS * DAY_H)
    hours = hours.join(members, F.col("p_group").eqNullSafe(F.col("group")) & (F.col("member") == F.col("consumer")))
    most = hours.groupBy("pool", "consumer").agg(F.max("most").alias("slots"), F.sum("ended").alias("n"))
    last_day = F.col("hour") > history.last_hour - DAY_H
    there = hours.where(last_day).groupBy("pool", "hour").agg(F.count_distinct("consumer").alias("there"))
    return pools.join(_median(most, "slots", "concurrency"), "pool", "left").join(
        _median(there.withColumn("n", F.lit(1)), "there", "workers_seen"), "pool", "left"
    )


def _median(values: DataFrame, value: str, name: str) -> DataFrame:
    """pool, name: of the values, each of which stands for `n`."""
    counted = value_counts(values.select("pool", value, "n"), ["pool"], value)
    return counted.groupBy("pool").agg(percentile(F.col(value), 0.5).alias(name))
