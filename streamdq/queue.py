"""Queue and AsyncQueue, for producers and operators. Both carry out the same operations: one blocks, one is awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .claims.attempts import Held
from .clock import RedisClock
from .config import DEFAULT_GROUP, Settings
from .durations import Duration
from .link.connection import AsyncLink, Link
from .link.session import Op, arun, open_session, run
from .mover.mover import MoverThread
from .operations.jobs import Operations
from .operations.take import bury, fail, finish, leaving, take, touch

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(operation: Callable[Concatenate[Operations, P], Op[T]]) -> Callable[Concatenate[Queue, P], T]:
    @wraps(operation)
    def method(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self._link, operation(self._operations, *args, **kwargs))

    return method


def _awaited(
    operation: Callable[Concatenate[Operations, P], Op[T]],
) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    async def method(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await arun(self._link, operation(self._operations, *args, **kwargs))

    return method


class _Base:
    """What both queues share.

    ``url`` None: ``$STREAMDQ_URL``, else the embedded server. ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else
    ``streamdq``. ``clock``: for tests (streamdq.testing).
    """

    _link_class: type[Any]

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        *,
        settings: Settings | None = None,
        clock: RedisClock | None = None,
    ) -> None:
        self._link, session = open_session(url, namespace, settings, clock, self._link_class)
        self._operations = Operations(session)
        self._url = url
        self.namespace = session.keys.namespace
        self._mover: MoverThread | None = None
        self._mover_lock = threading.Lock()

    def _carry_mover(self) -> None:
        """Starts a mover in this process, once."""
        with self._mover_lock:
            if self._mover is None or not self._mover.is_here:  # a forked child has its parent's object, not its thread
                session = self._operations.session
                self._mover = MoverThread(self._url, self.namespace, session.settings, session.clock)

    def _stop_mover(self) -> None:
        with self._mover_lock:
            if self._mover is not None and self._mover.is_here:
                self._mover.stop()
                self._mover = None


class Queue(_Base):
    """A delay queue for synchronous code. Safe to share between threads; a forked child makes its own connections.

    ``url`` None: ``$STREAMDQ_URL``, else the embedded server. ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else
    ``streamdq``. Use it as a context manager, or ``close`` it.
    """

    _link_class = Link

    enqueue = _blocking(Operations.enqueue)
    enqueue_many = _blocking(Operations.enqueue_many)
    get = _blocking(Operations.get)
    cancel = _blocking(Operations.cancel)
    reschedule = _blocking(Operations.reschedule)
    dead = _blocking(Operations.dead)
    kick = _blocking(Operations.kick)
    purge = _blocking(Operations.purge)
    configure = _blocking(Operations.configure)
    delete_topic = _blocking(Operations.delete_topic)
    pause = _blocking(Operations.pause)
    resume = _blocking(Operations.resume)
    stats = _blocking(Operations.stats)
    upcoming = _blocking(Operations.upcoming)
    history = _blocking(Operations.history)
    forget_dump = _blocking(Operations.forget_dump)
    audit = _blocking(Operations.audit)
    doctor = _blocking(Operations.doctor)

    def take(self, topic: str, group: str = DEFAULT_GROUP, timeout: Duration = 5) -> Claim | None:
        """Claims one job, waiting up to ``timeout`` for one to be ready; None if there was none. For programs
        without a Worker: from the first call on, this process runs a mover. Finish, fail or bury the job within its
        TTR, or it is delivered again. As a context manager, the claim ends with the block.

        Raises:
            UnknownGroup: the topic has no such group.
        """
        self._carry_mover()
        held = run(self._link, take(self._operations, topic, group, timeout))
        return None if held is None else Claim(self, held)

    def close(self) -> None:
        """Closes connections; the embedded server ends when its last user has."""
        self._stop_mover()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncQueue(_Base):
    """As Queue, for asyncio: every method is awaited. An object belongs to one event loop."""

    _link_class = AsyncLink

    enqueue = _awaited(Operations.enqueue)
    enqueue_many = _awaited(Operations.enqueue_many)
    get = _awaited(Operations.get)
    cancel = _awaited(Operations.cancel)
    reschedule = _awaited(Operations.reschedule)
    dead = _awaited(Operations.dead)
    kick = _awaited(Operations.kick)
    purge = _awaited(Operations.purge)
    configure = _awaited(Operations.configure)
    delete_topic = _awaited(Operations.delete_topic)
    pause = _awaited(Operations.pause)
    resume = _awaited(Operations.resume)
    stats = _awaited(Operations.stats)
    upcoming = _awaited(Operations.upcoming)
    history = _awaited(Operations.history)
    forget_dump = _awaited(Operations.forget_dump)
    audit = _awaited(Operations.audit)
    doctor = _awaited(Operations.doctor)

    async def take(self, topic: str, group: str = DEFAULT_GROUP, timeout: Duration = 5) -> AsyncClaim | None:
        """As Queue.take, awaited."""
        if self._mover is None:
            await asyncio.to_thread(self._carry_mover)
        held = await arun(self._link, take(self._operations, topic, group, timeout))
        return None if held is None else AsyncClaim(self, held)

    async def close(self) -> None:
        """Closes connections; the embedded server ends when its last user has."""
        await asyncio.to_thread(self._stop_mover)
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def operations_of(queue: Queue | AsyncQueue) -> Operations:
    """For other modules of streamdq: what a queue's methods carry out, and more than these."""
    return queue._operations


def carry_out(queue: Queue, operation: Op[T]) -> T:
    """The same for an operation made from ``operations_of``: blocking, by the queue's connections."""
    return run(queue._link, operation)


async def carry_out_async(queue: AsyncQueue, operation: Op[T]) -> T:
    """As carry_out, awaited."""
    return await arun(queue._link, operation)


class Claim:
    """A claimed job. Each method ends or extends the claim, and raises StaleClaim if it was taken over.

    As a context manager, it finishes the job at the end of the block, or fails it if the block raises an exception,
    which is raised further.
    """

    def __init__(self, queue: Queue, held: Held) -> None:
        self._queue = queue
        self._held = held
        self.job = held.job

    def _run(self, operation: Op[None]) -> None:
        carry_out(self._queue, operation)

    def finish(self) -> None:
        """Ends the attempt as done, for this group."""
        self._run(finish(self._queue._operations, self._held))

    def fail(self, error: BaseException | str, delay: Duration | None = None) -> None:
        """Ends the attempt as failed: the job takes the next step of its retry schedule. With ``delay``, it is tried
        again after that, without using up a step. If no step is left, the job is buried.
        """
        self._run(fail(self._queue._operations, self._held, error, delay))

    def bury(self, reason: str) -> None:
        """Gives the job up: it is a dead letter until it is kicked or purged."""
        self._run(bury(self._queue._operations, self._held, reason))

    def touch(self, ttr: Duration | None = None) -> None:
        """Starts the TTR again (a heartbeat); with ``ttr``, that time instead."""
        self._run(touch(self._queue._operations, self._held, ttr))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (operation := leaving(self._queue._operations, self._held, error)) is not None:
            self._run(operation)


class AsyncClaim:
    """As Claim; every method is awaited, and it is an asynchronous context manager."""

    def __init__(self, queue: AsyncQueue, held: Held) -> None:
        self._queue = queue
        self._held = held
        self.job = held.job

    async def _run(self, operation: Op[None]) -> None:
        await carry_out_async(self._queue, operation)

    async def finish(self) -> None:
        """As Claim.finish."""
        await self._run(finish(self._queue._operations, self._held))

    async def fail(self, error: BaseException | str, delay: Duration | None = None) -> None:
        """As Claim.fail."""
        await self._run(fail(self._queue._operations, self._held, error, delay))

    async def bury(self, reason: str) -> None:
        """As Claim.bury."""
        await self._run(bury(self._queue._operations, self._held, reason))

    async def touch(self, ttr: Duration | None = None) -> None:
        """As Claim.touch."""
        await self._run(touch(self._queue._operations, self._held, ttr))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (operation := leaving(self._queue._operations, self._held, error)) is not None:
            await self._run(operation)


def held_by(claim: Claim | AsyncClaim) -> Held:
    """For other modules of streamdq: what proves the claim."""
    return claim._held
