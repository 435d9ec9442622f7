"""Circuit breakers and concurrency limits: a slow or dead receiver must not take the slots of others.

Each endpoint (scheme, host, port) has a window, the number of concurrent calls to it. It begins small, grows with
every answer and shrinks with every failure; while the receiver does not answer, unproven.py leaves it less. A call
beyond the window waits only if its turn should come within a quarter of a second, judging by recent answers; otherwise
the job goes back to the queue for a while. After some failures in a row the breaker opens: no calls are made for a time
that doubles with each further failure, then one trial call. Each process finds out for itself.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from itertools import count

from yarl import URL

from ..metrics import declared

PATIENCE_S = 0.25
OPENS_AFTER = 5
FIRST_OPEN_S, LONGEST_OPEN_S = 5.0, 60.0
_FIRST_WINDOW = 2
_FIRST_MEAN_S = 0.01  # a new receiver is assumed to be fast, but not for long
_FIRST_PATIENCE_S = 0.1
_STALLS_AFTER = 5  # a receiver stalls if no answer came for this many times the mean time of a call
_LEAST_STALL_S = 0.05
_LEAST_HANG_S = 1.0
_MOST_ENDPOINTS = 10_000


class NotNow(Exception):
    """The endpoint can't be called now. ``wait_s``: how long its breaker stays open; None if it is only busy."""

    def __init__(self, wait_s: float | None = None) -> None:
        super().__init__("the endpoint is busy" if wait_s is None else "the endpoint does not answer")
        self.wait_s = wait_s


class Endpoint:
    """One receiver. Call ``enter`` before a call, and ``leave`` after it, with the ticket from ``enter``."""

    def __init__(self, limit: int, clock: Callable[[], float], namespace: str) -> None:
        self._limit = limit
        self._clock = clock
        self._breaks = declared.CALLBACK_BREAKS.labels(namespace)
        self.site: str | None = None  # the address last connected to, as unproven.py counts it
        self._window = min(_FIRST_WINDOW, limit)
        self._calls: dict[int, float] = {}  # ticket -> when it began, the oldest first
        self._tickets = count()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._granted = 0  # turns given to waiters that have not woken yet
        self._mean_s = _FIRST_MEAN_S
        self._answered_at = -math.inf
        self._answers = False
        self._failures = 0
        self._open_s = 0.0
        self._open_until = -math.inf

    @property
    def idle(self) -> bool:
        """Whether no call is under way or waiting."""
        return not self._calls and not self._turns and not self._granted

    @property
    def unknown(self) -> bool:
        """Whether nothing is known about it: it has neither answered nor failed."""
        return not self._answers and not self._failures

    @property
    def proven(self) -> bool:
        """Whether it answers: its last call was answered, by any status, and those under way have not hung for long."""
        return self._answers and self._silent_s(self._clock()) <= max(_STALLS_AFTER * self._mean_s, _LEAST_HANG_S)

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

    def leave(self, ticket: int, alive: bool | None, *, answered: bool | None = None) -> None:
        """``alive``: whether the receiver answered and works; None if we gave the call up, which says nothing.
        ``answered``: whether it answered at all, if that is something else.
        """
        now = self._clock()
        took_s = now - self._calls.pop(ticket)
        if alive is not None:
            self._answers = alive if answered is None else answered
            self._mean_s += (took_s - self._mean_s) * 0.1
        if alive:
            self._answered(now)
        elif alive is False:
            self._failed(now)
        self._next()

    # -- turns

    def _free(self) -> bool:
        return len(self._calls) + self._granted < self._window

    def _worth_waiting(self, now: float) -> float:
        """How many turns come within PATIENCE_S, by Little's law. None if answers have stopped coming, so that a dead
        receiver is noticed before the first time-out.
        """
        if self._silent_s(now) > max(_STALLS_AFTER * self._mean_s, _LEAST_STALL_S):
            return 0
        return self._window * PATIENCE_S / max(self._mean_s, 1e-4)

    def _silent_s(self, now: float) -> float:
        """For how long calls have been under way without an answer to any."""
        return now - max(self._answered_at, next(iter(self._calls.values()), now))

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
        elif not turn.cancelled() and turn.exception() is None:  # the turn came just too late
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
    """All endpoints that this process has called recently. ``clock``: seconds."""

    def __init__(self, limit: int, clock: Callable[[], float], namespace: str) -> None:
        self._limit = limit
        self._clock = clock
        self._namespace = namespace
        declared.CALLBACK_BREAKS.labels(namespace)  # exists from the start: a rate needs a 0 to start from
        self._known: dict[str, Endpoint] = {}

    def at(self, url: URL) -> Endpoint:
        receiver = f"{url.scheme}://{url.raw_host}:{url.port}"
        found = self._known.pop(receiver, None)
        if found is None:
            if len(self._known) >= _MOST_ENDPOINTS:
                self._forget()
            found = Endpoint(self._limit, self._clock, self._namespace)
        self._known[receiver] = found  # the least recently used come first
        return found

    def _forget(self) -> None:
        """Forgets endpoints without calls: those that nothing is known about, which is all if many URLs were made up,
        and if half are not gone then, the least recently used.
        """
        self._known = {key: found for key, found in self._known.items() if not (found.idle and found.unknown)}
        idle = [key for key, found in self._known.items() if found.idle]
        for key in idle[: max(0, len(self._known) - _MOST_ENDPOINTS // 2)]:
            del self._known[key]
