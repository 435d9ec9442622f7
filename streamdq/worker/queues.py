"""The queues that handlers enqueue with: on the worker's server, in its namespace, by its clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..forks import renew_in_child
from ..process.loop import running_loop

if TYPE_CHECKING:
    from ..codec.protocol import Codec
    from ..config import Settings
    from ..queue import AsyncQueue, Queue
    from ..times.clock import RedisClock


class HandlerQueues:
    """Each is opened when a handler first asks for it, and closed with the worker."""

    def __init__(
        self,
        url: str | None,
        namespace: str | None,
        settings: Settings,
        clock: RedisClock | None,
        codec: Sequence[Codec] | None,
    ) -> None:
        self._url, self._namespace = url, namespace
        self._settings, self._clock, self._codec = settings, clock, codec
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

            self._awaited = AsyncQueue(
                self._url, self._namespace, codec=self._codec, settings=self._settings, clock=self._clock
            )
        return self._awaited

    def blocking(self) -> Queue:
        """For handlers in threads, which share it."""
        if running_loop() is not None:
            raise InvalidInput("job.queue: would block the event loop; in an async def handler, use job.async_queue")
        with self._lock:
            if self._blocking is None:
                from ..queue import Queue

                self._blocking = Queue(
                    self._url, self._namespace, codec=self._codec, settings=self._settings, clock=self._clock
                )
            return self._blocking

    async def close(self) -> None:
        """Closes both, also if the first one can't be closed; that is raised then."""
        try:
            if self._awaited is not None:
                await self._awaited.close()
        finally:
            if self._blocking is not None:
                await asyncio.to_thread(self._blocking.close)
