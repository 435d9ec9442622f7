"""The queues that handlers enqueue with: on the worker's server, in its namespace, by its clock."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..forks import renew_in_child
from ..process.loop import running_loop
from .member import Where

if TYPE_CHECKING:
    from ..queue import AsyncQueue, Queue


class HandlerQueues:
    """Each is opened when a handler first asks for it, and closed with the worker."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._awaited: AsyncQueue | None = None
        self._blocking: Queue | None = None
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def awaited(self) -> AsyncQueue:
        """For the event loop."""
        if running_loop() is None:
            raise InvalidInput("job.async_queue: belongs to the worker's event loop; in a def handler, use job.queue")
        if self._awaited is None:
            from ..queue import AsyncQueue

            at = self._where
            self._awaited = AsyncQueue(at.url, at.namespace, codec=at.codec, settings=at.settings, clock=at.clock)
        return self._awaited

    def blocking(self) -> Queue:
        """For handlers in threads, which share it."""
        if running_loop() is not None:
            raise InvalidInput("job.queue: would block the event loop; in an async def handler, use job.async_queue")
        with self._lock:
            if self._blocking is None:
                from ..queue import Queue

                at = self._where
                self._blocking = Queue(at.url, at.namespace, codec=at.codec, settings=at.settings, clock=at.clock)
            return self._blocking

    async def close(self) -> None:
        """Closes both, also if the first one can't be closed; that is raised then."""
        try:
            if self._awaited is not None:
                await self._awaited.close()
        finally:
            if self._blocking is not None:
                await asyncio.to_thread(self._blocking.close)
