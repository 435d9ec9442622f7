"""Keeps a receiver that is slow or dead from taking the slots of the others.

Each endpoint (scheme, host, port) has a window: how many calls may be under way to it. It begins small, grows with
every answer and shrinks with every failure. Beyond it a call waits only if its turn comes within a quarter of a second,
as far as the answers of late can tell; else the job goes back to the queue for a while. After some failures in a row
the breaker opens: nothing is called for a time that doubles with each further failure, then one call tries.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from itertools import count

from yarl import URL

from .. import metrics

PATIENCE_S = 0.25
OPENS_AFTER = 5
FIRST_OPEN_S, LONGEST_OPEN_S = 5.0, 60.0
_FIRST_WINDOW = 10
_FIRST_MEAN_S = 0.01  # a new one is taken for a quick one, but not trusted for long
_FIRST_PATIENCE_S = 0.1
_STALLS_AFTER = 5  # times the mean time of a call, without any answer
_LEAST_STALL_S = 0.05
_MOST_ENDPOINTS = 10_000


class NotNow(Exception):
    """The endpoint can't be called now. ``wait_s``: how long its breaker stays open; None: it is busy."""

    def __init__(self, wait_s: float | None = None) -> None:
        super().__init__("the endpoint is busy" if wait_s is None else "the endpoint does not answer")
        self.wait_s = wait_s


class Endpoint:
    """One receiver. ``enter`` before a call, ``leave`` after it with the ticket that ``enter`` gave."""

    def __init__(self, limit: int, clock: Callable[[], float], namespace: str) -> None:
        self._limit = limit
        self._clock = clock
        self._breaks = metrics.CALLBACK_BREAKS.labels(namespace)
        self._window = min(_FIRST_WINDOW, limit)
        self._calls: dict[int, float] = {}  # ticket -> when it began, the oldest first
        self._tickets = count()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._granted = 0  # turns given to waiters that have not woken yet
        self._mean_s = _FIRST_MEAN_S
        self._answered_at = -math.inf
        self._failures = 0
        self._open_s = 0.0
        self._open_until = -math.inf

    @property
    def idle(self) -> bool:
        """Is nothing under way to it?"""
        return not self._calls and not self._turns and not self._granted

    async def enter(self) -> int:
        """Waits for a turn.

        Raises:
            NotNow: the breaker is open, or the turn would not come soon.
        """
        now = self._clock()
        if now < self._open_until:
            raise NotNow(self._open_until - now)
        if not self._free():
            if len(self._turns) >= self._worth_waiting(now):
                raise NotNow
            await self._wait()
        ticket = next(self._tickets)
        self._calls[ticket] = self._clock()
        return ticket

    def leave(self, ticket: int, alive: bool | None) -> None:
        """``alive``: it answered as one that works; None: the call was given up here, and tells nothing."""
        now = self._clock()
        took_s = now - self._calls.pop(ticket)
        if alive is not None:
            self._mean_s += (took_s - self._mean_s) * 0.1
        if alive:
            self._answered(now)
        elif alive is False:
            self._failed(now)
        self._next()

    def _free(self) -> bool:
        return len(self._calls) + self._granted < self._window

    def _worth_waiting(self, now: float) -> float:
        """How many turns come within PATIENCE_S, by Little's law; none when the answers have stopped coming, so that a
        receiver that has just died is noticed before its time-outs.
        """
        silent_s = now - max(self._answered_at, next(iter(self._calls.values()), now))
        if silent_s > max(_STALLS_AFTER * self._mean_s, _LEAST_STALL_S):
            return 0
        return self._window * PATIENCE_S / max(self._mean_s, 1e-4)

    async def _wait(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(PATIENCE_S if self._answered_at > -math.inf else _FIRST_PATIENCE_S):
                await turn
        except BaseException as error:
            self._give_back(turn)
            if isinstance(error, TimeoutError):
                raise NotNow from None
            raise
        self._granted -= 1

    def _give_back(self, turn: asyncio.Future[None]) -> None:
        if turn in self._turns:
            self._turns.remove(turn)
        elif not turn.cancelled() and turn.exception() is None:  # it came just too late
            self._granted -= 1
            self._next()

    def _next(self) -> None:
        while self._turns and self._free():
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                self._granted += 1

    def _answered(self, now: float) -> None:
        self._answered_at = now
        self._failures, self._open_s, self._open_until = 0, 0.0, -math.inf
        self._window = min(self._limit, self._window + 1)

    def _failed(self, now: float) -> None:
        self._failures += 1
        self._window = max(1, self._window // 2)
        if self._failures < OPENS_AFTER or now < self._open_until:
            return
        if self._open_s == 0:
            self._breaks.inc()
        self._open_s = min(LONGEST_OPEN_S, self._open_s * 2) or FIRST_OPEN_S
        self._open_until = now + self._open_s
        self._window = 1
        for turn in self._turns:
            if not turn.done():
                turn.set_exception(NotNow(self._open_s))
        self._turns.clear()


class Endpoints:
    """All of them that this process has called lately. ``clock``: seconds."""

    def __init__(self, limit: int, clock: Callable[[], float], namespace: str) -> None:
        self._limit = limit
        self._clock = clock
        self._namespace = namespace
        metrics.CALLBACK_BREAKS.labels(namespace)  # there from the beginning: a rate needs a 0 to start from
        self._known: dict[tuple[str, str | None, int | None], Endpoint] = {}

    def at(self, url: URL) -> Endpoint:
        key = (url.scheme, url.raw_host, url.port)
        if (found := self._known.get(key)) is None:
            if len(self._known) >= _MOST_ENDPOINTS:
                # What is learned anew of idle ones costs less than keeping every host that was ever called.
                self._known = {key: endpoint for key, endpoint in self._known.items() if not endpoint.idle}
            found = self._known[key] = Endpoint(self._limit, self._clock, self._namespace)
        return found
