"""Which jobs may start: at most ``concurrency`` calls of handlers run at once. Jobs claimed ahead wait here."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping

from ..config import MAX_BATCH
from ..operations.attempts.claimed import ClaimedJob
from .ends import Ends
from .handlers import Handler
from .topic_scheduler import TopicScheduler

_AHEAD_S = 0.02  # how much work may be claimed ahead of free slots
_HOLD_S = 0.05  # how long such jobs may wait for a slot
_NO_MORE_S = 1.0  # how long nothing is claimed ahead after jobs had to go back


class Slots:
    """``busy``: running calls, and threads that still run after their call was cancelled. ``freed`` is set when a slot
    is free again. ``scheduler`` is notified of jobs that go back without having started.
    """

    def __init__(
        self,
        concurrency: int,
        handlers: Mapping[str, Handler],
        ends: Ends,
        scheduler: TopicScheduler,
        freed: asyncio.Event,
    ) -> None:
        self.busy = 0
        self.freed = freed
        self.concurrency = concurrency
        self._handlers = handlers
        self._ends = ends
        self._scheduler = scheduler
        self._waiting: deque[tuple[float, list[ClaimedJob]]] = deque()  # (arrival, jobs of one call)
        self._mean_s = 1.0
        self._ended_lately = RecentCount(_AHEAD_S)
        self._gave_up_at = self._no_more_until = 0.0
        self._giving_up: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_any_waiting(self) -> bool:
        return bool(self._waiting)

    def in_line(self) -> list[ClaimedJob]:
        """The jobs that wait. Any thread may ask."""
        return [held for _, jobs in list(self._waiting) for held in jobs]

    def topics_in_line(self) -> list[str]:
        """The topic of each call that waits."""
        return [jobs[0].job.topic for _, jobs in self._waiting]

    # -- how many may be claimed

    def room(self, *, ahead: bool) -> tuple[int, int]:
        """How many more handler calls can be taken, and how many of them start at once, in free slots. With ``ahead``,
        the first number includes a few milliseconds' worth of short jobs, so that the next claim is under way while
        these run.
        """
        in_hand = self.busy + len(self._waiting)
        free = max(0, self.concurrency - in_hand)
        most = max(0, self.concurrency + (self._ahead() if ahead else 0) - in_hand)
        # While many jobs are in hand, a claim waits until it is worth its round trip.
        return (0 if in_hand > MAX_BATCH and most < MAX_BATCH // 2 else most), free

    def _ahead(self) -> int:
        """How many jobs will probably start within a few milliseconds: no more than have just ended, because all
        handlers may be stuck now; none if jobs take long on average.
        """
        if self._mean_s > _AHEAD_S or time.monotonic() < self._no_more_until:
            return 0
        return min(
            2 * MAX_BATCH, int(_AHEAD_S / max(self._mean_s, 1e-6)) * self.concurrency, self._ended_lately.recent()
        )

    def took(self, began: float, ended: float) -> None:
        """A call has ended; the times are on the monotonic clock."""
        self._ended_lately.count(ended)
        self._mean_s += (ended - began - self._mean_s) * 0.1

    # -- which start

    def put(self, held: list[ClaimedJob]) -> None:
        """Jobs of one topic wait for slots. Their TTR is already running."""
        if self._ends.is_draining or held[0].deadline - held[0].ttr_ms / 1000 < self._gave_up_at:
            # The worker stops; or earlier jobs were handed back since, and starting these would overtake them.
            self._release(held)
            return
        size, arrived = self._handlers[held[0].job.topic].batch or 1, time.monotonic()
        for i in range(0, len(held), size):
            self._waiting.append((arrived, held[i : i + size]))

    def filled(self) -> Iterator[list[ClaimedJob]]:
        """Fills the free slots; yields the jobs of each call that is to start."""
        now = time.monotonic()
        while self._waiting and self.busy < self.concurrency:
            held = self._in_time(self._waiting.popleft()[1], now)
            if held:
                self.busy += 1
                yield held
        if self._waiting and self._giving_up is None:
            self._give_up_later()

    def _in_time(self, held: list[ClaimedJob], now: float) -> list[ClaimedJob]:
        """The jobs that may still start. For others the time passed while they waited here, as after a SIGSTOP."""
        for one in held:
            if now >= one.start_by:
                self._ends.end(one, self._ends.too_late(one))
        return [one for one in held if not one.ended]

    # -- those that were claimed ahead and can't start

    def _give_up_later(self) -> None:
        due = self._waiting[0][0] + _HOLD_S - time.monotonic()
        self._giving_up = self._loop.call_later(max(0.0, due), self._give_up)

    def _give_up(self) -> None:
        """Hands back jobs that have waited too long for a slot: another worker may be idle."""
        self._giving_up = None
        until = time.monotonic() - _HOLD_S
        if self._waiting and self._waiting[0][0] <= until:
            self._gave_up_at = time.monotonic()
            self._no_more_until = self._gave_up_at + _NO_MORE_S
        while self._waiting and self._waiting[0][0] <= until:
            self._release(self._waiting.popleft()[1])
        if self._waiting:
            self._give_up_later()

    def _release(self, held: list[ClaimedJob]) -> None:
        self._scheduler.gave_back(held[0].job.topic, len(held))
        for one in held:
            self._ends.release(one)

    def drain(self) -> None:
        """Hands back all that wait."""
        while self._waiting:
            self._release(self._waiting.popleft()[1])

    def close(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()


class RecentCount:
    """Counts the attempts that ended within a recent span of time."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._since = 0.0
        self._before = self._now = 0

    def count(self, now: float) -> None:
        if now - self._since >= self._span_s:
            self._roll(now)
        self._now += 1

    def recent(self) -> int:
        now = time.monotonic()
        if now - self._since >= self._span_s:
            self._roll(now)
        return max(self._before, self._now)

    def _roll(self, now: float) -> None:
        self._before = self._now if now - self._since < 2 * self._span_s else 0
        self._since, self._now = now, 0
