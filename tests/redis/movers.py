"""Movers alone, without workers around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import arun
from streamdq.mover.mover import Mover
from streamdq.store.scripts import Scripts
from streamdq.store.topics import Topics
from streamdq.times.clock import RedisClock
from tests.redis.harness import NAMESPACE, SETTINGS
from tests.waiting import eventually


@asynccontextmanager
async def mover_at(
    url: str,
    name: str,
    leads: bool = True,
    lease_ms: int = 500,
    clock: RedisClock | None = None,
    movers: int | None = 1,
) -> AsyncIterator[Mover]:
    """At the end it is cut off, as by kill -9: its lease stays until it has run out."""
    settings = SETTINGS.model_copy(update={"lease_ms": lease_ms, "movers": movers})
    link, session = open_session(url, NAMESPACE, settings, clock, AsyncLink)
    scripts, stopping = Scripts(session), asyncio.Event()
    topics = Topics(session, scripts)
    await arun(link, topics.refresh())
    mover = Mover(link, session, scripts, topics, name, stopping)
    running = asyncio.create_task(mover.run())
    try:
        await eventually(lambda: mover.leading or not leads, "it is at work")
        yield mover
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await link.close()
