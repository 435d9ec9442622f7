"""How much of the objective's error budget is left, how fast it is spent, and which incidents spent it?"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..measures import BUDGET_DAYS, BURN_LIMITS, MIN_LATE, OBJECTIVE, SLO_MS
from .common import DAY_H, day_number, hour_start, share
from .history import History

WINDOWS_H = {"burn_1h": 1, "burn_6h": 6, "burn_3d": 3 * DAY_H}
SHORT = {"burn_6h": "burn_1h", "burn_3d": "burn_6h"}
"""What also has to be above the limit, so that an alert ends soon after its cause. For one hour it would be five
minutes, which hours do not tell.
"""
PAGES = ("burn_1h", "burn_6h")
MIN_SPENT = 0.01
"""Incidents that spent a smaller part of the budget are left out."""


def budget(
    history: History, *, slo_ms: int = SLO_MS, objective: float = OBJECTIVE, until: date | None = None
) -> DataFrame:
    """By topic, of the 28 days that end with the hour of the last event, or with the day ``until``.

    ``late``: attempts that started later than ``slo_ms``; ``on_time``: the share of the others. The budget is the
    share of the ``attempts`` that ``objective`` lets be late: ``spent`` of it is used up, ``left`` is what remains,
    below 0 if it is overdrawn. ``days``: for how many of them the topic is known.

    ``burn_1h``, ``burn_6h``, ``burn_3d``: the share of late attempts over what the objective allows, in the last hours
    by the clock, the last of which may be incomplete; null without attempts. ``alert``: ``page`` or ``ticket``, by
    several windows at once (Google, The Site Reliability Workbook, chapter 5, Multiwindow, Multi-Burn-Rate Alerts):
    a page if 2 % of the budget went in an hour, or 5 % in six, a ticket if 10 % went in three days, while the shorter
    window burns as fast. At least ``MIN_LATE`` attempts have to be late.
    """
    hours = _hours(history, slo_ms, until)
    allowed = 1 - objective
    windows = {name: F.col("age") < length for name, length in WINDOWS_H.items()}
    late = {name: F.sum(F.when(of_window, F.col("late"))) for name, of_window in windows.items()}
    burns = (
        (share(late[name], F.sum(F.when(of_window, F.col("attempts")))) / allowed).alias(name)
        for name, of_window in windows.items()
    )
    spent = F.col("late") / (F.col("attempts") * allowed)
    return (
        hours.groupBy("topic")
        .agg(
            ((F.max("age") + 1) / DAY_H).alias("days"),
            F.sum("attempts").alias("attempts"),
            F.sum("late").alias("late"),
            *burns,
            *(late[name].alias(f"late_{name}") for name in WINDOWS_H),
        )
        .where(F.col("attempts") > 0)
        .select(
            "topic",
            "days",
            "attempts",
            "late",
            (1 - F.col("late") / F.col("attempts")).alias("on_time"),
            spent.alias("spent"),
            (1 - spent).alias("left"),
            *WINDOWS_H,
            F.when(_fires(*PAGES), "page").when(_fires("burn_3d"), "ticket").otherwise("none").alias("alert"),
        )
    )


def budget_incidents(
    history: History, *, slo_ms: int = SLO_MS, objective: float = OBJECTIVE, until: date | None = None
) -> DataFrame:
    """What spent the budget of these 28 days: of a topic hours in which a larger share was late than the objective
    allows, with at most one other hour between two of them.

    ``hours``: how many they are; ``late`` of their ``attempts``; ``spent``: the share of the budget of 28 days that
    these are, at least a hundredth. At least ``MIN_LATE`` attempts were late.
    """
    hours = _hours(history, slo_ms, until).where(F.col("attempts") > 0)
    in_order = Window.partitionBy("topic").orderBy("hour")
    apart = F.col("hour") - F.lag("hour").over(in_order) > 2
    return (
        hours.withColumn("budget", F.sum("attempts").over(Window.partitionBy("topic")) * (1 - objective))
        .where(F.col("late") > F.col("attempts") * (1 - objective))
        .withColumn("number", F.count(F.when(F.coalesce(apart, F.lit(True)), 1)).over(in_order))
        .groupBy("topic", "number", "budget")
        .agg(
            F.min("hour").alias("first"),
            F.max("hour").alias("last"),
            F.count("*").alias("hours"),
            F.sum("attempts").alias("attempts"),
            F.sum("late").alias("late"),
        )
        .withColumn("spent", F.col("late") / F.col("budget"))
        .where((F.col("spent") >= MIN_SPENT) & (F.col("late") >= MIN_LATE))
        .select(
            "topic",
            hour_start(F.col("first")).alias("first_hour"),
            hour_start(F.col("last")).alias("last_hour"),
            "hours",
            "attempts",
            "late",
            "spent",
        )
    )


def _hours(history: History, slo_ms: int, until: date | None) -> DataFrame:
    """topic, hour, age (0: the last one), attempts, late."""
    last = history.last_hour if until is None else (day_number(until) + 1) * DAY_H - 1
    hours = history.hours(slo_ms).withColumn("age", F.lit(last) - F.col("hour"))
    of_days = hours.where(F.col("age").between(0, BUDGET_DAYS * DAY_H - 1))
    return of_days.groupBy("topic", "hour", "age").agg(F.sum("attempts").alias("attempts"), F.sum("late").alias("late"))


def _fires(*names: str) -> Column:
    """Whether any of these windows burns too fast, and its short one as well."""
    found = F.lit(False)
    for name in names:
        of_window = (F.col(name) >= BURN_LIMITS[name]) & (F.col(f"late_{name}") >= MIN_LATE)
        short = F.col(SHORT[name]) >= BURN_LIMITS[name] if name in SHORT else F.lit(True)
        found = found | F.coalesce(of_window & short, F.lit(False))
    return found
