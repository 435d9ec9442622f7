"""The thread that says that this process is alive: one, however many workers the process has."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Protocol

from ..forks import renew_in_child
from ..process.logs import handed_over, log, what

_AFTER_A_FAULT_S = 1.0


class Beating(Protocol):
    def beat(self, late_s: float) -> float:
        """Does what is due; returns in how many seconds something is due again. ``late_s``: how much later than it had
        wanted to this thread has run: the process stood still.
        """


class Pulse:
    """Calls ``beat`` of all that was added, whenever it is due. Nothing that a handler does in the event loop, or in
    its threads, holds it up, but C code that keeps Python's lock. Nor does the log's reader: another thread logs for
    this thread.

    A forked child has no such thread, unless it serves a worker of its own: its parent's workers are not there.
    """

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._beating: list[Beating] = []
        self._is_there = False
        self._sooner = threading.Event()

    def add(self, one: Beating) -> None:
        """
        Raises:
            RuntimeError: the system starts no thread.
        """
        with self._lock:
            if not self._is_there:
                threading.Thread(target=self._run, name="streamdq-pulse", daemon=True).start()
                self._is_there = True
            self._beating.append(one)
        self.wake()

    def remove(self, one: Beating) -> None:
        """It may be called once more, if that is under way. The thread ends with the last one."""
        with self._lock, suppress(ValueError):
            self._beating.remove(one)
        self.wake()

    def wake(self) -> None:
        """Something may be due sooner."""
        self._sooner.set()

    def _run(self) -> None:
        handed_over.begin()
        late_s = 0.0
        while True:
            self._sooner.clear()
            with self._lock:
                beating = list(self._beating)
                if not beating:
                    self._is_there = False
                    return
            left_s = min(_beat(one, late_s) for one in beating)
            until = time.monotonic() + left_s
            self._sooner.wait(left_s if left_s < threading.TIMEOUT_MAX else None)
            late_s = max(0.0, time.monotonic() - until)


def _beat(one: Beating, late_s: float) -> float:
    """Whatever happens, the others go on, and this one comes again."""
    try:
        return one.beat(late_s)
    except Exception as error:
        log.error("heartbeat not sent", error=what(error))
        return _AFTER_A_FAULT_S


pulse = Pulse()
