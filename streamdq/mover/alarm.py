"""A timer for due moments. Event loops wait in whole milliseconds: their timers are half a millisecond late on average,
uvloop's as well as asyncio's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from types import TracebackType
from typing import Self

from ..process.logs import log
from ..process.loop import wait

NEVER = float("inf")
_EARLY_S, _OVERDUE_S = 0.001, 0.01  # beyond these the system's timer is not to be trusted
_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1  # of Linux's <time.h> and <sys/timerfd.h>
_libc = ctypes.CDLL(None)


class _Moment(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Moment), ("first", _Moment))


class Alarm:
    """Wakes its task within some 50 µs of a moment of the monotonic clock, on Linux, which has timers that are read
    like sockets. Elsewhere it is as late as the event loop's timers, and so it is from the second time on where such a
    timer rings at another time or never, as under libfaketime. Use it in a with statement.
    """

    def __init__(self) -> None:
        self._timer: int | None = None  # its descriptor
        self._event: asyncio.Event | None = None
        self._until = 0.0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        timer = _new_timer()
        if timer is not None:
            try:
                self._loop.add_reader(timer, self._rang)
                self._timer = timer
            except (NotImplementedError, OSError):  # this loop can't, or the system lets nobody watch more descriptors
                os.close(timer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._timer is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._timer)
            os.close(self._timer)
            self._timer = None

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Waits for the event, at most until then."""
        if self._timer is None or until == NEVER or not _set(self._timer, until):
            await wait(event, None if until == NEVER else until - time.monotonic())
            return
        self._event, self._until = event, until
        overdue = self._loop.call_later(until - time.monotonic() + _OVERDUE_S, self._overdue)
        try:
            await event.wait()
        finally:
            overdue.cancel()
            self._event = None

    def _rang(self) -> None:
        assert self._timer is not None
        try:
            os.read(self._timer, 8)
        except BlockingIOError:  # it has been set anew since
            return
        if self._event is not None:
            if time.monotonic() < self._until - _EARLY_S:
                self._mistrust("too early")
            self._event.set()

    def _overdue(self) -> None:
        """Well after the moment: the event loop was busy and comes late to both timers, or the system's never rings."""
        if self._timer is None or self._event is None or self._event.is_set():
            return
        self._rang()
        if not self._event.is_set():
            self._mistrust("too late, or never")
            self._event.set()

    def _mistrust(self, rings: str) -> None:
        log.warning("the system's timer is wrong: the event loop's is used instead", rings=rings)
        self._drop()


def _new_timer() -> int | None:
    """None: the system has none, or the process no descriptor for it."""
    create = getattr(_libc, "timerfd_create", None)
    if create is None or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    timer: int = create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    return timer if timer >= 0 else None


def _set(timer: int, when: float) -> bool:
    first = _Moment(int(when), int(when % 1 * 1e9))
    return bool(_libc.timerfd_settime(timer, _ABSOLUTE, ctypes.byref(_Setting(_Moment(), first)), None) == 0)
