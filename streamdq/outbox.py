"""How attempts ended, on their way to Redis: what ends within the same few milliseconds travels in one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .claims import End, Outcome, ends_together, settle
from .connection import AsyncLink
from .errors import ServerError
from .keys import ShardKeys
from .logs import log
from .scripts import Scripts
from .session import arun
from .topics import Topics

_BACKOFF_S = 0.2


class Outbox:
    """Collects ends and sends them. What Redis does not take is kept and sent again; none is dropped."""

    def __init__(
        self,
        link: AsyncLink,
        scripts: Scripts,
        topics: Topics,
        group: str,
        consumer: str,
        settled: Callable[[list[End], set[int]], None],
    ) -> None:
        """``settled`` is told of ends that Redis has, and which of them it refused as stale."""
        self._link = link
        self._scripts = scripts
        self._topics = topics
        self._group = group
        self._consumer = consumer
        self._settled = settled
        self._waiting: dict[tuple[ShardKeys, Outcome, str], list[End]] = {}  # shard, outcome, generation of the group
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.size = 0

    def put(self, end: End) -> None:
        held = end.held
        self._waiting.setdefault((held.shard, end.outcome, held.generation), []).append(end)
        self.size += 1
        self._filled.set()
        self._empty.clear()

    async def run(self) -> None:
        """Sends whatever there is, as soon as the call before has returned: load makes the batches larger."""
        while True:
            await self._filled.wait()
            await asyncio.sleep(0)  # handlers that end in this turn of the loop come along
            failed: ServerError | None = None
            for key in list(self._waiting):
                try:
                    await self._send(*key)
                except ServerError as error:  # of this shard or this outcome; the others go on
                    failed = error
            if failed is not None:
                log.warning("outcomes not sent yet", waiting=self.size, error=str(failed))
                await asyncio.sleep(_BACKOFF_S)
            if not self._waiting:
                self._filled.clear()
                self._empty.set()

    async def _send(self, shard: ShardKeys, outcome: Outcome, generation: str) -> None:
        waiting = self._waiting[shard, outcome, generation]
        while waiting:
            batch = ends_together(waiting, self._groups(shard.topic))
            stale = await arun(self._link, settle(self._scripts, shard, self._group, self._consumer, batch))
            del waiting[: len(batch)]
            self.size -= len(batch)
            self._settled(batch, stale)
        del self._waiting[shard, outcome, generation]

    def _groups(self, topic: str) -> int:
        settings = self._topics.known.get(topic)  # None: the topic was deleted
        return len(settings.groups) if settings else 1

    async def drained(self) -> None:
        """Waits until nothing is left to send."""
        await self._empty.wait()
