"""Handlers that go on beyond their TTR. A thread can't be stopped, and a coroutine may ignore that it is cancelled:
each keeps its slot until it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..job.job import Job
from ..link.session import arun
from ..metrics import declared
from ..process.health import WorkerHealth
from ..process.logs import calls_in, calls_of, log
from ..store.namespace import tell_hung
from ..threads import ThreadOf
from .member import Member

EXIT_HUNG = 4
"""The exit code of a worker whose handlers hang in all of its slots."""
_HUNG_S = 1.0  # after it was given up: one that ends earlier was only late
_LOOK_S = 1.0
_TELL_S = 10.0  # how often it is written to Redis, while there are any


@dataclass(slots=True)
class _OverdueCall:
    """A call whose attempt has ended. ``calls``: what it is in now; ``job``: the fields that name it in the log."""

    what: str
    calls: Callable[[], list[str]]
    job: dict[str, Any]
    since: float
    is_logged: bool = False


class HungHandlers:
    """Those of one worker. Each is logged once, with the calls that it is in."""

    def __init__(self, member: Member, health: WorkerHealth, exit_s: float, stopping: asyncio.Event) -> None:
        """``exit_s``: ``stopping`` is set when for so long every slot had a hung thread; 0: never."""
        self.ends_worker = False  # the process is to be started again
        self._member = member
        self._stopping = stopping
        self._health = health
        self._slots = health.slots
        self._exit_s = exit_s
        self._overdue: dict[asyncio.Future[Any], _OverdueCall] = {}
        self._some = asyncio.Event()
        self._full_since: float | None = None
        self._gauge = declared.HUNG.labels(member.namespace, member.group)
        self._gauge.set(0)
        self._reported_at = float("-inf")
        self._reported = 0
        self._hung = 0

    def add(self, call: asyncio.Future[Any], thread: ThreadOf, job: Job) -> None:
        """The call's attempt has ended, and the call has not."""
        calls = partial(_calls_in, thread)
        self._add(call, "a handler's thread goes on beyond its TTR", calls, job)

    def add_uncancellable(self, attempt: asyncio.Task[Any], job: Job) -> None:
        """The attempt was cancelled, and has been given up, as its handler goes on."""
        self._add(attempt, "a handler ignores that it was cancelled", partial(calls_in, attempt), job)

    def _add(self, call: asyncio.Future[Any], what: str, calls: Callable[[], list[str]], job: Job) -> None:
        if call not in self._overdue:  # one of several jobs of a batch
            self._overdue[call] = _OverdueCall(what, calls, self._member.naming(job), time.monotonic())
            call.add_done_callback(self._overdue.pop)
            self._some.set()

    async def run(self) -> None:
        """A loop's body."""
        while True:
            if not self._overdue and not self._reported:
                self._some.clear()
                await self._some.wait()
            await asyncio.sleep(_LOOK_S)
            self.look()
            await self._tell()

    def look(self) -> None:
        now, hung = time.monotonic(), 0
        for call in self._overdue.values():
            if now - call.since >= _HUNG_S:
                hung += 1
                if not call.is_logged:
                    call.is_logged = True
                    log.warning(f"{call.what} and keeps its slot", calls=call.calls(), **call.job)
        self._gauge.set(hung)
        self._hung = hung
        self._health.hang(hung)
        if hung < self._slots:
            self._full_since = None
            return
        if self._full_since is None:
            self._full_since = now
            log.error("handlers hang in all slots: this worker claims no more jobs", slots=self._slots)
        if 0 < self._exit_s <= now - self._full_since:
            self.end_worker()

    def end_worker(self) -> None:
        """Nothing can free the slots: the worker drains, and raises HandlersHung."""
        self.ends_worker = True
        self._stopping.set()

    async def _tell(self) -> None:
        """Tells Redis how many there are."""
        now, member = time.monotonic(), self._member
        if self._hung != self._reported or (self._hung and now - self._reported_at >= _TELL_S):
            kept_ms = int(3 * _TELL_S * 1000)
            await arun(member.link, tell_hung(member.session, member.consumer, self._hung, self._slots, kept_ms))
            self._reported, self._reported_at = self._hung, now

    def goes_on(self) -> list[dict[str, Any]]:
        """The jobs whose handlers go on, and the calls that these are in."""
        return [{**call.job, "calls": call.calls()} for call in self._overdue.values()]

    def close(self) -> None:
        self._gauge.set(0)


def _calls_in(thread: ThreadOf) -> list[str]:
    """What it is in now."""
    return calls_of(thread.ident)
