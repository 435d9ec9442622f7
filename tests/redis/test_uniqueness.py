"""Uniqueness in time as callers see it. What happens in every state is in tests/lua/test_uniqueness.py."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq import JobExists, JobState, NewJob
from streamdq.errors import IdTaken, InvalidInput
from streamdq.link.session import run
from streamdq.operations import jobs
from streamdq.store.records import encode
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space, recorder


async def test_an_id_is_taken_after_its_job_is_done(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.worker()
    worker.handler("t")(recorder(seen))
    first = stepped.queue.enqueue("t", "first", id="a", unique_for="10m")
    await stepped.burst(worker)
    clock.advance("9m")
    with pytest.raises(IdTaken, match=r"'a' of topic 't' is taken until 2027-01-15T08:10:00\.000\+00:00") as refused:
        stepped.queue.enqueue("t", "second", id="a", unique_for="10m")
    assert (refused.value.topic, refused.value.id, refused.value.until_ms) == ("t", "a", first.created_ms + 600_000)
    kept = stepped.queue.enqueue("t", "second", id="a", unique_for="10m", on_conflict="keep")
    assert (kept.id, kept.state, kept.body) == ("a", JobState.ENDED, None)
    assert (kept.created_ms, kept.due_ms, kept.groups) == (first.created_ms, first.due_ms, {})
    clock.advance("1m")
    stepped.queue.enqueue("t", "third", id="a", unique_for="10m")
    await stepped.burst(worker)
    assert seen.all == ["first", "third"]


async def test_debounce(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    """The last of many changes runs, five seconds after it; but no later than the first one's due time and a minute."""
    worker = stepped.worker()
    worker.handler("t")(recorder(seen))
    for n in range(40):
        job = stepped.queue.enqueue("t", n, id="a", delay="5s", on_conflict="postpone", at_most="1m")
        assert job.body == n
        clock.advance("2s")
    assert stepped.job("a").due_ms == 1_800_000_000_000 + 65_000
    await stepped.burst(worker)
    assert seen.all == [39]
    assert (stepped.stats().done, stepped.stats().cancelled) == (1, 0)


async def test_throttle(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.worker()
    worker.handler("t")(recorder(seen))
    for n in range(12):
        stepped.queue.enqueue("t", n, id="a", rate_of_id="3/h", on_conflict="keep")
        await stepped.burst(worker)
        clock.advance("10m")
    assert seen.all == [0, 1, 2, 6, 7, 8]


def test_each_job_of_many_has_its_own_rule(space: Space) -> None:
    space.queue.configure("t", shards=3)
    jobs = [NewJob(n, id=f"j{n}", delay="1h", unique_for="1h" if n % 2 else None) for n in range(20)]
    assert space.queue.enqueue_many("t", jobs).created == 20
    assert all(space.queue.cancel("t", f"j{n}") for n in range(20))
    result = space.queue.enqueue_many("t", [{"body": job.body, "id": job.id, "unique_for": "1h"} for job in jobs])
    assert result.created == 10
    assert sorted(result.existing) == sorted(f"j{n}" for n in range(1, 20, 2))


@pytest.mark.parametrize(
    "fields", [{"unique_for": "1h"}, {"rate_of_id": "1/h"}, {"at_most": 1}, {"at_most": 1, "id": "a"}]
)
def test_what_makes_no_sense_is_refused(space: Space, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"pass an id|on_conflict='postpone'"):
        space.queue.enqueue("t", 1, **fields)
    with pytest.raises(InvalidInput, match=r"pass an id|on_conflict='postpone'"):
        space.queue.enqueue_many("t", [NewJob(1, **fields)])
    assert all(topic.enqueued == 0 for topic in space.queue.stats().topics.values())


def test_a_running_job_is_not_postponed(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a")
    claim = space.queue.take("t")
    assert claim
    with pytest.raises(JobExists, match="running or dead"):
        space.queue.enqueue("t", 2, id="a", on_conflict="postpone")
    claim.finish()
    assert space.queue.enqueue("t", 2, id="a", on_conflict="postpone").body == 2


def test_a_replacement_beyond_the_rate_says_why(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a", delay="1h", rate_of_id="1/h")
    with pytest.raises(JobExists, match="as often as rate_of_id allows"):
        space.queue.enqueue("t", 2, id="a", on_conflict="replace", rate_of_id="1/h")
    assert space.job("a").body == 1


@pytest.mark.parametrize(("rule", "again"), [(None, True), ("1h", False)])
def test_a_call_that_is_sent_again_after_its_job_has_ended(space: Space, rule: str | None, again: bool) -> None:
    """As its answer was lost. Of a job that has ended only a span keeps the nonce."""
    queue = space.queue
    queue.configure("t", create=True)
    job = encode(NewJob("x", id="a", unique_for=rule), 1000)
    run(queue._link, jobs.put(queue._store, "t", [job]))
    (queue.take("t") or pytest.fail("nothing came")).finish()
    done = run(queue._link, jobs.put(queue._store, "t", [job]))
    assert not done.existing, "it is the call's own, in either case"
    assert (queue.get("t", "a") is not None) == again
