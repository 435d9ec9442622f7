"""Listens to ``wake`` streams. A shard's rings when a job with an earlier due time arrives, the namespace's when the
registry changes.

Redis goes through all streams of a blocked read each time that one of them rings. So there are several reads, of a part
of the streams each; on a Cluster one for each stream, as a read covers only one slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..loop import Failures, cancel_and_wait, wait
from ..store.blocking import listen

BLOCK_S, _LONGEST_BLOCK_S = 10.0, 60.0
_MOST = 100  # streams in one blocked read: at each ring Redis goes through all of them, which takes it 2 us each


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
        """Never returns."""
        parts: dict[asyncio.Task[None], list[str]] = {}
        try:
            while True:
                self._changed.clear()
                await self._divide(parts)
                await wait(self._changed, BLOCK_S)
        finally:
            await cancel_and_wait(parts)

    async def _divide(self, parts: dict[asyncio.Task[None], list[str]]) -> None:
        """Gives each part of the streams its own blocked read. Whole parts stay as they are; of the others, new parts
        are made when streams have come or gone.
        """
        wanted = dict.fromkeys(self._streams())
        if wanted.keys() == {name for part in parts.values() for name in part}:
            return
        most = 1 if self._link.is_cluster else _MOST
        block_s = min(_LONGEST_BLOCK_S, BLOCK_S * max(1, len(wanted) // _MOST))
        for task, part in list(parts.items()):
            if len(part) == most and wanted.keys() >= set(part):
                for name in part:
                    del wanted[name]
            else:
                del parts[task]
                await cancel_and_wait([task])
        left = list(wanted)
        for begin in range(0, len(left), most):
            part = left[begin : begin + most]
            parts[asyncio.create_task(self._listen(part, block_s))] = part

    async def _listen(self, names: Sequence[str], block_s: float) -> None:
        while True:
            try:
                rung = await arun(self._link, listen(self._session, names, self._seen, block_s))
                await self._heard(rung)
                self._seen.update(rung)  # not before: a task that is ended meanwhile must hear them again
            except Exception as error:
                for name in names:
                    self.forget(name)
                await asyncio.sleep(self._failures.failed(names[0], error))
            else:
                self._failures.worked(names[0])
