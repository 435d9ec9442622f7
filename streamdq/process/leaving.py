"""How a worker's process ends. Python ends an event loop only after whatever runs in it and in its executor. A worker
that has drained does not wait for what it can't end: coroutines that ignore their cancellation, calls in threads.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Iterable
from typing import Any

from .logs import calls_in, handed_over
from .processes import end_children

END_S = 3.0
"""How long a drained worker waits for other tasks of its loop, and for calls in the threads of its executor."""
_LINES_S = 1.0
_AT_EXIT_S = 3.0


async def left_over() -> list[str]:
    """Ends the tasks of this loop and its executor, as asyncio does at the end; returns what goes on nevertheless."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    left = [_named(task) for task in await _still_there(tasks)]
    executor = loop.create_task(loop.shutdown_default_executor())
    if await _still_there([executor]):
        left.append("a call in a thread of the loop's executor, as of asyncio.to_thread")
    return left


async def _still_there(tasks: Iterable[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    tasks = set(tasks)
    return (await asyncio.wait(tasks, timeout=END_S))[1] if tasks else set()


def _named(task: asyncio.Task[Any]) -> str:
    return f"a task that ignores that it was cancelled, at {(calls_in(task) or [task.get_name()])[-1]}"


def leave(code: int) -> None:
    """Ends this process now, though something in it goes on. Before that, log lines are written, children of
    multiprocessing are ended, and functions of ``atexit`` are called, as those that flush metrics; all that has a few
    seconds, as any of it may hang.
    """
    handed_over.flush(_LINES_S)
    last = threading.Thread(target=_finish, name="streamdq-leave", daemon=True)
    last.start()
    last.join(_AT_EXIT_S)
    os._exit(code)


def _finish() -> None:
    end_children()
    atexit._run_exitfuncs()
