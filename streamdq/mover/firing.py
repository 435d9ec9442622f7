"""Enqueues the jobs of schedules shortly before they are due. The active mover runs it, for the first shards of topics
that have schedules; without such topics it does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..schedules.civil import database_version, forget_zones
from ..store.redis_store import RedisStore
from ..store.schedules.schedules import LOOK_AGAIN_MS, Schedules
from .shard_loop import ShardLoop
from .shard_timers import NEVER

_PLANS_S = 3_600.0


class Firing(ShardLoop):
    NAME = "schedules"

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        look_at_jobs: Callable[[ShardKeys], None],
    ) -> None:
        super().__init__(link, store, look_at_jobs)
        self._schedules = Schedules(store.session, store.scripts, store.topics)

    def _loops(self, tasks: asyncio.TaskGroup) -> list[Callable[[], Awaitable[None]]]:
        return [*super()._loops(tasks), self._check_plans]

    def _shards(self) -> Iterable[ShardKeys]:
        return [self._session.keys.shard(name, 0) for name, topic in self._topics.known.items() if topic.scheduled]

    async def _look(self, shard: ShardKeys) -> float:
        topic = self._topics.known.get(shard.topic)
        if topic is None:
            return NEVER
        reply = await arun(self._link, self._schedules.fire(shard, topic.spread))
        if not reply.current:  # an unfinished change of the topic, or one that this process does not know yet
            await arun(self._link, self._topics.mend(shard.topic))
            return time.monotonic() + LOOK_AGAIN_MS / 1000
        self._time.observe(reply.now_ms, time.monotonic())
        if reply.jobs:
            self._look_at_jobs(shard)
        for id in reply.unplanned:
            await self._replan(shard, id)
        return 0.0 if reply.unplanned else self._moment(reply.next_ms, reply.now_ms)

    async def _replan(self, shard: ShardKeys, id: str) -> None:
        """One that can't be planned, such as in a time zone that this host does not know, holds up no other."""
        try:
            await arun(self._link, self._schedules.replan(shard.topic, id))
        except Exception as error:
            self._failures.pause_after(f"{shard} {id}", error)  # the script names it again
        else:
            self._failures.worked(f"{shard} {id}")

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
