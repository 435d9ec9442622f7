"""Calls the functions that users have registered for the start and the end of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from ..process.logs import as_exc_info, log, what
from .handlers import run


async def start(functions: Sequence[Callable[[], Any]]) -> None:
    """Calls them in the order in which they were registered. What one raises is raised here: the worker does not start,
    and those after it are not called; nor are they if this is cancelled, and one catches that.
    """
    before = _cancellations()
    for function in functions:
        if _cancellations() > before:
            raise asyncio.CancelledError
        if (error := await run(function)) is not None:
            raise error


async def shut_down(functions: Sequence[Callable[[], Any]], *, show_errors: bool) -> None:
    """Calls them in the reverse order, each of them whatever the others raise; that is logged. If this is cancelled,
    the rest are not called.
    """
    before = _cancellations()  # of the worker, which led here
    for function in reversed(functions):
        if (error := await run(function)) is not None:
            shown = {"exc_info": as_exc_info(error)} if show_errors else {}
            log.error("on_shutdown failed", error=what(error), **shown)
        if _cancellations() > before:
            raise asyncio.CancelledError


def _cancellations() -> int:
    """How many times this task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


@contextlib.asynccontextmanager
async def until(event: asyncio.Event) -> AsyncIterator[None]:
    """Cancels the block when the event is set, and ends it quietly. The block runs in the caller's task, and so in its
    context: what it sets there lasts.
    """
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(event.wait())

    def end(task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            with contextlib.suppress(RuntimeError):  # the block has ended at the same moment
                limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            waiting.add_done_callback(end)
            yield
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        waiting.cancel()
