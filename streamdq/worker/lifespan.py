"""Calls the functions that users have registered for the start and the end of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..process.logs import as_exc_info, log, what
from .user_functions import run


async def start(functions: Sequence[Callable[[], Any]]) -> None:
    """Calls them in the order in which they were registered. What one raises is raised here: the worker does not start,
    and those after it are not called.
    """
    for function in functions:
        if (error := await run(function)) is not None:
            raise error


async def shut_down(functions: Sequence[Callable[[], Any]], *, show_errors: bool) -> None:
    """Calls them in the reverse order, each of them whatever the others raise; that is logged. If this is cancelled,
    the rest are not called.
    """
    task = asyncio.current_task()
    for function in reversed(functions):
        if (error := await run(function)) is None:
            continue
        shown = {"exc_info": as_exc_info(error)} if show_errors else {}
        log.error("on_shutdown failed", error=what(error), **shown)
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


@asynccontextmanager
async def until(event: asyncio.Event) -> AsyncIterator[None]:
    """Cancels the block when the event is set, and ends it quietly. The block runs in the caller's task, and so in its
    context: what it sets there lasts.
    """
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(event.wait())
    try:
        async with asyncio.timeout(None) as limit:
            waiting.add_done_callback(lambda task: None if task.cancelled() else limit.reschedule(loop.time()))
            yield
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        waiting.cancel()
