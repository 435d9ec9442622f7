"""What changed from one time span to another, as after a release, beyond what chance makes of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamdq.errors import InvalidInput
from streamdq.store.history.rows import Event

from .chance import LEVEL, MIN_EXPECTED, holm, with_p
from .common import FAILED, hour_number, is_attempt, is_event, late, ms_between, percentile, sum_where, value_counts
from .history import HOUR_MS, History

MIN_POINTS = 0.001
MIN_TIMES, MIN_MS = 1.1, 5
NONE_MS, NONE_SHARE = 1.0, 0.0005
"""Added to both of two values before one is divided by the other, so that one from hardly anything is not endless."""
_QUEUE = ("topic", "group")
_LEVELS = {"p50": 0.5, "p99": 0.99}
_TIMES = ("lateness", "duration")
_SHARES = ("failed", "dead")
_SUMS = ("n", "nn", "hours", "x", "xx", "xn")


@dataclass(frozen=True, slots=True)
class Span:
    """From ``since`` on and before ``until``, in ms since 1970."""

    since: int
    until: int
    text: str

    @classmethod
    def parse(cls, text: str) -> Span:
        """``A..B``: two days, both included, or two times, the second excluded; UTC unless it has an offset.

        Raises:
            InvalidInput: it is not a span, or it ends before it begins.
        """
        try:
            first, last = text.split("..")
            since, until = _moment(first, timedelta(0)), _moment(last, timedelta(days=1))
        except (ValueError, OverflowError):  # the latter of 9999-12-31, which no day follows
            raise InvalidInput(
                f"compare: {text!r} is no span; write 2026-01-05..2026-01-11 or 2026-01-12T14:00..2026-01-12T18:00"
            ) from None
        if until <= since:
            raise InvalidInput(f"compare: {text} ends before it begins")
        return cls(since, until, text)

    @property
    def hours(self) -> float:
        return (self.until - self.since) / HOUR_MS


def _moment(text: str, whole_day: timedelta) -> int:
    """In ms; of a day its begin, and ``whole_day`` later."""
    if len(text.strip()) == len("2026-01-05"):
        day = date.fromisoformat(text.strip())
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) + whole_day
    else:
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


def compared(history: History, before: Span, after: Span, *, level: float = LEVEL) -> DataFrame:
    """By topic, group and measure (``error``: its class), ``before`` and ``after``; attempts count by when they ended.

    Shares of attempts: ``failed``, ``dead``, and ``error``, those that failed with this class. Times in ms:
    ``lateness_p50``, ``lateness_p99``, ``duration_p50`` and ``duration_p99`` (of what was done). ``attempts``, in an
    hour, is not judged. ``of_before``, ``of_after``: how many attempts tell.

    ``chance``: how likely a difference like this or a greater one is if nothing changed, for all measures of the table
    together (Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979): below ``level``, it is a change. Of
    shares by a two-proportion z-test. Of a percentile by the share of attempts above that of both spans together, the
    median test (Mood, Introduction to the Theory of Statistics, 1950) for any percentile. Attempts of one hour are
    alike: the standard error is that of hours as clusters (Cochran, Sampling Techniques, 1977, ratio estimates), if
    that is more than that of chance alone, and then the distribution is Student's (Wallace, 1959).

    ``verdict``: ``worse``, ``better``, ``same``, ``too little``, for errors also ``new`` and ``gone``; ``not judged``.
    A change is at least 0.1 percentage points (not asked of an error that is new or gone), or a tenth and 5 ms.
    ``size``: the greater value over the smaller one.
    """
    cells = history.keep_counted(_cells(history, before, after))
    shares, times = _hourly_shares(cells), _hourly_times(cells)
    judged = _with_values(_sums(shares.unionByName(times)), cells).unionByName(_errors(*_by_error(cells)))
    tested = _with_chance(_with_p(judged))
    return tested.unionByName(_attempts(shares, before, after)).select(
        *_QUEUE,
        "measure",
        "error",
        "before",
        "after",
        "of_before",
        "of_after",
        "chance",
        _verdict(level).alias("verdict"),
        _size().alias("size"),
    )


def _cells(history: History, before: Span, after: Span) -> DataFrame:
    """topic, group, after, hour, kind, event, error, ms, n: how often, in one pass."""
    ended = F.unix_millis("finished")
    which = F.when((ended >= before.since) & (ended < before.until), 0)
    which = which.when((ended >= after.since) & (ended < after.until), 1)
    took = F.when(is_event(Event.DONE) & (F.col("started") <= F.col("finished")), ms_between("started", "finished"))
    none = F.lit(None)
    kinds = F.array(
        F.struct(
            F.lit("attempt").alias("kind"), F.col("event").alias("event"),
            F.when(F.col("event").isin(*FAILED), F.col("error")).alias("error"), none.cast("long").alias("ms"),
        ),
        *(
            F.struct(
                F.lit(kind).alias("kind"), none.cast("string").alias("event"), none.cast("string").alias("error"),
                ms.alias("ms"),
            )
            for kind, ms in zip(_TIMES, (F.when(late(), ms_between("due", "started")), took), strict=True)
        ),
    )  # fmt: skip
    attempts = history.events.where(is_attempt()).select(
        *_QUEUE, which.alias("which"), hour_number(F.col("finished")).alias("hour"), F.explode(kinds).alias("cell")
    )
    known = (F.col("kind") == "attempt") | F.col("ms").isNotNull()
    cells = attempts.where(F.col("which").isNotNull()).select(*_QUEUE, "which", "hour", "cell.*").where(known)
    return cells.groupBy(*cells.columns).agg(F.count("*").alias("n"))


def _hourly_shares(cells: DataFrame) -> DataFrame:
    """topic, group, measure, which, hour, n, x: of so many attempts, those that the measure counts."""
    hours = (
        cells.where(F.col("kind") == "attempt")
        .groupBy(*_QUEUE, "which", "hour")
        .agg(
            F.sum("n").alias("n"),
            sum_where(F.col("event").isin(*FAILED)).alias("failed"),
            sum_where(is_event(Event.DEAD)).alias("dead"),
        )
    )
    return _unpivoted(hours, _SHARES)


def _by_error(cells: DataFrame) -> tuple[DataFrame, DataFrame]:
    """topic, group, error, which, hour, x; and topic, group, which, hour, n."""
    attempts = cells.where(F.col("kind") == "attempt")
    hits = attempts.where(F.col("error").isNotNull()).groupBy(*_QUEUE, "error", "which", "hour")
    return hits.agg(F.sum("n").alias("x")), attempts.groupBy(*_QUEUE, "which", "hour").agg(F.sum("n").alias("n"))


def _hourly_times(cells: DataFrame) -> DataFrame:
    """The same of times: those above the percentile of both spans together."""
    keys = [*_QUEUE, "kind"]
    counted = value_counts(cells.where(F.col("ms").isNotNull()), keys, "ms", apart=["which", "hour"])
    for name, at in _LEVELS.items():
        counted = counted.withColumn(name, percentile(F.col("ms"), at, Window.partitionBy(*keys)))
    above = (sum_where(F.col("ms") > F.col(name)).alias(name) for name in _LEVELS)
    hours = counted.groupBy(*keys, "which", "hour").agg(F.sum("n").alias("n"), *above)
    return _unpivoted(hours, tuple(_LEVELS)).withColumn("measure", F.concat_ws("_", "kind", "measure")).drop("kind")


def _unpivoted(hours: DataFrame, names: Sequence[str]) -> DataFrame:
    each = F.array(*(F.struct(F.lit(name).alias("measure"), F.col(name).alias("x")) for name in names))
    rest = [name for name in hours.columns if name not in names]
    return hours.select(*rest, F.explode(each).alias("one")).select(*rest, "one.*")


def _sums(hours: DataFrame, *by: str) -> DataFrame:
    """topic, group, measure, and for both spans the sums that a test needs: n_0, nn_0, hours_0, x_0, xx_0, xn_0, …"""
    n, x = F.col("n"), F.col("x")
    summed = dict(zip(_SUMS, (n, n * n, F.lit(1), x, x * x, x * n), strict=True))
    return hours.groupBy(*_QUEUE, *(by or ("measure",))).agg(
        *(
            F.coalesce(F.sum(F.when(F.col("which") == span, value)), F.lit(0)).alias(f"{name}_{span}")
            for span in (0, 1)
            for name, value in summed.items()
        )
    )


def _with_values(sums: DataFrame, cells: DataFrame) -> DataFrame:
    """Adds before, after, error (null): shares, or the percentiles of each span."""
    of_span = value_counts(cells.where(F.col("ms").isNotNull()), [*_QUEUE, "kind", "which"], "ms")
    quantiles = of_span.groupBy(*_QUEUE, "kind", "which").agg(
        *(percentile(F.col("ms"), at).alias(name) for name, at in _LEVELS.items())
    )
    values = (
        _unpivoted(quantiles, tuple(_LEVELS))
        .groupBy(*_QUEUE, F.concat_ws("_", "kind", "measure").alias("measure"))
        .agg(*(F.max(F.when(F.col("which") == span, F.col("x"))).alias(f"value_{span}") for span in (0, 1)))
        .withColumnsRenamed({key: f"v_{key}" for key in (*_QUEUE, "measure")})
    )
    same = [F.col(f"v_{key}").eqNullSafe(F.col(key)) for key in (*_QUEUE, "measure")]
    is_time = ~F.col("measure").isin(*_SHARES)
    return sums.join(values, same, "left").select(
        *_QUEUE, "measure", F.lit(None).cast("string").alias("error"), *_names(),
        *(F.when(is_time, F.col(f"value_{s}")).otherwise(_share(s)).alias(("before", "after")[s]) for s in (0, 1)),
    )  # fmt: skip


def error_changes(hits: DataFrame, attempts: DataFrame, *, level: float = LEVEL) -> DataFrame:
    """topic, group, error, before, after, chance, verdict: as by ``compared``, of all classes of errors together.
    ``hits``: topic, group, error, which (0: before, 1: after), hour, x; ``attempts``: topic, group, which, hour, n.
    """
    tested = _with_chance(_with_p(_errors(hits, attempts)))
    return tested.select(*_QUEUE, "error", "before", "after", "chance", _verdict(level).alias("verdict"))


def _errors(hits: DataFrame, attempts: DataFrame) -> DataFrame:
    """The columns of ``_with_values`` for each class of error. Most hours have none of it, which the totals tell."""
    keys = (*_QUEUE, "which", "hour")
    of = attempts.select(*(F.col(key).alias(f"a_{key}") for key in keys), "n")
    counts = hits.join(of, [F.col(f"a_{key}").eqNullSafe(F.col(key)) for key in keys])
    found = _sums(counts, "error").select(
        *(F.col(key).alias(f"e_{key}") for key in _QUEUE), "error", *(n for n in _names() if n.startswith("x"))
    )
    totals = _sums(attempts.withColumns({"x": F.lit(0), "measure": F.lit("error")}))
    totals = totals.drop(*(n for n in _names() if n.startswith("x")))
    same = [F.col(f"e_{key}").eqNullSafe(F.col(key)) for key in _QUEUE]
    return totals.join(found, same).select(
        *_QUEUE, "measure", "error", *_names(),
        *(_share(s).alias(("before", "after")[s]) for s in (0, 1)),
    )  # fmt: skip


def _names() -> list[str]:
    return [f"{name}_{span}" for span in (0, 1) for name in _SUMS]


def _share(span: int) -> Column:
    return F.when(F.col(f"n_{span}") > 0, F.col(f"x_{span}") / F.col(f"n_{span}"))


def _with_p(judged: DataFrame) -> DataFrame:
    """Adds p, of this measure alone; null: too little."""
    n, m = (F.nullif(F.col(name), F.lit(0)) for name in ("n_0", "n_1"))
    pooled = F.col("pooled")
    known = judged.withColumns(
        {"pooled": (F.col("x_0") + F.col("x_1")) / (n + m), **{f"share_{s}": _share(s) for s in (0, 1)}}
    )
    return with_p(
        known,
        F.col("share_1") - F.col("share_0"),
        by_chance=pooled * (1 - pooled) * (1 / n + 1 / m),
        by_hour=_of_hours(0) + _of_hours(1),
        free=F.greatest(F.col("hours_0") + F.col("hours_1") - 2, F.lit(1)),
        enough=F.least(pooled, 1 - pooled) * F.least(n, m) >= MIN_EXPECTED,
    )


def _of_hours(span: int) -> Column:
    """The variance of the share, of hours as clusters; 0 of a single one."""
    share, hours, n = F.col(f"share_{span}"), F.col(f"hours_{span}"), F.nullif(F.col(f"n_{span}"), F.lit(0))
    squares = F.col(f"xx_{span}") - 2 * share * F.col(f"xn_{span}") + share * share * F.col(f"nn_{span}")
    return F.when(
        hours > 1, F.greatest(squares, F.lit(0.0)) / (n * n) * hours / F.nullif(hours - 1, F.lit(0))
    ).otherwise(0.0)


def _with_chance(tested: DataFrame) -> DataFrame:
    return holm(tested, *_QUEUE, "measure", "error").select(
        *_QUEUE, "measure", "error", "before", "after", F.col("n_0").alias("of_before"),
        F.col("n_1").alias("of_after"), "chance",
    )  # fmt: skip


def _attempts(shares: DataFrame, before: Span, after: Span) -> DataFrame:
    totals = _sums(shares.where(F.col("measure") == _SHARES[0]))
    none = F.lit(None)
    return totals.select(
        *_QUEUE, F.lit("attempts").alias("measure"), none.cast("string").alias("error"),
        (F.col("n_0") / before.hours).alias("before"), (F.col("n_1") / after.hours).alias("after"),
        F.col("n_0").alias("of_before"), F.col("n_1").alias("of_after"), none.cast("double").alias("chance"),
    )  # fmt: skip


def _is_share() -> Column:
    return F.col("measure").isin(*_SHARES, "error")


def _verdict(level: float) -> Column:
    before, after = F.col("before"), F.col("after")
    gap = F.abs(after - before)
    times = (gap >= MIN_MS) & (F.greatest(before, after) >= MIN_TIMES * F.least(before, after))
    is_new, is_gone = (F.col("measure") == "error") & (before == 0), (F.col("measure") == "error") & (after == 0)
    matters = F.when(_is_share(), (gap >= MIN_POINTS) | is_new | is_gone).otherwise(times)
    return (
        F.when(F.col("measure") == "attempts", "not judged")
        .when(F.col("chance").isNull(), "too little")
        .when((F.col("chance") >= level) | ~matters, "same")
        .when(is_new, "new")
        .when(is_gone, "gone")
        .otherwise(F.when(after > before, "worse").otherwise("better"))
    )


def _size() -> Column:
    known = [F.greatest(F.lit(0.0), name) for name in ("before", "after")]  # lateness may be negative, or unknown
    little = F.when(_is_share(), NONE_SHARE).otherwise(NONE_MS)
    both = F.col("before").isNotNull() & F.col("after").isNotNull()
    return F.when(both, (F.greatest(*known) + little) / (F.least(*known) + little))
