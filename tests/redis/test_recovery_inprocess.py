"""Redis loses something under running workers: they go on with new jobs by themselves."""

from __future__ import annotations

import pytest

from streamdq import Job, JobState, NewJob
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


@pytest.mark.parametrize("shards", [1, 3])
async def test_flushall_under_an_idle_worker(space: Space, redis_server: Server, seen: Seen, shards: int) -> None:
    space.queue.configure("t", shards=shards, retry="7s")
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        with redis_server.client() as client:
            client.flushall()
        await serves(space, seen, "after")
        # The producer made the topic again as it knew it.
        settings = space.another_queue().configure("t", create=True)
        assert (settings.shards, settings.retry) == (shards, "7000ms")
    assert space.audit().left == 0


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


async def test_a_job_that_ran_during_the_flush_is_nobodys(space: Space, redis_server: Server, seen: Seen) -> None:
    """Its end is refused, and leaves no trace: the accounts of what came after balance."""
    worker = space.worker()
    gate = Seen()

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)
        if body == "long":
            await gate.count(1)

    space.queue.enqueue("t", "long", id="a")
    async with space.serving(worker):
        await seen.count(1)
        with redis_server.client() as client:
            client.flushall()
        space.queue.enqueue("t", "new", id="a")  # the same id, another job
        await seen.count(2)
        gate.add("go on")
        await eventually(lambda: space.audit().left == 0, "all done")
    assert seen.all == ["long", "new"]
    assert space.stats().done == 1


@pytest.mark.parametrize("stream", ["ready", "own"])
async def test_a_group_destroyed_under_running_workers(
    space: Space, redis_server: Server, seen: Seen, stream: str
) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        shard = space.queue._store.topics.shards("t")[0]
        with redis_server.client() as client:
            client.xgroup_destroy(shard.ready if stream == "ready" else shard.ready_of("default"), "default")
        await serves(space, seen, "after")


async def test_a_group_destroyed_while_jobs_wait_and_run(space: Space, redis_server: Server, seen: Seen) -> None:
    """It is made anew at the beginning of its stream: what waited is delivered, what ran runs again."""
    worker, gate = space.worker(concurrency=1), Seen()

    @worker.handler("t")
    async def handler(body: int, job: Job) -> None:
        seen.add((body, job.attempt))
        if len(seen) == 1:
            await gate.count(1)

    space.queue.enqueue_many("t", (NewJob(n) for n in range(10)))
    async with space.serving(worker):
        await seen.count(1)
        shard = space.queue._store.topics.shards("t")[0]
        with redis_server.client() as client:
            client.xgroup_destroy(shard.ready, "default")
        gate.add("go on")
        await eventually(lambda: space.stats().done == 10, "all done")
    assert {body for body, _ in seen.all} == set(range(10))
    assert space.audit().left == 0


async def test_streams_deleted(space: Space, redis_server: Server, seen: Seen) -> None:
    """A read that is blocked on them is told so by Redis 7: repaired at once, no loop fails."""
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
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        with redis_server.client() as client:
            client.script_flush()
        await serves(space, seen, "after")
        space.queue.enqueue("t", "x", id="a", delay="1h")
        with redis_server.client() as client:
            client.script_flush()
        assert space.queue.cancel("t", "a") is True


async def test_every_connection_killed(space: Space, redis_server: Server, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        for round_ in range(3):
            await serves(space, seen, f"round {round_}")
            with redis_server.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
        await serves(space, seen, "last")


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
    assert settings.groups["a"].retry == "9000ms"


async def test_a_group_that_is_served_comes_back_when_it_is_taken_away(space: Space, seen: Seen) -> None:
    space.queue.configure("t", groups=["a"])
    worker = space.worker("a")
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        space.queue.enqueue("t", "before", id="a")
        await seen.count(1)
        await space.becomes("a", "gone")
        space.queue.configure("t", groups=["b"])
        await eventually(lambda: "a" in space.another_queue().stats("t").topics["t"].groups, "the group is back")
        space.queue.enqueue("t", "after")
        await seen.count(2)
    assert seen.all == ["before", "after"]


async def test_the_movers_lease_lost(space: Space, redis_server: Server, seen: Seen) -> None:
    worker = space.worker(lease_ms=500)
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        with redis_server.client() as client:
            client.delete("{test}:mover")
            await serves(space, seen, "after")
            # Another took it and vanished: its time runs out.
            client.set("{test}:mover", "a stranger", px=600)
            await serves(space, seen, "later")
            await eventually(lambda: client.get("{test}:mover") == worker.name.encode(), "the lease is back")
        await serves(space, seen, "last")


async def test_a_lost_wake_up_is_found_within_seconds(space: Space, redis_server: Server, seen: Seen) -> None:
    """A ring may be lost with Redis's data: the mover looks by itself now and then."""
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await serves(space, seen, "before")
        shard = space.queue._store.topics.shards("t")[0]
        space.queue.enqueue("t", "moved up behind its back", id="a", delay="1h")
        with redis_server.client() as client:
            ((member, _),) = client.zrange(shard.bucket, 0, 0, withscores=True)
            record, long_ago = client.hget(shard.jobs, "a"), 1_000_000_000_000
            client.hset(shard.jobs, "a", record[:12] + str(long_ago).encode() + record[25:])
            client.zadd(shard.bucket, {member: long_ago})
        await seen.count(3)
        await space.becomes("a", "gone")


async def test_the_job_of_a_delayed_topic_survives_script_flush(space: Space, redis_server: Server) -> None:
    space.queue.enqueue("t", "x", id="a", delay="1h")
    with redis_server.client() as client:
        client.script_flush()
    assert space.state("a") == JobState.DELAYED
