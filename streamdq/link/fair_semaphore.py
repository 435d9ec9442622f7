"""A semaphore for threads: first come, first served."""

from __future__ import annotations

import threading
from collections import deque


class FairSemaphore:
    """Admits a limited number of threads at once; the others wait in turn. asyncio.Semaphore does this for tasks."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def enter(self, timeout_s: float) -> bool:
        """Returns False if no place became free within ``timeout_s``; otherwise call ``leave`` later."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        mine = False
        try:
            mine = turn.acquire(timeout=max(0.0, timeout_s))
        finally:
            if not mine:
                self._give_up(turn)
        return mine

    def leave(self) -> None:
        """Passes the place on to whoever has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    def _give_up(self, turn: threading.Lock) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.leave()  # the place was given to us at the last moment
