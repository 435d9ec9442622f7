"""Calls a worker's ``on_dead`` functions for jobs that were given up, without holding up other work."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ..job.job import Job
from ..process.logs import log, what
from ..process.loop import cancel_and_wait
from ..threads import HandlerThreads
from .user_functions import called, completed

_MOST = 1000


class DeadLetterNotices:
    """Each function gets one job at a time, in the order of Redis's replies; up to 1,000 jobs wait for it. If it can't
    be called for a job, that is logged; the job is a dead letter in any case.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]], naming: Callable[[Job], dict[str, Any]]) -> None:
        """``naming``: the fields that name a job in the log."""
        self._naming = naming
        self._waiting: dict[Callable[..., Any], deque[Job]] = {function: deque() for function in functions}
        self._telling: dict[Callable[..., Any], asyncio.Task[None]] = {}
        self._closed = False
        self._threads = HandlerThreads(max(1, len(self._waiting)))

    def put(self, job: Job) -> None:
        for function, waiting in self._waiting.items():
            if self._closed or len(waiting) >= _MOST:
                self._not_told(job, "the worker has stopped" if self._closed else "too many wait to be told of")
                continue
            waiting.append(job)
            if (telling := self._telling.get(function)) is None or telling.done():
                self._telling[function] = asyncio.create_task(self._tell(function, waiting))

    async def _tell(self, function: Callable[..., Any], waiting: deque[Job]) -> None:
        while waiting:
            job = waiting[0]
            error = await asyncio.create_task(self._call(function, job))  # each in a context of its own
            if self._closed:
                return
            waiting.popleft()
            if error is not None:
                log.error("on_dead failed", error=what(error), **self._naming(job))

    async def _call(self, function: Callable[..., Any], job: Job) -> BaseException | None:
        if inspect.iscoroutinefunction(function):
            result, error = called(function, job)
        else:
            loop = asyncio.get_running_loop()
            try:
                result, error = await loop.run_in_executor(self._threads, called, function, job)
            except RuntimeError as refused:  # the system starts no thread
                return refused
        return await completed(result) if error is None else error

    def _not_told(self, job: Job, why: str) -> None:
        log.error("on_dead not called", why=why, **self._naming(job))

    async def close(self, timeout_s: float) -> None:
        """Waits at most this long for the remaining calls."""
        late: set[asyncio.Task[None]] = set()
        if self._telling:
            _, late = await asyncio.wait(self._telling.values(), timeout=timeout_s)
        self._closed = True
        if late:
            for job in [job for waiting in self._waiting.values() for job in waiting]:
                self._not_told(job, "the worker stopped before it had heard")
            await cancel_and_wait(late)
        self._threads.shutdown()
