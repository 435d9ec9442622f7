"""What got better or worse: the latest seven days against the seven before."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from ..measures import SLO_MS
from .by_day import by_day
from .common import FAILED, is_event, percentile, sum_where, value_counts
from .history import History

MIN_ATTEMPTS = 100
SURE = 3.0
"""In standard errors: chance alone causes such a difference of shares once in 370 times."""
MIN_SHARE_POINTS = 0.001
MIN_TIMES = 1.25
SHARES = ("late", "failed", "dead")


def changes(history: History, *, slo_ms: int = SLO_MS, min_attempts: int = MIN_ATTEMPTS) -> DataFrame:
    """By topic and measure, ``before`` and ``now``.

    Shares of attempts: ``late`` (started later than ``slo_ms``), ``failed``, ``dead``. In ms: ``lateness`` (99th
    percentile) and ``duration`` (95th, of what was done). Of each a higher figure is worse. The seven days end with the
    hour of the last event. ``verdict``: ``too little`` with fewer than ``min_attempts`` in either; for shares,
    ``worse`` or ``better`` where they differ by three standard errors (two-proportion z-test) and by 0.1 points at
    least; for times, where they differ by a quarter and by 10 ms at least; else ``same``.
    """
    measures = _measures(history, slo_ms)
    both = measures.groupBy("topic", "measure").agg(
        *(
            F.coalesce(F.max(F.when(F.col("week") == week, F.col(column))), default).alias(name)
            for week, column, name, default in (
                (1, "value", "before", F.lit(None)),
                (0, "value", "now", F.lit(None)),
                (1, "attempts", "attempts_before", F.lit(0)),
                (0, "attempts", "attempts_now", F.lit(0)),
            )
        )
    )
    return both.select(
        "topic", "measure", "before", "now", "attempts_before", "attempts_now", _verdict(min_attempts).alias("verdict")
    )


def _measures(history: History, slo_ms: int) -> DataFrame:
    """topic, week, measure, value, attempts."""
    days = by_day(history, slo_ms)
    lateness = days.late().select(
        "topic", "week", F.lit("lateness").alias("kind"), F.lit(None).cast("string").alias("event"), "ms", "n"
    )
    durations = days.took().select(
        "topic", "week", F.lit("duration").alias("kind"), "event",
        F.when(is_event(Event.DONE), F.col("ms")).alias("ms"), "n",
    )  # fmt: skip
    rows = lateness.unionByName(durations)
    counted = value_counts(rows, ["topic", "week", "kind"], "ms", apart=["event"])
    attempts = sum_where(F.col("kind") == "duration")
    parts = {
        "late": (F.col("kind") == "lateness") & (F.col("ms") > slo_ms),
        "failed": F.col("event").isin(*FAILED),
        "dead": is_event(Event.DEAD),
    }
    values = [
        *(_measure(name, sum_where(part) / attempts, attempts) for name, part in parts.items()),
        *(_time(kind, at) for kind, at in (("lateness", 0.99), ("duration", 0.95))),
    ]
    return (
        counted.groupBy("topic", "week")
        .agg(F.array(*values).alias("values"))
        .select("topic", "week", F.explode("values").alias("one"))
        .select("topic", "week", "one.*")
        .where(F.col("attempts") > 0)
    )


def _time(kind: str, at: float) -> Column:
    ms = F.when(F.col("kind") == kind, F.col("ms"))
    return _measure(kind, percentile(ms, at), sum_where(ms.isNotNull()))


def _measure(name: str, value: Column, attempts: Column) -> Column:
    return F.struct(F.lit(name).alias("measure"), value.alias("value"), attempts.alias("attempts"))


def _verdict(min_attempts: int) -> Column:
    before, now = F.col("before"), F.col("now")
    n, m = F.col("attempts_before"), F.col("attempts_now")
    pooled = (before * n + now * m) / (n + m)
    error = F.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    sure = (F.abs(now - before) >= MIN_SHARE_POINTS) & (F.abs(now - before) > SURE * error)
    moved = (F.greatest(now, before) >= MIN_TIMES * F.least(now, before)) & (F.abs(now - before) >= 10)
    differs = F.when(F.col("measure").isin(*SHARES), sure).otherwise(moved)
    return (
        F.when(F.least(n, m) < min_attempts, "too little")
        .when(~differs, "same")
        .otherwise(F.when(now > before, "worse").otherwise("better"))
    )
