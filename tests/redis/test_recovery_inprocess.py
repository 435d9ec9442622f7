"""Redis loses something under running workers: they go on with new jobs by themselves."""

from __future__ import annotations

from streamdq import JobState, NewJob
from streamdq.metrics import declared
from tests.redis.harness import NAMESPACE, Seen, Space, recorder
from tests.servers import Server
from tests.waiting import eventually


async def serves(space: Space, seen: Seen, what: str, topic: str = "t") -> None:
    """A job for at once and a delayed one arrive."""
    count = len(seen)
    space.queue.enqueue(topic, f"{what} at once")
    space.queue.enqueue(topic, f"{what} delayed", delay="30ms")
    await seen.count(count + 2)
    assert sorted(seen.all[count:]) == [f"{what} at once", f"{what} delayed"]
    await eventually(lambda: space.queue.audit(topic).left == 0, "all done")


async def test_flushall_under_busy_workers_of_two_groups(space: Space, redis_server: Server, seen: Seen) -> None:
    space.queue.configure("t", groups=["a", "b"])
    workers = [space.worker("a"), space.worker("b")]
    for worker in workers:
        worker.handler("t")(recorder(seen))
    async with space.serving(*workers):
        space.queue.enqueue_many("t", (NewJob(n, delay=n / 2000) for n in range(500)))
        await seen.count(200)
        with redis_server.client() as client:
            client.flushall()
        before = len(seen)
        space.queue.enqueue_many("t", (NewJob(f"new {n}") for n in range(100)))
        await eventually(lambda: sum(str(x).startswith("new") for x in seen.all) == 200, "new jobs are done")
        await eventually(lambda: space.audit().left == 0, "all done")
        assert before >= 200
    stats = space.queue.stats("t").topics["t"]
    assert {group: one.done for group, one in stats.groups.items()} == {"a": 100, "b": 100}


async def test_streams_deleted(space: Space, redis_server: Server, seen: Seen) -> None:
    """Redis 7 ends a read that is blocked on them: repaired at once, no loop fails."""
    worker, restarts = space.worker(), declared.LOOP_RESTARTS.labels(NAMESPACE, "claim")
    before = restarts._value.get()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        shard = space.queue._store.topics.shards("t")[0]
        with redis_server.client() as client:
            client.delete(shard.ready, shard.ready_of("default"))
        await serves(space, seen, "after")
    assert restarts._value.get() == before


async def test_script_flush(space: Space, redis_server: Server, seen: Seen) -> None:
    worker = space.recording(seen)
    async with space.serving(worker):
        await serves(space, seen, "before")
        with redis_server.client() as client:
            client.script_flush()
        await serves(space, seen, "after")
        space.queue.enqueue("t", "x", id="a", delay="1h")
        with redis_server.client() as client:
            client.script_flush()
        assert space.queue.cancel("t", "a") is True


async def test_the_registry_lost_alone(space: Space, redis_server: Server, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t", retry="9s")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        with redis_server.client() as client:
            client.delete("{test}:topics")
        await serves(space, seen, "after")
        # What is changed from now on reaches the shards, which were not lost.
        space.queue.pause("t")
        space.queue.enqueue("t", "held", id="a")
        assert space.state("a") == JobState.DELAYED
        space.queue.resume("t")
        await seen.count(5)
        await space.becomes("a", "gone")


async def test_a_producer_that_never_saw_the_topic_makes_it_anew(
    space: Space, redis_server: Server, seen: Seen
) -> None:
    """After the flush: the worker's group is there again, beside the one that every new topic has."""
    space.queue.configure("t", groups=["a"])
    space.queue.configure("u", groups=["a"])
    worker = space.worker("a")
    worker.handler("t", retry="9s")(recorder(seen))
    worker.handler("u")(recorder(seen))
    async with space.serving(worker):
        with redis_server.client() as client:
            client.flushall()
        stranger = space.another_queue()
        stranger.enqueue("unrelated", 1, delay="1h")
        stranger.enqueue("t", "x", id="a")
        stranger.enqueue("u", "y", id="a")
        await seen.count(2)
        await eventually(lambda: space.stats("u", "a").done == 1, "done")
    settings = stranger.configure("t", create=True)
    assert set(settings.groups) == {"default", "a"}
    assert settings.groups["a"].retry == "9s"


async def test_a_group_that_is_served_comes_back_when_it_is_taken_away(space: Space, seen: Seen) -> None:
    space.queue.configure("t", groups=["a"])
    worker = space.recording(seen, "a")
    async with space.serving(worker):
        space.queue.enqueue("t", "before", id="a")
        await seen.count(1)
        await space.becomes("a", "gone")
        space.queue.configure("t", groups=["b"])
        await eventually(lambda: "a" in space.another_queue().stats("t").topics["t"].groups, "the group is back")
        space.queue.enqueue("t", "after")
        await seen.count(2)
    assert seen.all == ["before", "after"]
