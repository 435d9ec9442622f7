"""Jobs with priorities, from the call that enqueues them to a worker, counted start by start."""

from __future__ import annotations

import pytest

from streamdq import InvalidInput, NewJob, Worker
from streamdq.job.job import Priority
from tests.redis.harness import Seen, Space
from tests.redis.movers import mover_at
from tests.waiting import eventually


def worker_of(space: Space, seen: Seen) -> Worker:
    """It notes the priority of each start."""
    worker = space.worker(concurrency=1)

    @worker.handler("mail")
    async def handler(priority: str) -> None:
        seen.add(priority)

    return worker


async def fill_ready(space: Space, **jobs: int) -> None:
    """All are ready before a worker starts."""
    wanted: dict[Priority, int] = {"high": jobs["high"], "normal": jobs["normal"], "low": jobs["low"]}
    for priority, count in wanted.items():
        space.queue.enqueue_many("mail", [NewJob(priority, priority=priority) for _ in range(count)])
    async with mover_at(space.url, "mover"):
        await eventually(lambda: space.stats("mail").ready == sum(wanted.values()), "all are ready")


async def test_a_flood_leaves_the_others_their_turns(space: Space, seen: Seen) -> None:
    await fill_ready(space, high=450, normal=60, low=10)
    await space.burst(worker_of(space, seen))
    flood = seen.all[:450]
    assert len(seen.all) == 520
    for start in range(0, 430, 10):  # a claim that goes back changes the order a little
        assert "normal" in flood[start : start + 20]
    assert all("low" in flood[start : start + 200] for start in range(0, 250, 50))
    assert flood.count("high") > 390


async def test_what_shows_it(space: Space) -> None:
    queue = space.queue
    job = queue.enqueue("mail", "x", id="h", priority="high", delay="1h", key="k", url="http://a")
    assert (job.priority, job.key, job.url) == ("high", "k", "http://a")
    found = queue.get("mail", "h")
    assert found is not None
    assert (found.priority, found.key, found.url) == ("high", "k", "http://a")
    assert [one.priority for one in queue.find("mail")] == ["high"]
    assert queue.enqueue("mail", "x", priority="normal", delay="1h").priority is None
    for one in list(queue.find("mail")):
        queue.cancel("mail", one.id)


async def test_a_wrong_one_is_refused(space: Space) -> None:
    with pytest.raises(InvalidInput, match="priority: 'urgent' is not high, normal or low"):
        space.queue.enqueue("mail", "x", priority="urgent")  # type: ignore[arg-type]


async def test_take_gets_the_more_urgent_one_before_those_that_wait(space: Space) -> None:
    await fill_ready(space, high=1, normal=0, low=3)
    taken = []
    for _ in range(4):
        with space.queue.take("mail", timeout="30s") as claim:
            assert claim
            taken.append(claim.job.body)
    assert "high" in taken[:2]  # one was next already, perhaps
    assert taken[2:] == ["low", "low"]


async def test_a_schedules_jobs_have_its_priority(space: Space) -> None:
    space.queue.schedule("mail", "x", every="1s", priority="low", until=4_000_000_000_000)
    with space.queue.take("mail", timeout="30s") as claim:
        assert claim
        assert claim.job.priority == "low"
    space.queue.unschedule("mail")
