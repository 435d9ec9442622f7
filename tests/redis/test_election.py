"""Somebody moves what is due: a mover that was killed or that stops is replaced, and two never harm each other.

How soon that is, and what standbys cost, is measured on simulated time: tests/simulation/test_promises.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from streamdq.errors import ServerUnavailable
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.mover.alive.election import Election
from streamdq.process.loop import cancel_and_wait
from streamdq.store import namespace
from streamdq.store.redis_store import RedisStore
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.redis.movers import mover_at
from tests.servers import Server
from tests.unit.virtual_time import in_virtual_time
from tests.waiting import eventually

MOVER = f"{{{NAMESPACE}}}:mover"
STANDBYS = f"{{{NAMESPACE}}}:standbys"


async def test_a_dead_movers_lease_that_the_clock_made_longer_is_cut(space: Space, redis_server: Server) -> None:
    """When Redis's clock is set back by an hour, a lease lasts an hour longer."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        client.set(MOVER, "dead", px=3_600_000)
        async with mover_at(space.url, "b"):
            assert client.get(MOVER) == b"b"


async def test_a_mover_whose_lease_is_deleted_takes_it_again(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with mover_at(space.url, "a") as mover:
            client.delete(MOVER)
            await eventually(lambda: client.get(MOVER) == b"a", "it has it again")
            assert mover.leading, "meanwhile it has not stopped"


async def test_a_standby_that_stops_leaves_its_turn(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with mover_at(space.url, "a"), mover_at(space.url, "b", leads=False) as standby:
            await eventually(lambda: client.zrange(STANDBYS, 0, -1) == [b"b"], "it stands by")
            standby._stopping.set()
            await eventually(lambda: not client.exists(STANDBYS), "it has left")


@in_virtual_time
async def test_who_works_without_the_lease_goes_on_when_its_waits_end_late() -> None:
    """As on a busy machine. To begin anew takes two calls to the node that does not answer; nothing moves meanwhile."""
    asked, clock = asyncio.Event(), time.monotonic

    def prolong(*_: object) -> Any:
        asked.set()
        raise ServerUnavailable("lost")

    link, session = open_session("redis+cluster://127.0.0.1:1", NAMESPACE, SETTINGS, None, AsyncLink)
    election = Election(link, RedisStore(session), "m", asyncio.Event())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(namespace, "prolong_lease", prolong)
        keeping = asyncio.create_task(election.keep())
        for _ in range(3):
            await asked.wait()
            asked.clear()
            clock.now_s += 0.15  # type: ignore[attr-defined]  # the loop is late
        assert not keeping.done()
        await cancel_and_wait([keeping])
    await link.close()


async def test_who_gives_up_too_late_leaves_its_successors_lease_alone(space: Space, redis_server: Server) -> None:
    """It was stopped for a while, and its lease has run out: between a look at who holds it and its removal, another
    one may have taken it.
    """
    link, session = open_session(space.url, NAMESPACE, SETTINGS, None, AsyncLink)
    late = Election(link, RedisStore(session), "a", asyncio.Event())
    with redis_server.client() as client:
        assert await late.win()
        send = link.send

        async def taken_behind(*arguments: Any) -> list[Any]:
            """Whatever it asks first, the successor has the lease before its next call."""
            link.send = send
            replies = await send(*arguments)
            client.set(MOVER, "b", px=60_000)
            return replies

        link.send = taken_behind
        await late.give_up()
        assert client.get(MOVER) == b"b"
        client.delete(MOVER)
    await link.close()
