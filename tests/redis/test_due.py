"""When jobs are due: local times, quiet hours, and the best moment in a window."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from streamdq import NewJob
from streamdq.errors import InvalidInput
from streamdq.times.clock import ManualClock
from tests.redis.harness import Space

MINUTE = 60_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({"at": "2027-03-28T09:00", "tz": "Europe/Paris"}, "2027-03-28T09:00+02:00"),
        ({"at": "2027-03-28T02:30", "tz": "Europe/Paris"}, "2027-03-28T03:00+02:00"),
        ({"at": "2027-10-31T02:30", "tz": "Europe/Paris"}, "2027-10-31T02:30+02:00"),
        ({"at": datetime.fromisoformat("2027-03-28T09:00"), "tz": "Asia/Kolkata"}, "2027-03-28T09:00+05:30"),
        ({"at": "2027-03-28T09:00Z", "tz": "Europe/Paris"}, "2027-03-28T09:00+00:00"),
        ({"at": "2027-03-28T09:00+01:00"}, "2027-03-28T09:00+01:00"),
        ({"at": "2027-03-28T22:00", "tz": "Europe/Paris", "quiet": "21:00-08:00"}, "2027-03-29T08:00+02:00"),
        ({"at": "2027-03-28T20:00", "tz": "Europe/Paris", "quiet": "21:00-08:00"}, "2027-03-28T20:00+02:00"),
        # The clock shows 09:00 in Paris.
        ({"delay": "11h", "tz": "Europe/Paris", "quiet": "21:00-08:00"}, "2027-01-15T20:00+01:00"),
        ({"delay": "12h", "tz": "Europe/Paris", "quiet": "21:00-08:00"}, "2027-01-16T08:00+01:00"),
        ({"tz": "Europe/Paris", "quiet": "08:30-09:15"}, "2027-01-15T09:15+01:00"),
    ],
)
def test_local_times_and_quiet_hours(stepped: Space, given: dict[str, Any], due: str) -> None:
    job = stepped.queue.enqueue("t", 1, **given)
    assert job.due_ms == ms(due)
    stepped.queue.enqueue_many("t", [NewJob(1, id="many", **given)])
    assert stepped.job("many").due_ms == ms(due)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"at": "tomorrow"}, "at: can't read 'tomorrow'"),
        ({"at": "2027-03-28T09:00"}, "has no time zone"),
        ({"at": "2027-03-28T09:00", "tz": "Europe/Pari"}, "did you mean Europe/Paris"),
        ({"at": "0001-01-01T00:00", "tz": "Asia/Tokyo"}, "beyond the calendar"),
        ({"at": "2027-03-28T09:00", "delay": "1s", "tz": "Europe/Paris"}, "pass delay or at, not both"),
        ({"at": "2027-03-28T09:00", "delay": "1s", "tz": "UTC", "window": "1m"}, "pass delay or at, not both"),
        ({"at": "2027-03-28T09:00Z", "quiet": "21:00-08:00"}, "pass tz as well"),
        ({"delay": "1s", "quiet": "21:00-08:00"}, "pass tz as well"),
        ({"delay": "1s", "quiet": "21-8", "tz": "UTC"}, "quiet: can't read '21-8'"),
        ({"delay": "1s", "tz": "UTC"}, "tz: pass at or quiet as well"),
        ({"delay": "1s", "tz": "UTC", "window": "5m"}, "tz: pass at or quiet as well"),
        ({"window": "soon"}, "window: can't read 'soon'"),
    ],
)
def test_what_is_refused(space: Space, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        space.queue.enqueue("t", 1, **given)
    assert why in str(refused.value)
    with pytest.raises(InvalidInput):
        space.queue.enqueue_many("t", [NewJob(1, **given)])
    assert space.queue.stats().delayed == space.queue.stats().ready == 0


def test_the_emptiest_minute_of_a_window(stepped: Space, clock: ManualClock) -> None:
    """Of all shards together."""
    stepped.queue.configure("t", shards=3)
    hour = clock.now_ms + 3_600_000
    busy = [NewJob(0, at=hour + minute * MINUTE + 5) for minute in range(10) for _ in range(1 if minute == 7 else 4)]
    stepped.queue.enqueue_many("t", busy)
    for _ in range(3):
        due_ms = stepped.queue.enqueue("t", 1, delay="1h", window="10m").due_ms
        assert hour + 7 * MINUTE <= due_ms <= hour + 8 * MINUTE
    later = [stepped.queue.enqueue("t", 1, delay="1h", window="10m").due_ms for _ in range(20)]
    assert len({(due_ms - hour) // MINUTE for due_ms in later}) > 5, "equally empty ones get some each"


def test_a_window_that_reaches_into_quiet_hours(stepped: Space) -> None:
    for _ in range(10):
        job = stepped.queue.enqueue("t", 1, at="2027-03-28T20:50", tz="Europe/Paris", quiet="21:00-08:00", window="2h")
        assert ms("2027-03-28T20:50+02:00") <= job.due_ms < ms("2027-03-28T21:00+02:00")
