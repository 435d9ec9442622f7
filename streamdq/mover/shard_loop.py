"""Looks at shards when their time has come, or when something may have happened there. What the active mover does in
some topics only is a subclass: schedules (firing.py), and news of ends (endings.py).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar

from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..process.cancellations import uncancelled
from ..process.loop import Failures
from ..store.redis_store import RedisStore
from ..times.clock import RedisTime
from .shard_timers import NEVER, ShardTimers

_WALKED = 20  # so many shards at once, in case a wakeup was lost


class ShardLoop(ABC):
    """Each look is a task of its own: a shard whose node does not answer holds up no other. A shard is looked at once
    at a time, as two looks would only get in each other's way. ``look_at_jobs`` makes the mover look at a shard that
    has got jobs which are due.
    """

    NAME: ClassVar[str]  # of the loop, in logs and metrics
    WALK_S: ClassVar[float] = 10.0

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        look_at_jobs: Callable[[ShardKeys], None],
    ) -> None:
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._look_at_jobs = look_at_jobs
        self._time = RedisTime()
        self._timers = ShardTimers()
        self._failures = Failures(self.NAME, store.session.keys.namespace)
        self._some = asyncio.Event()
        self._looking: set[ShardKeys] = set()
        self._again: set[ShardKeys] = set()  # to be looked at after the look that is under way

    @abstractmethod
    def _shards(self) -> Iterable[ShardKeys]:
        """Those where there may be something to do."""

    @abstractmethod
    async def _look(self, shard: ShardKeys) -> float:
        """Does what there is to do; returns when to look again, on the monotonic clock."""

    def look_for_shards(self) -> None:
        """After the topics have changed."""
        shards = list(self._shards())
        self._timers.drop(set(self._timers.shards).difference(shards))
        for shard in shards:
            if shard not in self._timers:
                self._timers.at(shard)
        if shards:
            self._some.set()

    def look_at(self, shard: ShardKeys) -> None:
        """Something may have happened there."""
        if shard in self._timers:
            self._timers.at(shard)

    def look_everywhere(self) -> None:
        self._timers.everywhere()

    async def run(self) -> None:
        """Never returns."""
        await self._some.wait()
        self.look_everywhere()
        async with asyncio.TaskGroup() as tasks:
            for loop in self._loops(tasks):
                tasks.create_task(uncancelled(loop))

    def _loops(self, tasks: asyncio.TaskGroup) -> list[Callable[[], Awaitable[None]]]:
        return [partial(self._work, tasks), self._walk]

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            for shard in self._timers.take_due():
                tasks.create_task(uncancelled(partial(self._look_once, shard)))
            await self._timers.wait()

    async def _walk(self) -> None:
        while True:
            await asyncio.sleep(self.WALK_S)
            if not self._session.clock.manual:
                self._timers.some(_WALKED)

    async def _look_once(self, shard: ShardKeys) -> None:
        if shard in self._looking:
            self._again.add(shard)
            return
        self._looking.add(shard)
        try:
            await self._try(shard)
        finally:
            self._looking.discard(shard)
            if shard in self._again:
                self._again.discard(shard)
                self._timers.at(shard)

    async def _try(self, shard: ShardKeys) -> None:
        try:
            when = await self._look(shard)
        except Exception as error:
            self._timers.failed(shard, time.monotonic() + self._failures.pause_after(shard, error))
        else:
            self._failures.worked(shard)
            self._timers.looked(shard, when)

    def _moment(self, next_ms: int, now_ms: int) -> float:
        """Of Redis's clock, on the monotonic clock; -1: never. A clock that is set by hand says itself when."""
        if next_ms < 0 or (self._session.clock.manual and next_ms > now_ms):
            return NEVER
        return self._time.to_monotonic(next_ms)
