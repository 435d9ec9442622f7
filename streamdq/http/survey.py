"""All topics' figures, for lists that need more than the topics they show: the order, and the totals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..errors import StreamdqError
from ..operations.inspect import Concern, Stats, concern
from ..process.logs import log
from ..process.loop import cancel_and_wait

EVERY_S = 10.0
OLDEST_S = 30.0
_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a survey has found. ``began``: nothing in it is older than that, by the monotonic clock."""

    began: float
    stats: Stats
    concerns: dict[str, Concern]

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began


class Survey:
    """Reads all topics' figures every ``EVERY_S`` while somebody asks for them, once for all who ask. Nobody waits for
    it longer than a moment, and nobody gets one older than ``OLDEST_S``.
    """

    def __init__(self, read: Callable[[], Awaitable[Stats]]) -> None:
        self._read = read
        self._found: Surveyed | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = float("-inf")

    async def latest(self) -> Surveyed | None:
        """The latest survey; None if there is none yet, or no recent one."""
        if time.monotonic() - self._begun >= EVERY_S and (self._task is None or self._task.done()):
            self._begun = time.monotonic()
            self._task = asyncio.create_task(self._carry_out(self._begun))
        if self._recent is None and self._task is not None:
            await asyncio.wait({self._task}, timeout=_WAIT_S)
        return self._recent

    @property
    def _recent(self) -> Surveyed | None:
        return self._found if self._found is not None and self._found.age_s < OLDEST_S else None

    async def _carry_out(self, began: float) -> None:
        try:
            stats = await self._read()
        except StreamdqError as error:
            log.warning("topics not surveyed", error=str(error))
            return
        self._found = Surveyed(began, stats, {name: concern(topic) for name, topic in stats.topics.items()})

    async def close(self) -> None:
        if self._task is not None:
            await cancel_and_wait([self._task])
