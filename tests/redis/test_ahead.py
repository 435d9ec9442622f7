"""What is fetched ahead of a free slot: it goes to a worker that has one, and a topic that is paused starts nothing
more.
"""

from __future__ import annotations

import asyncio

import pytest

from streamdq.keys import NamespaceKeys
from tests.redis.harness import NAMESPACE, Seen, Space
from tests.servers import Server
from tests.waiting import eventually


async def test_what_waits_behind_slow_jobs_goes_to_an_idle_worker(space: Space, seen: Seen) -> None:
    go_on = asyncio.Event()

    async def handle(body: str) -> None:
        seen.add(body)
        if body == "slow":
            await go_on.wait()

    busy, idle = space.worker(concurrency=2), space.worker(concurrency=2)
    for worker in (busy, idle):
        worker.handler("t")(handle)
    async with space.serving(busy):
        for _ in range(10):  # it learns that jobs are short
            before = len(seen)
            space.queue.enqueue_many("t", ({"body": "short"} for _ in range(100)))
            await seen.count(before + 100)
        before = len(seen)
        space.queue.enqueue_many("t", ({"body": body} for body in ["slow", "slow", *["short"] * 100]))
        await seen.count(before + 2)
        async with space.serving(idle):
            # One slow one may have been claimed by nobody yet; each holds up one slot.
            await seen.count(before + 102)
            assert seen.all.count("slow") == 2
            go_on.set()


async def test_after_pause_has_returned_nothing_starts(space: Space, seen: Seen) -> None:
    """With many jobs in hand, and others on their way."""
    worker = space.worker(concurrency=5)

    @worker.handler("t")
    async def handle(body: int) -> None:
        seen.add(body)
        await asyncio.sleep(0.001)

    async with space.serving(worker):
        for _ in range(2):
            space.queue.enqueue_many("t", ({"body": n} for n in range(500)))
            await seen.count(len(seen) + 50)
            await asyncio.to_thread(space.queue.pause, "t")
            paused = len(seen)
            await eventually(lambda: space.stats().running == 0, "what ran has ended")
            assert len(seen) == paused
            space.queue.resume("t")
        await eventually(lambda: space.stats().done == 1000, "all are done in the end")
    assert len(seen) == 1000


async def test_a_topic_at_rest_is_paused_without_waiting(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.enqueue("t", 1)
    with space.queue.take("t") as claim:
        assert claim
        claim.finish()

    def waits(seconds: float) -> None:
        raise AssertionError(f"it waits {seconds} s")

    monkeypatch.setattr("streamdq.store.topics.changes.pause", waits)
    await asyncio.to_thread(space.queue.pause, "t")


async def test_a_worker_takes_no_more_than_it_has_room_for(space: Space, redis_server: Server, seen: Seen) -> None:
    """One job in each of 22 topics, and two workers with one slot each."""
    topics = [f"t{number}" for number in range(22)]
    go_on = asyncio.Event()
    workers = [space.worker(concurrency=1) for _ in range(2)]
    ran: list[list[str]] = [[], []]
    for worker, mine in zip(workers, ran, strict=True):

        async def handle(body: str, *, to: list[str] = mine) -> None:
            to.append(body)
            seen.add(body)
            await go_on.wait()

        for topic in topics:
            worker.handler(topic)(handle)
    keys = NamespaceKeys(NAMESPACE)

    def pending() -> int:
        shards = [keys.shard(topic, 0) for topic in topics]
        streams = [name for shard in shards for name in (shard.ready, shard.ready_of("default"))]
        return sum(client.xpending(stream, "default")["pending"] for stream in streams)

    with redis_server.client() as client:
        async with space.serving(*workers):
            for topic in topics:
                space.queue.enqueue(topic, topic)
            await seen.count(2)
            await eventually(lambda: pending() == 2, "each has one, and the others are free to take")
            assert [len(mine) for mine in ran] == [1, 1]
            go_on.set()
            await seen.count(22)
    assert sorted(seen.all) == sorted(topics)
