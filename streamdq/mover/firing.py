"""Enqueues the jobs of schedules shortly before they are due. The active mover runs it, for the first shards of topics
that have schedules; without such topics it does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..process.cancellations import uncancelled
from ..process.loop import Failures
from ..schedules.civil import database_version, forget_zones
from ..store.replies import Fired
from ..store.schedules.schedules import LOOK_AGAIN_MS, Schedules
from ..store.scripts import Scripts
from ..store.topics.topics import Topics
from ..times.clock import RedisTime
from .shard_timers import NEVER, ShardTimers

_LOOK_S, _LOOKED_AT = 10.0, 20  # so many topics at once, in case a wakeup was lost
_PLANS_S = 3_600.0


class Firing:
    """``look`` makes the mover look at a shard that has got jobs which are due."""

    def __init__(
        self, link: AsyncLink, session: Session, scripts: Scripts, topics: Topics, look: Callable[[ShardKeys], None]
    ) -> None:
        self._link = link
        self._session = session
        self._topics = topics
        self._look = look
        self._schedules = Schedules(session, scripts, topics)
        self._time = RedisTime()
        self._timers = ShardTimers()
        self._failures = Failures("schedules", session.keys.namespace)
        self._some = asyncio.Event()
        self._looking: set[ShardKeys] = set()
        self._again: set[ShardKeys] = set()  # to be looked at after the look that is under way

    def look_for_shards(self) -> None:
        """After the topics have changed."""
        first = {self._session.keys.shard(name, 0) for name, topic in self._topics.known.items() if topic.scheduled}
        self._timers.drop([shard for shard in self._timers.shards if shard not in first])
        for shard in first:
            if shard not in self._timers:
                self._timers.at(shard)
        if first:
            self._some.set()

    def look_at(self, shard: ShardKeys) -> None:
        """Something may be due there earlier than expected."""
        if shard in self._timers:
            self._timers.at(shard)

    def look_everywhere(self) -> None:
        self._timers.everywhere()

    async def run(self) -> None:
        """Never returns."""
        await self._some.wait()
        self.look_everywhere()
        async with asyncio.TaskGroup() as tasks:
            for loop in (partial(self._work, tasks), self._walk, self._check_plans):
                tasks.create_task(uncancelled(loop))

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Each shard in a task of its own: one whose node does not answer holds up no other."""
        while True:
            for shard in self._timers.take_due():
                tasks.create_task(uncancelled(partial(self._try, shard)))
            await self._timers.wait()

    async def _try(self, shard: ShardKeys) -> None:
        """Two looks at the same shard at once would only get in each other's way."""
        if shard in self._looking:
            self._again.add(shard)
            return
        self._looking.add(shard)
        try:
            await self._look_once(shard)
        finally:
            self._looking.discard(shard)
            if shard in self._again:
                self._again.discard(shard)
                self._timers.at(shard)

    async def _look_once(self, shard: ShardKeys) -> None:
        try:
            when = await self._fire(shard)
        except Exception as error:
            self._timers.failed(shard, time.monotonic() + self._failures.pause_after(shard, error))
        else:
            self._failures.worked(shard)
            self._timers.looked(shard, when)

    async def _fire(self, shard: ShardKeys) -> float:
        """Returns when to look again, on the monotonic clock."""
        topic = self._topics.known.get(shard.topic)
        if topic is None:
            return NEVER
        reply = await arun(self._link, self._schedules.fire(shard, topic.spread))
        if not reply.current:  # an unfinished change of the topic, or one that this process does not know yet
            await arun(self._link, self._topics.mend(shard.topic))
            return time.monotonic() + LOOK_AGAIN_MS / 1000
        self._time.observe(reply.now_ms, time.monotonic())
        if reply.jobs:
            self._look(shard)
        for id in reply.unplanned:
            await self._replan(shard, id)
        return self._next_look(reply)

    def _next_look(self, reply: Fired) -> float:
        if reply.unplanned:
            return 0.0
        if reply.next_ms < 0 or (self._session.clock.manual and reply.next_ms > reply.now_ms):
            return NEVER
        return self._time.to_monotonic(reply.next_ms)

    async def _replan(self, shard: ShardKeys, id: str) -> None:
        """One that can't be planned, such as in a time zone that this host does not know, holds up no other."""
        try:
            await arun(self._link, self._schedules.replan(shard.topic, id))
        except Exception as error:
            self._failures.pause_after(f"{shard} {id}", error)  # the script names it again
        else:
            self._failures.worked(f"{shard} {id}")

    async def _walk(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._session.clock.manual:
                self._timers.some(_LOOKED_AT)

    async def _check_plans(self) -> None:
        """Plans schedules anew that were planned with another version of the time zone database, or by a clock that has
        been set back since.
        """
        while True:
            forget_zones()
            current = database_version()
            for shard in self._timers.shards:
                try:
                    known = await arun(self._link, self._schedules.all_of(shard.topic))
                    now_ms = await arun(self._link, self._schedules.now_ms(shard.topic))
                    for id in [id for id, one in known.items() if one.is_beyond(now_ms)]:
                        await arun(self._link, self._schedules.begin_again(shard.topic, id))
                    for id in [id for id, one in known.items() if one.zones != current and one.state == "active"]:
                        await self._replan(shard, id)
                except Exception as error:
                    self._failures.pause_after(shard, error)
            await asyncio.sleep(_PLANS_S)
