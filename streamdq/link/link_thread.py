"""A thread with an event loop and a link of its own, for programs that have no loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar

from ..config import Settings
from ..errors import StreamdqError
from ..times.clock import RedisClock
from .connection import AsyncLink
from .opening import open_session
from .session import Session


class LinkThread(ABC):
    """
    Raises:
        StreamdqError: the URL or the settings are invalid, or the embedded server did not start.
        RuntimeError: the system starts no thread.
    """

    NAME: ClassVar[str]

    def __init__(self, url: str | None, namespace: str, settings: Settings, clock: RedisClock) -> None:
        self._arguments = (url, namespace, settings, clock)
        self._refused: StreamdqError | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name=self.NAME, daemon=True)
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
            run = self._begin(link, session)
        except StreamdqError as error:
            self._refused = error
            return
        finally:
            self._started.set()
        try:
            await run()
        finally:
            await link.close()

    @abstractmethod
    def _begin(self, link: AsyncLink, session: Session) -> Callable[[], Awaitable[None]]:
        """Called before the constructor returns. What is returned runs until ``_stopping`` is set."""

    def stop(self) -> None:
        """Ends the thread."""
        with contextlib.suppress(RuntimeError):  # its loop has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)
