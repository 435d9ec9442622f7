"""Functions around attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ..job.job import Job


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
    """

    async def step(depth: int) -> None:
        if depth == len(middleware):
            if (error := await handler()) is not None:
                raise error
            return
        called = False

        async def call_next() -> None:
            nonlocal called
            if called:
                raise RuntimeError("middleware: call_next() was called twice; an attempt runs its handler once")
            called = True
            await step(depth + 1)

        await middleware[depth](attempt, call_next)

    await step(0)
