"""Movers alone, without workers around them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import arun
from streamdq.mover.mover import Mover
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import RedisClock
from tests.redis.harness import NAMESPACE, SETTINGS
from tests.waiting import eventually


def idle_s(mover: Mover) -> float:
    """For how many seconds no look at a shard is under way, failed, or due, as far as the mover knows."""
    timers = [node_mover._timers for node_mover in mover._node_movers.values()]
    if any(one._uncertain for one in timers):
        return 0.0
    return min((one._first() for one in timers), default=float("inf")) - time.monotonic()


@asynccontextmanager
async def mover_at(
    url: str,
    name: str,
    leads: bool = True,
    lease_ms: int = 500,
    clock: RedisClock | None = None,
    call_timeout_s: float = SETTINGS.call_timeout_s,
) -> AsyncIterator[Mover]:
    """At the end it is cut off, as by kill -9: its lease stays until it has run out."""
    settings = SETTINGS.model_copy(update={"lease_ms": lease_ms, "call_timeout_s": call_timeout_s})
    link, session = open_session(url, NAMESPACE, settings, clock, AsyncLink)
    store, stopping = RedisStore(session), asyncio.Event()
    await arun(link, store.topics.refresh())
    mover = Mover(link, store, name, stopping)
    running = asyncio.create_task(mover.run())
    try:
        await eventually(lambda: mover.leading or not leads, "it is active")
        yield mover
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await link.close()
