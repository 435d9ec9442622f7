"""Which hours were unlike what the same hours of earlier weeks and the last days make one expect?"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..measures import DEFAULT_TZ, SLO_MS
from .common import DAY_H, HOUR_S, WEEK_H, clock_hour, complete_hours, day_number, hour_start
from .history import History

WEEKS = 8
MIN_WEEKS = 3
DAYS = 7
"""Of so many days the middle one tells the level, and how much hours vary beside chance."""
THRESHOLD = 4.0
"""In standard deviations: chance alone causes such an hour once in two years."""
MIN_MORE = 5
MIN_CHANGE = 0.1
MIN_POINTS = 0.01
WORST_OF_A_DAY = 2.3
"""How many standard deviations the worst hour of a usual day is off by chance."""
LEAST_DISPERSION, LEAST_EXPECTED, LEAST_SHARE = 1e-6, 0.01, 1e-6
"""So that nothing is divided by 0."""
DIGITS = 6
SHARES = ("failed", "late")
LOOKBACK_DAYS = 7 * WEEKS + 1 + 2 * DAYS + 1
"""The weeks and one day, so that the first hour counts for a topic that has events every day; the days that tell the
level; those in which hours are compared with it; and one more, as a day by the clock may have 25 hours.
"""
_SILENT_H = (7 * WEEKS + 2) * DAY_H
"""So long after its last event a topic counts, at most: hours that come later tell nothing of it."""
_OF_SHARES = ("attempts", *SHARES)
_COUNTERS = ("done", *_OF_SHARES)
_MATTERS = {
    "done": f"abs(value - usual) >= {MIN_CHANGE} * usual and (value < usual or value >= usual + {MIN_MORE})",
    **dict.fromkeys(SHARES, f"value >= usual + {MIN_MORE} and value >= usual + {MIN_POINTS} * attempts"),
}
"""What is large enough, beside being unlikely."""


def anomalies(
    history: History,
    *,
    slo_ms: int = SLO_MS,
    until: date | None = None,
    tz: str = DEFAULT_TZ,
    min_weeks: int = MIN_WEEKS,
) -> DataFrame:
    """By topic, complete hour and measure: ``done``, ``failed`` (attempts) and ``late`` (attempts that started later
    than ``slo_ms``). An hour without events counts as 0. ``until``: later events are known to be there, so that the
    hours up to the end of that day are complete. ``tz``: by whose clocks hours are the same hour of a week.

    ``usual``, of jobs done: the hour's part of a week, as the mean of at most eight earlier ``weeks`` without the least
    and the greatest, times the level. The level is that of the last 24 hours, or the median of this in the last seven
    days: whichever is closer to what came. So the first tells of a lasting change for a day, and the second does not
    take the end of an incident for one. Of failures and late starts: the share of the same hours in these weeks, or of
    both halves of the last 24 hours if that is more; then only more is unusual.

    ``score``: in standard deviations, the signed root of the deviance of a negative binomial distribution (of a
    binomial one for the shares). How much hours vary beside chance is the median of the last seven days. Hours in which
    nothing is done add up. An anomaly is beyond ± 4, at least a tenth and, if it is more, five jobs from what is usual,
    a share by one percentage point. Null with fewer than ``min_weeks``, and where the level is not known.

    What a row says rests on its day and the ``LOOKBACK_DAYS`` before alone, whatever else is in the data.
    """
    return history.once(
        f"anomalies {slo_ms} {until} {tz} {min_weeks}", lambda: _anomalies(history, slo_ms, until, tz, min_weeks)
    )


def _anomalies(history: History, slo_ms: int, until: date | None, tz: str, min_weeks: int) -> DataFrame:
    end = history.last_hour if until is None else (day_number(until) + 1) * DAY_H
    hours = complete_hours(history.hours(slo_ms), _COUNTERS, end, _SILENT_H)
    hours = hours.withColumn("clock", clock_hour(F.col("at"), tz))
    judged = _shares_judged(_done_judged(_levels(_weeks_before(hours, min_weeks))))
    matters = " or ".join(f"measure = '{name}' and {condition}" for name, condition in _MATTERS.items())
    measures = ", ".join(
        f"struct('{name}' as measure, {name} as value, {name}_usual as usual, round({name}_score, {DIGITS}) as score)"
        for name in _MATTERS
    )
    return (
        judged.where("before >= begin")
        .withColumn("hour", hour_start(F.col("at")))
        .selectExpr("topic", "hour", "weeks", "attempts", f"inline(array({measures}))")
        .selectExpr(
            "topic", "hour", "measure", "value", "usual", "attempts", "weeks", "score",
            f"coalesce(abs(score) > {THRESHOLD} and ({matters}), false) as anomaly",
        )
    )  # fmt: skip


def incidents(hours: DataFrame) -> DataFrame:
    """The anomalies among these rows of ``anomalies``, put together: of one topic, measure and direction, with at most
    one other hour between two of them.

    ``first_hour``, ``last_hour``; ``hours``: how many were unusual; ``value`` and ``usual``: in all of these;
    ``size``: by how much they differ, in jobs or attempts; ``score``: the one furthest from 0.
    """
    same = ("topic", "measure", "more")
    in_order = Window.partitionBy(*same).orderBy("hour")
    apart = F.unix_seconds("hour") - F.lag(F.unix_seconds("hour")).over(in_order) > 2 * HOUR_S
    return (
        hours.where("anomaly")
        .withColumn("more", F.col("value") > F.col("usual"))
        .withColumn("begins", F.coalesce(apart, F.lit(True)))
        .withColumn("number", F.count(F.when(F.col("begins"), 1)).over(in_order))
        .groupBy(*same, "number")
        .agg(
            F.min("hour").alias("first_hour"),
            F.max("hour").alias("last_hour"),
            F.count("*").alias("hours"),
            F.sum("value").alias("value"),
            F.sum("usual").alias("usual"),
            F.abs(F.sum(F.col("value") - F.col("usual"))).alias("size"),
            F.max_by("score", F.abs("score")).alias("score"),
        )
        .select("topic", "measure", "first_hour", "last_hour", "hours", "value", "usual", "size", "score")
    )


def _weeks_before(hours: DataFrame, min_weeks: int) -> DataFrame:
    """Adds what the same hours of earlier weeks tell: ``weeks``, how many there were; ``part``, of the jobs done in a
    week; ``failed_before`` and ``late_before``, shares of the attempts. Null with fewer than ``min_weeks``.
    """
    # The week that begins with the hour: of an earlier week it has ended, and nothing before it is needed.
    week = f"max(so_far) {_over(WEEK_H - 2, WEEK_H - 1)} - so_far + done"
    # Of two hours in which clocks show the same, the first.
    earlier = ", ".join(f"min(then) {_over(-WEEK_H * n, -WEEK_H * n)}" for n in range(1, WEEKS + 1))
    return (
        hours.selectExpr("*", "sum(done) over (partition by topic order by clock, at) as so_far")
        .selectExpr("*", f"{_ratio('done', week)} as part_then")
        .selectExpr(
            "*",
            f"(floor(at / {DAY_H}) - {7 * WEEKS + 1}) * {DAY_H} as begin",
            "struct(at, before, attempts, failed, late, part_then) as then",
        )
        .selectExpr("*", f"array({earlier}) as all_earlier")
        .selectExpr("*", "filter(all_earlier, hour -> hour.before >= begin) as earlier")
        .selectExpr("*", "size(earlier) as weeks", "array_sort(earlier.part_then) as parts", *map(_total, _OF_SHARES))
        .selectExpr(
            "topic", "at", "clock", "before", "begin", *_COUNTERS, "weeks",
            # Without the least and the greatest.
            f"if(weeks >= {min_weeks}, {_sum('slice(parts, 2, weeks - 2)', '0D')} / (weeks - 2), null) as part",
            *(f"if(weeks >= {min_weeks}, {_ratio(f'{n}_total', 'attempts_total')}, null) {n}_before" for n in SHARES),
        )
    )  # fmt: skip


def _levels(hours: DataFrame) -> DataFrame:
    """Adds ``expected`` and ``expected_today``, jobs done by the level of the last seven days and by that of the last
    24 hours; of the shares ``…_share``, what is usual; ``…_off``, how far the hour is from it, and ``…_worst``, how far
    the worst hour of a usual day is.
    """
    first, second = _over(-DAY_H, -DAY_H // 2 - 1), _over(-DAY_H // 2, -1)
    shares = []
    for name in SHARES:
        halves = (_ratio(f"sum({name}) {half}", f"sum(attempts) {half}") for half in (first, second))
        shares.append(f"greatest({name}_before, least({', '.join(halves)})) as {name}_usual_share")
    known = [f"if({name}_before is null, null, {name}_usual_share) as {name}_share" for name in SHARES]
    offs = [f"{_share_off(name, 'attempts', f'{name}_share')} as {name}_off" for name in SHARES]
    worst = [f"max({name}_off) {_LAST_DAY} as {name}_worst_of_day" for name in SHARES]
    level = f"sum(if(part is null, null, done)) {_LAST_DAY} / nullif(sum(part) {_LAST_DAY}, 0D) as level"
    return (
        hours.selectExpr("*", level, *shares)
        .selectExpr("*", *known)
        .selectExpr("*", *offs)
        .selectExpr("*", *worst)
        .selectExpr(
            "*",
            f"{_days('level')} as levels",
            *(f"{_days(f'{name}_worst_of_day')} as {name}_worst_of_days" for name in SHARES),
        )
        .selectExpr(
            "*",
            f"part * {_median('levels')} as expected",
            "part * level as expected_today",
            *(f"{_median(f'{name}_worst_of_days')} as {name}_worst" for name in SHARES),
        )
    )


def _done_judged(hours: DataFrame) -> DataFrame:
    """Adds ``done_usual`` and ``done_score``."""
    # By the method of moments: the variance of the counts is expected + dispersion * expected².
    dispersion = (
        f"(sum(pow(done - expected, 2)) {_LAST_DAY} - sum(expected) {_LAST_DAY})"
        f" / nullif(sum(expected * expected) {_LAST_DAY}, 0D)"
    )
    between = "done between least(expected, expected_today) and greatest(expected, expected_today)"
    # Where nothing is expected, it may be 0 or what is left of a difference.
    as_expected = f"({between}) or (done = 0 and done_usual <= {LEAST_EXPECTED}D)"
    this_day = _over(1 - DAY_H, 0)
    outage = _sum("transform(filter(empty, hour -> hour.at > coalesce(busy, 0)), hour -> pow(hour.off, 2))", "0D")
    return (
        hours.selectExpr("*", f"{dispersion} as dispersion_of_day")
        .selectExpr("*", f"{_days('dispersion_of_day')} as dispersions")
        .selectExpr(
            "*",
            f"greatest({_median('dispersions')}, {LEAST_DISPERSION}D) as dispersion",
            "if(abs(done - expected_today) < abs(done - expected), expected_today, expected) as done_usual",
        )
        .selectExpr("*", f"if(size(dispersions) = 0, null, if({as_expected}, 0D, {_off('done', 'done_usual')})) as off")
        .selectExpr(
            "*",
            # Of the last 24 hours, those in which nothing was done, though something was expected, since something was.
            f"array_sort(collect_list(if(done = 0 and off < 0, struct(at, off), null)) {this_day}) as empty",
            f"max(if(done = 0 and off < 0, null, at)) {this_day} as busy",
        )
        .selectExpr(
            "*",
            # What is expected is a mean of so many, and varies as well.
            f"if(done = 0 and off < 0, -sqrt({outage}), off) / sqrt(1 + 1 / greatest(weeks - 2, 1)) as done_score",
        )
    )


def _shares_judged(hours: DataFrame) -> DataFrame:
    """Adds ``failed_usual``, ``failed_score``, ``late_usual`` and ``late_score``."""
    return hours.selectExpr(
        "*",
        *(f"{name}_share * attempts as {name}_usual" for name in SHARES),
        *(
            f"{name}_off / greatest(coalesce({name}_worst / {WORST_OF_A_DAY}D, 1D), 1D) as {name}_score"
            for name in SHARES
        ),
    )


# SQL, which Spark takes at once; column by column these steps take Python and Spark seconds.


def _over(first: int, last: int) -> str:
    """Hours by the clock, so that a day may have 23 or 25."""
    bounds = (f"{abs(n)} {'preceding' if n < 0 else 'following'}" if n else "current row" for n in (first, last))
    return f"over (partition by topic order by clock range between {' and '.join(bounds)})"


_LAST_DAY = _over(-DAY_H, -1)


def _days(of_day: str) -> str:
    """What a column says now and at this time of the six days before, sorted, as far as it says anything."""
    days = ", ".join(f"max({of_day}) {_over(-DAY_H * n, -DAY_H * n)}" for n in range(DAYS))
    return f"array_sort(array_compact(array({days})))"


def _median(values: str) -> str:
    """Of a sorted array; null if it is empty."""
    return f"(get({values}, int(floor((size({values}) - 1) / 2))) + get({values}, int(size({values}) / 2))) / 2"


def _off(count: str, mean: str) -> str:
    """The signed root of the deviance of a negative binomial distribution, with a correction for continuity: 0 is not
    rounded, as nothing is less.
    """
    mean = f"greatest({mean}, {LEAST_EXPECTED}D)"
    x = f"if({count} = 0, 0D, if({count} > {mean}, greatest({count} - 0.5D, {mean}), least({count} + 0.5D, {mean})))"
    beside = f"({x} + 1 / dispersion) * (log1p(dispersion * {x}) - log1p(dispersion * {mean}))"
    return f"signum({count} - {mean}) * sqrt(greatest(2 * ({_x_log(x, mean)} - {beside}), 0D))"


def _share_off(count: str, of: str, share: str) -> str:
    """The same of a binomial distribution; 0 if it is not more than expected."""
    mean = f"({of} * least(greatest({share}, {LEAST_SHARE}D), {1 - LEAST_SHARE}D))"
    x = f"greatest({count} - 0.5D, {mean})"
    deviance = f"{_x_log(x, mean)} + {_x_log(f'({of} - {x})', f'({of} - {mean})')}"
    return f"if({share} is null, null, if({count} > {mean}, sqrt(greatest(2 * ({deviance}), 0D)), 0D))"


def _x_log(x: str, mean: str) -> str:
    return f"if({x} > 0, {x} * ln({x} / {mean}), 0D)"


def _ratio(part: str, whole: str) -> str:
    """0 of nothing."""
    return f"coalesce(({part}) / nullif({whole}, 0), 0D)"


def _sum(values: str, zero: str) -> str:
    return f"aggregate({values}, {zero}, (total, value) -> total + value)"


def _total(name: str) -> str:
    return f"{_sum(f'earlier.{name}', '0L')} as {name}_total"
