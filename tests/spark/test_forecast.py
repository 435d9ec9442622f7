"""How well the forecast does on made-up hours: against last week's same hour, and as to what its band covers."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamdq_spark.questions import History
from streamdq_spark.questions.common import DAY_H, WEEK_H
from streamdq_spark.questions.forecast import forecast
from tests.spark.frames import collected
from tests.spark.logs import MONDAY
from tests.spark.plain import HOUR
from tests.spark.shared import SharedSpark

pytestmark = pytest.mark.thorough
WEEKS, ENDS = 13, 14
"""Weeks of history, and how many days in a row are forecast from what was known before."""
BY_HOUR = (2, 1, 1, 1, 1, 2, 4, 7, 10, 12, 13, 14, 15, 14, 13, 13, 14, 16, 18, 20, 19, 14, 8, 4)
BY_DAY = (10, 10, 10, 11, 13, 16, 14)
FIRST = MONDAY // HOUR
Hours = dict[int, int]


class Figures(NamedTuple):
    """Of all forecasts: the sum of their errors over what came, the same of last week's hour, and the share within."""

    error: float
    last_week: float
    covered: float


class Counted(History):
    """A history of which only the hours are known."""

    def __init__(self, spark: SparkSession, of_topics: dict[str, Hours], last: int) -> None:
        rows = [(topic, hour, n) for topic, hours in of_topics.items() for hour, n in hours.items()]
        self._hours = spark.createDataFrame(rows, "topic string, hour long, attempts long")
        super().__init__(self._hours, last * HOUR)

    def hours(self, slo_ms: int) -> DataFrame:  # noqa: ARG002
        return self._hours


def made_up(growth: float, per_hour: int, seed: int = 1) -> Hours:
    """By the hour and the weekday, changing by so much a week to `per_hour`, with the chance of counts and 5 % more."""
    chance = random.Random(seed)
    found = {}
    for at in range(WEEKS * WEEK_H):
        shape = BY_HOUR[at % DAY_H] / 10 * BY_DAY[at // DAY_H % 7] / 12
        mean = per_hour * shape * (1 + growth) ** (at / WEEK_H - WEEKS) * math.exp(chance.gauss(0, 0.05))
        found[FIRST + at] = max(0, round(chance.gauss(mean, math.sqrt(mean))))
    return found


@pytest.fixture(scope="module")
def figures(shared_spark: SharedSpark) -> dict[float, Figures]:
    """By growth. A topic is one day's forecast: it has the hours up to that day, so that all are made at once."""
    cases = {growth: made_up(growth, 200) for growth in (0.0, 0.1, -0.1, 0.3)}
    last = max(cases[0.0]) + 1 - DAY_H
    topics = {}
    for growth, hours in cases.items():
        for day in range(ENDS):
            # Shifted, so that each ends at the same hour; by whole days, and the week's rhythm with them.
            topics[f"{growth} {day}"] = {at + day * DAY_H: n for at, n in hours.items() if at + day * DAY_H < last}
    told = collected(forecast(Counted(shared_spark.session(), topics, last)))
    found = {}
    for growth, hours in cases.items():
        rows = [row for row in told if row["topic"].startswith(f"{growth} ")]
        came = {}
        for row in rows:
            at = row["hour"] // HOUR - int(row["topic"].split()[1]) * DAY_H
            came[row["topic"], row["hour"]] = (hours[at], hours[at - WEEK_H])
        pairs = [(row, *came[row["topic"], row["hour"]]) for row in rows]
        whole = sum(n for _, n, _ in pairs)
        found[growth] = Figures(
            sum(abs(n - row["expected"]) for row, n, _ in pairs) / whole,
            sum(abs(n - before) for _, n, before in pairs) / whole,
            sum(row["low"] <= n <= row["high"] for row, n, _ in pairs) / len(pairs),
        )
        assert len(pairs) == ENDS * DAY_H
    return found


@pytest.mark.parametrize("growth", [0.0, 0.1, -0.1])
def test_it_is_off_by_at_most_a_ninth(figures: dict[float, Figures], growth: float) -> None:
    assert figures[growth].error <= 0.11, figures


@pytest.mark.parametrize("growth", [0.0, 0.1, -0.1, 0.3])
def test_it_is_better_than_the_same_hour_last_week(figures: dict[float, Figures], growth: float) -> None:
    assert figures[growth].error < figures[growth].last_week, figures


@pytest.mark.parametrize("growth", [0.0, 0.1, -0.1])
def test_the_band_covers_what_it_says(figures: dict[float, Figures], growth: float) -> None:
    assert 0.72 <= figures[growth].covered <= 0.88, figures


def test_a_topic_that_doubled_is_forecast_from_its_new_level(spark: SparkSession) -> None:
    last = FIRST + 6 * WEEK_H
    hours = {at: 100 if at < last - WEEK_H else 200 for at in range(FIRST, last + 1)}
    told = collected(forecast(Counted(spark, {"t": hours}, last)))
    assert {(row["expected"], row["weeks"]) for row in told} == {(200.0, 4)}


def test_where_the_levels_are_not_known_it_is_the_median(spark: SparkSession) -> None:
    last = FIRST + 15 * DAY_H
    hours = {at: (at - FIRST) // WEEK_H + 1 for at in range(FIRST, last + 1)}
    told = collected(forecast(Counted(spark, {"t": hours}, last), start=datetime.fromtimestamp(last * 3600, UTC)))
    assert {(row["expected"], row["low"], row["high"], row["weeks"]) for row in told} == {(1.5, 1.0, 2.0, 2)}
