"""The lease decides which of a namespace's movers is at work. It saves work, and is not needed for correctness.

One process holds the lease and renews it. If that process is killed, another one takes the lease as soon as it has
expired, which takes less than a second. Only one waiting process watches it: the deputy, which holds its own lease. The
others watch the deputy's lease, which lasts longer, so they ask less often.
"""

from __future__ import annotations

import asyncio
import time

from ..errors import ServerUnavailable
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..logs import log
from ..loop import wait
from ..store import namespace
from ..store.scripts import Scripts

_RENEW_AT = 0.75  # of the lease's time: the rest is several times as long as a slow call
_STANDBY_MARGIN_S = 0.05
_DEPUTY = 4  # the deputy's lease lasts four times as long


class _Hold:
    """A key that expires and names its holder."""

    def __init__(self, link: AsyncLink, session: Session, scripts: Scripts, key: str, name: str, ms: int) -> None:
        self._link = link
        self._session = session
        self._scripts = scripts
        self._key = key
        self._name = name
        self._ms = ms
        self.renew_after_s = ms / 1000 * _RENEW_AT

    async def take(self) -> tuple[bool, int]:
        """Takes the key if it is free. Returns whether this process holds it, and for how many ms it is still held."""
        return await arun(self._link, self._scripts.lease(self._name, self._ms, self._key))

    async def renew(self) -> bool | None:
        """Returns whether this process still holds the key; None: nobody does.

        A plain command costs Redis a fraction of the script, and is not refused at the memory limit. If another process
        holds the key, the command only prolongs that process's hold.
        """
        holder = await arun(self._link, namespace.prolong_lease(self._session, self._key, self._ms))
        return None if holder is None else holder == self._name

    async def left_ms(self) -> int:
        return await arun(self._link, namespace.lease_left_ms(self._session, self._key))

    async def give_up(self) -> None:
        if await arun(self._link, namespace.lease_holder(self._session, self._key)) == self._name:
            await arun(self._link, namespace.drop_lease(self._session, self._key))


class Lease:
    """The mover's lease and the deputy's, as one process sees them."""

    def __init__(self, link: AsyncLink, session: Session, scripts: Scripts, name: str, stopping: asyncio.Event) -> None:
        keys, lease_ms = session.keys, session.settings.lease_ms
        self._is_cluster = link.is_cluster
        self._name = name
        self._stopping = stopping
        self._mover = _Hold(link, session, scripts, keys.mover, name, lease_ms)
        self._deputy = _Hold(link, session, scripts, keys.deputy, name, lease_ms * _DEPUTY)
        self._is_deputy = False
        self._is_new = True

    async def acquire(self) -> bool:
        """Tries once to take the lease. If another process holds it, waits until just after it has expired.

        A process that has just started may have missed that the mover and its deputy were killed together, as when all
        processes are started again: it waits for the mover's lease first, which is over sooner than the deputy's.

        On Cluster, perhaps only the node with the lease is lost. A process that can't ask then works without the lease
        on the other nodes' shards, perhaps beside others.
        """
        try:
            held, left_ms = await self._mover.take()
            if not held and self._is_new and not await wait(self._stopping, left_ms / 1000 + _STANDBY_MARGIN_S):
                held, _ = await self._mover.take()
            self._is_new = False
            if held:
                await self._resign()
            elif await self._become_deputy():
                await self._watch()
            return held
        except ServerUnavailable:
            if not self._is_cluster:
                raise
            log.warning("working without the mover's lease: its Redis node does not answer", mover=self._name)
            return True

    async def _become_deputy(self) -> bool:
        """Waits until this process is the deputy; returns False if the process stops."""
        # It sleeps until the lease would expire instead of polling, so idle processes stay quiet.
        while not self._stopping.is_set():
            self._is_deputy, left_ms = await self._deputy.take()
            if self._is_deputy:
                return True
            while left_ms > 0 and not await wait(self._stopping, left_ms / 1000 + _STANDBY_MARGIN_S):
                left_ms = await self._deputy.left_ms()
        return False

    async def _watch(self) -> None:
        """Returns when nobody holds the mover's lease, or another process has become the deputy."""
        renew_at = time.monotonic() + self._deputy.renew_after_s
        while (left_ms := await self._mover.left_ms()) > 0:
            if await wait(self._stopping, left_ms / 1000 + _STANDBY_MARGIN_S):
                await self._resign()
                return
            if time.monotonic() >= renew_at:
                if not await self._deputy.renew():
                    self._is_deputy = False
                    return
                renew_at = time.monotonic() + self._deputy.renew_after_s

    async def _resign(self) -> None:
        """Lets another process become the deputy."""
        if self._is_deputy:
            self._is_deputy = False
            await self._deputy.give_up()

    async def keep(self) -> None:
        """Returns when the lease is lost: another process holds it, or nobody does because this process was stopped for
        a while. Redis decides that, not a clock here: on a busy machine every wait ends late.
        """
        while True:
            await asyncio.sleep(self._mover.renew_after_s)
            try:
                held = await self._mover.renew()
                if held is None and self._is_cluster:  # the key was lost with its node, or was never taken
                    held, _ = await self._mover.take()
                if not held:
                    return
            except ServerUnavailable:
                if not self._is_cluster:
                    raise

    async def give_up(self) -> None:
        await self._mover.give_up()
