"""Queue and AsyncQueue, for producers and operators. Both run the same operations; one blocks, the other is awaited.

Importing this module imports none of what they need: the connections come with the first queue, an operation with its
first call. So a program loads what it uses.
"""

from __future__ import annotations

import threading
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from . import operations
from .forks import renew_in_child
from .keys import DEFAULT_GROUP
from .operations.methods import UsedOperation, misused, plain_arguments
from .options import suggesting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from types import TracebackType
    from typing import Literal, NoReturn, Self

    from .codec.protocol import Codec
    from .config import Settings
    from .job.job import Job, JobState
    from .link.credentials import CredentialProvider
    from .link.session import Op
    from .mover.mover import MoverThread
    from .operations.attempts.added import AsyncJobFlow, JobFlow
    from .operations.attempts.claimed import ClaimedJob
    from .operations.bounds import Bound
    from .operations.find.actions import Acted
    from .operations.find.conditions import Where
    from .operations.find.search import Progress, Search
    from .operations.flows.builder import AsyncFlow, Flow
    from .operations.history.events import AsyncEvents, Events
    from .operations.jobs.pipeline import AsyncPipeline, Pipeline
    from .operations.results.thread import WaitsThread
    from .operations.results.waits import Waits
    from .operations.results.wanted import Wanted
    from .store.jobs.results import StoredResult
    from .store.redis_store import RedisStore
    from .times.clock import RedisClock
    from .times.durations import Duration, Moment

    Validate = Callable[[bytes], Any] | None

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    operation: Callable[[], Callable[Concatenate[RedisStore, P], Op[T]]],
) -> Callable[Concatenate[Queue, P], T]:
    """A method of Queue that runs the operation."""

    def made(found: Callable[Concatenate[RedisStore, P], Op[T]]) -> Callable[Concatenate[Queue, P], T]:
        from .link.session import run

        def method(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
            given, named = plain_arguments(args, kwargs)
            try:
                operation = found(self._store, *given, **named)
            except TypeError as error:
                raise misused(found, given, named, error) from None
            return run(self._link, operation)

        return method

    return cast("Callable[Concatenate[Queue, P], T]", UsedOperation(operation, made))


def _awaited(
    operation: Callable[[], Callable[Concatenate[RedisStore, P], Op[T]]],
) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    """A method of AsyncQueue that runs the operation."""

    def made(
        found: Callable[Concatenate[RedisStore, P], Op[T]],
    ) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
        from .link.session import arun

        async def method(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
            self._link.stay()  # before it may wait for a call of another task
            given, named = plain_arguments(args, kwargs)
            try:
                operation = found(self._store, *given, **named)
            except TypeError as error:
                raise misused(found, given, named, error) from None
            return await arun(self._link, operation)

        return method

    return cast("Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]", UsedOperation(operation, made))


def _enqueued(
    operation: Callable[[], Callable[Concatenate[RedisStore, P], Op[T]]],
) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    """AsyncQueue.enqueue: calls that several tasks make at the same time go together."""

    def made(
        found: Callable[Concatenate[RedisStore, P], Op[T]],
    ) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
        from .link.session import arun

        prepare: Any = operations.jobs.enqueue.prepare

        async def method(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
            self._link.stay()  # before it may wait for a call of another task
            given, named = plain_arguments(args, kwargs)
            try:
                preparing = prepare(self._store, *given, **named)
            except TypeError as error:
                raise misused(found, given, named, error) from None
            call = await arun(self._link, preparing)
            return cast("T", call.job(await self._batcher.put(call)))

        return method

    return cast("Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]", UsedOperation(operation, made))


class _Base:
    """The common part of both queues.

    ``url`` None: ``$STREAMDQ_URL``, else the embedded server. ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else
    ``streamdq``. ``codec``: what new bodies are encoded with, in this order, such as ``[Zstd(), Encrypt(key)]``; None:
    ``$STREAMDQ_CODEC``. ``credential_provider``: of redis-py, which gives user name and password; None:
    ``$STREAMDQ_CREDENTIAL_PROVIDER``, else the URL's. ``clock``: for tests (streamdq.testing).
    """

    @suggesting
    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        *,
        codec: Sequence[Codec] | None = None,
        credential_provider: CredentialProvider | None = None,
        settings: Settings | None = None,
        clock: RedisClock | None = None,
    ) -> None:
        from .link.opening import open_session, with_provider
        from .store.redis_store import RedisStore

        settings = with_provider(settings, credential_provider)
        self._link, session = open_session(url, namespace, settings, clock, self._link_class(), codec)
        self._store = RedisStore(session)
        self._url = url
        self.namespace = session.keys.namespace
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """A forked child has its parent's objects, but not its threads."""
        self._mover: MoverThread | None = None
        self._mover_lock = threading.Lock()
        self._results: WaitsThread | None = None
        self._results_lock = threading.Lock()
        self._waiting: Waits | None = None

    @classmethod
    def _link_class(cls) -> type[Any]:
        raise NotImplementedError

    def _carry_mover(self) -> None:
        """Starts a mover in this process, once."""
        from .mover.mover import MoverThread

        with self._mover_lock:
            if self._mover is None:
                session = self._store.session
                self._mover = MoverThread(self._url, self.namespace, session.settings, session.clock)

    def _stop_mover(self) -> None:
        with self._mover_lock:
            if self._mover is not None:
                self._mover.stop()
                self._mover = None


class Queue(_Base):
    """A delay queue for synchronous code. Safe to share between threads; a forked child makes its own connections.

    ``url`` None: ``$STREAMDQ_URL``, else the embedded server. ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else
    ``streamdq``. ``codec``: what new bodies are encoded with, in this order, such as ``[Zstd(), Encrypt(key)]``; None:
    ``$STREAMDQ_CODEC``. ``credential_provider``: of redis-py, which gives user name and password; None:
    ``$STREAMDQ_CREDENTIAL_PROVIDER``, else the URL's. Use it as a context manager, or ``close`` it.
    """

    @classmethod
    def _link_class(cls) -> type[Any]:
        from .link.connection import Link

        return Link

    enqueue = _blocking(lambda: operations.jobs.enqueue.enqueue)
    enqueue_many = _blocking(lambda: operations.jobs.enqueue_many.enqueue_many)
    get = _blocking(lambda: operations.jobs.get.get)
    dependencies = _blocking(lambda: operations.jobs.get.dependencies)
    cancel = _blocking(lambda: operations.jobs.changes.cancel)
    abort = _blocking(lambda: operations.jobs.abort.abort)
    flow_status = _blocking(lambda: operations.flows.one.flow_status)
    cancel_flow = _blocking(lambda: operations.flows.one.cancel_flow)
    reschedule = _blocking(lambda: operations.jobs.changes.reschedule)
    dead = _blocking(lambda: operations.dead_letters.of_group.dead)
    kick = _blocking(lambda: operations.dead_letters.of_group.kick)
    purge = _blocking(lambda: operations.dead_letters.of_group.purge)
    configure = _blocking(lambda: operations.topics.configure.configure)
    delete_topic = _blocking(lambda: operations.topics.configure.delete_topic)
    pause = _blocking(lambda: operations.topics.configure.pause)
    resume = _blocking(lambda: operations.topics.configure.resume)
    schedule = _blocking(lambda: operations.schedules.define.schedule)
    unschedule = _blocking(lambda: operations.schedules.changes.unschedule)
    schedules = _blocking(lambda: operations.schedules.read.schedules)
    get_schedule = _blocking(lambda: operations.schedules.read.get_schedule)
    pause_schedule = _blocking(lambda: operations.schedules.changes.pause_schedule)
    resume_schedule = _blocking(lambda: operations.schedules.changes.resume_schedule)
    trigger = _blocking(lambda: operations.schedules.run_now.trigger)
    backfill = _blocking(lambda: operations.schedules.run_now.backfill)
    keys = _blocking(lambda: operations.keys.busiest.keys)
    stats = _blocking(lambda: operations.topics.stats.stats)
    upcoming = _blocking(lambda: operations.topics.stats.upcoming)
    scale = _blocking(lambda: operations.topics.scale.scale)
    history = _blocking(lambda: operations.history.topic_history.history)
    job_history = _blocking(lambda: operations.history.job_history.job_history)
    forget_dump = _blocking(lambda: operations.history.topic_history.forget_dump)
    erase = _blocking(lambda: operations.erase.erase.erase)
    audit = _blocking(lambda: operations.checks.audit.audit)
    doctor = _blocking(lambda: operations.checks.doctor.doctor)

    @suggesting
    def find(
        self,
        topic: str,
        *,
        state: JobState | str | None = None,
        due: tuple[Bound | None, Bound | None] | None = None,
        group: str | None = None,
        key: str | None = None,
        id_prefix: str | None = None,
        where: Where | None = None,
        limit: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Found:
        """Searches the topic's jobs. Nothing is read until the result is used.

        ``state``, ``due``, and the fields attempts, error and reason: a job matches if all of them fit in one group, or
        in the given ``group``. ``state``: also "blocked", of jobs that wait for others. ``due``: the first and the last
        due time, each a moment, a text such as "10m" or "-1h" counted from now, or None. ``where``: conditions on
        fields: ``{"body.user": 7, "body.amount": (">", 100)}``, or texts, ``["body.user=7"]`` (docs/find.md).
        ``limit``: the search ends with so many. ``progress``: is called after each page.

        Raises:
            InvalidInput: something can't be read.
        """
        criteria = operations.find.criteria.criteria_of(
            state=state, due=due, group=group, key=key, id_prefix=id_prefix, where=where
        )
        return Found(self, operations.find.search.Search(self._store, topic, criteria, limit, progress))

    @suggesting
    def events(self, topic: str, *, since: Bound | None = None, timeout: Duration | None = None) -> Events:
        """Follows the topic: ``for event in queue.events("order.close"):`` gets the rows of its history as they are
        written, each with what failed (docs/history.md).

        ``since``: the ``position`` of earlier events; or a moment, or a text such as "-1h" counted from now; None: from
        now on. ``timeout``: the iteration ends if nothing happens for so long; None: it goes on for ever.

        Raises, when it is iterated:
            UnknownTopic: there is no such topic, or it was deleted meanwhile.
            ServerUnavailable: iterate the same object again to go on.
        """
        found = operations.history.events.following(self._store, topic, since)
        return operations.history.events.Events(self._link, found, timeout)

    def result(
        self,
        job: Job | str,
        id: str | None = None,
        *,
        group: str | None = None,
        key: str | None = None,
        timeout: Duration = "30s",
    ) -> Any:
        """What the job's handler returned, as JSON values. Waits up to ``timeout`` for the job to end. ``job``: a Job,
        or its topic, and then its ``id``. ``group``: whose result, if several groups of the topic keep theirs. ``key``:
        the job's, if it has one; then only the shard of that key is read.

        Raises:
            NoResult: the topic keeps no results: its handler needs ``@worker.handler(topic, result="1d")``.
            ResultTimeout: the job has not ended within ``timeout``. It goes on.
            JobFailed: it is a dead letter; ``error`` says why.
            JobCancelled, JobExpired: it was given up.
            ResultNotKept, ResultTooLarge: it is done, and its result could not be kept.
            ResultGone: there is neither the job nor its result.
            InvalidInput: the job has not ended, and a handler waits for it whose own worker would run it.
        """
        return self._result(operations.results.wanted.wanted(job, id, key, group), timeout)

    def _result(self, wanted: Wanted, timeout: Duration, validate: Validate = None) -> Any:
        timeout_s = operations.results.wanted.timeout_s(timeout)
        group, kept = self._waits().kept(wanted, timeout_s)
        return carry_out(self, operations.results.value.value(self._store, wanted, group, kept, validate))

    def _waits(self) -> WaitsThread:
        with self._results_lock:
            if self._results is None:
                session = self._store.session
                arguments = (self._url, self.namespace, session.settings, session.clock)
                self._results = operations.results.thread.WaitsThread(*arguments)
            return self._results

    def pipeline(self) -> Pipeline:
        """For many single jobs: ``with queue.pipeline() as pipe: order = pipe.enqueue("order.close", body)``. The jobs
        travel together, when the block ends; then ``order.job`` is the job, or raises what ``enqueue`` would.
        """
        return operations.jobs.pipeline.Pipeline(self._link, self._store)

    @suggesting
    def flow(
        self, name: str, *, deadline: Duration | None = None, keep: Duration = "1d", durable: str | None = None
    ) -> Flow:
        """For jobs that start together, or not at all: ``with queue.flow("report-7") as flow:``, and in the block
        ``flow.enqueue`` and ``flow.enqueue_many``. Nothing of it starts before the block has ended; if the block
        raises, or its process is killed, nothing of it starts at all.

        ``deadline``: what has not ended so long after the beginning of the block is cancelled. ``keep``: how long
        ``flow_status`` knows the flow after its end. ``durable``: as for ``enqueue``. docs/flows.md has more.

        Raises, when the block begins:
            FlowExists: there is a flow with this name.
        And when it ends:
            FlowWithdrawn: it was cancelled meanwhile, or another process has begun it anew; nothing of it starts.
            ServerUnavailable: no reply in time; perhaps it starts. Build it again: FlowExists then says that it does.
        """
        building = operations.flows.builder.Building(self._store, name, deadline, keep, durable)
        return operations.flows.builder.Flow(self._link, building)

    @suggesting
    def take(self, topic: str, group: str = DEFAULT_GROUP, timeout: Duration = 5) -> Claim | NoClaim:
        """Claims one job, waiting up to ``timeout`` for one to be ready; the result is false if there was none. For
        programs without a Worker: from the first call on, this process runs a mover. Finish, fail or bury the job
        within its TTR, or it is delivered again. As a context manager, the claim ends with the block, which gets the
        Claim, or None: ``with queue.take("t") as claim:``.

        Raises:
            UnknownTopic: there is no such topic; its first job, a worker or ``configure`` makes it.
            UnknownGroup: the topic has no such group.
        """
        self._carry_mover()
        held = carry_out(self, operations.attempts.take.take(self._store, topic, group, timeout))
        return NoClaim() if held is None else Claim(self, held)

    def close(self) -> None:
        """Closes connections; the embedded server ends when its last user has. A later call opens them again."""
        self._stop_mover()
        with self._results_lock:
            results, self._results = self._results, None
        if results is not None:
            results.stop()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncQueue(_Base):
    """Like Queue, for asyncio: every method is awaited. An object belongs to one event loop."""

    @classmethod
    def _link_class(cls) -> type[Any]:
        from .link.connection import AsyncLink

        return AsyncLink

    @cached_property
    def _batcher(self) -> Any:
        from .link.session import arun
        from .operations.jobs.batcher import Batcher

        return Batcher(partial(arun, self._link), self._store.session.settings.call_timeout_s)

    enqueue = _enqueued(lambda: operations.jobs.enqueue.enqueue)
    enqueue_many = _awaited(lambda: operations.jobs.enqueue_many.enqueue_many)
    get = _awaited(lambda: operations.jobs.get.get)
    dependencies = _awaited(lambda: operations.jobs.get.dependencies)
    cancel = _awaited(lambda: operations.jobs.changes.cancel)
    abort = _awaited(lambda: operations.jobs.abort.abort)
    flow_status = _awaited(lambda: operations.flows.one.flow_status)
    cancel_flow = _awaited(lambda: operations.flows.one.cancel_flow)
    reschedule = _awaited(lambda: operations.jobs.changes.reschedule)
    dead = _awaited(lambda: operations.dead_letters.of_group.dead)
    kick = _awaited(lambda: operations.dead_letters.of_group.kick)
    purge = _awaited(lambda: operations.dead_letters.of_group.purge)
    configure = _awaited(lambda: operations.topics.configure.configure)
    delete_topic = _awaited(lambda: operations.topics.configure.delete_topic)
    pause = _awaited(lambda: operations.topics.configure.pause)
    resume = _awaited(lambda: operations.topics.configure.resume)
    schedule = _awaited(lambda: operations.schedules.define.schedule)
    unschedule = _awaited(lambda: operations.schedules.changes.unschedule)
    schedules = _awaited(lambda: operations.schedules.read.schedules)
    get_schedule = _awaited(lambda: operations.schedules.read.get_schedule)
    pause_schedule = _awaited(lambda: operations.schedules.changes.pause_schedule)
    resume_schedule = _awaited(lambda: operations.schedules.changes.resume_schedule)
    trigger = _awaited(lambda: operations.schedules.run_now.trigger)
    backfill = _awaited(lambda: operations.schedules.run_now.backfill)
    keys = _awaited(lambda: operations.keys.busiest.keys)
    stats = _awaited(lambda: operations.topics.stats.stats)
    upcoming = _awaited(lambda: operations.topics.stats.upcoming)
    scale = _awaited(lambda: operations.topics.scale.scale)
    history = _awaited(lambda: operations.history.topic_history.history)
    job_history = _awaited(lambda: operations.history.job_history.job_history)
    forget_dump = _awaited(lambda: operations.history.topic_history.forget_dump)
    erase = _awaited(lambda: operations.erase.erase.erase)
    audit = _awaited(lambda: operations.checks.audit.audit)
    doctor = _awaited(lambda: operations.checks.doctor.doctor)

    @suggesting
    def find(
        self,
        topic: str,
        *,
        state: JobState | str | None = None,
        due: tuple[Bound | None, Bound | None] | None = None,
        group: str | None = None,
        key: str | None = None,
        id_prefix: str | None = None,
        where: Where | None = None,
        limit: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> AsyncFound:
        """Like Queue.find. It is not awaited itself; the methods of the result are."""
        criteria = operations.find.criteria.criteria_of(
            state=state, due=due, group=group, key=key, id_prefix=id_prefix, where=where
        )
        return AsyncFound(self, operations.find.search.Search(self._store, topic, criteria, limit, progress))

    @suggesting
    def events(self, topic: str, *, since: Bound | None = None, timeout: Duration | None = None) -> AsyncEvents:
        """Like Queue.events, for ``async for``. It is not awaited itself."""
        found = operations.history.events.following(self._store, topic, since)
        return operations.history.events.AsyncEvents(self._link, found, timeout)

    async def result(
        self,
        job: Job | str,
        id: str | None = None,
        *,
        group: str | None = None,
        key: str | None = None,
        timeout: Duration = "30s",
    ) -> Any:
        """Like Queue.result."""
        return await self._result(operations.results.wanted.wanted(job, id, key, group), timeout)

    async def _result(self, wanted: Wanted, timeout: Duration, validate: Validate = None) -> Any:
        group, kept = await self._kept(wanted, operations.results.wanted.timeout_s(timeout))
        return await carry_out_async(self, operations.results.value.value(self._store, wanted, group, kept, validate))

    async def _kept(self, wanted: Wanted, timeout_s: float) -> tuple[str, StoredResult]:
        self._link.stay()
        if self._waiting is None:
            self._waiting = operations.results.waits.Waits(self._link, self._store)
        return await self._waiting.kept(wanted, timeout_s)

    def pipeline(self) -> AsyncPipeline:
        """Like Queue.pipeline, for ``async with``. It is not awaited itself; its ``enqueue`` is."""
        return operations.jobs.pipeline.AsyncPipeline(self._link, self._store)

    @suggesting
    def flow(
        self, name: str, *, deadline: Duration | None = None, keep: Duration = "1d", durable: str | None = None
    ) -> AsyncFlow:
        """Like Queue.flow, for ``async with``. It is not awaited itself; its methods are."""
        building = operations.flows.builder.Building(self._store, name, deadline, keep, durable)
        return operations.flows.builder.AsyncFlow(self._link, building)

    async def take(self, topic: str, group: str = DEFAULT_GROUP, timeout: Duration = 5) -> AsyncClaim | NoClaim:
        """Like Queue.take, but awaited: ``async with await queue.take("t") as claim:``."""
        import asyncio

        if self._mover is None:
            await asyncio.to_thread(self._carry_mover)
        held = await carry_out_async(self, operations.attempts.take.take(self._store, topic, group, timeout))
        return NoClaim() if held is None else AsyncClaim(self, held)

    async def close(self) -> None:
        """Closes connections; the embedded server ends when its last user has. A later call opens them again."""
        import asyncio

        await asyncio.to_thread(self._stop_mover)
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def store_of(queue: Queue | AsyncQueue) -> RedisStore:
    """The store that a queue's operations work on. For other modules of streamdq."""
    return queue._store


def carry_out(queue: Queue, operation: Op[T]) -> T:
    """Runs an operation on a queue's store and connections, with blocking calls."""
    from .link.session import run

    return run(queue._link, operation)


async def carry_out_async(queue: AsyncQueue, operation: Op[T]) -> T:
    """Like carry_out, but awaited."""
    from .link.session import arun

    return await arun(queue._link, operation)


def flow_of(queue: Queue, held: ClaimedJob) -> JobFlow:
    """The flow of a job that this process has claimed."""
    return operations.attempts.added.JobFlow(queue._link, queue._store, held)


def async_flow_of(queue: AsyncQueue, held: ClaimedJob) -> AsyncJobFlow:
    """Like flow_of."""
    return operations.attempts.added.AsyncJobFlow(queue._link, queue._store, held)


_NOTHING: Any = object()  # stands for a result that was not given; None is one


def _given(result: Any) -> tuple[Any, ...]:
    return () if result is _NOTHING else (result,)


class Claim:
    """A claimed job. Each method ends or extends the claim, and raises StaleClaim if it was taken over. If the job was
    aborted, ``touch`` and ``finish`` raise JobAborted; from then on ``aborted`` is true. The job ends as cancelled when
    the claim is ended, in whatever way.

    As a context manager, it finishes the job at the end of the block. If the block raises an exception, it fails the
    job and passes the exception on.
    """

    def __init__(self, queue: Queue, held: ClaimedJob) -> None:
        self._queue = queue
        self._held = held
        self.job = held.job

    @property
    def aborted(self) -> bool:
        """Whether the last call that this claim has made said that the job was aborted."""
        return self._held.aborted

    def _run(self, operation: Op[None]) -> None:
        carry_out(self._queue, operation)

    def finish(self, result: Any = _NOTHING) -> None:
        """Ends the attempt as done, for this group. ``result``: what ``Queue.result`` returns, if the topic keeps
        results.

        Raises:
            NoResult: it keeps none. The claim goes on.
            InvalidInput: the result is not JSON, or too large. The claim goes on.
        """
        self._run(operations.attempts.take.finish(self._queue._store, self._held, *_given(result)))

    def fail(self, error: BaseException | str, delay: Duration | None = None) -> None:
        """Ends the attempt as failed: the job takes the next step of its retry schedule; if none is left, it is buried.
        With ``delay``, it is tried again after that, without using up a step; attempt number 100 is the last.

        Raises:
            StaleClaim: the claim was taken over or has ended.
            InvalidInput: a ``delay`` beside a Bury, Retry or Snooze.
        """
        self._run(operations.attempts.take.fail(self._queue._store, self._held, error, delay))

    def bury(self, reason: str) -> None:
        """Gives the job up: it is a dead letter until it is kicked or purged."""
        self._run(operations.attempts.take.bury(self._queue._store, self._held, reason))

    def touch(self, ttr: Duration | None = None) -> None:
        """Starts the TTR again (a heartbeat); with ``ttr``, that time instead."""
        self._run(operations.attempts.take.touch(self._queue._store, self._held, ttr))

    def progress(self, fraction: float | None = None, text: str = "") -> None:
        """Notes how far the attempt is, as RunningJob.progress, at each call."""
        self._run(operations.attempts.progress_reports.report(self._queue._store, self._held, fraction, text))

    @property
    def flow(self) -> JobFlow:
        """The flow of the job, to add jobs to it: they are committed when the claim is finished."""
        return flow_of(self._queue, self._held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (operation := operations.attempts.take.leaving(self._queue._store, self._held, error)) is not None:
            self._run(operation)


class NoClaim:
    """What ``take`` returns if no job was ready in time: it is false, and gives a ``with`` block None."""

    __slots__ = ()

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "NoClaim()"

    if not TYPE_CHECKING:  # a type checker asks for `if claim:` by itself

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{name}: no job was ready, so there is no claim; write `if claim:` before you use it")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


class AsyncClaim:
    """Like Claim; every method is awaited, and it is an asynchronous context manager."""

    def __init__(self, queue: AsyncQueue, held: ClaimedJob) -> None:
        self._queue = queue
        self._held = held
        self.job = held.job

    @property
    def aborted(self) -> bool:
        """Like Claim.aborted."""
        return self._held.aborted

    async def _run(self, operation: Op[None]) -> None:
        await carry_out_async(self._queue, operation)

    async def finish(self, result: Any = _NOTHING) -> None:
        """Like Claim.finish."""
        await self._run(operations.attempts.take.finish(self._queue._store, self._held, *_given(result)))

    async def fail(self, error: BaseException | str, delay: Duration | None = None) -> None:
        """Like Claim.fail."""
        await self._run(operations.attempts.take.fail(self._queue._store, self._held, error, delay))

    async def bury(self, reason: str) -> None:
        """Like Claim.bury."""
        await self._run(operations.attempts.take.bury(self._queue._store, self._held, reason))

    async def touch(self, ttr: Duration | None = None) -> None:
        """Like Claim.touch."""
        await self._run(operations.attempts.take.touch(self._queue._store, self._held, ttr))

    async def progress(self, fraction: float | None = None, text: str = "") -> None:
        """Like Claim.progress."""
        await self._run(operations.attempts.progress_reports.report(self._queue._store, self._held, fraction, text))

    @property
    def flow(self) -> AsyncJobFlow:
        """Like Claim.flow; its methods are awaited."""
        return async_flow_of(self._queue, self._held)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (operation := operations.attempts.take.leaving(self._queue._store, self._held, error)) is not None:
            await self._run(operation)


def held_by(claim: Claim | AsyncClaim) -> ClaimedJob:
    """The job in hand behind a claim. For other modules of streamdq."""
    return claim._held


class _Found:
    """What both kinds of Found tell without reading."""

    def __init__(self, search: Search) -> None:
        self._search = search

    @property
    def found(self) -> int:
        """How many jobs were found so far."""
        return self._search.found

    @property
    def looked(self) -> int:
        """How many jobs were looked at so far."""
        return self._search.looked

    @property
    def unreadable(self) -> int:
        """Jobs that may match or not: their bodies can't be read here. They are not among those found."""
        return self._search.unreadable


class Found(_Found):
    """A search. Iterating it reads the jobs, and goes on where it was left.

    The actions concern exactly the jobs that were found so far, all matches if nothing was read yet. A job that has
    changed since it was found (rescheduled, claimed, retried, kicked, …) is left alone and counted. Coming due is no
    change. If an action is interrupted by an error, it has been done to some of the jobs: search again.
    """

    def __init__(self, queue: Queue, search: Search) -> None:
        super().__init__(search)
        self._queue = queue

    def __iter__(self) -> Iterator[Job]:
        while (job := carry_out(self._queue, self._search.next_job())) is not None:
            yield job

    def soonest(self, count: int = 20) -> list[Job]:
        """The jobs that are due first, in this order; the first thing to ask of a search. Delayed jobs are read by due
        time; any other search walks to the end.
        """
        return carry_out(self._queue, self._search.soonest(count))

    def count(self) -> int:
        """How many jobs there are; searches to the end."""
        carry_out(self._queue, self._search.rest())
        return self._search.found

    def sample(self, count: int = 10) -> list[Job]:
        """Some of the jobs, chosen at random, as they are now."""
        return carry_out(self._queue, operations.find.shown.sample(self._search, count))

    def cancel(self, *, durable: str | None = None) -> Acted:
        """Cancels those that wait, in every group."""
        return carry_out(self._queue, operations.find.actions.cancel_found(self._search, durable))

    def reschedule(
        self, delay: Duration | None = None, *, at: Moment | None = None, durable: str | None = None
    ) -> Acted:
        """Gives those that wait a new due time."""
        return carry_out(self._queue, operations.find.actions.reschedule_found(self._search, delay, at, durable))

    def kick(self) -> Acted:
        """Sends those that are dead back: in the group of the search, or in each in which they are dead."""
        return carry_out(self._queue, operations.find.actions.kick_found(self._search))

    def purge(self) -> Acted:
        """Deletes those that are dead: in the group of the search, or in each in which they are dead."""
        return carry_out(self._queue, operations.find.actions.purge_found(self._search))


class AsyncFound(_Found):
    """Like Found; iterated with ``async for``, and every method is awaited."""

    def __init__(self, queue: AsyncQueue, search: Search) -> None:
        super().__init__(search)
        self._queue = queue

    async def __aiter__(self) -> AsyncIterator[Job]:
        while (job := await carry_out_async(self._queue, self._search.next_job())) is not None:
            yield job

    async def soonest(self, count: int = 20) -> list[Job]:
        """Like Found.soonest."""
        return await carry_out_async(self._queue, self._search.soonest(count))

    async def count(self) -> int:
        """Like Found.count."""
        await carry_out_async(self._queue, self._search.rest())
        return self._search.found

    async def sample(self, count: int = 10) -> list[Job]:
        """Like Found.sample."""
        return await carry_out_async(self._queue, operations.find.shown.sample(self._search, count))

    async def cancel(self, *, durable: str | None = None) -> Acted:
        """Like Found.cancel."""
        return await carry_out_async(self._queue, operations.find.actions.cancel_found(self._search, durable))

    async def reschedule(
        self, delay: Duration | None = None, *, at: Moment | None = None, durable: str | None = None
    ) -> Acted:
        """Like Found.reschedule."""
        return await carry_out_async(
            self._queue, operations.find.actions.reschedule_found(self._search, delay, at, durable)
        )

    async def kick(self) -> Acted:
        """Like Found.kick."""
        return await carry_out_async(self._queue, operations.find.actions.kick_found(self._search))

    async def purge(self) -> Acted:
        """Like Found.purge."""
        return await carry_out_async(self._queue, operations.find.actions.purge_found(self._search))


def result_of(
    queue: Queue | AsyncQueue,
    topic: str,
    id: str,
    key: str | None,
    group: str | None,
    timeout: Duration,
    validate: Validate,
) -> Any:
    """As the queue's ``result``; ``validate`` makes the value of its JSON. For a Topic."""
    return queue._result(operations.results.wanted.wanted(topic, id, key, group), timeout, validate)


async def kept_by(queue: AsyncQueue, wanted: Wanted, timeout_s: float) -> tuple[str, StoredResult]:
    """How a group has ended a job, waiting for that. For other modules of streamdq."""
    return await queue._kept(wanted, timeout_s)
