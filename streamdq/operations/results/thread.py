"""The waits of a Queue: all threads that wait share one more thread, with an event loop and connections of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future

from ...config import Settings
from ...errors import ServerUnavailable, StreamdqError
from ...link.connection import AsyncLink
from ...link.opening import open_session
from ...store.jobs.results import StoredResult
from ...store.redis_store import RedisStore
from ...times.clock import RedisClock
from .waits import Waits
from .wanted import Wanted


class WaitsThread:
    """
    Raises:
        StreamdqError: the URL is invalid, or the embedded server did not start.
        RuntimeError: the system starts no thread.
    """

    def __init__(self, url: str | None, namespace: str, settings: Settings, clock: RedisClock) -> None:
        self._arguments = (url, namespace, settings, clock)
        self._refused: StreamdqError | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="streamdq-results", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._refused is not None:
            raise self._refused

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            link, session = open_session(*self._arguments, AsyncLink)
            self._waits = Waits(link, RedisStore(session))
        except StreamdqError as error:
            self._refused = error
            return
        finally:
            self._started.set()
        try:
            await self._stopping.wait()
            self._waits.close()
        finally:
            await link.close()

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

    def stop(self) -> None:
        """Ends all waits, and the thread."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)
