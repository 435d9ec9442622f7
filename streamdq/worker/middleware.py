"""Functions around attempts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ..job.job import Job

_TWICE = "twice; an attempt runs its handler once"
_TOO_LATE = "when the middleware had returned"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of a handler. ``jobs``: one, or several if the handler takes batches."""

    topic: str
    group: str
    jobs: Sequence[Job]

    @property
    def job(self) -> Job:
        """The only job, or the first of a batch."""
        return self.jobs[0]


CallNext = Callable[[], Awaitable[None]]
Middleware = Callable[[Attempt, CallNext], Awaitable[None]]


async def through(
    middleware: Sequence[Middleware], attempt: Attempt, handler: Callable[[], Awaitable[BaseException | None]]
) -> None:
    """Calls the middleware, the first one outermost, around the handler; raises what comes out of it. ``handler``
    returns the exception that it raised.

    Raises:
        RuntimeError: one of them called ``call_next`` twice, or did not await it to its end: then the handler has not
            run, or still runs, and the attempt can't count as done.
    """

    async def step(depth: int) -> None:
        if depth == len(middleware):
            if (error := await handler()) is not None:
                raise error
            return
        refusal, next_one = "", None
        has_ended = True

        async def go_on() -> None:
            nonlocal has_ended
            try:
                await step(depth + 1)
            finally:
                has_ended = True

        def call_next() -> Coroutine[Any, Any, None]:
            nonlocal refusal, next_one, has_ended
            if refusal:
                raise RuntimeError(f"middleware: call_next() was called {refusal}")
            refusal, has_ended, next_one = _TWICE, False, go_on()
            return next_one

        try:
            await middleware[depth](attempt, call_next)
        finally:
            refusal = _TOO_LATE
        if not has_ended and next_one is not None:
            if inspect.getcoroutinestate(next_one) == inspect.CORO_CREATED:
                next_one.close()  # it must not begin now
            raise RuntimeError("middleware: it returned before call_next() had ended; await call_next()")

    await step(0)
