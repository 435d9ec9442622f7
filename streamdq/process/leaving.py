"""How a worker's process ends. Python ends an event loop only after whatever runs in it and in its executor. A worker
that has drained does not wait for what it can't end: coroutines that ignore their cancellation, calls in threads.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
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
    """Those that go on after a while. A further Ctrl-C, which cancels this task, ends the wait and nothing else: a loop
    that ended because of it would wait for them for ever.
    """
    tasks = set(tasks)
    with suppress(asyncio.CancelledError):
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)
    return {task for task in tasks if not task.done()}


def _named(task: asyncio.Task[Any]) -> str:
    return f"a task that ignores that it was cancelled, at {(calls_in(task) or [task.get_name()])[-1]}"


def leave(code: int) -> None:
    """Ends this process now, though something in it goes on. Before that, log lines and printed text are written,
    children of multiprocessing are ended, and functions of ``atexit`` are called, as those that flush metrics; all that
    has a few seconds, as any of it may hang.
    """
    try:
        handed_over.flush(_LINES_S)
        until = time.monotonic() + _AT_EXIT_S
        last = [threading.Thread(target=each, name="streamdq-leave", daemon=True) for each in (_write_out, _finish)]
        for thread in last:
            thread.start()
        for thread in last:
            thread.join(max(0.0, until - time.monotonic()))
    finally:  # also if no thread can start, or Ctrl-C is pressed once more
        os._exit(code)


def leave_child(error: BaseException | None) -> None:
    """Ends this process, a child that a handler has forked and that returns from the handler, or raises this. It would
    go on as its parent, with the same jobs, and an event loop that waits for the same sockets. As in a child of
    multiprocessing, no function of ``atexit`` is called: they are the parent's.
    """
    code = 1
    try:
        result = error.code if isinstance(error, SystemExit) else error
        if result is None or isinstance(result, int):
            code = (result or 0) & 255
        elif result is error:
            traceback.print_exception(error)
        else:
            sys.stderr.write(f"{result}\n")
        _write_out()
    finally:  # whatever the text of its error does
        os._exit(code)


def _write_out() -> None:
    """Printed text is in a buffer if stdout is no terminal."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it is None, closed, an object of the program's own, or nobody reads it
            stream.flush()


def _finish() -> None:
    end_children()
    atexit._run_exitfuncs()
    _write_out()
