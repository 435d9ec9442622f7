"""Which TTR and which retry schedule fit the observed attempts. Too small a sample gets no advice."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamdq.store.history.rows import Event

from .common import is_event, percentile, share, sum_where, value_counts
from .history import History
from .retries import retries

MIN_DONE = 1000
"""With fewer, a 99.9th percentile is hardly more than the maximum."""
HEADROOM = 2.0
MARGIN_MS = 10_000
"""What may come on top whatever the handler does: a pause of the machine or of Python, a failover of Redis. A shorter
TTR would gain little: the jobs of a worker that is gone are taken over sooner anyway.
"""
MIN_SUCCESS = 0.01
Z95 = 1.96
MAX_CUT_OFF = 0.001
NICE_MS = tuple(
    1000 * s
    for s in (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800,
              14400, 21600, 43200, 86400)
)  # fmt: skip


def advice(
    history: History,
    *,
    min_done: int = MIN_DONE,
    headroom: float = HEADROOM,
    margin_ms: int = MARGIN_MS,
    min_success: float = MIN_SUCCESS,
) -> DataFrame:
    """By topic and group.

    ``ttr_ms``: the 99.9th percentile of how long attempts took that were done, times ``headroom``, but at least
    ``margin_ms`` more than that percentile, rounded up to a round figure (Amazon Builders' Library, Timeouts, retries
    and backoff with jitter: choose the share of false timeouts that you accept, then that percentile, and pad it).
    ``ttr_verdict``: ``ok``; ``too few`` (fewer than ``min_done``); ``cut off``: more than 0.1 % of the attempts were
    taken over, or ended with a ``TimeoutError`` no sooner than that percentile; so the longest were not observed, and
    the figure is a lower bound.

    ``waits_ms``: the waits of the schedule's steps as observed; ``keep_steps``: how many of them to keep. The steps at
    the end go of which it is 95 % sure (upper bound of Wilson's score interval, 1927) that fewer than ``min_success``
    of their attempts succeed: for none of n that needs n ≥ 381. ``retry_verdict``: ``ok``; ``shorten``; ``too few``: of
    no step beyond the kept ones enough was seen to say; ``no retries``.
    """
    ttr, schedule = _ttr(history, min_done, headroom, margin_ms).alias("t"), _schedule(history, min_success).alias("r")
    same = [F.col(f"t.{key}").eqNullSafe(F.col(f"r.{key}")) for key in ("topic", "group")]
    return ttr.join(schedule, same, "left").select(
        "t.topic",
        "t.group",
        "done",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "cut_off",
        "share_cut_off",
        "ttr_ms",
        "ttr_verdict",
        "waits_ms",
        "keep_steps",
        F.coalesce("retried", F.lit(0)).alias("retried"),
        F.coalesce("retry_verdict", F.lit("no retries")).alias("retry_verdict"),
    )


def _ttr(history: History, min_done: int, headroom: float, margin_ms: int) -> DataFrame:
    timed = history.durations.select(
        "topic",
        "group",
        F.when(is_event(Event.DONE, Event.RECLAIMED), F.col("event"))
        .when(F.col("timed_out"), "timeout")
        .otherwise("failed")
        .alias("kind"),
        F.col("run_ms").alias("ms"),
        "n",
    )
    done_ms = F.when(F.col("kind") == "done", F.col("ms"))
    of_group = Window.partitionBy("topic", "group")
    timed_out = (F.col("kind") == "timeout") & (F.col("ms") >= F.col("longest"))
    counted = (
        value_counts(timed, ["topic", "group", "kind"], "ms")
        .withColumn("longest", percentile(done_ms, 0.999, of_group))
        .groupBy("topic", "group")
        .agg(
            F.sum("n").alias("all"),
            sum_where(done_ms.isNotNull()).alias("done"),
            sum_where((F.col("kind") == "reclaimed") | timed_out).alias("cut_off"),
            *(
                percentile(done_ms, at).alias(name)
                for name, at in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999))
            ),
            F.max(done_ms).alias("max_ms"),
        )
        .withColumn("share_cut_off", share(F.col("cut_off"), F.col("all")))
    )
    few = F.col("done") < min_done
    verdict = F.when(few, "too few").when(F.col("share_cut_off") > MAX_CUT_OFF, "cut off").otherwise("ok")
    padded = F.greatest(F.col("p999_ms") * headroom, F.col("p999_ms") + margin_ms)
    return counted.withColumn("ttr_ms", F.when(~few, _round_up(padded))).withColumn("ttr_verdict", verdict)


def _round_up(ms: Column) -> Column:
    """The next of NICE_MS; whole days beyond them."""
    nice = F.filter(F.array(*(F.lit(step) for step in NICE_MS)), lambda step: step >= ms)
    days = (F.ceil(ms / NICE_MS[-1]) * NICE_MS[-1]).cast("long")
    return F.when(F.size(nice) > 0, F.get(nice, F.lit(0)).cast("long")).otherwise(days)


def _schedule(history: History, min_success: float) -> DataFrame:
    """topic, group, waits_ms, keep_steps, retried, retry_verdict; groups that retried."""
    lower, upper = _wilson(F.col("done"), F.col("attempts"))
    steps = F.array_sort(F.collect_list(F.struct("step", "wait_ms", "attempts", "lower", "upper")))
    return (
        retries(history)
        .where(F.col("step") > 0)
        .withColumn("lower", F.when(F.col("attempts") > 0, lower).otherwise(0.0))
        .withColumn("upper", F.when(F.col("attempts") > 0, upper).otherwise(1.0))
        .groupBy("topic", "group")
        .agg(
            steps.alias("steps"),
            F.coalesce(F.max(F.when(F.col("upper") >= min_success, F.col("step"))), F.lit(0)).alias("keep_steps"),
            F.sum("attempts").alias("retried"),
        )
        .withColumn("last", F.element_at("steps", -1))
        .select(
            "topic",
            "group",
            F.col("steps.wait_ms").alias("waits_ms"),
            "keep_steps",
            "retried",
            F.when(F.col("keep_steps") < F.col("last.step"), "shorten")
            .when(F.col("last.lower") < min_success, "too few")
            .otherwise("ok")
            .alias("retry_verdict"),
        )
    )


def _wilson(successes: Column, tries: Column) -> tuple[Column, Column]:
    """The bounds of the true rate, with 95 % confidence."""
    rate, z2 = successes / tries, Z95 * Z95
    middle = rate + z2 / (2 * tries)
    spread = Z95 * F.sqrt(rate * (1 - rate) / tries + z2 / (4 * tries * tries))
    return (middle - spread) / (1 + z2 / tries), (middle + spread) / (1 + z2 / tries)
