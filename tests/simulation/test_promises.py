"""What idle workers cost, and how soon somebody goes on where another was killed: exact, as time is simulated.

The calls to Redis are counted, not the commands that scripts make of them: ``python -m benchmarks idle`` has all.
"""

from __future__ import annotations

import asyncio

import pytest

from streamdq.keys import ShardKeys, shard_of
from tests.simulation.deployment import Deployment
from tests.turns import others_later

IDLE_PER_S = 4.0
REPLACED_S = 2.5
BACK_S = 5.0
QUIET_S = 60.0
SHARDS = 64


@pytest.mark.parametrize("workers", others_later([1, 8], 8))
def test_idle_workers_are_quiet(workers: int) -> None:
    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", shards=4)
        await here.async_queue.enqueue("t", "x", delay="1h")
        for _ in range(workers):
            here.start_worker("t")
        await asyncio.sleep(QUIET_S)
        assert await here.commands_per_s(120) <= IDLE_PER_S

    Deployment(script).run()


def test_a_group_that_sorts_first_leaves_an_idle_topic_quiet() -> None:
    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", shards=4, groups=["m"])
        for group in ("m", "a"):
            here.start_worker("t", group=group)
        await asyncio.sleep(1)
        await here.async_queue.enqueue("t", "x")
        await here.starts(2)
        await asyncio.sleep(QUIET_S)
        assert await here.commands_per_s(120) <= IDLE_PER_S

    Deployment(script).run()


def test_a_paused_topic_with_a_rate_is_left_alone() -> None:
    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", rate=100)
        here.start_worker("t")
        await here.async_queue.enqueue_many("t", ({"body": n} for n in range(60)))
        await here.starts(5)
        await here.async_queue.pause("t")
        await asyncio.sleep(QUIET_S)
        assert await here.commands_per_s(120) <= IDLE_PER_S
        await here.async_queue.resume("t")
        await here.starts(60)

    Deployment(script).run()


@pytest.mark.parametrize("idle_s", [0.0, 5.0, 60.3])
def test_a_killed_mover_is_replaced(idle_s: float) -> None:
    """After it had nothing to do for a while, or in the middle of its work."""

    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", create=True)
        for _ in range(5):
            here.start_worker("t")
        await asyncio.sleep(20)
        await here.async_queue.enqueue("t", "before", delay="1s")
        await here.starts(1)
        await asyncio.sleep(idle_s)
        killed = here.leader()
        assert killed
        here.kill(killed)
        due = here.loop.time() + 0.1
        await here.async_queue.enqueue("t", "after", delay="100ms")
        await here.starts(2)
        assert here.started[1][1] - due <= REPLACED_S

    Deployment(script).run()


def test_a_mover_that_stops_is_replaced_at_once() -> None:
    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", create=True)
        for _ in range(5):
            here.start_worker("t")
        await asyncio.sleep(QUIET_S)
        stops = here.leader()
        assert stops
        here.terminate(stops)
        await asyncio.sleep(0.1)
        due = here.loop.time() + 0.1
        await here.async_queue.enqueue("t", "x", delay="100ms")
        await here.starts(1)
        assert here.started[0][1] - due <= 0.1
        assert here.leader() not in (None, stops)

    Deployment(script).run()


@pytest.mark.parametrize("runs_s", [0.5, 3.7])
def test_a_dead_workers_jobs_are_back_soon_whatever_their_ttr(runs_s: float) -> None:
    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", ttr="1h")
        for _ in range(2):
            here.start_worker("t", runs_s=3600)
        await asyncio.sleep(20)
        await here.async_queue.enqueue("t", "x")
        await here.starts(1)
        await asyncio.sleep(runs_s)
        here.kill(here.started[0][2])
        died = here.loop.time()
        await here.starts(2)
        assert here.started[1][1] - died <= BACK_S

    Deployment(script).run()


def id_in(shard: int) -> str:
    return next(id for id in map(str, range(100_000)) if shard_of(id, SHARDS) == shard)


def due_now(here: Deployment, shard: ShardKeys, id: str) -> None:
    """Makes the job due without a wakeup, as though that had been lost."""
    now_ms = b"%d" % (here.store.time() * 1000)
    bucket, jobs = shard.bucket.encode(), shard.jobs.encode()
    (member,) = here.store.apply((b"ZRANGE", bucket, b"0", b"-1"))
    record = here.store.apply((b"HGET", jobs, id.encode()))
    here.store.apply((b"HSET", jobs, id.encode(), record[:12] + now_ms + record[25:]))
    here.store.apply((b"ZADD", bucket, now_ms, member))


def test_a_lost_wakeup_costs_two_seconds_with_64_shards() -> None:
    async def script(here: Deployment) -> None:
        await here.async_queue.configure("t", shards=SHARDS)
        here.start_worker("t")
        await asyncio.sleep(20)
        ids = [id_in(shard) for shard in (0, 31, 63)]
        for id in ids:
            await here.async_queue.enqueue("t", id, id=id, delay="1h")
        await here.async_queue.enqueue("t", "first")
        await here.starts(1)
        for id in ids:
            due_now(here, here.keys.shard("t", shard_of(id, SHARDS)), id)
        at = here.loop.time()
        await here.starts(1 + len(ids))
        assert here.started[-1][1] - at <= 2.5

    Deployment(script).run()
