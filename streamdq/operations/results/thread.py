"""The waits of a Queue: all threads that wait share one more thread, with an event loop and connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from ...errors import ServerUnavailable
from ...link.connection import AsyncLink
from ...link.link_thread import LinkThread
from ...link.session import Session
from ...store.jobs.results import StoredResult
from ...store.redis_store import RedisStore
from .waits import Waits
from .wanted import Wanted


class WaitsThread(LinkThread):
    """``stop`` ends all waits."""

    NAME = "streamdq-results"

    def _begin(self, link: AsyncLink, session: Session) -> Callable[[], Awaitable[None]]:
        self._waits = Waits(link, RedisStore(session))
        return self._run

    async def _run(self) -> None:
        await self._stopping.wait()
        self._waits.close()

    def kept(self, wanted: Wanted, timeout_s: float) -> tuple[str, StoredResult]:
        """As Waits.kept."""
        waiting = self._waits.kept(wanted, timeout_s)
        try:
            future: Future[tuple[str, StoredResult]] = asyncio.run_coroutine_threadsafe(waiting, self._loop)
        except RuntimeError:  # another thread has closed the queue
            waiting.close()
            raise ServerUnavailable("result: the queue was closed while this call waited") from None
        try:
            return future.result()
        except asyncio.CancelledError:  # as the loop ended
            raise ServerUnavailable("result: the queue was closed while this call waited") from None
        finally:
            future.cancel()
