"""Supervised loops: they are restarted after a failure, until they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any

from ..errors import NewerFormat, ServerError
from ..metrics import declared
from .cancellations import is_cancelled
from .logs import log, parts_of, what

_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S, _HEALTHY_S = 0.05, 2.0, 10.0


async def supervise(name: str, body: Callable[[], Awaitable[None]], stopping: asyncio.Event, namespace: str) -> None:
    """Runs ``body`` until it returns or ``stopping`` is set. A body that raises is logged, counted, and run again
    after a pause that doubles from 50 ms to 2 s, less up to half of it at random; ten healthy seconds reset it.

    Raises:
        NewerFormat: waiting can't help; the process has to end.
    """
    backoff_s, restarts = _FIRST_BACKOFF_S, declared.LOOP_RESTARTS.labels(namespace, name)
    while not stopping.is_set():
        started = time.monotonic()
        try:
            await body()
            return
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            if (newer := _newer_format(error)) is not None:
                raise newer from error
            restarts.inc()
            first = _first(error)
            log.warning("loop failed, restarting", loop=name, error=what(first))
            if not isinstance(first, ServerError):  # a bug: log the traceback; an absent Redis needs none
                log.debug("loop traceback", loop=name, trace="".join(traceback.format_tb(first.__traceback__)))
        if time.monotonic() - started > _HEALTHY_S:
            backoff_s = _FIRST_BACKOFF_S
        await wait(stopping, _spread(backoff_s))
        backoff_s = min(backoff_s * 2, _LONGEST_BACKOFF_S)


def _first(error: BaseException) -> BaseException:
    """The error, or of a group the first one: the group itself tells nothing of what happened."""
    while parts := parts_of(error):
        error = parts[0]
    return error


def _spread(pause_s: float) -> float:
    """Processes that lost Redis at the same moment must not all come back at the same moment."""
    return pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret


def _newer_format(error: BaseException) -> NewerFormat | None:
    """The NewerFormat in an error or a group of errors, if there is one."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_newer_format, error.exceptions)), None)
    return error if isinstance(error, NewerFormat) else None


async def wait(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Waits for the event, at most ``timeout_s``; returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    return event.is_set()


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels tasks and waits for their end; exceptions are dropped, as the tasks were supervised."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Failures:
    """Backoff per thing that failed: 50 ms, doubling to 2 s, less up to half of it at random. Logs the first failure in
    a row and the next success.
    """

    def __init__(self, loop: str, namespace: str) -> None:
        self._loop = loop
        self._restarts = declared.LOOP_RESTARTS.labels(namespace, loop)
        self._pauses_s: dict[Hashable, float] = {}

    def pause_after(self, name: Hashable, error: Exception) -> float:
        """How many seconds to wait before the next try.

        Raises:
            NewerFormat: if that is the error, as it must not be tried again.
        """
        if isinstance(error, NewerFormat):
            raise error
        self._restarts.inc()
        if name not in self._pauses_s:
            log.warning("failed, trying again", loop=self._loop, of=str(name), error=what(error))
        pause_s = self._pauses_s.get(name, _FIRST_BACKOFF_S)
        self._pauses_s[name] = min(pause_s * 2, _LONGEST_BACKOFF_S)
        return _spread(pause_s)

    def worked(self, name: Hashable) -> None:
        if name in self._pauses_s:
            del self._pauses_s[name]
            log.info("loop recovered", loop=self._loop, of=str(name))


def running_loop() -> asyncio.AbstractEventLoop | None:
    """This thread's, if one runs here."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
