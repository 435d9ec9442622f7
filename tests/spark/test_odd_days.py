"""Forecast and incidents where days are odd: month starts, holidays, clocks that change, batches that move; by plain
Python as well.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from functools import cache

import pytest

from tests.spark import plain
from tests.spark.answers import answered
from tests.spark.frames import assert_same
from tests.spark.logs import done
from tests.spark.plain import DAY, HOUR, Happened, Table

FIRST = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) * 1000
MOVES, DAYS = 80, 88
"""The days after which the batch comes at four instead of three, and after which the history ends: on 2 April."""
HOLIDAYS = (date(2026, 2, 16), date(2026, 4, 3))
NAMES = ("forecast", "forecast_accuracy", "anomalies", "incidents")


@cache
def log() -> list[Happened]:
    """Ten jobs an hour, forty on month starts, two on holidays; and a batch each day, of another topic."""
    chance, log = random.Random(4), [done("daily", FIRST + DAYS * DAY + 1, id="last")]
    for hour in range(DAYS * 24):
        at, day = FIRST + hour * HOUR, datetime.fromtimestamp(FIRST / 1000 + hour * 3600, UTC).date()
        jobs = 40 if day.day == 1 else 2 if day in HOLIDAYS else chance.randrange(9, 12)
        log += [done("daily", at + 1000 * n, id=f"{hour}.{n}") for n in range(jobs)]
        batch = 60 if hour % 24 == (3 if hour < MOVES * 24 else 4) else chance.randrange(1, 3)
        log += [done("batch", at + 1000 * n, id=f"{hour}.{n}") for n in range(batch)]
    return log


@cache
def found(tz: str = "UTC") -> dict[str, Table]:
    return answered(log(), NAMES, tz=tz, holidays=HOLIDAYS)


@pytest.mark.thorough
@pytest.mark.parametrize("tz", ["UTC", "Europe/Paris"])
def test_they_equal_the_plain_calculation(tz: str) -> None:
    assert_same(found(tz)["forecast"], plain.forecast(log(), tz=tz, holidays=HOLIDAYS))
    assert_same(found(tz)["forecast_accuracy"], plain.forecast_accuracy(log(), tz, HOLIDAYS))


@pytest.mark.thorough
def test_the_first_holiday_equals_the_plain_calculation() -> None:
    rows = answered(log(), ["forecast"], holidays=HOLIDAYS[1:])["forecast"]
    assert_same(rows, plain.forecast(log(), holidays=HOLIDAYS[1:]))


@pytest.mark.thorough
def test_a_holiday_is_expected_to_be_as_the_one_before() -> None:
    """The history ends on 3 April at midnight."""
    expected = [row["expected"] for row in found()["forecast"] if row["topic"] == "daily"]
    assert len(expected) == 24
    assert all(some < 4 for some in expected)


@pytest.mark.thorough
def test_a_month_start_is_expected_to_be_as_those_before() -> None:
    until = [e for e in log() if e.finished <= FIRST + 86 * DAY + 1]  # 1 April
    rows = answered(until, ["forecast"])["forecast"]
    expected = [row["expected"] for row in rows if row["topic"] == "daily"]
    assert all(30 < some < 50 for some in expected)


def test_a_batch_at_another_time_is_one_incident_and_then_expected() -> None:
    moved = [row for row in found()["incidents"] if row["topic"] == "batch" and row["measure"] == "done"]
    day = FIRST + MOVES * DAY
    assert [(row["first_hour"], row["last_hour"]) for row in moved] == [(day + 3 * HOUR, day + 4 * HOUR)]
    assert moved[0]["size"] > 50
    by_clock = {row["hour"] % DAY // HOUR: row["expected"] for row in found()["forecast"] if row["topic"] == "batch"}
    assert by_clock[3] < 5 < 55 < by_clock[4]


def retried(failing: int) -> list[Happened]:
    """A job an hour, and in one of them so many that fail five times each."""
    log = [done("small", FIRST + hour * HOUR, id=f"{hour}") for hour in range(35 * 24)]
    for n in range(5 * failing):
        at, id = FIRST + 33 * DAY + n * 10_000, f"bad{n // 5}"
        log.append(done("small", at, id=id, event="retry", error="E", attempt=1 + n % 5, step=n % 5))
    return log


def test_the_retries_of_few_jobs_are_no_incident_but_failures_of_many_jobs_are() -> None:
    failures = [
        [row for row in answered(retried(jobs), ["incidents"])["incidents"] if row["measure"] == "failed"]
        for jobs in (1, 4, 5)
    ]
    assert [len(own) for own in failures] == [0, 0, 1]
    assert [row["value"] for row in failures[-1]] == [5]


def slight(worse: int, failing: int = 2) -> list[Happened]:
    """Of 25 attempts an hour, one in 50 fails, and for so many hours two in 25."""
    log = []
    for hour in range(35 * 24):
        failed = failing if 33 * 24 < hour <= 33 * 24 + worse else hour % 2
        log += [
            done("slight", FIRST + hour * HOUR + n * 1000, id=f"{hour}.{n}", event="dead" if n < failed else "done")
            for n in range(25)
        ]
    return log


def test_a_rise_too_slight_for_single_hours_is_found_of_few_attempts() -> None:
    def failures(worse: int) -> Table:
        return [row for row in answered(slight(worse), ["incidents"])["incidents"] if row["measure"] == "failed"]

    assert failures(0) == []
    [found] = failures(6)
    assert found["first_hour"] >= FIRST + 33 * DAY - 2 * HOUR
    assert found["last_hour"] <= FIRST + 33 * DAY + 7 * HOUR


def test_a_share_of_one_hour_has_one_limit() -> None:
    """3.7, for the tables as for the plain calculation."""
    log = slight(1, failing=6)
    found = [row for row in answered(log, ["anomalies"])["anomalies"] if row["measure"] == "failed"]
    (near,) = (row for row in found if row["score"] is not None and row["score"] > 3.5)
    assert near["score"] < 3.7
    assert (near["hours"], near["anomaly"]) == (1, False)
    assert_same(found, [row for row in plain.anomalies(log) if row["measure"] == "failed"])


@pytest.mark.thorough
@pytest.mark.parametrize("log", [slight(6), retried(5)], ids=["slight", "retried"])
def test_a_rise_of_failures_equals_the_plain_calculation(log: list[Happened]) -> None:
    found = answered(log, ["anomalies", "incidents"])
    assert_same(found["anomalies"], plain.anomalies(log))
    assert_same(found["incidents"], plain.incidents(log))
