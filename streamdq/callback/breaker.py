"""Circuit breakers and concurrency limits: a slow or dead receiver must not take the slots of others.

Each endpoint (scheme, host, port) has a window, the number of concurrent calls to it. It begins small, grows with
every answer and shrinks with every failure; while the receiver does not answer, unproven.py leaves it less. A call
beyond the window waits only if its turn should come within a quarter of a second, judging by recent answers; otherwise
the job goes back to the queue for a while. After some failures in a row the breaker opens: no calls are made for a time
that doubles with each further failure, then one trial call. The processes of a namespace share open breakers
(shared.py), and one of them makes the trial call.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count

from yarl import URL

from ..metrics import declared
from .shared import Answer, Breaker, Shared

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

    def __init__(self, limit: int, clock: Callable[[], float], namespace: str, receiver: str = "") -> None:
        self._limit = limit
        self._clock = clock
        self._breaks = declared.CALLBACK_BREAKS.labels(namespace)
        self._receiver = receiver
        self.shared: Shared | None = None
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
        self._tried_elsewhere = False
        self._trying: int | None = None  # the ticket of the trial call that all processes wait for

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
            raise self._not_now(self._open_until - now)
        if not self._free():
            if len(self._turns) >= self._worth_waiting(now):
                raise NotNow
            await self._wait()
        ticket = next(self._tickets)
        self._calls[ticket] = self._clock()
        if self._open_s and self.shared is not None:
            await self._ask(ticket, self.shared)
        return ticket

    def leave(self, ticket: int, alive: bool | None, *, answered: bool | None = None) -> None:
        """``alive``: whether the receiver answered and works; None if we gave the call up, which says nothing.
        ``answered``: whether it answered at all, if that is something else.
        """
        now = self._clock()
        took_s = now - self._calls.pop(ticket)
        if ticket == self._trying:
            self._trying = None
        if alive is not None:
            self._answers = alive if answered is None else answered
            self._mean_s += (took_s - self._mean_s) * 0.1
        if alive:
            self._answered(now)
        elif alive is False:
            self._failed(now)
        self._next()

    # -- news from other processes

    def learn(self, found: Breaker) -> None:
        """Another process has opened its breaker, which is still open or waits for its trial call. If this process has
        just had an answer, it ignores that: the other may have lost its network.
        """
        if self._trying is not None or (not self._failures and self._clock() - self._answered_at < FIRST_OPEN_S):
            return
        self._failures = max(self._failures, OPENS_AFTER)
        self._open_s, self._window = found.open_s, 1
        self._open_for(found.left_s, tried_elsewhere=found.trying)

    def heal(self) -> None:
        """Another process has had an answer."""
        if self._trying is None:
            self._failures, self._open_s, self._open_until = 0, 0.0, -math.inf

    async def _ask(self, ticket: int, shared: Shared) -> None:
        """Asks whether this process may make the trial call.

        Raises:
            NotNow: another process makes it, or the receiver was found dead again.
        """
        self._trying = ticket
        try:
            answer, left_s = await shared.may_try(self._receiver)
        except BaseException:
            self.leave(ticket, None)
            raise
        if answer is Answer.CLOSED:
            self._trying = None
            self.heal()
        elif answer is not Answer.YOURS:
            self._open_for(left_s, tried_elsewhere=answer is Answer.TAKEN)
            self.leave(ticket, None)
            raise self._not_now(left_s)

    def _not_now(self, left_s: float) -> NotNow:
        return NotNow() if self._tried_elsewhere else NotNow(left_s)

    def _open_for(self, left_s: float, *, tried_elsewhere: bool = False) -> None:
        self._open_until, self._tried_elsewhere = self._clock() + left_s, tried_elsewhere
        if left_s <= 0:
            return
        for turn in self._turns:
            if not turn.done():
                turn.set_exception(self._not_now(left_s))
        self._turns.clear()

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
        if self._open_s and self.shared is not None:
            self.shared.closed(self._receiver)
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
        self._window = 1
        self._open_for(self._open_s)
        if self.shared is not None:
            self.shared.opened(self._receiver, self._open_s)


class Endpoints:
    """All endpoints that this process has called recently. ``clock``: seconds."""

    def __init__(self, limit: int, clock: Callable[[], float], namespace: str) -> None:
        self._limit = limit
        self._clock = clock
        self._namespace = namespace
        declared.CALLBACK_BREAKS.labels(namespace)  # exists from the start: a rate needs a 0 to start from
        self._known: dict[str, Endpoint] = {}
        self._shared: Shared | None = None

    def share(self, shared: Shared | None) -> None:
        """Starts sharing breakers with the namespace's other processes; None ends it."""
        self._shared = shared
        for endpoint in self._known.values():
            endpoint.shared = shared

    def at(self, url: URL) -> Endpoint:
        return self._of(f"{url.scheme}://{url.raw_host}:{url.port}")

    def seen(self, found: Mapping[str, Breaker], gone: set[str]) -> None:
        """Takes over breakers that other processes have opened, and those that have closed (``gone``)."""
        for receiver, breaker in found.items():
            self._of(receiver).learn(breaker)
        for receiver in gone & self._known.keys():
            self._known[receiver].heal()

    def _of(self, receiver: str) -> Endpoint:
        found = self._known.pop(receiver, None)
        if found is None:
            if len(self._known) >= _MOST_ENDPOINTS:
                self._forget()
            found = Endpoint(self._limit, self._clock, self._namespace, receiver)
            found.shared = self._shared
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
