"""Uniqueness in time as callers see it. What happens in every state is in tests/lua/test_uniqueness.py."""

from __future__ import annotations

import pytest

from streamdq import JobState, NewJob
from streamdq.errors import IdTaken
from streamdq.link.session import run
from streamdq.operations.jobs import enqueue
from streamdq.store.jobs.records import encode
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space


async def test_an_id_is_taken_after_its_job_is_done(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.recording(seen)
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
    worker = stepped.recording(seen)
    for n in range(40):
        job = stepped.queue.enqueue("t", n, id="a", delay="5s", on_conflict="postpone", at_most="1m")
        assert job.body == n
        clock.advance("2s")
    assert stepped.job("a").due_ms == 1_800_000_000_000 + 65_000
    await stepped.burst(worker)
    assert seen.all == [39]
    assert (stepped.stats().done, stepped.stats().cancelled) == (1, 0)


@pytest.mark.parametrize(("rule", "again"), [(None, True), ("1h", False)])
def test_a_call_that_is_sent_again_after_its_job_has_ended(space: Space, rule: str | None, again: bool) -> None:
    """As its answer was lost. Of a job that has ended only a span keeps the nonce."""
    queue = space.queue
    queue.configure("t", create=True)
    job = encode(NewJob("x", id="a", unique_for=rule), 1000)
    run(queue._link, enqueue.put(queue._store, "t", [job]))
    (queue.take("t") or pytest.fail("nothing came")).finish()
    done = run(queue._link, enqueue.put(queue._store, "t", [job]))
    assert not done.existing, "it is the call's own, in either case"
    assert (queue.get("t", "a") is not None) == again
