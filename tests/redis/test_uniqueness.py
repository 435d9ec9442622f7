"""Uniqueness in time as callers see it. What happens in every state is in tests/lua/test_uniqueness.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamdq import JobExists, JobState, NewJob
from streamdq.errors import IdTaken, InvalidInput
from streamdq.job.uniqueness import unique
from streamdq.link.session import run
from streamdq.operations import jobs
from streamdq.store.records import encode
from streamdq.testing import memory
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space, recorder
from tests.servers import Server


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


async def test_an_id_is_taken_from_the_end_of_its_job_on(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.worker()
    worker.handler("t")(recorder(seen))
    rule: dict[str, Any] = {"id": "a", "unique_for": "10m", "unique_after": "finish"}
    stepped.queue.enqueue("t", "first", **rule)
    clock.advance("1h")
    await stepped.burst(worker)
    ended_ms = clock.now_ms
    clock.advance("9m")
    with pytest.raises(IdTaken) as refused:
        stepped.queue.enqueue("t", "second", **rule)
    assert refused.value.until_ms == ended_ms + 600_000
    clock.advance("1m")
    stepped.queue.enqueue("t", "third", **rule)
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


def test_an_id_of_fields(space: Space) -> None:
    body = {"user": 7, "kind": "welcome", "at": 1}
    made = space.queue.enqueue("t", body, id=unique("user", "kind"), delay="1h")
    with pytest.raises(JobExists):
        space.queue.enqueue("t", body | {"at": 2}, id=unique("kind", "user"))
    space.queue.enqueue("t", body | {"user": 8}, id=unique("user", "kind"), delay="1h")
    assert space.job(made.id).body == body
    with pytest.raises(InvalidInput, match="no field 'who'"):
        space.queue.enqueue("t", body, id=unique("who"))


def test_each_job_of_many_has_its_own_rule(space: Space) -> None:
    space.queue.configure("t", shards=3)
    jobs = [NewJob(n, id=f"j{n}", delay="1h", unique_for="1h" if n % 2 else None) for n in range(20)]
    assert space.queue.enqueue_many("t", jobs).created == 20
    assert all(space.queue.cancel("t", f"j{n}") for n in range(20))
    result = space.queue.enqueue_many("t", [{"body": job.body, "id": job.id, "unique_for": "1h"} for job in jobs])
    assert result.created == 10
    assert sorted(result.existing) == sorted(f"j{n}" for n in range(1, 20, 2))


def test_many_are_postponed_and_count_as_created(space: Space) -> None:
    for n in range(2):
        result = space.queue.enqueue_many(
            "t", [NewJob(n, id=f"j{i}", delay="1h") for i in range(30)], on_conflict="postpone"
        )
        assert (result.created, result.existing) == (30, [])
    assert {space.job(f"j{i}").body for i in range(30)} == {1}
    assert space.queue.stats("t").topics["t"].enqueued == 30


def test_of_many_callers_one_gets_the_id(space: Space) -> None:
    def enqueue(n: int) -> bool:
        try:
            space.queue.enqueue("t", n, id="a", rate_of_id="1/h")
        except JobExists:
            return False
        return space.queue.cancel("t", "a")

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(enqueue, range(40)))
    assert sum(won) == 1


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


def test_a_deleted_topic_leaves_nothing(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a", unique_for="1h")
    assert space.queue.cancel("t", "a")
    space.queue.delete_topic("t")
    space.queue.enqueue("t", 1, id="a", unique_for="1h")


def test_what_a_taken_id_costs(space: Space, redis_server: Server) -> None:
    """docs/uniqueness.md says about 300 bytes."""
    count = 20_000
    with redis_server.client() as client:
        made: list[int] = []
        for rule in (None, "1d"):
            before = int(client.info("memory")["used_memory"])
            space.queue.enqueue_many(
                f"t{rule}", (NewJob(1, id=f"order-{n:09}", delay="1h", unique_for=rule) for n in range(count))
            )
            made.append(int(client.info("memory")["used_memory"]) - before)
    assert 100 < (made[1] - made[0]) / count < 350


def test_on_a_cluster(spread: Space) -> None:
    spread.queue.configure("t", shards=6)
    jobs = [NewJob(n, id=f"j{n}", delay="1h", unique_for="1h") for n in range(60)]
    assert spread.queue.enqueue_many("t", jobs).created == 60
    assert spread.queue.enqueue_many("t", jobs, on_conflict="postpone").created == 60
    assert all(spread.queue.cancel("t", f"j{n}") for n in range(60))
    assert spread.queue.enqueue_many("t", jobs, on_conflict="postpone").created == 0


async def test_on_a_cluster_a_job_that_expires_keeps_its_id_taken(spread: Space) -> None:
    """Among others that run."""
    spread.queue.configure("t", shards=6)
    worker = spread.worker()
    worker.handler("t")(lambda _: None)
    jobs = [
        NewJob(n, id=f"j{n}", expire=0 if n % 2 else None, unique_for="1h", unique_after="finish") for n in range(60)
    ]
    spread.queue.enqueue_many("t", jobs)
    await spread.burst(worker)
    stats = spread.stats()
    assert (stats.done + stats.expired, stats.expired > 0) == (60, True)
    assert spread.queue.enqueue_many("t", jobs, on_conflict="keep").created == 0


def test_in_memory() -> None:
    here = memory()
    with here.queue() as queue:
        queue.enqueue("t", 1, id="a", delay="1s", unique_for="1m", rate_of_id="1/h")
        assert queue.enqueue("t", 2, id="a", delay="2s", on_conflict="postpone", at_most="500ms").body == 2
        assert queue.cancel("t", "a")
        here.clock.advance("1m")
        assert queue.enqueue("t", 3, id="a", rate_of_id="1/h", on_conflict="keep").state is JobState.ENDED
        assert queue.enqueue("t", 3, id="a", unique_for="1m").state is JobState.DELAYED
    here.close()


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
