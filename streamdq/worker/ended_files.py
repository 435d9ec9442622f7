"""Deletes the files of large bodies whose jobs have ended here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from ..keys import ShardKeys
from ..link.session import arun
from ..operations.attempts.ends import End
from ..operations.jobs.large_bodies import EndedJob, drop_ended
from .member import Member

_LATER_S = 60.0
_MOST = 50_000  # of some hundred bytes
_BATCH = 100


class EndedFiles:
    """Asks Redis a minute later whether a job has ended in every group, and if so deletes its file. If Redis has lost
    its last writes within that minute, in a failover or a crash, or a producer has repeated its call, the job is there
    again and needs the file. What this does not get to, as the worker stops or the storage fails, is left to the sweep.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._waiting: deque[tuple[float, ShardKeys, EndedJob]] = deque()
        self._filled = asyncio.Event()

    def put(self, ends: Sequence[End], stale: Collection[int]) -> None:
        """Notes jobs that were finished here. Of each it keeps the reference, not the body."""
        blocks, at = self._member.session.bodies.blocks, asyncio.get_running_loop().time() + _LATER_S
        for i, end in enumerate(ends):
            job = end.held.job
            if i not in stale and blocks(job.raw_body) and len(self._waiting) < _MOST:
                self._waiting.append((at, end.held.shard, EndedJob(job.topic, job.id, job.raw_body)))
                self._filled.set()

    async def run(self) -> None:
        """A loop's body."""
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            while self._waiting:
                await asyncio.sleep(max(0.0, self._waiting[0][0] - loop.time()))
                await arun(self._member.link, drop_ended(self._member.session, self._due(loop.time())))
            self._filled.clear()

    def _due(self, now: float) -> list[tuple[ShardKeys, EndedJob]]:
        found: list[tuple[ShardKeys, EndedJob]] = []
        while self._waiting and self._waiting[0][0] <= now and len(found) < _BATCH:
            _, shard, job = self._waiting.popleft()
            found.append((shard, job))
        return found
