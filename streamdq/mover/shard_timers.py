"""When the mover looks at which shard next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from ..keys import ShardKeys
from ..loop import wait

NEVER = float("inf")


class ShardTimers:
    """A time for each shard, on the monotonic clock; of several, the earliest counts.

    ``take_due`` forgets a time before the look begins. So a ring that arrives while the look is under way is kept, and
    what the look finds is added to it. Until a look has succeeded (``looked``), the shard ``is_uncertain``: its time
    says when it is tried again, not when its first job is due.
    """

    def __init__(self) -> None:
        self._at: dict[ShardKeys, float] = {}
        self._uncertain: set[ShardKeys] = set()
        self._sooner = asyncio.Event()

    @property
    def shards(self) -> list[ShardKeys]:
        return list(self._at)

    def __contains__(self, shard: ShardKeys) -> bool:
        return shard in self._at

    def at(self, shard: ShardKeys, when: float = 0.0) -> float:
        """Looks at the shard then, if not before; returns how much sooner that is."""
        before = self._at.setdefault(shard, NEVER)
        if when >= before:
            return 0.0
        self._at[shard] = when
        self._sooner.set()
        return before - when

    def looked(self, shard: ShardKeys, when: float) -> None:
        """A look has succeeded; the next one is then, if not before."""
        self._uncertain.discard(shard)
        self.at(shard, when)

    def is_uncertain(self, shard: ShardKeys) -> bool:
        """Whether a look at the shard is under way, or has failed and is to be repeated."""
        return shard in self._uncertain

    def everywhere(self) -> None:
        for shard in self._at:
            self.at(shard)

    def drop(self, shards: Iterable[ShardKeys]) -> None:
        for shard in shards:
            self._at.pop(shard, None)
            self._uncertain.discard(shard)

    def take_due(self) -> list[ShardKeys]:
        """The shards whose time has come."""
        now = time.monotonic()
        due = [shard for shard, when in self._at.items() if when <= now]
        for shard in due:
            self._at[shard] = NEVER
        self._uncertain.update(due)
        return due

    async def wait(self) -> None:
        """Until some shard's time may have come."""
        while (first := min(self._at.values(), default=NEVER)) > (now := time.monotonic()):
            self._sooner.clear()
            await wait(self._sooner, None if first == NEVER else first - now)
