"""The mover's call in a worker's process: while the worker is idle, the call that moves due jobs also claims the first
of them for it. So these need no blocked read and no call of their own.

Others may wait for the same jobs. So a worker that has something in hand claims nothing in this way, and an idle one
for half of its slots at most. What else is moved goes to whoever waits for it; that may be the worker's own blocked
read, for which the other half is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..operations.attempts import Held
from ..process.loop import cancel_and_wait
from ..store.replies import Moved
from ..store.scripts import Scripts
from ..store.topics import Topics
from .consumer import Consumer
from .runner import Runner
from .turns import Limit


class DirectClaims:
    """``move`` is the mover's way to move due jobs. ``room``: how many jobs of a topic can start at once, and how many
    calls of its handler that makes. ``take`` gets what was claimed.
    """

    def __init__(
        self,
        link: AsyncLink,
        scripts: Scripts,
        topics: Topics,
        consumer: Consumer,
        runner: Runner,
        room: Callable[[str], Limit],
        take: Callable[[list[Held]], None],
    ) -> None:
        self._link = link
        self._scripts = scripts
        self._topics = topics
        self._consumer = consumer
        self._runner = runner
        self._room = room
        self._take = take
        self._under_way: set[asyncio.Task[Moved]] = set()

    async def move(self, shard: ShardKeys, groups: Sequence[str], limit: int, permitted: bool) -> Moved:
        """Like Scripts.move. A call that claims goes on if the mover is cancelled: its claims must not get lost."""
        room = self._room(shard.topic)
        if room.most == 0 or not self._consumer.is_turn_of(shard):
            return await arun(self._link, self._scripts.move(shard, groups, limit, permitted))
        task = asyncio.create_task(self._claim_too(shard, groups, limit, permitted, room))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _claim_too(
        self, shard: ShardKeys, groups: Sequence[str], limit: int, permitted: bool, room: Limit
    ) -> Moved:
        asked = time.monotonic()
        call = self._scripts.move_and_claim(
            shard, groups, limit, permitted, group=self._consumer.group, consumer=self._consumer.name,
            count=room.most, ttr_ms=self._topics.settings_of(shard.topic).ttr_of(self._consumer.group),
        )  # fmt: skip
        free_slots = self._runner.expect(room.at_once)
        try:
            moved, claimed = await arun(self._link, call)
        finally:
            free_slots()
        if claimed is not None and (held := self._consumer.given(shard, claimed, asked)):
            self._take(held)
        return moved

    async def settled(self) -> None:
        """Waits until no call is under way that may claim jobs."""
        try:
            if self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            await cancel_and_wait(self._under_way)
