"""The signals that end a worker. They are the worker's alone: a child that a handler forks has those from before."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from ..forks import call_in_child

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE_SIGNAL_S = 1.0
"""Signals within this time are one: systemd sends SIGTERM to each process of a service, and a supervisor passes its own
on; coreutils' timeout sends one to the process and one to its group; people press Ctrl-C twice.
"""


LOOK_S = 1.0
"""The longest that the main thread waits at once. The system may give a signal to any thread, such as one that answers
a scrape. Python notes it there, but only the main thread runs the handler, and that does not wake it.
"""


class Stop:
    """Whether a signal asked this process to stop. Unlike an Event, it may be set by the signal's handler: that runs
    between two steps of the main thread, and ``Event.set`` waits for a lock that ``Event.wait`` holds for some steps.
    """

    def __init__(self) -> None:
        self._received: SimpleQueue[None] = SimpleQueue()

    def set(self, *_: Any) -> None:
        self._received.put(None)  # reentrant, as documented

    def is_set(self) -> bool:
        return not self._received.empty()

    def wait(self, timeout_s: float | None = None) -> None:
        """Until it is set, or for so long."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                self._received.get(timeout=min(left, LOOK_S))
                self.set()
                return


class _Handler:
    """A signal's handler for as long as something serves, in this process alone."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any], before: Any) -> None:
        self._handler, self._process = handler, os.getpid()
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._process == os.getpid():
            self._handler(number, frame)
        else:  # a forked child that got it before its first step
            _give_back(number)
            signal.raise_signal(number)


def _give_back(number: int) -> None:
    """Gives a forked child the handler that its parent had before it served."""
    handler = signal.getsignal(number)
    while isinstance(handler, _Handler):
        handler = handler.before
    of = getattr(getattr(handler, "func", None), "__self__", None)
    if isinstance(of, asyncio.Runner):  # it would cancel a task of the parent
        handler = signal.default_int_handler
    signal.signal(number, handler)


def _own() -> list[int]:
    """The signals that a worker handles in this process, or in the parent of this child."""
    return [number for number in SIGNALS if isinstance(signal.getsignal(number), _Handler)]


_masked = threading.local()
"""``before``: the signals that the forking thread had blocked."""


def _before_fork() -> None:
    """Python forgets a signal that a child gets before its first step: it gets none until it has its own handlers."""
    if _own():
        _masked.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _unmask() -> None:
    before, _masked.before = getattr(_masked, "before", None), None
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _after_fork() -> None:
    own = _own()
    if own:
        signal.set_wakeup_fd(-1)  # the parent's loop's
    for number in own:
        _give_back(number)
    _unmask()


os.register_at_fork(before=_before_fork, after_in_parent=_unmask)
call_in_child(_after_fork)


def install(handler: Callable[[int, FrameType | None], Any]) -> dict[int, Any]:
    """Has both signals handled by this function. Returns the handlers from before, for ``uninstall``. Unlike a loop's
    own handlers, these can be replaced without a moment at which a signal has its default effect.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: signal.SIG_DFL if one is None else one for number, one in before.items()}  # None: not Python's
    for number in SIGNALS:
        signal.signal(number, _Handler(handler, before[number]))
    return before


def uninstall(before: dict[int, Any], received_at: float | None) -> None:
    """Gives the signals their handlers from before. If one was received, last at that moment on the monotonic clock,
    those that belong to it are dropped; the first later one gets its handler from before.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        if received_at is not None and time.monotonic() - received_at > ONE_SIGNAL_S:
            signal.signal(number, before[number])
            signal.raise_signal(number)

    for number, handler in before.items():
        signal.signal(number, handler if received_at is None else _Handler(handle, handler))


def drop_at_exit() -> None:
    """Drops the signals once nothing can hold up the end of this process any more. Python takes its handlers down then,
    and a signal would decide the exit code.
    """

    def drop() -> None:
        with contextlib.suppress(ValueError):  # not the main thread: leaving.py decides the exit code
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    atexit.register(drop)
