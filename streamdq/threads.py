"""Threads for handlers that are plain functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any


class HandlerThreads(Executor):
    """As ThreadPoolExecutor, but the process does not wait for these threads when it exits: a drained worker has handed
    their jobs back, and must not hang with them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it only from the event loop's thread."""
        future: Future[Any] = Future()
        self._calls.put((future, function, args, kwargs))
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            self._count += 1
            threading.Thread(target=self._work, name=f"streamdq-{self._count}", daemon=True).start()
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _carry_out(*call)
            del call  # or it would keep the last job alive while this thread waits
            self._idle.release()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Each thread ends after the call it is in."""
        for _ in range(self._count):
            self._calls.put(None)


def _carry_out(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args, **kwargs)
    except BaseException as error:  # as any executor: it is raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)
