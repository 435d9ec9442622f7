"""Heartbeats. While a worker holds claims, its process tells Redis every second that it is alive; if it dies, the
mover takes the claims over within seconds. An idle worker has nothing to lose, and sends nothing.

They come from a thread of their own, with a connection of its own (pulse.py): a handler that blocks the event loop does
not make the worker dead. The same thread says who blocks the loop (blocked_loop.py), and does meanwhile what the loop
would: it ends attempts whose TTR passes, sends touches, and hands back those that can't start in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from ..config import HEARTBEAT_S
from ..link.connection import AsyncLink, Link
from ..link.session import Op, Session, arun, run
from ..process.health import WorkerHealth
from ..process.leaving import leave
from ..process.logs import log
from ..process.loop import Failures
from ..store.namespace import drop_heartbeat
from ..store.scripts import Scripts
from .blocked_loop import BLOCKED_S, LoopWatch
from .ends import EndSender
from .hung import EXIT_HUNG
from .pulse import pulse

CALL_S = 1.0
"""A call that hangs must not cost the next heartbeat."""
_AGAIN_S = 0.1  # after a failure: as soon as Redis is back, it should know who is alive
_LOOK_S, _OFTEN_S = 0.25, 0.05  # between looks at the loop; while it does not answer
_SENDING_S = HEARTBEAT_S / 2  # so long it sends the loop's ends before it looks again, and sends the next heartbeat


class Attempts(Protocol):
    """Those that run (deadline.py)."""

    def named(self, task: Any) -> dict[str, Any]: ...

    def overdue(self, now: float) -> Iterable[asyncio.Task[None]]: ...

    def cut(self, task: asyncio.Task[None]) -> None: ...

    def send_touches(self, link: Link, scripts: Scripts, until: float) -> Iterable[Exception | None]: ...


class Heartbeats:
    """One consumer's heartbeats. ``holds``: whether it holds claims. ``link``, ``session``, ``scripts``: the thread's
    own.

    The first heartbeat is sent before the first claim: from then on the consumer is known to send heartbeats. When it
    claims after it was idle, the next one comes within a second; the mover leaves claims alone that are younger than
    that.
    """

    def __init__(
        self, link: Link, session: Session, scripts: Scripts, consumer: str, attempts: Attempts,
        outcomes: EndSender, holds: Callable[[], bool], health: WorkerHealth,
    ) -> None:  # fmt: skip
        self._link = link
        self._session = session
        self._scripts = scripts
        self._consumer = consumer
        self._attempts = attempts
        self._outcomes = outcomes
        self._holds = holds
        self._health = health
        self._watched = False
        self._loop = asyncio.get_running_loop()
        self._watch = LoopWatch(session.keys.namespace, attempts.named)
        self._claimed = False
        self._due = 0.0  # the next heartbeat, on the monotonic clock
        self._ended = False
        self._late_since: float | None = None  # attempts passed their TTR while the loop has been blocked
        self._failures = Failures("heartbeats", session.keys.namespace)
        self._on = session.settings.worker_timeout_s > 0 and not session.clock.manual
        self._stops_since: float | None = None
        self._gave_up = False  # the loop as it is blocked now
        self.all_hang: Callable[[], None] | None = None  # ends the worker, in the loop, if the process is not its own
        self.leave: Callable[[], None] = partial(leave, EXIT_HUNG)
        self.leave_drained: Callable[[], None] = partial(leave, 0)

    async def begin(self, link: AsyncLink) -> None:
        """The first heartbeat; from now on the thread gives them."""
        if self._on:
            try:
                await arun(link, self._scripts.heartbeat(self._consumer, CALL_S))
            except Exception as error:
                self._failures.pause_after("heartbeats", error)
        pulse.add(self)

    async def end(self, link: AsyncLink) -> None:
        """The consumer leaves."""
        self._ended = True
        pulse.remove(self)
        if self._on:
            await arun(link, drop_heartbeat(self._session, self._consumer))

    def close(self) -> None:
        """Without leaving, if it has not left: then it is dead in a few seconds."""
        pulse.remove(self)
        self._link.close()

    def claimed(self) -> None:
        """The consumer holds claims now."""
        if not self._claimed:
            self._due = time.monotonic() + HEARTBEAT_S
            self._claimed = True
            pulse.wake()

    def note_stop(self) -> None:
        """A signal asked the process to stop."""
        if self._stops_since is None:
            self._stops_since = time.monotonic()

    def watch(self) -> None:
        """From now on, looks at the loop also while the worker holds no claims. Any thread may call it."""
        if not self._watched:
            self._watched = True
            pulse.wake()

    # -- in the thread

    def beat(self, late_s: float = 0.0) -> float:
        """What is due; returns in how many seconds something is due again. ``late_s``: as in pulse.py."""
        holds = self._holds_any()
        if not holds and not self._watched:
            self._health.blocked(0)
            return float("inf") if self._watch.is_over() else _OFTEN_S
        beats = self._on and holds
        if beats:
            self._give_if_due()
        blocked_s = self._watch.look(late_s)
        self._health.blocked(blocked_s)
        if blocked_s > 0:
            self._stand_in(blocked_s)
            self._leave_if_stopped(blocked_s)
        else:
            self._late_since, self._gave_up = None, False
        wait_s = _OFTEN_S if blocked_s > 0 else _LOOK_S
        return min(wait_s, max(0.0, self._due - time.monotonic())) if beats else wait_s

    def _holds_any(self) -> bool:
        if self._holds():
            return True
        self._claimed = False
        return self._holds()  # whether something came meanwhile, whose `claimed` would have had no effect

    def _give_if_due(self) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + (HEARTBEAT_S if self._is_given() else _AGAIN_S)

    def _is_given(self) -> bool:
        try:
            run(self._link, self._give())
        except Exception as error:
            self._failures.pause_after("heartbeats", error)
            return False
        self._failures.worked("heartbeats")
        return True

    def _give(self) -> Op[None]:
        yield from self._scripts.heartbeat(self._consumer, CALL_S)
        if self._ended:  # it has left meanwhile
            yield from drop_heartbeat(self._session, self._consumer)

    def _stand_in(self, blocked_s: float) -> None:
        """Does what the blocked loop can't, so that no attempt of a live worker counts as a crash."""
        now = time.monotonic()
        for task in self._attempts.overdue(now):
            self._late_since = self._late_since or now
            self._loop.call_soon_threadsafe(self._attempts.cut, task)
        if blocked_s >= _OFTEN_S:
            self._note("touches", self._attempts.send_touches(self._link, self._scripts, now + _SENDING_S))
        exit_s = self._session.settings.hung_exit_s
        leaves = self._late_since is not None and 0 < exit_s <= min(blocked_s, now - self._late_since)
        until = float("inf") if leaves else now + _SENDING_S
        self._note("ends", self._outcomes.send_beside(self._link, self._scripts, until))
        if leaves and not self._gave_up:
            self._gave_up = True
            self._hangs(blocked_s)

    def _note(self, of: str, calls: Iterable[Exception | None]) -> None:
        """Makes the calls, and logs those that fail."""
        for error in calls:
            if error is None:
                self._failures.worked(of)
            else:
                self._failures.pause_after(of, error)

    def _hangs(self, blocked_s: float) -> None:
        then = "this worker ends when it is back" if self.all_hang else "this process ends, to be started again"
        log.error(
            f"the event loop hangs beyond the TTR of its handlers: {then}", consumer=self._consumer,
            blocked_s=round(blocked_s, 1), exit_code=None if self.all_hang else EXIT_HUNG, calls=self._watch.calls(),
        )  # fmt: skip
        if self.all_hang:
            self._loop.call_soon_threadsafe(self.all_hang)
        else:
            self.leave()

    def _leave_if_stopped(self, blocked_s: float) -> None:
        """A blocked loop can't drain. It has the grace period to come back."""
        grace_s = max(BLOCKED_S, self._session.settings.grace_s)
        if self._stops_since is not None and min(blocked_s, time.monotonic() - self._stops_since) >= grace_s:
            log.error(
                "the event loop is blocked, so this worker can't drain: this process ends without it",
                consumer=self._consumer, blocked_s=round(blocked_s, 1), calls=self._watch.calls(),
            )  # fmt: skip
            self.leave_drained()
