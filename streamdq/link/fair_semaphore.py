"""A semaphore for threads: first come, first served.

In the main thread, a signal's handler may raise between any two steps, those of ``finally`` included. So who has a
place, or waits for one, is not a count that code has to keep right: it is an object, and that ends when nobody holds it
any more. Connections are shared, and a place that was lost would be missing for the process's whole life.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

_LOOK_S = 0.25  # a waiter looks so often, in case the thread that should have notified it was interrupted


class Permit:
    """Drop it to leave: ``permit = None`` frees it at once, and nothing can come between."""

    __slots__ = ("__weakref__", "bell")

    def __init__(self) -> None:
        self.bell: SimpleQueue[None] | None = None  # of who waits; None: waits no more


class FairSemaphore:
    """Admits a limited number of threads at once; the others wait in turn. asyncio.Semaphore does this for tasks."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._taken: dict[weakref.ref[Permit], None] = {}
        self._waiting: dict[weakref.ref[Permit], None] = {}  # first come first
        self._lock = threading.RLock()  # a signal's handler may use a queue, too

    @property
    def free(self) -> int:
        """How many places nobody has."""
        return self._places - len(self._taken)

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return len(self._waiting)

    def enter(self, timeout_s: float) -> Permit | None:
        """Returns None if no place became free within ``timeout_s``. Otherwise drop the permit later, and then call
        ``wake``.
        """
        permit = Permit()
        with self._lock:
            if not self._waiting and self._take(permit):
                return permit
        waits = Permit()
        try:
            return permit if self._wait(waits, permit, timeout_s) else None
        finally:
            waits.bell = None  # even if a traceback holds it
            self.wake()  # the next in line: there may be a place for it, too

    def wake(self) -> None:
        """Wakes the caller that has waited longest: a place is free."""
        if self._waiting and (first := self._first()) is not None and (bell := first.bell) is not None:
            bell.put(None)

    def _wait(self, waits: Permit, permit: Permit, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        bell = waits.bell = SimpleQueue()
        with self._lock:
            _note(self._waiting, waits)
        while True:
            with self._lock:
                if self._first() is waits and self._take(permit):
                    return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            with suppress(Empty):
                bell.get(timeout=min(left_s, _LOOK_S))

    def _take(self, permit: Permit) -> bool:
        if len(self._taken) >= self._places:
            return False
        _note(self._taken, permit)
        return True

    def _first(self) -> Permit | None:
        for reference in list(self._waiting):  # a copy: others may go meanwhile
            if (one := reference()) is not None and one.bell is not None:
                return one
        return None


def _note(places: dict[weakref.ref[Permit], None], permit: Permit) -> None:
    """Until nobody holds the place any more: a function of C then removes it, which no signal's handler interrupts."""
    forget: Callable[[Any], None] = places.pop
    places[weakref.ref(permit, forget)] = None
