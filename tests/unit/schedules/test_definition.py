"""What callers may say of a schedule, and how it is stored."""

from __future__ import annotations

import zoneinfo
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from streamdq.errors import InvalidInput
from streamdq.schedules.civil import forget_zones
from streamdq.schedules.definition import define, definition_in


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "0 9 * * 1-5", "tz": "Europe/Paris", "overlap": "skip", "catch_up": "1h"},
        {"every": "10m", "jitter": "30s", "until": datetime(2030, 1, 1, tzinfo=UTC)},
        {"every": 1},
        {"cron": "@daily", "dst": "both", "start": 1_900_000_000_000, "catch_up": "none", "declared": True},
    ],
)
def test_it_is_read_as_it_was_stored(given: dict[str, Any]) -> None:
    definition = define(**given)
    assert definition_in(definition.text()) == definition
    assert definition.next(1_800_000_000_000, 2)


def test_fields_of_a_later_version_are_left_out() -> None:
    assert definition_in('{"every_ms":1000,"moon":"full"}') == define(every=1)


def test_where_an_interval_began_makes_no_difference() -> None:
    one = define(every="10m")
    assert one.is_same(replace(one, anchor_ms=5))
    assert not one.is_same(define(every="11m"))
    assert not one.is_same(define(every="10m", overlap="skip"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cron": "0 9 * * 1-5"}, "At 09:00 on Monday through Friday"),
        ({"cron": "@Daily"}, "At 00:00 every day"),
        ({"every": "90m"}, "Every 1h30m"),
    ],
)
def test_when_it_runs_in_words(given: dict[str, Any], words: str) -> None:
    assert define(**given).words == words


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "either cron or every"),
        ({"cron": "* * * * *", "every": 5}, "either cron or every"),
        ({"every": 0.5}, "every: must be at least 1 s"),
        ({"every": "soon"}, "every: can't read 'soon'"),
        ({"every": 5, "tz": "Mars/Olympus"}, "tz: 'Mars/Olympus'"),
        ({"every": 5, "dst": "both"}, "dst: an interval has no local times"),
        ({"every": 5, "overlap": "never"}, "overlap: 'never'"),
        ({"every": 5, "catch_up": "all"}, "catch_up: can't read 'all'"),
        ({"every": 5, "catch_up": -1}, "catch_up: -1 is negative"),
        ({"every": 5, "jitter": "5s"}, "jitter: must be shorter than the time between two occurrences, 5 s"),
        ({"cron": "*/5 * * * *", "jitter": "5m"}, "shorter than the time between two occurrences, 300 s"),
        ({"every": 5, "start": 5}, "start: 5 is not a 13-digit"),
        ({"every": 5, "until": datetime(2030, 1, 1)}, "until: 2030-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        ({"every": 5, "start": 1_900_000_000_000, "until": 1_800_000_000_000}, "until: is before start"),
    ],
)
def test_what_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        define(**given)
    assert why in str(refused.value)


def test_an_expression_that_comes_once_in_years_may_have_jitter() -> None:
    assert define(cron="0 0 29 2 *", jitter="1d").jitter_ms == 86_400_000


def test_an_updated_time_zone_database_is_used(tmp_path: Path) -> None:
    """By a process that has reckoned with the one before."""
    given, before = define(cron="0 9 * * *", tz="Etc/GMT-5"), zoneinfo.TZPATH
    at_nine = given.next(1_800_000_000_000, 1)[0]
    (tmp_path / "Etc").mkdir()
    with resources.files("tzdata.zoneinfo.Etc").joinpath("GMT-6").open("rb") as other:
        (tmp_path / "Etc" / "GMT-5").write_bytes(other.read())
    try:
        zoneinfo.reset_tzpath([str(tmp_path)])
        forget_zones()
        assert given.next(1_800_000_000_000, 1)[0] == at_nine - 3_600_000
    finally:
        zoneinfo.reset_tzpath(before)
        forget_zones()
