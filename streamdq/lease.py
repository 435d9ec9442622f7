"""The lease: which of a namespace's movers is at work. It saves work and is not needed for correctness."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .connection import AsyncLink, Command
from .errors import ServerUnavailable
from .logs import log
from .loop import wait
from .scripts import Scripts
from .session import Session, arun, checked

_RENEW_AT = 0.75  # of the lease: what is left is several times a slow call
_STANDBY_MARGIN_S = 0.05


class Lease:
    """One process's share in it."""

    def __init__(self, link: AsyncLink, session: Session, scripts: Scripts, name: str, stopping: asyncio.Event) -> None:
        self._link = link
        self._session = session
        self._scripts = scripts
        self._name = name
        self._stopping = stopping
        self._lease_s = session.settings.lease_ms / 1000

    async def acquire(self) -> bool:
        """One try; if another holds the lease, waits until just after it would run out.

        The Cluster node that has the lease may be lost, and only that: who can't ask goes to work without it, with the
        shards of the other nodes, as perhaps others do.
        """
        try:
            return await self._acquire()
        except ServerUnavailable:
            if not self._link.is_cluster:
                raise
            log.warning("the mover's lease can't be asked for, at work without it", mover=self._name)
            return True

    async def _acquire(self) -> bool:
        key = self._session.keys.mover
        held, left_ms = await arun(self._link, self._scripts.lease(self._name, self._session.settings.lease_ms))
        if held:
            return True
        # Waiting for its end, and not asking at an interval, keeps idle processes quiet.
        while left_ms > 0 and not await wait(self._stopping, left_ms / 1000 + _STANDBY_MARGIN_S):
            (left_ms,) = await self._send((key, "PTTL", key))
        return False

    async def keep(self) -> None:
        """Returns when the lease is lost to another, or may be."""
        held_until = time.monotonic() + self._lease_s
        while True:
            await asyncio.sleep(self._lease_s * _RENEW_AT)
            if time.monotonic() > held_until:  # this process was stopped for a while
                return
            renewed = time.monotonic()
            try:
                if not await self._renew():
                    return
            except ServerUnavailable:
                if not self._link.is_cluster:
                    raise
                renewed = time.monotonic()
            held_until = renewed + self._lease_s

    async def _renew(self) -> bool:
        """Two plain commands cost half of what the script does, on a Redis that has nothing else to do. In between the
        lease may pass to another, which then only holds it for longer; neither is refused at the memory limit.
        """
        key, lease_ms = self._session.keys.mover, self._session.settings.lease_ms
        holder, _ = await self._send((key, "GET", key), (key, "PEXPIRE", key, lease_ms))
        if holder is None and self._link.is_cluster:  # lost with its node, or never held
            held, _ = await arun(self._link, self._scripts.lease(self._name, lease_ms))
            return held
        return holder is not None and bool(holder.decode() == self._name)

    async def give_up(self) -> None:
        key = self._session.keys.mover
        (holder,) = await self._send((key, "GET", key))
        if holder is not None and holder.decode() == self._name:
            await self._send((key, "DEL", key))

    async def _send(self, *commands: tuple[Any, ...]) -> list[Any]:
        op = self._session.call([Command(command[0], command[1:]) for command in commands])
        return [checked(reply) for reply in await arun(self._link, op)]
