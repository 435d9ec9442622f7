"""Consumers that are gone are taken out of their groups; those with claims, or just idle, stay. Old history goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from streamdq import Queue
from streamdq.config import Settings
from streamdq.keys import ShardKeys
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import arun
from streamdq.mover.cleanup import Cleanup
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import ManualClock, RedisClock
from tests.redis.harness import taken
from tests.servers import Server


@asynccontextmanager
async def cleanup_at(
    url: str, clock: RedisClock | None = None, **settings: Any
) -> AsyncIterator[tuple[Cleanup, ShardKeys]]:
    """A cleanup of its own, and the first shard of topic t."""
    link, session = open_session(url, "streamdq", Settings(**settings), clock, AsyncLink)
    store = RedisStore(session)
    await arun(link, store.topics.refresh())
    try:
        yield Cleanup(link, store), session.keys.shard("t", 0)
    finally:
        await link.close()


async def test_only_idle_consumers_without_claims_are_removed(redis_server: Server) -> None:
    with Queue(redis_server.url) as idle, Queue(redis_server.url) as busy:
        idle.enqueue("t", {"n": 1})
        taken(idle, "t").finish()
        busy.enqueue("t", {"n": 2})
        held = taken(busy, "t")
        assert idle.stats("t").topics["t"].groups["default"].consumers == 2

        async with cleanup_at(redis_server.url) as (cleanup, shard):
            assert await cleanup.remove_idle(shard) == 0, "idle for less than ten minutes"
            assert await cleanup.remove_idle(shard, idle_ms=-1) == 1

        assert busy.stats("t").topics["t"].groups["default"].consumers == 1
        held.finish()
        assert busy.audit().balanced
        assert busy.audit().left == 0


async def test_a_consumer_whose_name_is_no_text_is_removed_as_well(redis_server: Server) -> None:
    with Queue(redis_server.url) as queue:
        queue.enqueue("t", 1)
    async with cleanup_at(redis_server.url) as (cleanup, shard):
        with redis_server.client() as client:
            client.xgroup_createconsumer(shard.ready, "default", b"\xff\xfe")
            assert await cleanup.remove_idle(shard, idle_ms=-1) == 1
            assert client.xinfo_consumers(shard.ready, "default") == []


async def test_old_history_goes_however_much_there_is(redis_server: Server) -> None:
    with Queue(redis_server.url) as queue:
        queue.configure("t", create=True)
    async with cleanup_at(redis_server.url, history_length=1_000, history_age_s=3_600) as (cleanup, shard):
        with redis_server.client() as client, client.pipeline(transaction=False) as pipe:
            for n in range(25_000):
                pipe.xadd(shard.history, {"e": "row"}, id=f"1700000000000-{n}")
            for _ in range(900):
                pipe.xadd(shard.history, {"e": "row"})
            pipe.execute()
            gone = await cleanup.trim(shard)
            assert 24_900 <= gone <= 25_000
            assert await cleanup.trim(shard) == 0
            assert client.xlen(shard.history) == 25_900 - gone


async def test_old_dead_letters_go_if_the_topic_says_so(redis_server: Server) -> None:
    clock = ManualClock()
    with Queue(redis_server.url, clock=clock) as queue:
        queue.configure("t", dead_for="90d", create=True)
        queue.configure("keeps", create=True)
        for n in range(3):
            queue.enqueue("t", n, id=f"j{n}")
            queue.enqueue("keeps", n)
        for topic in ("t", "keeps"):
            for _ in range(3):
                await asyncio.to_thread(bury_one, queue, topic)
        async with cleanup_at(redis_server.url, clock) as (cleanup, shard):
            assert await cleanup.trim_dead(shard) == 0
            clock.advance("91d")
            assert await cleanup.trim_dead(ShardKeys("streamdq", "keeps", 0)) == 0
            assert await cleanup.trim_dead(shard) == 3
        assert queue.dead("t") == []
        assert len(queue.dead("keeps")) == 3
        assert queue.audit().balanced


def bury_one(queue: Queue, topic: str) -> None:
    taken(queue, topic).bury("no more")
