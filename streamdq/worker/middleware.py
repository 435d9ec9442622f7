"""Functions around attempts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidInput
from ..job.job import Job
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.ends import AttemptResult, End
from ..process.logs import log, what
from .handlers import called, drop
from .running_job import RunningJob

_TWICE = "twice; an attempt runs its handler once"
_TOO_LATE = "when the middleware had returned"
_TOO_EARLY = "middleware: it returned before call_next() had ended; await call_next()"


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt has ended for one of its jobs, confirmed by Redis. ``outcome``: done, retry, snoozed, dead,
    released (handed back uncounted), aborted (its job is cancelled), or stale: its claim had been taken over, so this
    end does not count. ``error`` and ``reason``: what is kept of a failure. ``delay_ms``: until the next attempt.
    ``took_s``: how long it ran.
    """

    job: Job
    outcome: str
    error: str = ""
    reason: str = ""
    delay_ms: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of a handler. ``jobs``: one, or several if the handler takes batches. ``late_ms``: how much later than
    due the first job's attempt started, by Redis's clock. ``crashes``: how often that job was lost with its consumer.
    """

    topic: str
    group: str
    jobs: Sequence[RunningJob]
    late_ms: int = 0
    crashes: int = 0
    _listeners: list[Callable[[AttemptEnd], None]] = field(default_factory=list, init=False, repr=False, compare=False)

    def on_end(self, function: Callable[[AttemptEnd], None]) -> None:
        """Has the function called for each of the jobs once Redis has confirmed how the attempt ended, after the
        middleware has returned. It is a plain function, called in the worker's event loop, which waits for it. What it
        raises is logged. If Redis never confirms the end, because another worker runs the job again, it is not called.
        """
        self._listeners.append(function)

    @property
    def job(self) -> RunningJob:
        """The only job, or the first of a batch."""
        return self.jobs[0]


CallNext = Callable[[], Awaitable[None]]
Middleware = Callable[[Attempt, CallNext], Awaitable[None]]


class _NextCall:
    """What one middleware gets as ``call_next``: the middleware after it, and the handler."""

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self._run = run
        self._refusal = ""
        self._called: Coroutine[Any, Any, None] | None = None
        self.is_open = False  # it was called, and has not ended

    def __call__(self) -> Coroutine[Any, Any, None]:
        if self._refusal:
            raise RuntimeError(f"middleware: call_next() was called {self._refusal}")
        self._refusal, self.is_open, self._called = _TWICE, True, self._go_on()
        return self._called

    async def _go_on(self) -> None:
        try:
            await self._run()
        finally:
            self.is_open = False

    def refuse(self) -> None:
        """The middleware has returned or raised: what has not begun must not begin now."""
        self._refusal = _TOO_LATE
        if self._called is not None and inspect.getcoroutinestate(self._called) == inspect.CORO_CREATED:
            self._called.close()


async def run_middleware(
    middleware: Sequence[Middleware], attempt: Attempt, handler: Callable[[], Awaitable[BaseException | None]]
) -> None:
    """Calls the middleware, the first one outermost, around the handler; raises what comes out of it. ``handler``
    returns the exception that it raised.

    Raises:
        RuntimeError: one of them called ``call_next`` twice, or did not await it to its end: then the handler has not
            run, or still runs, and the attempt can't count as done, even if another one caught that.
    """
    calls: list[_NextCall] = []

    async def step(depth: int) -> None:
        if depth == len(middleware):
            if (error := await handler()) is not None:
                raise error
            return
        call_next = _NextCall(lambda: step(depth + 1))
        calls.append(call_next)
        try:
            await middleware[depth](attempt, call_next)
        finally:
            call_next.refuse()
        if call_next.is_open:
            raise RuntimeError(_TOO_EARLY)

    await step(0)
    if any(call_next.is_open for call_next in calls):
        raise RuntimeError(_TOO_EARLY)


def listen(attempt: Attempt, held: Iterable[ClaimedJob]) -> None:
    """From now on, ``tell`` tells the functions of ``Attempt.on_end`` how the attempt ends for these jobs."""
    for one in held:
        one.listeners = attempt._listeners


def tell(ends: Sequence[End], stale: Collection[int]) -> None:
    """Calls the functions of ``Attempt.on_end``. ``stale``: the indexes of the ends that Redis refused."""
    for i, end in enumerate(ends):
        if listeners := end.held.listeners:
            _tell(listeners, end, AttemptResult.STALE if i in stale else end.outcome)


def _tell(listeners: Iterable[Callable[[AttemptEnd], None]], end: End, outcome: AttemptResult) -> None:
    job = end.held.job
    attempt_end = AttemptEnd(job, outcome.value, end.error, end.reason, end.delay_ms, end.held.took_s)
    for listener in listeners:
        result, error = copy_context().run(called, listener, attempt_end)
        if error is None and inspect.iscoroutine(result):  # a Task would run by itself
            drop(result)
            error = InvalidInput("on_end: the function is asynchronous, and nothing awaits it; pass a plain one")
        if error is not None:
            log.error("on_end failed", error=what(error), topic=job.topic, id=job.id)
