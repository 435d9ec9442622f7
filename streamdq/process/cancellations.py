"""A task's own cancellation, and that of what it awaits. They are the same exception."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def uncancelled(body: Callable[[], Awaitable[T]]) -> T:
    """What the body returns, which others depend on. If it awaits what somebody else has cancelled, that is a failure,
    and not as if this task had been cancelled: a task group would go on without it, and `supervise` would not notice.
    If the body fails when this task has been cancelled, the task ends as cancelled: before Python 3.13, a group would
    raise that failure alone, and `supervise` would run it again while somebody waits for its end.

    Raises:
        RuntimeError: that happened.
    """
    try:
        return await body()
    except Exception as error:
        if _is_cancelled():
            raise asyncio.CancelledError from error
        raise
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        # The log tells where an error was raised: that is where it was awaited.
        raise RuntimeError("awaited what somebody else has cancelled").with_traceback(error.__traceback__) from error


def is_cancelled(error: BaseException) -> bool:
    """Whether somebody has cancelled this task. Otherwise it has awaited something that was cancelled."""
    return isinstance(error, asyncio.CancelledError) and _is_cancelled()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
