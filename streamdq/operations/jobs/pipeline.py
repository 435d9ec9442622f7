"""Pipelines: jobs that are enqueued one by one and travel together. Each call has its own result."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from ...config import MAX_BATCH
from ...errors import NotSent
from ...job.job import Job
from ...link.connection import AsyncLink, Link
from ...link.session import Op, arun, run
from ...store.batches import MAX_BYTES
from ...store.redis_store import RedisStore
from ..methods import as_method, misused, plain_arguments
from .batcher import clone_exception
from .enqueue import EnqueueCall, EnqueueReply, enqueue, prepare

P = ParamSpec("P")


class Pipelined:
    """A job that was handed to a pipeline. ``id``: the job's, known at once."""

    def __init__(self, call: EnqueueCall) -> None:
        self.id = call.encoded.id
        self._call: EnqueueCall | None = call
        self._job: Job | None = None
        self._error: Exception | None = None

    @property
    def job(self) -> Job:
        """The job, as ``enqueue`` returns it.

        Raises:
            What ``enqueue`` raises: JobExists, NotDurable, ServerUnavailable and others.
            NotSent: the pipeline has not sent it. Or leaving its block was interrupted; then the job may be there.
        """
        if self._error is not None:
            raise clone_exception(self._error)
        if self._job is None:
            why = "leave its pipeline's block first, without an exception; if that was interrupted, it may be there"
            raise NotSent(f"job {self.id!r} was not sent: {why}")
        return self._job

    @property
    def error(self) -> Exception | None:
        """What ``job`` raises if the job was sent; None if it is there, or was not sent."""
        return self._error

    def end(self, result: EnqueueReply | Exception) -> None:
        """For the pipeline: the reply, or an error that concerns others as well. Does nothing if it has ended, before
        sending was interrupted.
        """
        call, self._call = self._call, None
        if call is None:
            return
        if isinstance(result, Exception):
            self._error = call.own(result)
            return
        try:
            self._job = call.job(result)
        except Exception as error:
            self._error = error


class _Batch:
    """Calls that one call to Redis carries out."""

    def __init__(self, first: EnqueueCall) -> None:
        self._first = first
        self._calls: list[EnqueueCall] = []
        self.kind = first.kind
        self.pipelined: list[Pipelined] = []
        self.sent = False

    @property
    def bucket(self) -> str:
        """Of the shard that they are for."""
        return self._first.store.session.keys.shard(self._first.topic, self._first.shard).bucket

    def add(self, call: EnqueueCall) -> Pipelined:
        self._calls.append(call)
        self.pipelined.append(Pipelined(call))
        return self.pipelined[-1]

    def send(self) -> Op[Exception | None]:
        """Returns the error that concerns all of them."""
        try:
            replies = yield from self._first.put(self._calls)
        except Exception as error:
            self.fail(error)
            return error
        for one, reply in zip(self.pipelined, replies, strict=True):
            one.end(reply)
        return None

    def fail(self, error: Exception) -> None:
        for one in self.pipelined:
            one.end(error)


class _Collected:
    """What was handed to a pipeline and has not been sent. Calls for the same topic and shard are sent in their order;
    so one goes together with earlier ones of its kind only if none of another kind is between them.
    """

    def __init__(self, store: RedisStore, node_of: Callable[[str], str]) -> None:
        """``node_of``: the Cluster node that serves a key; '' if it is not known now, or without a Cluster."""
        self._patience_s = store.session.settings.call_timeout_s
        self._node_of = node_of
        self.handed = 0
        self.errors: list[Exception] = []
        self._unsent: list[_Batch] = []  # those that are being sent, or were when that was interrupted
        self._begin()

    def _begin(self) -> None:
        self._batches: list[_Batch] = []
        self._last: dict[tuple[str, int], _Batch] = {}
        self._count = self._bytes = 0

    def add(self, preparing: Op[EnqueueCall]) -> Op[Pipelined]:
        """Adds one, and sends all if these are enough."""
        call = yield from preparing
        pipelined = self._batch_for(call).add(call)
        self.handed += 1
        self._count += 1
        self._bytes += len(call.encoded.rest)
        if self._count >= MAX_BATCH or self._bytes >= MAX_BYTES:
            yield from self.send()
        return pipelined

    def _batch_for(self, call: EnqueueCall) -> _Batch:
        place = call.topic, call.shard
        batch = self._last.get(place)
        if batch is None or batch.kind != call.kind:
            batch = self._last[place] = _Batch(call)
            self._batches.append(batch)
        return batch

    def send(self) -> Op[None]:
        """Sends them. If one call to Redis fails, the others are tried, until as much time has passed as a call may
        take: what is left then for the same node has the same error.

        Whatever interrupts this (a signal, a cancellation) leaves unanswered calls for the next time; a job that was
        enqueued meanwhile is found by its nonce.
        """
        until, failed = time.monotonic() + self._patience_s, dict[str, Exception]()
        self._unsent += self._batches
        self._begin()
        for batch in list(self._unsent):
            node = self._node_of(batch.bucket)
            error = _error_of(node, failed) if time.monotonic() > until else None
            if error is not None:
                batch.fail(error)
            elif (error := (yield from batch.send())) is not None:
                failed[node] = error
            if not batch.sent:  # nor by another task meanwhile
                batch.sent = True
                self.errors += [one.error for one in batch.pipelined if one.error is not None]
        self._unsent = [batch for batch in self._unsent if not batch.sent]

    def check(self) -> None:
        """Raises the errors of all calls, if there are any."""
        if self.errors:
            raise ExceptionGroup(f"{len(self.errors)} of {self.handed} jobs were not enqueued", self.errors)


def _error_of(node: str, failed: Mapping[str, Exception]) -> Exception | None:
    """The error of the calls to this node; of any, if it is not known which one it is, as when it has just failed."""
    return failed.get(node) if node else next(iter(failed.values()), None)


def _prepared(
    operation: Callable[..., Op[Job]], store: RedisStore, args: Sequence[Any], kwargs: dict[str, Any]
) -> Op[EnqueueCall]:
    """The call of ``enqueue`` with these arguments, before it is sent."""
    given, named = plain_arguments(args, kwargs)
    try:
        return prepare(store, *given, **named)
    except TypeError as error:
        raise misused(operation, given, named, error) from None


def _blocking(
    operation: Callable[Concatenate[RedisStore, P], Op[Job]],
) -> Callable[Concatenate[Pipeline, P], Pipelined]:
    def method(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pipelined:
        return run(self._link, self._collected.add(_prepared(operation, self._store, args, kwargs)))

    as_method(method, operation, __name__, "Pipeline.enqueue", "Pipelined")
    return method


def _awaited(
    operation: Callable[Concatenate[RedisStore, P], Op[Job]],
) -> Callable[Concatenate[AsyncPipeline, P], Coroutine[Any, Any, Pipelined]]:
    async def method(self: AsyncPipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pipelined:
        return await arun(self._link, self._collected.add(_prepared(operation, self._store, args, kwargs)))

    as_method(method, operation, __name__, "AsyncPipeline.enqueue", "Pipelined")
    return method


class Pipeline:
    """Use it in a ``with`` statement. ``enqueue`` takes the queue's arguments and returns a Pipelined at once. The jobs
    are sent together at the end of the block, or earlier, for each 500 jobs or 256 KiB. If the block raises, jobs that
    were not sent yet are dropped. An invalid argument raises InvalidInput at once.

    Leaving the block raises an ExceptionGroup of the errors of all calls, if there are any; each Pipelined has its own.
    """

    def __init__(self, link: Link, store: RedisStore) -> None:
        self._link = link
        self._store = store
        self._collected = _Collected(store, link.node_of)

    enqueue = _blocking(enqueue)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            run(self._link, self._collected.send())
            self._collected.check()


class AsyncPipeline:
    """Like Pipeline, for ``async with``. ``enqueue`` is awaited: it sends the collected jobs if they are enough."""

    def __init__(self, link: AsyncLink, store: RedisStore) -> None:
        self._link = link
        self._store = store
        self._collected = _Collected(store, link.node_of)

    enqueue = _awaited(enqueue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await arun(self._link, self._collected.send())
            self._collected.check()
