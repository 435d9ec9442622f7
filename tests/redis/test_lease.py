"""Somebody moves what is due: a mover that was killed or that stops is replaced, and two never harm each other.

How soon that is, and what standing by costs, is measured on simulated time: tests/simulation/test_promises.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from streamdq.config import Settings
from streamdq.errors import ServerUnavailable
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.mover.lease import Lease, _Hold
from streamdq.process.loop import cancel_and_wait
from streamdq.store.scripts import Scripts
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.redis.movers import mover_at
from tests.servers import Server
from tests.unit.virtual_time import in_virtual_time

LEASE_MS = Settings(url="memory://unused").lease_ms
MOVER = f"{{{NAMESPACE}}}:mover"


async def _nothing() -> None: ...


async def test_after_all_were_killed_who_starts_does_not_wait_for_those_in_line(
    space: Space, redis_server: Server
) -> None:
    """Both leases are those of the dead."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        client.set(MOVER, "dead", px=LEASE_MS)
        client.set(f"{{{NAMESPACE}}}:deputy", "dead", px=3_600_000)
        async with mover_at(space.url, "a"):
            assert client.get(f"{{{NAMESPACE}}}:deputy") == b"dead"


async def test_a_dead_movers_lease_that_the_clock_made_longer_is_cut(space: Space, redis_server: Server) -> None:
    """When Redis's clock is set back by an hour, a lease lasts an hour longer."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        client.set(MOVER, "dead", px=3_600_000)
        async with mover_at(space.url, "b"):
            assert client.get(MOVER) == b"b"


@in_virtual_time
async def test_who_works_without_the_lease_goes_on_when_its_waits_end_late() -> None:
    """As on a busy machine. To begin anew takes two calls to the node that does not answer; nothing moves meanwhile."""
    asked, clock = asyncio.Event(), time.monotonic

    async def renew(*_: object) -> bool:
        asked.set()
        raise ServerUnavailable("lost")

    settings = SETTINGS.model_copy(update={"lease_ms": 100})
    link, session = open_session("redis+cluster://127.0.0.1:1", NAMESPACE, settings, None, AsyncLink)
    lease = Lease(link, session, Scripts(session), "m", asyncio.Event(), lambda: 0.0, _nothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Hold, "renew", renew)
        keeping = asyncio.create_task(lease.keep())
        for _ in range(3):
            await asked.wait()
            asked.clear()
            clock.now_s += 0.15  # type: ignore[attr-defined]  # the loop is late
        assert not keeping.done()
        await cancel_and_wait([keeping])
    await link.close()


async def test_who_comes_late_does_not_prolong_the_lease_of_another(space: Space, redis_server: Server) -> None:
    """A process that was stopped had a long lease, which has run out; whoever has it now wants a short one."""
    link, session = open_session(space.url, NAMESPACE, SETTINGS, None, AsyncLink)
    stopped, other = (
        _Hold(link, session, Scripts(session), session.keys.mover, name, 60_000, 3_600_000)
        for name in ("stopped", "other")
    )
    assert (await stopped.take())[0]
    with redis_server.client() as client:
        client.delete(MOVER)
        stopped._until = 0.0
        assert (await other.take())[0]
        assert await stopped.renew(3_600_000) is False
        assert client.pttl(MOVER) <= 60_000
    await link.close()


async def test_who_gives_up_too_late_leaves_its_successors_lease_alone(space: Space, redis_server: Server) -> None:
    """It was stopped for a while, and its lease has run out: between a look at who holds it and its removal, another
    one may have taken it.
    """
    link, session = open_session(space.url, NAMESPACE, SETTINGS, None, AsyncLink)
    holds = {name: _Hold(link, session, Scripts(session), MOVER, name, 60_000) for name in ("a", "b")}
    with redis_server.client() as client:
        await holds["a"].take()
        send = link.send

        async def taken_behind(*arguments: Any) -> list[Any]:
            """Whatever it asks first, the successor has the lease before its next call."""
            link.send = send
            replies = await send(*arguments)
            client.set(MOVER, "b", px=60_000)
            return replies

        link.send = taken_behind
        await holds["a"].give_up()
        assert client.get(MOVER) == b"b"
    await holds["b"].give_up()
    await link.close()
