"""Takes over claims whose TTR has passed: a worker died, or hangs. Driven by the mover that holds the lease."""

from __future__ import annotations

import asyncio
import time

from . import metrics
from .connection import AsyncLink
from .errors import GroupMissing
from .keys import ShardKeys
from .loop import log
from .scripts import Scripts
from .session import Session, arun
from .topics import Topics

_TICK_S = 0.5
_WATCH_S = 5.0  # how long a shard is watched after its last claim ended
_LIMIT = 100
_START = (b"0-0", b"0-0")


class Reclaimer:
    """Looks at the pending claims of shards where something runs, twice a second; at none when nothing runs.

    XAUTOCLAIM examines ten times its COUNT from a cursor, so the cursors are kept from one look to the next.
    """

    def __init__(self, link: AsyncLink, session: Session, scripts: Scripts, topics: Topics) -> None:
        self._link = link
        self._session = session
        self._scripts = scripts
        self._topics = topics
        self._watched: dict[ShardKeys, float] = {}
        self._cursors: dict[tuple[ShardKeys, str], tuple[bytes, bytes]] = {}
        self._wanted = asyncio.Event()

    def watch(self, shard: ShardKeys) -> None:
        """Something is, or will soon be, running in the shard."""
        self._watched[shard] = time.monotonic() + _WATCH_S
        self._wanted.set()

    def look_now(self) -> None:
        """Time has jumped, or this process has just begun."""
        self._wanted.set()

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            for shard in list(self._watched):
                if await self._look_at(shard):
                    self._watched[shard] = time.monotonic() + _WATCH_S
                elif self._watched[shard] < time.monotonic():
                    del self._watched[shard]
            if self._watched and not self._session.clock.manual:
                await asyncio.sleep(_TICK_S)
            else:
                await self._wanted.wait()

    async def _look_at(self, shard: ShardKeys) -> bool:
        """Whether anything runs in the shard."""
        running = 0
        topic = self._topics.known.get(shard.topic)
        for group in topic.group_names if topic else ():
            running += await self._sweep(shard, group)
        return running > 0

    async def _sweep(self, shard: ShardKeys, group: str) -> int:
        topic = self._topics.known[shard.topic]
        cursors = self._cursors.get((shard, group), _START)
        watch_ms = int((_WATCH_S - 2 * _TICK_S) * 1000)
        try:
            reply = await arun(self._link, self._scripts.reclaim(shard, group, topic, _LIMIT, cursors, watch_ms))
        except GroupMissing:
            await arun(self._link, self._topics.repair(shard.topic))
            return 0
        self._cursors[shard, group] = (reply.cursor, reply.own_cursor)
        if reply.reclaimed:
            metrics.RECLAIMED.labels(shard.topic, group).inc(reply.reclaimed)
            log.warning("claims taken over, TTR passed", topic=shard.topic, group=group, jobs=reply.reclaimed)
        return reply.running
