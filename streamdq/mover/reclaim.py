"""Takes over claims whose TTR has passed, of any consumer. The active mover runs it.

``alive/dead_workers.py`` takes over sooner from workers that fell silent; it learns here which consumers have pending
entries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..config import TopicSettings
from ..errors import GroupMissing
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..metrics import recorded
from ..process.logs import log
from ..process.loop import Failures
from ..store.redis_store import RedisStore
from ..store.replies import Reclaimed
from .alive.dead_workers import Holders

_TICK_S = 0.5
_SLOW_S = 5.0  # for shards with ready jobs only: they may hide a job that was lost between a read and its claim
_WATCH_S = 5.0  # how long a shard is watched after its last claim ended
_LIMIT = 100
_CALLS = 200  # at most, in one check of one group of a shard
_START = (b"0-0", b"0-0")


@dataclass(slots=True)
class _Watch:
    """When to look at a shard again, and until when to keep looking although it is empty. What the last look found goes
    with it: nothing is kept of a shard that is not watched, such as one of a deleted topic.
    """

    next: float
    until: float
    cursors: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # by group
    missing: dict[str, int] = field(default_factory=dict)  # by group


class Reclaimer:
    """Checks the pending claims of shards with running jobs twice a second; it checks nothing while no job is open.

    A call checks a thousand claims from a cursor, and takes over at most a hundred, fewer if they are large. So a check
    may take several calls; after some hundred, the rest is left to the next check.
    """

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        hold: Callable[[ShardKeys, Holders], None],
    ) -> None:
        """``hold`` is called after each check of a shard with the consumers that have pending entries there."""
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._hold = hold
        self._watched: dict[ShardKeys, _Watch] = {}
        self._wanted = asyncio.Event()
        self._failures = Failures("reclaim", store.session.keys.namespace)

    def watch(self, shard: ShardKeys) -> None:
        """Starts watching a shard in which jobs run or will soon run."""
        now = time.monotonic()
        watch = self._watched.setdefault(shard, _Watch(now, now))
        watch.next, watch.until = min(watch.next, now + _TICK_S), now + _WATCH_S
        self._wanted.set()

    def notice(self, shard: ShardKeys) -> None:
        """Watches a shard whose wakeup may have been missed. One that is watched already keeps its times."""
        if shard not in self._watched:
            self.watch(shard)

    def drop(self, shard: ShardKeys) -> None:
        self._watched.pop(shard, None)

    def look_now(self) -> None:
        """Checks all watched shards now: time has jumped, or this process has just become the mover."""
        for watch in self._watched.values():
            watch.next = 0.0
        self._wanted.set()

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            for shard, watch in list(self._watched.items()):
                # Timers may fire a millisecond early, and the next tick would be too late.
                if watch.next <= time.monotonic() + _TICK_S / 2:
                    await self._try(shard, watch)
            if self._watched and not self._session.clock.manual:
                await asyncio.sleep(_TICK_S)
            else:
                await self._wanted.wait()

    async def _try(self, shard: ShardKeys, watch: _Watch) -> None:
        try:
            await self._look_at(shard, watch)
        except Exception as error:
            watch.next = time.monotonic() + self._failures.pause_after(shard, error)
        else:
            self._failures.worked(shard)

    async def _look_at(self, shard: ShardKeys, watch: _Watch) -> None:
        # Before the check: time may jump meanwhile, so that another check is wanted, or the check may not end.
        watch.next = time.monotonic() + _SLOW_S
        running = ready = 0
        holders: dict[str, list[str]] = {}
        if topic := self._topics.known.get(shard.topic):
            for group in topic.group_names:
                found = await self._sweep(shard, topic, group, watch)
                if found is not None:
                    running, ready = running + found.running, ready + found.ready
                    # A name that is not UTF-8 is another client's, and has sent no heartbeat.
                    holders[group] = [name.decode(errors="replace") for name in found.consumers]
        self._hold(shard, holders)
        now = time.monotonic()
        if running:
            watch.until = now + _WATCH_S
        watch.next = min(watch.next, now + (_TICK_S if watch.until > now else _SLOW_S))
        if not running and not ready and watch.until <= now:
            self.drop(shard)

    async def _sweep(self, shard: ShardKeys, topic: TopicSettings, group: str, watch: _Watch) -> Reclaimed | None:
        """Takes over the group's expired claims. Returns the last reply; None: the group was missing."""
        missing, taken = watch.missing.pop(group, 0), 0
        try:
            for _ in range(_CALLS):
                reply = await self._call(shard, topic, group, watch, missing)
                missing, taken = 0, taken + reply.reclaimed
                if not reply.more:
                    break
        except GroupMissing:
            await arun(self._link, self._topics.mend(shard.topic))
            return None
        finally:
            if taken:
                log.warning("claims taken over, TTR passed", topic=shard.topic, group=group, jobs=taken)
        if reply.missing:
            watch.missing[group] = reply.missing
        return reply

    async def _call(self, shard: ShardKeys, topic: TopicSettings, group: str, watch: _Watch, missing: int) -> Reclaimed:
        at = watch.cursors.get(group, _START)
        # For this long the shard is checked in any case, so nobody needs to wake the mover.
        watch_ms = max(0, int((watch.until - 2 * _TICK_S - time.monotonic()) * 1000))
        reply = await arun(self._link, self._scripts.reclaim(shard, group, topic, _LIMIT, at, watch_ms, missing))
        watch.cursors[group] = (reply.cursor, reply.own_cursor)
        recorded.reclaimed(shard.namespace, shard.topic, group, ttr=reply.reclaimed)
        if reply.lost:
            log.error("jobs lost: Redis no longer has them", topic=shard.topic, group=group, jobs=reply.lost)
        return reply
