"""Notices that an event loop runs nothing else for a while, and who blocks it. Another thread looks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..metrics import recorded
from ..process.logs import OWN_CODE, calls_of, log, users_calls

BLOCKED_S = 1.0
"""What takes less is no news."""
LONG_S = 10.0
"""A block that lasts longer is logged while it lasts."""
_SAMPLE_S = 0.5  # after so long, it looks who blocks the loop
# Below these calls in a stack, what the loop runs begins: a handler, or a task of the program's own.
_CALL_USERS = (f"{OWN_CODE}worker{os.sep}handlers.py:", f"{Path(asyncio.__file__).parent}{os.sep}")
_UVLOOP = f"{os.sep}uvloop{os.sep}"


class LoopWatch:
    """``look`` sends something through the loop, and sees how long that takes. What blocks it is found out by the calls
    that its thread is in. Make it in the loop's thread; ``look`` belongs to another one.
    """

    def __init__(self, namespace: str, job_of: Callable[[Any], dict[str, Any]]) -> None:
        """``job_of``: the fields that name the job which a task runs, for the log; none if it runs no job."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._namespace = namespace
        self._job_of = job_of
        self._asked: float | None = None
        self._answered: float | None = None
        self._blames: tuple[str, dict[str, Any]] | None = None
        self._logged = False
        recorded.loop_blocked(namespace, 0)

    def is_over(self) -> bool:
        """Ends the look under way, if the loop has answered; returns whether it has. After that, nobody looks for a
        while.
        """
        if self._asked is not None:
            if self._answered is None:
                return False
            self._end(self._answered - self._asked)
        return True

    def look(self, late_s: float) -> float:
        """For how many seconds the loop has been blocked; 0 if it answers. ``late_s``: so much later than it had wanted
        to the looking thread has run.
        """
        now = time.monotonic()
        if late_s >= BLOCKED_S:
            self._stood_still(late_s)
        if self._asked is not None and self._answered is not None:
            self._end(self._answered - self._asked)
        if self._asked is None:
            self._ask(now)
            return 0.0
        self._note(blocked_s := now - self._asked)
        return blocked_s

    def _note(self, blocked_s: float) -> None:
        if self._blames is None and blocked_s >= _SAMPLE_S:
            self._blames = self._who()
        if blocked_s >= LONG_S and not self._logged:
            self._logged = True
            _log(*_blocked("has been", blocked_s, self._blames or self._who()))

    def calls(self) -> list[str]:
        """The calls that the loop's thread is in, the innermost last."""
        return calls_of(self._thread)

    def _ask(self, now: float) -> None:
        self._asked, self._answered = now, None
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._answer, now)

    def _answer(self, asked: float) -> None:
        if asked == self._asked:
            self._answered = time.monotonic()

    def _end(self, blocked_s: float) -> None:
        if blocked_s >= BLOCKED_S:
            recorded.loop_blocked(self._namespace, blocked_s)
            if not self._logged:
                _log(*_blocked("was", blocked_s, self._blames or ("", {})))
        self._forget()

    def _forget(self) -> None:
        self._asked, self._blames, self._logged = None, None, False

    def _stood_still(self, seconds: float) -> None:
        """Python's lock was free again only now, or the process was stopped. Who had it is often still there."""
        recorded.loop_blocked(self._namespace, seconds)
        place, job = self._who()
        why = "it was stopped, had no CPU, or C code kept Python's lock (GIL)"
        at = f"; it is now at {place}" if place else ""
        _log(f"this process stood still for {seconds:.1f} s: {why}{at}", job)
        self._forget()

    def _who(self) -> tuple[str, dict[str, Any]]:
        """Where the loop's thread is, and the job that it runs."""
        calls, task = self.calls(), asyncio.current_task(self._loop)
        loops = [number for number, call in enumerate(calls) if call.startswith(_CALL_USERS) or _UVLOOP in call]
        theirs = users_calls(calls[loops[-1] + 1 :]) if loops else []
        place = ", in ".join(dict.fromkeys((theirs[0], theirs[-1]))) if theirs else ""
        return place, {} if task is None else self._job_of(task)


def _blocked(how: str, seconds: float, who: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    place, job = who
    by = f" by {place}" if place else ""
    return f"the event loop {how} blocked for {seconds:.1f} s{by}: make it `def`, or await what takes so long", job


def _log(text: str, job: dict[str, Any]) -> None:
    log.warning(text, **job)
