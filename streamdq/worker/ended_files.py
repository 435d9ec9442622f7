"""Deletes the files of large bodies whose jobs have ended here."""

from __future__ import annotations

import asyncio

from ..claims.attempts import End
from ..job import Job
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..operations.large_bodies import drop_ended

_MOST = 10_000
_BATCH = 100


class EndedFiles:
    """Asks Redis whether a job has ended in every group, and if so deletes its file. What it does not get to, as the
    worker stops or the storage fails, is left to the sweep.
    """

    def __init__(self, link: AsyncLink, session: Session) -> None:
        self._link = link
        self._session = session
        self._waiting: list[tuple[ShardKeys, Job]] = []
        self._filled = asyncio.Event()

    def put(self, ends: list[End], stale: set[int]) -> None:
        """Notes jobs that were finished here."""
        blocks = self._session.bodies.blocks
        for i, end in enumerate(ends):
            if i not in stale and blocks(end.held.job.raw_body) and len(self._waiting) < _MOST:
                self._waiting.append((end.held.shard, end.held.job))
                self._filled.set()

    async def run(self) -> None:
        """A loop's body."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                await arun(self._link, drop_ended(self._session, batch))
