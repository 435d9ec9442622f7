"""The mover: takes due jobs from the buckets to the ready streams the moment they are due.

Every worker process carries one; a lease lets one of them work for the whole namespace. The lease saves work, it is not
needed for correctness: each script is atomic, two movers at once would only find less to do. The holder also takes over
claims whose TTR has passed (reclaim.py).

Time: a BLOCK time-out on an idle Redis ends up to one server tick late (80 ms measured), so no block times a due
moment. The mover sleeps on its own timer until the next due time and listens to the shards' ``wake`` streams for
something earlier. A ring may be lost with Redis's data; a look at one shard each second finds what was missed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any

from . import tally
from .clock import RedisClock, RedisTime
from .config import MAX_BATCH, Settings
from .connection import AsyncLink, Command
from .errors import GroupMissing
from .janitor import Janitor
from .keys import ShardKeys
from .logs import log
from .loop import cancel_and_wait, supervise, wait
from .reclaim import Reclaimer
from .rings import ring
from .scripts import Moved, Scripts
from .session import Session, arun, checked, open_session
from .topics import Topics

_FLOOR_S = 1.0
_FULL_LOOK_EVERY = 20
_RENEW_AT = 0.75  # of the lease: what is left is several times a slow call
_TIDY_S = 60.0
_STANDBY_MARGIN_S = 0.05
_NEVER = float("inf")


class Mover:
    """One process's mover. ``run`` is a supervised loop's body."""

    def __init__(
        self,
        link: AsyncLink,
        session: Session,
        scripts: Scripts,
        topics: Topics,
        name: str,
        stopping: asyncio.Event,
    ) -> None:
        self._link = link
        self._session = session
        self._scripts = scripts
        self._topics = topics
        self._name = name
        self._stopping = stopping
        self._lease_s = session.settings.lease_ms / 1000
        self._time = RedisTime()
        self._wake_at: dict[ShardKeys, float] = {}
        self._changed = asyncio.Event()
        self._reclaimer = Reclaimer(link, session, scripts, topics)
        self._janitor = Janitor(link, session, scripts, topics)
        self.leading = False

    async def run(self) -> None:
        """Stands by until the lease is free, then works until it is lost or the process stops."""
        loop = asyncio.get_running_loop()
        forget = self._session.clock.on_change(partial(loop.call_soon_threadsafe, self._look_everywhere))
        try:
            while not self._stopping.is_set():
                if await self._acquire():
                    await self._lead()
        finally:
            forget()

    # -- the lease

    async def _acquire(self) -> bool:
        """One try; if another holds the lease, waits until just after it would run out."""
        key = self._session.keys.mover
        held, left_ms = await arun(self._link, self._scripts.lease(self._name, self._session.settings.lease_ms))
        if held:
            return True
        # Waiting for its end, and not asking at an interval, keeps idle processes quiet.
        while left_ms > 0 and not await wait(self._stopping, left_ms / 1000 + _STANDBY_MARGIN_S):
            (left_ms,) = await self._send((key, "PTTL", key))
        return False

    async def _keep_lease(self) -> None:
        """Returns when the lease is lost.

        Two plain commands cost half of what the script does, on a Redis that has nothing else to do. In between the
        lease may pass to another, which then only holds it for longer; neither is refused at the memory limit.
        """
        key, lease_ms = self._session.keys.mover, self._session.settings.lease_ms
        held_until = time.monotonic() + self._lease_s
        while True:
            await asyncio.sleep(self._lease_s * _RENEW_AT)
            if time.monotonic() > held_until:  # this process was stopped for a while
                return
            renewed = time.monotonic()
            holder, _ = await self._send((key, "GET", key), (key, "PEXPIRE", key, lease_ms))
            if holder is None or holder.decode() != self._name:
                return
            held_until = renewed + self._lease_s

    async def _give_up_lease(self) -> None:
        key = self._session.keys.mover
        (holder,) = await self._send((key, "GET", key))
        if holder is not None and holder.decode() == self._name:
            await self._send((key, "DEL", key))

    # -- at work

    async def _lead(self) -> None:
        log.debug("mover at work", mover=self._name)
        await arun(self._link, self._topics.refresh())
        self._look_everywhere()
        parts = (self._keep_lease, self._listen, self._work, self._floor, self._tidy, self._reclaimer.run)
        tasks = [asyncio.create_task(part()) for part in parts]
        stop = asyncio.create_task(self._stopping.wait())
        self.leading = True
        try:
            done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.leading = False
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.gather(*tasks, stop, return_exceptions=True)
        if self._stopping.is_set():
            await self._give_up_lease()

    def _look_everywhere(self) -> None:
        known = {shard for topic in self._topics.known for shard in self._topics.shards(topic)}
        self._wake_at = dict.fromkeys(known, 0.0)
        self._reclaimer.look_now()
        self._changed.set()

    def _look_at(self, shard: ShardKeys, when: float = 0.0) -> None:
        if when < self._wake_at.get(shard, _NEVER):
            self._wake_at[shard] = when
            self._changed.set()

    async def _work(self) -> None:
        """Moves each shard when its time has come."""
        while True:
            self._changed.clear()
            now = time.monotonic()
            due = [shard for shard, when in self._wake_at.items() if when <= now]
            for shard in due:
                self._wake_at[shard] = await self._move(shard)
            if due:
                continue
            first = min(self._wake_at.values(), default=_NEVER)
            await wait(self._changed, None if first == _NEVER else max(0.0, first - time.monotonic()))

    async def _move(self, shard: ShardKeys) -> float:
        """One batch; returns when to look at the shard again, on the monotonic clock."""
        called = time.monotonic()
        reply = await self._call_move(shard)
        arrived = time.monotonic()
        self._time.observe(reply.now_ms, arrived)
        if reply.moved > 0:
            tally.moved(shard.topic, reply.moved, arrived - called)
        if reply.open > 0:
            self._reclaimer.watch(shard)
        if reply.next_due_ms < 0:
            return _NEVER
        if reply.next_due_ms <= reply.now_ms:
            return 0.0
        if self._session.clock.manual:
            return _NEVER
        # Not before the reply's own distance, less the millisecond it is rounded to: were Redis's clock set back, the
        # estimate alone would ask again and again.
        soonest = arrived + (reply.next_due_ms - reply.now_ms - 1) / 1000
        return max(self._time.to_monotonic(reply.next_due_ms), soonest)

    async def _call_move(self, shard: ShardKeys) -> Moved:
        groups: Sequence[str] = self._topics.known[shard.topic].group_names
        try:
            reply = await arun(self._link, self._scripts.move(shard, groups, MAX_BATCH))
            if reply.moved >= 0:
                return reply
        except GroupMissing:
            pass
        await arun(self._link, self._topics.repair(shard.topic))
        # A group that is being removed is in the shard's list, and no more in the registry.
        (listed,) = await self._send((shard.settings, "HGET", shard.settings, "groups"))
        return await arun(self._link, self._scripts.move(shard, listed.decode().split(","), MAX_BATCH))

    async def _floor(self) -> None:
        """What if a ring was lost: a look at one shard each second, in turn."""
        for beat in count(1):
            await asyncio.sleep(_FLOOR_S)
            shards = list(self._wake_at)
            if not shards:
                continue
            shard = shards[
                beat // _FULL_LOOK_EVERY % len(shards) if beat % _FULL_LOOK_EVERY == 0 else beat % len(shards)
            ]
            if beat % _FULL_LOOK_EVERY == 0:
                self._look_at(shard)
                continue
            (head,) = await self._send((shard.bucket, "ZRANGE", shard.bucket, 0, 0, "WITHSCORES"))
            if head and not self._session.clock.manual:
                self._look_at(shard, self._time.to_monotonic(int(float(head[1]))))

    async def _tidy(self) -> None:
        for beat in count():
            await asyncio.sleep(_TIDY_S)
            if shards := list(self._wake_at):
                await self._janitor.tidy(shards[beat % len(shards)])
                await self._janitor.trim(shards[beat % len(shards)])

    async def _listen(self) -> None:
        """Hears the rings: of each shard, for something due earlier, and of the namespace, for another topic."""
        seen: dict[str, bytes] = {}
        listeners: dict[str, asyncio.Task[dict[str, bytes]]] = {}
        try:
            while True:
                streams = [self._session.keys.wake, *(shard.wake for shard in self._known_shards())]
                for group in [[name] for name in streams] if self._link.is_cluster else [streams]:
                    if group[0] not in listeners:
                        listeners[group[0]] = asyncio.create_task(arun(self._link, ring(self._session, group, seen)))
                done, _ = await asyncio.wait(listeners.values(), return_when=asyncio.FIRST_COMPLETED)
                for name in [name for name, task in listeners.items() if task in done]:
                    rung = listeners.pop(name).result()
                    seen.update(rung)
                    await self._heard(rung)
        finally:
            await cancel_and_wait(listeners.values())

    async def _heard(self, rung: Iterable[str]) -> None:
        if self._session.keys.wake in rung:
            await arun(self._link, self._topics.refresh())
        for shard in self._known_shards():
            if shard.wake in rung or shard not in self._wake_at:
                self._look_at(shard)

    def _known_shards(self) -> list[ShardKeys]:
        return [shard for topic in self._topics.known for shard in self._topics.shards(topic)]

    async def _send(self, *commands: tuple[Any, ...]) -> list[Any]:
        op = self._session.call([Command(command[0], command[1:]) for command in commands])
        return [checked(reply) for reply in await arun(self._link, op)]


class MoverThread:
    """A mover for a process without a worker, in a thread with its own loop and connections."""

    def __init__(self, url: str | None, namespace: str, settings: Settings, clock: RedisClock) -> None:
        self._arguments = (url, namespace, settings, clock)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="streamdq-mover", daemon=True)
        self._thread.start()
        self._started.wait()

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            link, session = open_session(*self._arguments, AsyncLink)
        finally:
            self._started.set()
        scripts = Scripts(session)
        mover = Mover(link, session, scripts, Topics(session, scripts), session.consumer, self._stopping)
        await supervise("mover", mover.run, self._stopping)
        await link.close()

    def stop(self) -> None:
        """Gives the lease up and ends the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)
