"""Listens to ``wake`` streams. A shard's rings when a job with an earlier due time arrives, the namespace's when the
registry changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..loop import Failures, cancel_and_wait, wait
from ..store.blocking import listen

BLOCK_S = 10.0


class Listener:
    """Calls ``heard`` with the streams that rang; with none if ten seconds passed without a ring.

    A ring stays in its stream, so a ring that comes while nobody reads is heard with the next read. When a read fails,
    the listener forgets what it has heard, because the next ids may come from another primary; then each stream that
    ever rang is heard again.
    """

    def __init__(
        self,
        link: AsyncLink,
        session: Session,
        streams: Callable[[], Sequence[str]],
        heard: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        self._link = link
        self._session = session
        self._streams = streams
        self._heard = heard
        self._seen: dict[str, bytes] = {}
        self._failures = Failures("rings", session.keys.namespace)
        self._changed = asyncio.Event()

    def forget(self, stream: str) -> None:
        """Makes the stream's last ring be heard again: the id seen last may be ahead of those that Redis issues now."""
        self._seen.pop(stream, None)

    def look_again(self) -> None:
        """Asks again which streams to listen to, and forgets the others."""
        self._seen = {name: self._seen[name] for name in self._streams() if name in self._seen}
        self._changed.set()

    async def run(self) -> None:
        """Never returns. On a Cluster each stream has its own blocked read, as one read covers only one slot."""
        if not self._link.is_cluster:
            await self._listen(self._streams)
        listening: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                names = self._streams()
                for name in names:
                    if name not in listening:
                        listening[name] = asyncio.create_task(self._listen_to(name))
                await cancel_and_wait([listening.pop(name) for name in listening.keys() - set(names)])
                await wait(self._changed, BLOCK_S)
        finally:
            await cancel_and_wait(listening.values())

    async def _listen_to(self, name: str) -> None:
        await self._listen(lambda: [name])

    async def _listen(self, streams: Callable[[], Sequence[str]]) -> None:
        while True:
            names = streams()
            try:
                rung = await arun(self._link, listen(self._session, names, self._seen, BLOCK_S))
                self._seen.update(rung)
                await self._heard(rung)
            except Exception as error:
                for name in names:
                    self.forget(name)
                await asyncio.sleep(self._failures.failed(names[0], error))
            else:
                self._failures.worked(names[0])
