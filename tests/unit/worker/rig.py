"""A Runner without a server: one handler, jobs as if claimed just now, and how each of them ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from streamdq.config import START_WITHIN_S, Settings, TopicSettings
from streamdq.keys import ShardKeys
from streamdq.operations.attempts.claimed import ClaimedJob
from streamdq.operations.attempts.ends import AttemptResult, End
from streamdq.process.health import WorkerHealth
from streamdq.worker.deadline import Deadlines
from streamdq.worker.ends import Ends
from streamdq.worker.handlers import handler_of
from streamdq.worker.hung import HungHandlers
from streamdq.worker.member import Member, Where
from streamdq.worker.middleware import Middleware
from streamdq.worker.queues import HandlerQueues
from streamdq.worker.reports import DeadLetterNotices, Reports
from streamdq.worker.runner import Runner
from streamdq.worker.running_job import RunningJob
from streamdq.worker.slots import Slots
from streamdq.worker.topic_scheduler import TopicScheduler
from tests.unit.fake_redis import session_of, store_of
from tests.waiting import HANG_S

SHARD = ShardKeys("ns", "t", 0)
NOW_MS = 1_800_000_000_000


def running_job(body: str) -> RunningJob:
    """With the body as its id."""
    return RunningJob("t", body, body.encode(), NOW_MS - 5, NOW_MS - 5, attempt=1)


def held(body: str, ttr_ms: int = 60_000, asked: float | None = None) -> ClaimedJob:
    """A claim of the job whose id and body that is. ``asked``: when it was asked for, on the monotonic clock; None:
    just now, and it may start whenever this machine gets round to it.
    """
    late = float("inf") if asked is None else asked + START_WITHIN_S
    asked = time.monotonic() if asked is None else asked
    one = ClaimedJob(SHARD, "g", running_job(body), b"1800000000000-0", b"", NOW_MS - 5)
    one.ttr_ms, one.deadline = ttr_ms, asked + ttr_ms / 1000
    one.start_by = min(one.deadline, late)
    return one


def member_of(link: Any, store: Any = None) -> Member:
    """The consumer ``me`` of the group ``g``; without any topic if it is given no store."""
    return Member(link, store_of(session_of()) if store is None else store, "g", "me")


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
        me: Any = self
        member = member_of(None, SimpleNamespace(session=session_of(), topics=topics))
        handlers = {"t": handler_of("t", function, batch, None, None)}
        self.notices = DeadLetterNotices([on_dead] if on_dead else (), member)
        freed = asyncio.Event()
        self.reports = Reports(member, freed, self.notices, None, show_errors=show_errors)
        ends = Ends(member, me, me, show_errors=show_errors)
        self.slots = Slots(concurrency, handlers, ends, TopicScheduler(), freed)
        self.health = WorkerHealth(member.namespace, member.group, concurrency)
        hung = HungHandlers(member, self.health, 0, asyncio.Event())
        self.deadlines = Deadlines(member, handlers, self.slots, ends, hung)
        self.deadlines._touches = me
        queues = HandlerQueues(Where("memory://unused", "test", Settings()))
        self.runner = Runner(member, handlers, self.slots, self.deadlines, ends, queues, middleware)

    # -- what Redis, the sender of ends, and that of touches get

    @staticmethod
    def now_ms() -> int:
        return NOW_MS

    def put(self, end: End | ClaimedJob, ttr_ms: int = 0) -> None:
        if isinstance(end, ClaimedJob):
            self.touches.append((end.job.id, ttr_ms))
            return
        self.ends.append(end)
        self.ended.set()

    put_beside = put

    async def close(self) -> None:
        await self.notices.close(1)
        self.runner.close()

    async def have_ended(self, count: int) -> dict[str, AttemptResult]:
        """Waits for so many ends; how each of them ended, by its body."""
        async with asyncio.timeout(HANG_S):
            while len(self.ends) < count:
                self.ended.clear()
                await self.ended.wait()
        return {end.held.job.id: end.outcome for end in self.ends}

    async def run(self, *jobs: ClaimedJob) -> dict[str, AttemptResult]:
        """Takes the jobs, waits for all of them, and closes the runner."""
        self.runner.take(list(jobs))
        ended = await self.have_ended(len(jobs))
        await self.freed(lambda: self.runner.idle)
        await self.close()
        return ended

    async def freed(self, done: Callable[[], bool]) -> None:
        """Waits for this, which comes with a slot that is free again."""
        async with asyncio.timeout(HANG_S):
            while not done():
                self.slots.freed.clear()
                await self.slots.freed.wait()
