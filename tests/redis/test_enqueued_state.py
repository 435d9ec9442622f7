"""The state of a job as enqueue returns it: that which it has from then on, without another call."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.job.job import JobState
from tests.redis.harness import Space

READY, DELAYED = JobState.READY, JobState.DELAYED


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, READY),
        ({"delay": 0}, READY),
        ({"delay": "1ms"}, DELAYED),
        ({"at": 1_700_000_000_000}, READY),
        ({"at": 1_800_000_000_000}, READY),  # now
        ({"at": 1_800_000_000_001}, DELAYED),
        ({"id": "j", "on_conflict": "keep"}, READY),
        ({"id": "j", "key": "k"}, READY),
        ({"on_conflict": "replace", "id": "j"}, DELAYED),  # through the bucket
        ({"unique_for": "1m", "id": "j"}, DELAYED),
        ({"durable": "memory"}, READY),
    ],
)
def test_it_is_what_get_says_right_afterwards(
    stepped: Space, shards: int, options: dict[str, Any], state: JobState
) -> None:
    stepped.queue.configure("t", shards=shards, create=True)
    job = stepped.queue.enqueue("t", 1, **options)
    found = stepped.queue.get("t", job.id)
    assert found is not None
    assert (job.state, found.state) == (state, state)


def test_a_job_that_waits_for_a_place_of_its_key(stepped: Space) -> None:
    stepped.queue.configure("t", create=True, key_concurrency=1)
    states = [stepped.queue.enqueue("t", 1, id=f"j{n}", key=key).state for n, key in enumerate((None, "a", "a", None))]
    assert states == [READY, DELAYED, DELAYED, DELAYED]  # the last one behind the second, which is due and has a place
    assert [stepped.job(f"j{n}").state for n in range(4)] == states


def test_each_of_those_that_travel_together_has_its_own(stepped: Space) -> None:
    stepped.queue.configure("t", create=True, shards=2, key_concurrency=1)
    past, taken = {"at": 1_700_000_000_000}, {"id": "taken", "on_conflict": "keep"}
    asked: list[dict[str, Any]] = [{}, {"delay": "1h"}, {"key": "a"}, past, taken]
    stepped.queue.enqueue("t", 1, id="taken", delay="1h")
    with stepped.queue.pipeline() as pipe:
        calls = [pipe.enqueue("t", 1, **options) for options in asked for _ in range(5)]
    for call in calls:
        assert call.job.state is stepped.job(call.job.id).state
    assert {call.job.state for call in calls} == {READY, DELAYED}
