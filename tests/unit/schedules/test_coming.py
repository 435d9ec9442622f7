"""The occurrences of a schedule in equal steps, compared with a count of each."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest

from streamdq.schedules.coming import coming
from streamdq.schedules.definition import Definition, define
from tests.cases import each

NOW_MS = 1_790_000_123_456
HOUR_MS = 3_600_000
DEFINITIONS: dict[str, dict[str, Any]] = {
    "each minute": {"cron": "* * * * *"},
    "at night": {"cron": "0 3 * * *", "tz": "Europe/Paris"},
    "at night, spread": {"cron": "0 3 * * *", "jitter": "2h"},
    "at intervals": {"every": "7m"},
    "at intervals, spread": {"every": "7m", "jitter": "3m"},
    "at intervals, for a while": {"every": "7m", "start": NOW_MS + 3 * HOUR_MS, "until": NOW_MS + 8 * HOUR_MS},
    "long over": {"every": "7m", "start": NOW_MS - 9 * HOUR_MS, "until": NOW_MS - HOUR_MS},
}


def counted(definition: Definition, after_ms: int, step_ms: int, steps: int) -> list[int]:
    """One by one, from long before."""
    counts = [0] * steps
    for one in takewhile(lambda due: due.time_ms <= NOW_MS + step_ms * steps, definition.occurrences("s", after_ms)):
        if NOW_MS < one.due_ms <= NOW_MS + step_ms * steps:
            counts[(one.due_ms - NOW_MS - 1) // step_ms] += 1
    return counts


def made(given: dict[str, Any]) -> Definition:
    """Its interval began half a day ago."""
    found = define(**given)
    return Definition(
        **{**{name: getattr(found, name) for name in found.__slots__}, "anchor_ms": NOW_MS - 12 * HOUR_MS}
    )


@each("after_ms", [NOW_MS - 24 * HOUR_MS, NOW_MS, NOW_MS + 2 * HOUR_MS])
@pytest.mark.parametrize("given", DEFINITIONS.values(), ids=DEFINITIONS)
def test_they_are_those_that_a_count_of_each_finds(given: dict[str, Any], after_ms: int) -> None:
    definition = made(given)
    found, _, whole = coming(definition, "s", after_ms, NOW_MS, HOUR_MS, 24, 10_000)
    assert whole
    assert found == counted(definition, after_ms, HOUR_MS, 24)
    assert any(found) is (given.get("until", NOW_MS) >= NOW_MS)


def test_an_interval_of_a_second_takes_no_look_at_each() -> None:
    found, looked_at, whole = coming(made({"every": "1s"}), "s", NOW_MS, NOW_MS, HOUR_MS, 168, 10)
    assert (found, looked_at, whole) == ([3600] * 168, 0, True)


def test_of_more_than_can_be_looked_at_the_first_are_counted() -> None:
    found, looked_at, whole = coming(made({"cron": "* * * * *"}), "s", NOW_MS, NOW_MS, HOUR_MS, 24, 90)
    assert (found[:3], sum(found), looked_at, whole) == ([60, 30, 0], 90, 90, False)
