"""Shares open circuit breakers between the processes of a namespace, through one key in Redis that expires.

The key is written when a breaker opens, when one process makes a trial call, and when it closes. A process that has
callbacks to make reads it at most once a second. Without Redis, each process relies on its own calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from ..errors import ServerError
from ..link.connection import AsyncLink
from ..link.session import Op, Session, arun
from ..process.logs import log
from ..process.loop import cancel_and_wait
from ..store import namespace
from ..store.scripts import Scripts

T = TypeVar("T")
LOOK_EVERY_S = 1.0
MOST = 500
"""All shared breakers are read at once. Further dead receivers are known only to the process that finds them."""
_KEEP_S = 120.0
_ANSWER_S = 1.0  # the longest that a callback waits for Redis


class Answer(IntEnum):
    """Whether a receiver whose breaker was open may be tried, as the script try_breaker returns it."""

    CLOSED = 0
    YOURS = 1
    TAKEN = 2
    OPEN = 3


@dataclass(frozen=True, slots=True)
class Breaker:
    """A receiver's breaker in Redis. ``left_s``: how long it stays open; below 0 if the receiver may be tried."""

    left_s: float
    open_s: float
    trying: bool


class Shared:
    """This process's view of the shared breakers. ``seen`` is called with all open ones, and those that have closed."""

    def __init__(
        self,
        link: AsyncLink,
        session: Session,
        now_ms: Callable[[], int],
        hold_s: float,
        seen: Callable[[Mapping[str, Breaker], set[str]], None],
    ) -> None:
        """``now_ms``: Redis's time. ``hold_s``: how long a trial call may take."""
        self._link = link
        self._session = session
        self._scripts = Scripts(session)
        self._key = session.keys.breakers
        self._now_ms = now_ms
        self._hold_s = hold_s
        self._seen = seen
        self._there: set[str] = set()  # receivers with a breaker in Redis, as last seen
        self._looked = -math.inf
        self._first: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def look(self) -> None:
        """Reads other processes' breakers now and then; only the first time it waits for the result."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            task = self._start(self._look())
            self._first = self._first or task
        if self._first is not None and not self._first.done():
            await asyncio.shield(self._first)

    async def may_try(self, receiver: str) -> tuple[Answer, float]:
        """Asks whether this process may make the trial call; also returns in how many seconds to ask again."""
        op = self._scripts.try_breaker(self._key, receiver, int(self._hold_s * 1000))
        reply = await self._do(op)
        if reply is None:  # Redis is away
            return Answer.YOURS, 0.0
        return Answer(reply[0]), reply[1] / 1000

    def opened(self, receiver: str, open_s: float) -> None:
        self._start(self._open(receiver, open_s))

    def closed(self, receiver: str) -> None:
        self._there.discard(receiver)
        self._start(self._do(namespace.close_breaker(self._session, receiver)))

    async def told(self) -> None:
        """Waits until all calls to Redis have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        await cancel_and_wait(self._tasks)

    async def _open(self, receiver: str, open_s: float) -> None:
        op = self._scripts.open_breaker(self._key, receiver, int(open_s * 1000), int(_KEEP_S * 1000), MOST)
        if await self._do(op):
            self._there.add(receiver)

    async def _look(self) -> None:
        before = set(self._there)
        kept = await self._do(namespace.open_breakers(self._session))
        if kept is None:
            return
        now_ms = self._now_ms()
        found = {
            receiver: Breaker((one.until_ms - now_ms) / 1000, one.open_ms / 1000, one.trying)
            for receiver, one in kept.items()
        }
        gone = before - found.keys()
        self._there = (self._there - gone) | found.keys()
        self._seen(found, gone)

    async def _do(self, op: Op[T]) -> T | None:
        """Runs the operation; returns None if Redis did not answer in time."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await arun(self._link, op)
        except (ServerError, TimeoutError) as error:
            log.debug("breakers not shared", error=str(error))
            return None

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
