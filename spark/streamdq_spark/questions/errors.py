"""Which classes of errors are new or spread, and which hosts fail more often or are slower than the others?"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..measures import SLO_MS
from .by_day import QUEUE, by_day, failures, host
from .chance import LEVEL, MIN_EXPECTED, holm, with_p
from .common import DAY_H, HOUR_S, WEEK_H, is_attempt, share
from .compared import error_changes
from .history import History

MIN_TIMES = 1.5
MIN_MORE = 5
DIGITS = 9
"""Of what is to be expected."""


def errors(history: History) -> DataFrame:
    """By topic, group, class of error and day: how many attempts ``failed`` with it, their ``share`` of the day's
    ``attempts``, and of how many ``hosts``.
    """
    keys = (*QUEUE, "day")
    day = F.floor(F.col("hour") / DAY_H).alias("day")
    attempts = history.moments.where(is_attempt()).groupBy(*QUEUE, day).agg(F.sum("n").alias("attempts"))
    attempts = attempts.withColumnsRenamed({key: f"a_{key}" for key in keys})
    failed = failures(history).groupBy(*QUEUE, "error", "day")
    of_day = failed.agg(F.sum("n").alias("failed"), F.count_distinct("host").alias("hosts"))
    return of_day.join(attempts, [F.col(f"a_{key}").eqNullSafe(F.col(key)) for key in keys]).select(
        *QUEUE,
        "error",
        F.timestamp_seconds(F.col("day") * DAY_H * HOUR_S).alias("day"),
        "failed",
        "attempts",
        share(F.col("failed"), F.col("attempts")).alias("share"),
        "hosts",
    )


def error_classes(history: History, *, slo_ms: int = SLO_MS) -> DataFrame:
    """By topic, group and class of error: ``failed``, attempts; ``first`` and ``last``, when they ended, and
    ``last_id``, an example; ``hosts``, how many; ``host``, the one with most of them, and its share ``of_host``.

    ``before`` and ``now``: the share of attempts in the seven days that end with the last event, by hours, and in the
    seven before. ``verdict``: ``new``, ``spreading``, ``fading``, ``gone``, ``same`` or ``too little``, tested as by
    ``compared``, all classes together; ``chance``: how likely such a difference is if nothing changed.
    """
    days = by_day(history, slo_ms)
    failed = days.failed()
    first_last = (F.min("first").alias("first"), F.max("last").alias("last"), F.max("newest").alias("newest"))
    hosts = failed.groupBy(*QUEUE, "error", "host").agg(F.sum("n").alias("n"), *first_last)
    seen = hosts.groupBy(*QUEUE, "error").agg(
        F.count("host").alias("hosts"),
        # The first by name of those with the most.
        F.min(F.struct((-F.col("n")).alias("most"), "host")).alias("top"),
        F.sum("n").alias("failed"),
        *first_last,
    )
    same = [*QUEUE, "error"]
    hits = _in_weeks(history, failed).groupBy(*QUEUE, "error", "which", "hour").agg(F.sum("n").alias("x"))
    attempts = days.tried().groupBy(*QUEUE, "hour").agg(F.sum("n").alias("n"))
    changed = error_changes(hits, _in_weeks(history, attempts))
    named = changed.withColumnsRenamed({key: f"c_{key}" for key in same})
    joined = seen.join(named, [F.col(f"c_{key}").eqNullSafe(F.col(key)) for key in same], "left")
    return joined.select(
        *same,
        "failed",
        F.timestamp_millis("first").alias("first"),
        F.timestamp_millis("last").alias("last"),
        F.col("newest.id").alias("last_id"),
        "hosts",
        F.col("top.host").alias("host"),
        (-F.col("top.most") / F.col("failed")).alias("of_host"),
        "before",
        F.col("after").alias("now"),
        "chance",
        F.coalesce(_told(F.col("verdict")), F.lit("too little")).alias("verdict"),
    )


def hosts(history: History, *, slo_ms: int = SLO_MS, level: float = LEVEL) -> DataFrame:
    """By group, host and measure, of the last two weeks: ``failed``, attempts that failed, and ``slow``, those that
    took longer than nine of ten that were done of their topic and group on that day. ``seen`` of the host's
    ``attempts`` in hours, topics and groups in which other hosts had some, too; ``usual``: how many would be if it were
    as these others. So neither a bad hour nor a host's share of a difficult topic counts against it.

    ``chance``: how likely such a difference is if all hosts were alike, for all rows together: an hour of a topic and
    group is a stratum (Mantel, Haenszel, Statistical Aspects of the Analysis of Data from Retrospective Studies of
    Disease, 1959), and hours are clusters, as in ``compared``. ``verdict``: ``bad`` below ``level``, if that are half
    as many again and five more; ``too little`` if fewer than five are to be expected.
    """
    return (
        holm(_with_p(_against_others(_of_hosts(history, slo_ms))), "group", "host", "measure").select(
            "group", "host", "measure", "attempts", "seen", "usual", "chance",
            F.when(F.col("chance").isNull(), "too little")
            .when((F.col("chance") < level) & _matters(), "bad")
            .otherwise("ok")
            .alias("verdict"),
        )
    )  # fmt: skip


def _matters() -> Column:
    return (F.col("seen") >= MIN_TIMES * F.col("usual")) & (F.col("seen") >= F.col("usual") + MIN_MORE)


def _in_weeks(history: History, rows: DataFrame) -> DataFrame:
    """Those of the last two weeks; `which`: 1 are the last seven days, 0 the seven before."""
    age = F.lit(history.last_hour) - F.col("hour")
    which = F.when(age < WEEK_H, 1).when(age < 2 * WEEK_H, 0)
    return rows.withColumn("which", which).where(F.col("which").isNotNull())


def _told(verdict: Column) -> Column:
    """The word for it, of a class of errors."""
    return F.when(verdict == "worse", "spreading").when(verdict == "better", "fading").otherwise(verdict)


def _of_hosts(history: History, slo_ms: int) -> DataFrame:
    """topic, group, host, hour, measure, n, x: so many attempts, and those that failed or were slow."""
    known = by_day(history, slo_ms).tried().where(F.col("consumer").isNotNull())
    counts = known.groupBy(*QUEUE, host().alias("host"), "hour").agg(
        *(F.sum(name).alias(name) for name in ("n", "failed", "timed", "slow"))
    )
    each = F.array(
        *(
            F.struct(F.lit(measure).alias("measure"), F.col(of).alias("n"), F.col(measure).alias("x"))
            for measure, of in (("failed", "n"), ("slow", "timed"))
        )
    )
    rest = (*QUEUE, "host", "hour")
    return counts.select(*rest, F.explode(each).alias("one")).select(*rest, "one.*")


def _against_others(counts: DataFrame) -> DataFrame:
    """group, host, measure, attempts, seen, usual, expected, by_chance, by_hour, hours: of strata in which other hosts
    had attempts, too. `expected`: how many the host would have if all were alike, itself among them.
    """
    stratum = Window.partitionBy(*QUEUE, "hour", "measure")
    in_all = {name: F.sum(of).over(stratum) for name, of in (("all", "n"), ("bad", "x"))}
    shared = counts.withColumns(in_all).where((F.col("n") > 0) & (F.col("n") < F.col("all")))
    n, total, bad = F.col("n"), F.col("all"), F.col("bad")
    expected = n * bad / total
    figures = {
        "usual": n * (bad - F.col("x")) / (total - n),
        "expected": expected,
        # Of a hypergeometric distribution.
        "by_chance": expected * (total - bad) / total * (total - n) / (total - 1),
    }
    keys, sums = ("group", "host", "measure"), ("n", "x", *figures)
    of_hours = shared.withColumns(figures).groupBy(*keys, "hour").agg(*(F.sum(name).alias(name) for name in sums))
    of_hours = of_hours.withColumn("off", F.col("x") - F.col("expected"))
    hours, off = F.count("*"), F.sum("off")
    spread = F.greatest(F.sum(F.col("off") * F.col("off")) - off * off / hours, F.lit(0.0))
    return of_hours.groupBy(*keys).agg(
        F.sum("n").alias("attempts"),
        F.sum("x").alias("seen"),
        # Rounded, as a sum's last bit depends on the order in which its parts come.
        *(F.round(F.sum(name), DIGITS).alias(name) for name in figures),
        F.coalesce(spread * hours / F.nullif(hours - 1, F.lit(0)), F.lit(0.0)).alias("by_hour"),
        hours.alias("hours"),
    )


def _with_p(rows: DataFrame) -> DataFrame:
    expected = F.col("expected")
    enough = (F.least(expected, F.col("attempts") - expected) >= MIN_EXPECTED) & (F.col("by_chance") > 0)
    free = F.greatest(F.col("hours") - 1, F.lit(1))
    return with_p(rows, F.col("seen") - expected, F.col("by_chance"), F.col("by_hour"), free, enough)
