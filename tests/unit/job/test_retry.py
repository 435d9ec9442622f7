"""The stepped retry schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdq.errors import InvalidInput
from streamdq.job.retry import DEFAULT_RETRY, MAX_STEPS, Bury, Retry, RetrySchedule, Snooze
from streamdq.times.durations import MAX_DELAY_MS
from tests.cases import each


@each(
    "value, steps_ms",
    [
        ("15s 3m", (15_000, 180_000)),
        ("15s,3m, 1h", (15_000, 180_000, 3_600_000)),
        ("0 0 2m", (0, 0, 120_000)),
        ("", ()),
        ("none", ()),
        ([], ()),
        ([15, "3m", timedelta(hours=1)], (15_000, 180_000, 3_600_000)),
        (("1s",), (1000,)),
        (RetrySchedule((5,)), (5,)),
    ],
)
def test_what_is_understood(value: Any, steps_ms: tuple[int, ...]) -> None:
    assert RetrySchedule.of(value).steps_ms == steps_ms


@each("value", ["3", " 3 ", "15s 3", "15s,3", ["15s", "3"], "1.5"])
def test_a_step_in_text_needs_a_unit(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^retry: '(3|1.5)' has no unit; write '(3|1.5)s' .*, '15s 3m 10m'$"):
        RetrySchedule.of(value)


@each("value", [5, 1.5, None, "15s soon", "-1s", [-1], "nan", object(), ["15s"] * (MAX_STEPS + 1)])
def test_what_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^retry: "):
        RetrySchedule.of(value)


def test_the_default_makes_ten_attempts_over_25_hours() -> None:
    schedule = RetrySchedule.of(DEFAULT_RETRY)
    assert str(schedule) == "15s 3m 10m 30m 30m 1h 2h 6h 15h"
    assert [schedule.delay_ms(step) for step in (0, 8, 9, 100)] == [15_000, 54_000_000, None, None]


@given(st.lists(st.integers(0, MAX_DELAY_MS), max_size=MAX_STEPS))
def test_a_schedule_survives_its_record(steps_ms: list[int]) -> None:
    schedule = RetrySchedule(tuple(steps_ms))
    assert RetrySchedule.of(schedule.encode()) == schedule
    assert "\n" not in schedule.encode()


def test_exceptions_that_steer() -> None:
    assert Retry().delay_ms is None
    assert Retry(delay="1h").delay_ms == 3_600_000
    assert str(Retry(reason="busy")) == "busy"
    assert Bury("refused").reason == "refused"
    with pytest.raises(InvalidInput):
        Retry(delay=-1)


def test_there_may_be_as_many_steps_as_are_allowed() -> None:
    assert len(RetrySchedule.of(["15s"] * MAX_STEPS).steps_ms) == MAX_STEPS


@each(
    "value, shown, encoded",
    [
        ("none", "none", "none"),
        ("0 15s", "0 15s", "0ms 15000ms"),
        ("90061001ms 60s", "1d1h1m1s1ms 1m", "90061001ms 60000ms"),
    ],
)
def test_how_a_schedule_is_written(value: str, shown: str, encoded: str) -> None:
    schedule = RetrySchedule.of(value)
    assert (str(schedule), schedule.encode()) == (shown, encoded)
    assert RetrySchedule.of(str(schedule)) == schedule, "nothing is rounded"


def test_exceptions_without_a_reason_say_what_they_are() -> None:
    assert str(Retry()) == "the handler asked for another attempt"
    assert str(Snooze("1s")) == "the handler put the job off"
    assert str(Snooze("1s", "no room")) == "no room"
    assert Snooze("2s").delay_ms == 2000
    assert (Retry().at_least_ms, Retry(at_least="1s").at_least_ms) == (0, 1000)
    with pytest.raises(InvalidInput, match=r"^at_least: "):
        Retry(at_least=-1)
