"""When the mover looks at which shard next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from ..keys import ShardKeys
from ..process import loop

NEVER = float("inf")
_OUTDATED = 100  # and as many as there are shards, before the heap is made anew


class ShardTimers:
    """Keeps one time per shard, on the monotonic clock: the earliest that was set.

    ``take_due`` clears a shard's time before the look begins. So a wakeup that arrives during the look is kept, and the
    result of the look can only make the time earlier. Until a look has succeeded (``looked``), the shard
    ``is_uncertain``: its time says when to try again, not when its first job is due.
    """

    def __init__(self) -> None:
        self._at: dict[ShardKeys, float] = {}
        self._queue: list[tuple[float, int, ShardKeys]] = []  # a heap; what ``_at`` no longer says is out of date
        self._numbers = count()
        self._uncertain: set[ShardKeys] = set()
        self._sooner = asyncio.Event()
        self._looked_at = 0  # up to which of them ``some`` has come

    @property
    def shards(self) -> list[ShardKeys]:
        return list(self._at)

    def __contains__(self, shard: ShardKeys) -> bool:
        return shard in self._at

    def at(self, shard: ShardKeys, when: float = 0.0) -> float:
        """Schedules a look at the shard, unless an earlier one is scheduled; returns how much earlier it is now."""
        before = self._at.setdefault(shard, NEVER)
        if when >= before:
            return 0.0
        self._at[shard] = when
        heappush(self._queue, (when, next(self._numbers), shard))
        if len(self._queue) > 2 * len(self._at) + _OUTDATED:
            self._queue = [(when, next(self._numbers), shard) for shard, when in self._at.items() if when < NEVER]
            heapify(self._queue)
        self._sooner.set()
        return before - when

    def looked(self, shard: ShardKeys, when: float) -> None:
        """Notes that a look has succeeded, and schedules the next one, unless the shard was dropped meanwhile."""
        self._uncertain.discard(shard)
        if shard in self._at:
            self.at(shard, when)

    def failed(self, shard: ShardKeys, when: float) -> None:
        """Notes that a look has failed, and schedules the next try, unless the shard was dropped meanwhile."""
        if shard in self._at:
            self.at(shard, when)

    def is_uncertain(self, shard: ShardKeys) -> bool:
        """Whether a look at the shard is under way, or has failed and is to be repeated."""
        return shard in self._uncertain

    def everywhere(self) -> None:
        for shard in self._at:
            self.at(shard)

    def some(self, count: int) -> None:
        """A look now at so many of them, each time at the next ones: so that many shards cost no more than few."""
        shards = self.shards
        begin = self._looked_at if self._looked_at < len(shards) else 0
        for shard in shards[begin : begin + count]:
            self.at(shard)
        self._looked_at = begin + count

    def drop(self, shards: Iterable[ShardKeys]) -> None:
        for shard in shards:
            self._at.pop(shard, None)
            self._uncertain.discard(shard)

    def take_due(self) -> list[ShardKeys]:
        """The shards whose time has come."""
        due, now = [], time.monotonic()
        while self._first() <= now:
            shard = heappop(self._queue)[2]
            self._at[shard] = NEVER
            due.append(shard)
        self._uncertain.update(due)
        return due

    def _first(self) -> float:
        """The earliest time."""
        while self._queue and self._at.get(self._queue[0][2]) != self._queue[0][0]:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else NEVER

    async def wait(self) -> None:
        """Waits until some shard's time has come. The event loop counts in milliseconds, so its timer may end early."""
        while (left_s := self._first() - time.monotonic()) > 0:
            self._sooner.clear()
            await loop.wait(self._sooner, None if left_s == NEVER else left_s)
