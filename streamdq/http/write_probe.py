"""Checks whether Redis accepts writes. It costs Redis one write per second, however many callers ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..errors import ServerUnavailable, StreamdqError
from ..process.loop import cancel_and_wait

_KEPT_S = 1.0
_LONGEST_S = 2.0


@dataclass(slots=True)
class WriteProbe:
    """A write to Redis, and its outcome. Everyone who asks while it is under way, or within a second after it, gets
    this outcome: health checks need no token, so otherwise strangers could open a connection to Redis with each
    request.
    """

    write: Callable[[], Awaitable[None]]
    _under_way: asyncio.Task[None] | None = None
    _failed: StreamdqError | None = None
    _holds_until: float = 0.0

    async def check(self) -> None:
        """Raises:
        StreamdqError: Redis does not answer, or refuses writes.
        """
        if time.monotonic() >= self._holds_until:
            if self._under_way is None or self._under_way.done():
                self._under_way = asyncio.create_task(self._write())
                self._under_way.add_done_callback(self._over)
            await asyncio.shield(self._under_way)  # a caller may leave, but others wait for it, too
        if self._failed is not None:
            raise self._failed.with_traceback(None)

    def _over(self, task: asyncio.Task[None]) -> None:
        if self._under_way is task:  # an eager one may be done before it is there
            self._under_way = None

    async def _write(self) -> None:
        self._failed = await self._outcome()
        self._holds_until = time.monotonic() + _KEPT_S

    async def _outcome(self) -> StreamdqError | None:
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self.write()
        except TimeoutError:
            return ServerUnavailable("no answer to a write in time")
        except StreamdqError as error:
            return error
        return None

    async def close(self) -> None:
        if self._under_way is not None:
            await cancel_and_wait([self._under_way])
