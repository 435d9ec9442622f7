"""Sends touches (heartbeats) to Redis. However often a handler touches its job, at most one is under way. While the
event loop is blocked, the thread of the signs (signs.py) sends them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from ..errors import NewerFormat
from ..keys import ShardKeys
from ..link.connection import AsyncLink, Link
from ..link.session import Op, arun, run
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
        self._loop = asyncio.get_running_loop()

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
        for held in await arun(self._link, self._tell(self._scripts, shard, generation, batch)):
            self._lost(held)

    def _tell(self, scripts: Scripts, shard: ShardKeys, generation: str, batch: Mapping[Held, int]) -> Op[list[Held]]:
        """Returns those whose claim was taken over."""
        deadlines = [(held, held.deadline) for held in batch]
        deadlines = [(held, at) for held, at in deadlines if held.touch_ms == batch[held]]  # no other touch has come
        group_ttr_ms = self._topics.settings_of(shard.topic).ttr_of(self._group)
        claims = [part for held, ttr_ms in batch.items() for part in (held.main, held.entry, held.job.id, ttr_ms)]
        refused = yield from scripts.touch(shard, self._group, generation, self._consumer, group_ttr_ms, claims)
        for held, deadline in deadlines:
            held.told = deadline
        return [held for i, held in enumerate(batch) if i in refused.stale and not held.ended]

    # -- in another thread, while the event loop is blocked

    def send_beside(
        self, link: Link, scripts: Scripts, touched: Iterable[Held], until: float
    ) -> Iterator[Exception | None]:
        """Sends the last touches of these attempts by the other thread's ``link`` and ``scripts``; no call begins after
        ``until`` on the monotonic clock. For each call, what it raised. The loop sends them again when it is back.
        """
        together: dict[tuple[ShardKeys, str], list[Held]] = {}
        for held in touched:
            if can_be_sent(held):
                together.setdefault((held.shard, held.generation), []).append(held)
        for (shard, generation), attempts in random.sample(list(together.items()), len(together)):
            if time.monotonic() >= until:
                return
            error: Exception | None = None
            try:
                batch = {held: held.touch_ms for held in attempts[:_MOST]}
                for lost in run(link, self._tell(scripts, shard, generation, batch)):
                    self._loop.call_soon_threadsafe(self._lost, lost)
            except Exception as raised:
                error = raised
            yield error

    def close(self) -> None:
        for task in self._sending:
            task.cancel()
