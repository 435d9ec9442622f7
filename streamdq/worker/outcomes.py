"""Sends outcomes to Redis: attempts that end within the same few milliseconds share one script call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from ..config import MAX_CLAIM
from ..errors import ServerError, StreamdqError
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun, begin
from ..metrics import declared
from ..operations.attempts import End, Outcome, can_be_sent, ends_together, settle
from ..process.logs import log, what
from ..process.loop import cancel_and_wait
from ..store.scripts import Scripts
from ..store.topics import Topics

_BACKOFF_S = 0.2
_GATHER_S = 0.001  # the longest that the first end of a batch waits for others
_MOST_BEGUN = 16  # calls whose replies are awaited at once: Redis stands still
_NEVER = float("inf")


_Key = tuple[ShardKeys, Outcome, str]  # shard, outcome, generation of the group


class OutcomeSender:
    """Collects the ends of attempts and sends them. If a call fails, its ends are kept and sent again; none is
    dropped.

    What was not sent when its process is killed is done again. So an end that waits for more than a millisecond is sent
    at once, whatever calls are under way and however many attempts are about to end in this iteration of the loop.
    """

    def __init__(
        self,
        link: AsyncLink,
        scripts: Scripts,
        topics: Topics,
        group: str,
        consumer: str,
        settled: Callable[[list[End], set[int]], None],
        namespace: str = "",
    ) -> None:
        """``settled`` is called with ends that Redis has received, and the indexes of those it refused as stale."""
        self._link = link
        self._scripts = scripts
        self._topics = topics
        self._group = group
        self._consumer = consumer
        self._settled = settled
        self._waiting: dict[_Key, list[End]] = {}
        self.failing: set[ShardKeys] = set()
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._begun: set[asyncio.Task[set[int]]] = set()
        self._since = _NEVER  # when the first end came that was not sent
        self._gauge = declared.UNSENT.labels(namespace, group)
        self._gauge.set(0)
        self.size = 0  # what Redis has not confirmed

    def put(self, end: End) -> None:
        held = end.held
        self._waiting.setdefault((held.shard, end.outcome, held.generation), []).append(end)
        self.size += 1
        self._filled.set()
        self._empty.clear()
        now = time.monotonic()
        if self._since == _NEVER:
            self._since = now
        elif now - self._since >= _GATHER_S:
            self._since = now
            self._gauge.set(self.size)
            if len(self._begun) < _MOST_BEGUN and not self._link.is_cluster:
                self._begin_all()

    def _begin_all(self) -> None:
        """Sends the ends that wait now. What can't be sent so is left to ``run``."""
        for key, waiting in list(self._waiting.items()):
            shard, _, generation = key
            while waiting:
                batch = ends_together(waiting, self._groups(shard.topic))
                try:
                    rest = begin(self._link, settle(self._scripts, shard, self._group, self._consumer, batch))
                except Exception as error:  # as a handler has changed its Job
                    log.debug("ends not sent at once", error=what(error), generation=generation)
                    rest = None
                if rest is None:
                    return
                del waiting[: len(batch)]
                task = asyncio.create_task(rest)
                self._begun.add(task)
                task.add_done_callback(partial(self._answered, key, batch))
        self._since = _NEVER

    def _answered(self, key: _Key, batch: list[End], task: asyncio.Task[set[int]]) -> None:
        """A call that was begun has ended. If it failed, ``run`` sends its ends again, and says what is wrong."""
        self._begun.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._waiting.setdefault(key, [])[:0] = batch
            self._filled.set()
            return
        self._are_confirmed(batch, task.result())
        if self.size == 0:
            self._empty.set()

    def _are_confirmed(self, batch: list[End], stale: set[int]) -> None:
        self.size -= len(batch)
        self._gauge.set(self.size)
        self._settled(batch, stale)

    @property
    def unsent(self) -> int:
        """How many ends wait, not counting those of ``failing`` shards: no jobs are claimed from these anyway."""
        if not self.failing:
            return self.size
        return sum(len(ends) for (shard, *_), ends in self._waiting.items() if shard not in self.failing)

    async def run(self) -> None:
        """Sends the collected ends as soon as the previous call has returned, so load makes the batches larger. On a
        Cluster each shard has its own calls, as only some nodes may be reachable.
        """
        sending: dict[ShardKeys, asyncio.Task[None]] = {}
        if self._waiting:  # this loop has failed, and runs again
            self._filled.set()
        try:
            while True:
                await self._filled.wait()
                await self._gather()
                if not self._link.is_cluster:
                    await self._send_all(list(self._waiting))
                else:
                    self._filled.clear()
                    await self._send_beside(sending)
                if not self._waiting:
                    self._filled.clear()
                    if self.size == 0:
                        self._empty.set()
        finally:
            await cancel_and_wait([*sending.values(), *self._begun])

    async def _gather(self) -> None:
        """Waits for as long as the next iterations of the loop bring more ends, up to a whole batch: under load, the
        attempts that are about to start end at once, and a call costs as much as a few of them.
        """
        until, before = time.monotonic() + _GATHER_S, 0
        while before < self.size < MAX_CLAIM and time.monotonic() < until:
            before = self.size
            await asyncio.sleep(0)  # what ends now makes room
            await asyncio.sleep(0)  # for what starts now

    async def _send_beside(self, sending: dict[ShardKeys, asyncio.Task[None]]) -> None:
        """Starts one task per shard, then waits until there is more to send or a task is done."""
        for shard in {key[0] for key in self._waiting} - sending.keys():
            keys = [key for key in self._waiting if key[0] == shard]
            sending[shard] = asyncio.create_task(self._send_all(keys))
        filled = asyncio.create_task(self._filled.wait())
        try:
            await asyncio.wait((filled, *sending.values()), return_when=asyncio.FIRST_COMPLETED)
        finally:
            filled.cancel()
        for shard in [shard for shard, task in sending.items() if task.done()]:
            sending.pop(shard).result()
        if self._waiting:
            self._filled.set()

    async def _send_all(self, keys: list[_Key]) -> None:
        failed: ServerError | None = None
        for key in keys:
            try:
                await self._send(*key)
            except ServerError as error:  # concerns this shard or outcome; the others are still sent
                failed = error
                if self._link.is_cluster:
                    self.failing.add(key[0])
            else:
                self.failing.discard(key[0])
        if failed is not None:
            log.warning("outcomes not sent yet", waiting=self.size, error=str(failed))
            await asyncio.sleep(_BACKOFF_S)

    async def _send(self, shard: ShardKeys, outcome: Outcome, generation: str) -> None:
        waiting = self._waiting[shard, outcome, generation]
        while waiting:
            batch: list[End] = []
            self._since = _NEVER
            self._gauge.set(self.size)
            try:
                batch = ends_together(waiting, self._groups(shard.topic))
                del waiting[: len(batch)]
                stale = await arun(self._link, settle(self._scripts, shard, self._group, self._consumer, batch))
            except BaseException as error:
                waiting[:0] = batch
                if not isinstance(error, Exception) or isinstance(error, StreamdqError):
                    raise
                if not self._give_up_unsendable(waiting):
                    raise
                continue
            self._are_confirmed(batch, stale)
        del self._waiting[shard, outcome, generation]

    def _give_up_unsendable(self, waiting: list[End]) -> bool:
        """Drops ends that can't be sent, which would keep back all others; their jobs are taken over when their TTR
        passes. Returns whether there were any.
        """
        left = [end for end in waiting if can_be_sent(end.held)]
        dropped = len(waiting) - len(left)
        if dropped:
            topic = waiting[0].held.shard.topic
            log.error("ends can't be sent, their handlers have changed the Job", topic=topic, attempts=dropped)
            waiting[:] = left
            self.size -= dropped
        return dropped > 0

    def _groups(self, topic: str) -> int:
        settings = self._topics.known.get(topic)  # None: the topic was deleted
        return len(settings.groups) if settings else 1

    async def drained(self) -> None:
        """Waits until nothing is left to send."""
        await self._empty.wait()
