"""What is read of all topics, for pages that need more than they show: the order and the totals; who works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..errors import StreamdqError
from ..operations.checks.problems import Problem, in_order, problems_of
from ..operations.topics.stats import Concern, Stats, concern
from ..process.logs import log
from ..process.loop import cancel_and_wait

EVERY_S = 10.0
OLDEST_S = 30.0
_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class TopicReading:
    """One reading of all topics. ``began``: nothing in it is older than that, by the monotonic clock. ``problems``: the
    most urgent first.
    """

    began: float
    stats: Stats
    concerns: dict[str, Concern]
    problems: list[Problem] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began


T = TypeVar("T")


class Watch(Generic[T]):
    """Reads something every ``EVERY_S`` while somebody asks for it, once for all who ask. Nobody waits for it longer
    than a moment, and nobody gets a reading older than ``OLDEST_S``. ``read`` gets the moment at which the reading
    began.
    """

    def __init__(self, what: str, read: Callable[[float], Awaitable[T]]) -> None:
        self._what = what
        self._read = read
        self._found: tuple[float, T] | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = float("-inf")

    async def latest(self) -> T | None:
        """The latest reading; None if there is none yet, or no recent one."""
        if time.monotonic() - self._begun >= EVERY_S and (self._task is None or self._task.done()):
            self._begun = time.monotonic()
            self._task = asyncio.create_task(self._carry_out(self._begun))
        if self._recent is None and self._task is not None:
            await asyncio.wait({self._task}, timeout=_WAIT_S)
        return self._recent

    @property
    def _recent(self) -> T | None:
        return self._found[1] if self._found and time.monotonic() - self._found[0] < OLDEST_S else None

    async def _carry_out(self, began: float) -> None:
        try:
            self._found = began, await self._read(began)
        except StreamdqError as error:
            log.warning("reading failed", what=self._what, error=str(error))

    async def close(self) -> None:
        if self._task is not None:
            await cancel_and_wait([self._task])


class TopicCache(Watch[TopicReading]):
    """The latest reading of all topics."""

    def __init__(
        self,
        stats: Callable[[], Awaitable[Stats]],
        died: Callable[[Stats], Awaitable[Mapping[tuple[str, str], int]]] | None = None,
    ) -> None:
        super().__init__("topics", self._read_topics)
        self._stats = stats
        self._died = died

    async def _read_topics(self, began: float) -> TopicReading:
        stats = await self._stats()
        died = await self._died(stats) if self._died is not None else {}
        concerns = {name: concern(topic) for name, topic in stats.topics.items()}
        return TopicReading(began, stats, concerns, _problems(stats, died))


def _problems(stats: Stats, died: Mapping[tuple[str, str], int]) -> list[Problem]:
    of_topics: dict[str, dict[str, int]] = {}
    for (topic, group), count in died.items():
        of_topics.setdefault(topic, {})[group] = count
    return in_order(
        one for name, topic in stats.topics.items() for one in problems_of(name, topic, of_topics.get(name, {}))
    )
