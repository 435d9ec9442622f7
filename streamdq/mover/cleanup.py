"""Removes old history, old dead letters, and the consumers of dead processes, which never come back. The active mover
runs it.
"""

from __future__ import annotations

from collections.abc import Collection

from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..process.logs import log
from ..store import namespace
from ..store.batches import most_jobs
from ..store.redis_store import RedisStore
from ..store.topics import group_consumers

IDLE_MS = 1_800_000
"""A consumer that was idle for half an hour, and whose process takes no part in the election, is gone. If it is still
alive, that does no harm: Redis creates it again when it reads.
"""

_LIMIT = 100


class Cleanup:
    """Cleans up one shard at a time."""

    def __init__(self, link: AsyncLink, store: RedisStore) -> None:
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics

    async def trim(self, shard: ShardKeys) -> int:
        """Removes the shard's old history, step by step; returns the number of rows."""
        gone = 0
        while step := await arun(self._link, self._scripts.trim_history(shard)):
            gone += step
        return gone

    async def trim_dead(self, shard: ShardKeys) -> int:
        """Removes the shard's dead letters that are older than the topic keeps them; returns how many."""
        topic, gone = self._topics.known.get(shard.topic), 0
        groups = topic.group_names if topic and topic.dead_for_ms else ()
        most = most_jobs(_LIMIT, len(groups))
        for group in groups:
            step = most
            while step == most:
                step = await arun(self._link, self._scripts.trim_dead(shard, group, most))
                gone += step
        if gone:
            log.info("removed old dead letters", topic=shard.topic, jobs=gone)
        return gone

    async def remove_idle(self, shard: ShardKeys, idle_ms: int = IDLE_MS) -> int:
        """Removes idle consumers without claims from the shard's groups; returns how many."""
        topic = self._topics.known.get(shard.topic)
        alive = await arun(self._link, namespace.alive(self._session))
        removed = 0
        for group in topic.group_names if topic else ():
            for name in await self._gone(shard, group, idle_ms, alive):
                # If it has got entries since we looked, the script hands them back.
                await arun(self._link, self._scripts.remove_consumer(shard, group, name, _LIMIT))
                removed += 1
        if removed:
            log.info("removed dead consumers", topic=shard.topic, consumers=removed)
        return removed

    async def _gone(self, shard: ShardKeys, group: str, idle_ms: int, alive: Collection[str]) -> list[bytes]:
        """Consumers that are not alive, are idle in both streams and have nothing pending in either."""
        op = group_consumers.consumers(self._session, [(shard.ready, group), (shard.ready_of(group), group)])
        gone: set[bytes] = set()
        busy = {b"_reclaim"}
        for consumers in await arun(self._link, op):
            for one in consumers:
                is_gone = one.pending == 0 and one.idle_ms > idle_ms and one.name not in alive
                (gone if is_gone else busy).add(one.raw)
        return sorted(gone - busy)
