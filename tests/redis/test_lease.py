"""Who is at work when the mover that was is killed, and what standing by costs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
import redis

from streamdq.config import Settings
from streamdq.errors import ServerUnavailable
from streamdq.link.connection import AsyncLink
from streamdq.link.session import open_session
from streamdq.loop import cancel_and_wait
from streamdq.mover.lease import Lease
from streamdq.mover.mover import Mover
from streamdq.store.scripts import Scripts
from tests.redis.harness import NAMESPACE, SETTINGS, Space, eventually
from tests.redis.movers import mover_at
from tests.servers import Server

LEASE_MS = Settings(url="memory://unused").lease_ms


def deputy(client: redis.Redis) -> bytes | None:
    name = client.get(f"{{{NAMESPACE}}}:deputy")
    assert name is None or isinstance(name, bytes)
    return name


async def test_a_killed_mover_is_replaced_within_a_second(space: Space, redis_server: Server) -> None:
    space.queue.configure("t")
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a", lease_ms=LEASE_MS))
            async with mover_at(space.url, "b", leads=False, lease_ms=LEASE_MS) as second:
                await eventually(lambda: deputy(client) == b"b", "it is the deputy")
                assert not second.leading
                await killed.aclose()
                started = time.monotonic()
                await eventually(lambda: second.leading, "it is at work")
                assert time.monotonic() - started < 1.3  # a busy neighbour included
                assert deputy(client) is None


async def test_when_the_deputy_is_killed_as_well_the_next_one_is_at_work(space: Space, redis_server: Server) -> None:
    space.queue.configure("t")
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a"))
            await killed.enter_async_context(mover_at(space.url, "b", leads=False))
            await eventually(lambda: deputy(client) == b"b", "it is the deputy")
            async with mover_at(space.url, "c", leads=False) as third:
                await killed.aclose()
                await eventually(lambda: third.leading, "it is at work", 4 * 0.5 + 0.5 + 1)


async def test_after_all_were_killed_who_starts_does_not_wait_for_the_deputy(
    space: Space, redis_server: Server
) -> None:
    """Both leases are those of the dead."""
    space.queue.configure("t")
    with redis_server.client() as client:
        client.set(f"{{{NAMESPACE}}}:mover", "dead", px=LEASE_MS)
        client.set(f"{{{NAMESPACE}}}:deputy", "dead", px=600_000)
        async with mover_at(space.url, "a"):
            assert deputy(client) == b"dead"


async def test_who_works_without_the_lease_goes_on_when_its_waits_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine. To begin anew takes two calls to the node that does not answer; nothing moves meanwhile."""
    asked = asyncio.Event()

    async def renew(_: object) -> bool:
        asked.set()
        raise ServerUnavailable("lost")

    monkeypatch.setattr("streamdq.mover.lease._Hold.renew", renew)
    settings = SETTINGS.model_copy(update={"lease_ms": 100})
    link, session = open_session("redis+cluster://127.0.0.1:1", NAMESPACE, settings, None, AsyncLink)
    lease = Lease(link, session, Scripts(session), "m", asyncio.Event())
    keeping = asyncio.create_task(lease.keep())
    for _ in range(2):
        await asyncio.wait_for(asked.wait(), 5)
        asked.clear()
        time.sleep(0.15)  # noqa: ASYNC251  (the loop is to be late)
    await asyncio.wait({keeping}, timeout=0.2)
    assert not keeping.done()
    await cancel_and_wait([keeping])
    await link.close()


async def test_however_many_stand_by_one_watches_the_lease(space: Space, redis_server: Server) -> None:
    space.queue.configure("t")
    async with AsyncExitStack() as movers:
        await movers.enter_async_context(mover_at(space.url, "a", lease_ms=LEASE_MS))
        standing: list[Mover] = [
            await movers.enter_async_context(mover_at(space.url, f"m{n}", leads=False, lease_ms=LEASE_MS))
            for n in range(7)
        ]
        with redis_server.client() as client:
            await eventually(lambda: deputy(client), "there is a deputy")
            await asyncio.sleep(1)  # all have come to rest
            before = client.info("commandstats")
            await asyncio.sleep(4)  # what is measured
            after = client.info("commandstats")
        asked = sum(after[name]["calls"] - before[name]["calls"] for name in ("cmdstat_pttl", "cmdstat_getex"))
        assert asked / 4 < 8
        assert not any(mover.leading for mover in standing)
