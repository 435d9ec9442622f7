"""Sends touches (heartbeats) to Redis. However often a handler touches its job, at most one is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ..errors import NewerFormat
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..operations.attempts import Held, can_be_sent
from ..process.cancellations import uncancelled
from ..process.logs import log, what
from ..store.scripts import Scripts
from ..store.topics import Topics

_MOST = 200
_BACKOFF_S = 0.2


class Touches:
    """Touches that arrive during a call go with the next one, only the latest of each claim. A touch that failed is
    sent again for as long as the attempt runs.
    """

    def __init__(
        self,
        link: AsyncLink,
        scripts: Scripts,
        topics: Topics,
        group: str,
        consumer: str,
        lost: Callable[[Held], None],
    ) -> None:
        """``lost`` is told of a running attempt whose touch Redis has refused, as its claim was taken over, or whose
        touch can't be sent.
        """
        self._lost = lost
        self._link = link
        self._scripts = scripts
        self._topics = topics
        self._group = group
        self._consumer = consumer
        self._waiting: dict[tuple[ShardKeys, str], dict[Held, int]] = {}  # by shard and generation of the group
        self._sending: set[asyncio.Task[None]] = set()

    def put(self, held: Held, ttr_ms: int) -> None:
        key = held.shard, held.generation
        if key in self._waiting:
            self._waiting[key][held] = ttr_ms
            return
        self._waiting[key] = {held: ttr_ms}  # before the task is there: an eager one begins at once
        task = asyncio.create_task(self._send(*key))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, shard: ShardKeys, generation: str) -> None:
        waiting = self._waiting[shard, generation]
        try:
            while waiting:
                batch = {held: waiting.pop(held) for held in list(waiting)[:_MOST]}
                batch = {held: ttr_ms for held, ttr_ms in batch.items() if self._is_wanted(held)}
                if batch and not await self._is_sent(shard, generation, batch):
                    self._waiting[shard, generation] = waiting = batch | waiting
                    await asyncio.sleep(_BACKOFF_S)
        finally:
            del self._waiting[shard, generation]

    def _is_wanted(self, held: Held) -> bool:
        """Whether its attempt runs. One that can't be sent would keep back all others; the handler ends, because its
        claim will be taken over.
        """
        if held.ended or can_be_sent(held):
            return not held.ended
        log.error("a touch can't be sent, its handler has changed the Job", topic=held.shard.topic)
        self._lost(held)
        return False

    async def _is_sent(self, shard: ShardKeys, generation: str, batch: dict[Held, int]) -> bool:
        try:
            await uncancelled(partial(self._call, shard, generation, batch))
        except NewerFormat:
            return True  # the worker's loops get this error, too, and end the worker
        except Exception as error:
            log.warning("touches not sent yet", topic=shard.topic, waiting=len(batch), error=what(error))
            return False
        return True

    async def _call(self, shard: ShardKeys, generation: str, batch: dict[Held, int]) -> None:
        group_ttr_ms = self._topics.settings_of(shard.topic).ttr_of(self._group)
        claims = [part for held, ttr_ms in batch.items() for part in (held.main, held.entry, held.job.id, ttr_ms)]
        call = self._scripts.touch(shard, self._group, generation, self._consumer, group_ttr_ms, claims)
        refused = await arun(self._link, call)
        for held in [held for i, held in enumerate(batch) if i in refused.stale and not held.ended]:
            self._lost(held)

    def close(self) -> None:
        for task in self._sending:
            task.cancel()
