"""Elects the mover: of all processes of a namespace, one moves what is due. That saves work; correctness does not
depend on it, as each script is atomic.

The mover holds a lease, a key that expires, and renews it every second. All other processes are standbys. A mover that
stops frees the lease and notifies them. One that was killed can't; so the standbys look whether the lease has expired,
each in its turn, which the script ``lease`` gives out: once a second in all, whether three wait or three hundred. So a
killed mover is replaced within the lease's time and a second. If standbys die together with it, each one whose turn
would have come may add a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from zlib import crc32

from ...errors import ServerError, ServerUnavailable
from ...link.connection import AsyncLink
from ...link.session import arun
from ...process.logs import log
from ...process.loop import cancel_and_wait, supervise
from ...store import namespace
from ...store.blocking import listen
from ...store.redis_store import RedisStore

_RENEW_AT = 0.8  # of the lease's time: the rest is several times as long as a slow call
_BLOCK_S, _EACH_BLOCK_S = 600.0, 6.0


class Election:
    """One process's part in it. ``processes``: how many there are, as this process saw them last."""

    def __init__(self, link: AsyncLink, store: RedisStore, name: str, stopping: asyncio.Event) -> None:
        self._link, self._session, self._scripts = link, store.session, store.scripts
        self._name = name
        self._stopping = stopping
        self._ms = store.session.settings.lease_ms
        self._place = crc32(name.encode()) / 2**32
        self._notified = asyncio.Event()
        self.processes = 1

    def apart_s(self, least_s: float, each_s: float) -> float:
        """How many seconds apart to do what every process does now and then: ``least_s`` at least, and so many that all
        of them together do it once in ``each_s``. So a deployment at rest is as quiet with many processes as with few.
        """
        return max(least_s, each_s * self.processes)

    async def win(self) -> bool:
        """Waits until this process is the mover; returns False if it stops before.

        On Cluster, perhaps only the node with the lease is lost. A process that can't ask then works without the lease
        on the other nodes' shards, perhaps beside others.
        """
        try:
            held, wait_s = await self._look()
            return held or await self._stand_by(wait_s)
        except ServerUnavailable:
            if not self._link.is_cluster:
                raise
            log.warning("working without the mover's lease: its Redis node does not answer", mover=self._name)
            return True

    async def _look(self) -> tuple[bool, float]:
        """Takes the lease if it is free; returns whether this process has it, and in how many seconds to look again."""
        call = self._scripts.lease(self._name, self._ms, self._place)
        held, wait_ms, self.processes = await arun(self._link, call)
        return held, wait_ms / 1000

    async def _stand_by(self, wait_s: float) -> bool:
        hearing = asyncio.create_task(supervise("standby", self._hear, self._stopping, self._session.keys.namespace))
        held = False
        try:
            while not held and not await self._is_stopped_within(wait_s):
                held, wait_s = await self._look()
            return held
        finally:
            await cancel_and_wait([hearing])

    async def _is_stopped_within(self, wait_s: float) -> bool:
        """Waits for this process's turn, or until the mover has stopped."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._stopping, self._notified)]
        try:
            await asyncio.wait(waiting, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(waiting)
        self._notified.clear()
        if self._stopping.is_set():
            with contextlib.suppress(ServerError):
                await arun(self._link, namespace.leave_standbys(self._session, self._name))
        return self._stopping.is_set()

    async def _hear(self) -> None:
        seen: dict[str, bytes] = {}  # the first read also returns what came before it
        while True:
            block_s = self.apart_s(_BLOCK_S, _EACH_BLOCK_S)
            news = await arun(self._link, listen(self._session, [self._session.keys.mover_stopped], seen, block_s))
            if news:
                self._notified.set()
            seen |= news

    async def keep(self) -> None:
        """Renews the lease; returns when another process has it, because this process was stopped for a while. Redis
        decides that, not a clock here: on a busy machine every wait ends late.
        """
        while True:
            await asyncio.sleep(self._ms * _RENEW_AT / 1000)
            try:
                holder = await arun(self._link, namespace.prolong_lease(self._session, self._ms))
                if holder is None and (await self._look())[0]:  # it had expired, or Redis has lost it
                    continue
                if holder != self._name:
                    return
            except ServerUnavailable:  # see `win`
                if not self._link.is_cluster:
                    raise

    async def give_up(self) -> None:
        """Frees the lease, if this process still has it, and notifies the standbys."""
        if await arun(self._link, self._scripts.drop_lease(self._name)):
            with contextlib.suppress(ServerError):  # as at the memory limit: then they find it free in their turn
                await arun(self._link, namespace.notify_standbys(self._session, self._name))
