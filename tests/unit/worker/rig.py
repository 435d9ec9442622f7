"""A Runner without a server: one handler, jobs as if claimed just now, and how each of them ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from streamdq.config import START_WITHIN_S, Settings, TopicSettings
from streamdq.job.job import Job
from streamdq.keys import ShardKeys
from streamdq.operations.attempts import End, Held, Outcome
from streamdq.worker.handlers import handler_of
from streamdq.worker.hung import HungHandlers
from streamdq.worker.middleware import Middleware
from streamdq.worker.queues import HandlerQueues
from streamdq.worker.runner import Runner
from tests.waiting import HANG_S

SHARD = ShardKeys("ns", "t", 0)
NOW_MS = 1_800_000_000_000


def held(body: str, ttr_ms: int = 60_000, asked: float | None = None) -> Held:
    """A claim of the job whose id and body that is. ``asked``: when it was asked for, on the monotonic clock; None:
    just now, and it may start whenever this machine gets round to it.
    """
    late = float("inf") if asked is None else asked + START_WITHIN_S
    asked = time.monotonic() if asked is None else asked
    job = Job("t", body, body.encode(), NOW_MS - 5, NOW_MS - 5, attempt=1)
    one = Held(SHARD, "g", job, b"1800000000000-0", b"", NOW_MS - 5)
    one.ttr_ms, one.deadline = ttr_ms, asked + ttr_ms / 1000
    one.start_by = min(one.deadline, late)
    return one


class Rig:
    """A runner of one handler; what it tells Redis is kept here."""

    def __init__(
        self,
        function: Callable[..., Any],
        batch: int | None = None,
        concurrency: int = 10,
        on_dead: Callable[..., Any] | None = None,
        show_errors: bool = True,
        middleware: Sequence[Middleware] = (),
        **settings: Any,
    ) -> None:
        self.ends: list[End] = []
        self.ended = asyncio.Event()
        self.touches: list[tuple[str, int]] = []
        topics: Any = SimpleNamespace(settings_of=lambda _topic: TopicSettings(**settings))
        handler = handler_of("t", function, batch, None, None)
        self.runner = Runner(
            {"t": handler}, "g", concurrency, topics, lambda: NOW_MS, "me", ended=self._end, touched=self._touch,
            gave_back=lambda _topic, _jobs: None,
            queues=HandlerQueues("memory://unused", "test", Settings(), None, None),
            hung=HungHandlers("test", "g", concurrency, 0), on_dead=[on_dead] if on_dead else (),
            show_errors=show_errors, middleware=middleware,
        )  # fmt: skip

    def _end(self, end: End) -> None:
        self.ends.append(end)
        self.ended.set()

    def _touch(self, held: Held, ttr_ms: int) -> None:
        self.touches.append((held.job.id, ttr_ms))

    async def have_ended(self, count: int) -> dict[str, Outcome]:
        """Waits for so many ends; how each of them ended, by its body."""
        async with asyncio.timeout(HANG_S):
            while len(self.ends) < count:
                self.ended.clear()
                await self.ended.wait()
        return {end.held.job.id: end.outcome for end in self.ends}

    async def run(self, *jobs: Held) -> dict[str, Outcome]:
        """Takes the jobs, waits for all of them, and closes the runner."""
        self.runner.take(list(jobs))
        ended = await self.have_ended(len(jobs))
        await self.freed(lambda: self.runner.idle)
        await self.runner.close(1)
        return ended

    async def freed(self, done: Callable[[], bool]) -> None:
        """Waits for this, which comes with a slot that is free again."""
        async with asyncio.timeout(HANG_S):
            while not done():
                self.runner.freed.clear()
                await self.runner.freed.wait()
