"""Threads for handlers that are plain functions, and for the files of large bodies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from .forks import renew_in_child


class ThreadOf:
    """Runs a function, and knows in which thread."""

    __slots__ = ("ident",)

    def __init__(self) -> None:
        self.ident: int | None = None

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        self.ident = threading.get_ident()
        return function(*args)

    def stop(self) -> bool:
        """Nobody waits for the function any more. Returns whether it ends now: a thread can't be stopped."""
        return False

    def abort(self, held: Any) -> None:
        """Its job was aborted, as the function can see for itself."""


class HandlerThreads(Executor):
    """Like ThreadPoolExecutor, but the process does not wait for these threads when it exits: a drained worker has
    handed their jobs back, and must not hang with them, nor with a storage. And each call has a copy of its caller's
    context: what it sets there is not found by the next call of the same thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """A forked child has none of its parent's threads."""
        self._count = 0
        self._open = 0  # calls that have not ended
        self._open_lock = threading.Lock()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it from one thread only, such as the event loop's.

        Raises:
            RuntimeError: there is no thread, and the system starts none. The function will not be called.
        """
        future: Future[Any] = Future()
        with self._open_lock:
            self._open += 1
        self._calls.put((future, copy_context().run, (function, *args), kwargs))
        if self._count < min(self._open, self._most):
            try:
                self._start_thread()
            except RuntimeError:
                if self._count == 0:
                    self._calls.get_nowait()  # otherwise it would run much later, after it has counted as failed
                    self._ended()
                    raise
                # the existing ones take the call when they are free
        return future

    def begin(self) -> None:
        """Starts the first thread before there is a call: then ``submit`` raises no RuntimeError.

        Raises:
            RuntimeError: the system starts no thread.
        """
        if self._count == 0:
            self._start_thread()

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name=f"streamdq-{self._count + 1}", daemon=True).start()
        self._count += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _carry_out(*call)
            del call  # otherwise the last job would stay alive while this thread waits
            self._ended()

    def _ended(self) -> None:
        with self._open_lock:
            self._open -= 1

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Lets each thread end after its present call."""
        for _ in range(self._count):
            self._calls.put(None)


def _carry_out(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args, **kwargs)
    except BaseException as error:  # like any executor: it is raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)
