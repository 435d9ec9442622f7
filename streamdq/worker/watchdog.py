"""Cancels handlers just before their TTR passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from ..job.ttr import LONGEST_CUT_MS
from ..operations.attempts import Held
from ..process.loop import wait

_LONGEST_CUT_S = LONGEST_CUT_MS / 1000
_ROUND_S = 0.05
_LEAST_S = 0.001  # between two rounds, however many handlers are to be cancelled


class Watchdog:
    """Looks at all running handlers in rounds, and at once where a time is up: what matters is the little time that is
    left then to tell Redis, before the job may be taken over.
    """

    def __init__(
        self,
        running: Mapping[asyncio.Task[None], list[Held]],
        give_up: Callable[[Held, asyncio.Task[None] | None], None],
    ) -> None:
        """``running``: the attempts that each task makes. ``give_up`` ends an attempt whose handler goes on, and is
        told of the task if that was cancelled.
        """
        self._running = running
        self._give_up = give_up
        self._next = 0.0  # round, on the monotonic clock
        self._sooner = asyncio.Event()

    async def run(self) -> None:
        """A loop's body. A handler that ignores the cancellation, or takes long to clean up, keeps its slot, but its
        attempt ends.
        """
        while True:
            now = time.monotonic()
            self._next = now + _ROUND_S
            for task, held in [each for each in self._running.items() if self._has_late(each[1], now)]:
                self._end_late(task, held, now)
            least = now + _LEAST_S
            while (left_s := max(self._next, least) - time.monotonic()) > 0:
                self._sooner.clear()
                await wait(self._sooner, left_s)

    def begins(self, held: Held) -> None:
        """Its attempt begins, or its TTR starts again."""
        if held.deadline - _LONGEST_CUT_S < self._next:
            self._look_by(held.cut_at)

    def _has_late(self, held: list[Held], now: float) -> bool:
        """Whether the time of one of them is up. If not, the next round is no later than that."""
        found = False
        for one in held:
            if one.ended or (one.deadline - _LONGEST_CUT_S > self._next and not one.late):
                continue
            at = one.give_up_at if one.late else one.cut_at
            found = found or at <= now
            if now < at < self._next:
                self._next = at
        return found

    def _end_late(self, task: asyncio.Task[None], held: list[Held], now: float) -> None:
        for one in held:
            if one.give_up_at <= now and not one.ended:
                self._give_up(one, task)
        if not all(one.late or one.ended for one in held):
            self._cut(task, held, now)

    def lost(self, held: Held) -> None:
        """Cancels the handler of an attempt that is no longer this worker's. One of several goes on for the others."""
        for task, attempts in self._running.items():
            if held in attempts and not held.late:
                held.lost = held.late = True
                if not all(one.late or one.ended for one in attempts):
                    self._give_up(held, None)
                else:
                    self._cut(task, [held], time.monotonic())
                return

    def _cut(self, task: asyncio.Task[None], held: list[Held], now: float) -> None:
        for one in held:
            left_s = one.deadline - now  # half of it is for what the handler does to clean up
            one.late, one.give_up_at = True, now + (min(_ROUND_S, left_s / 2) if left_s > 0 else _ROUND_S)
            self._look_by(one.give_up_at)
        task.cancel()

    def _look_by(self, at: float) -> None:
        if at < self._next:
            self._next = at
            self._sooner.set()
