"""The process in which handlers with ``process=True`` run, one call at a time. children.py is the worker's side.

A call is a pickle, as are its result, which is JSON then, and what the handler reports meanwhile. One thread reads what
the worker sends; the handler runs in the main thread, as the code of C libraries may expect. When the worker is gone,
whatever became of it, that thread ends the process.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from ..errors import InvalidInput
from ..job.job import ENCODED, Job, check_ttr
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.returned import written_results
from ..operations.results.inside import Inside, inside
from ..times.durations import Duration
from .handlers import Handler, called, drop, is_complete
from .member import Where
from .queues import HandlerQueues
from .remote_errors import RemoteError
from .running_job import RunningJob, Services

CALL, ABORT = b"C", b"A"
_NICE = 5  # the worker's event loop comes first where both want the same core
END_S = 3.0
"""How long a process has to end once it has no more calls, as threads of the user's may go on."""
READY, FAILED, DONE, TOUCH, PROGRESS = "ready", "failed", "done", "touch", "progress"


@dataclass(frozen=True, slots=True)
class Setup:
    """``functions``: pickled; to load them imports the user's modules. ``where``: of the queue that handlers use;
    pickled, or why it can't be.
    """

    functions: bytes
    where: bytes | str
    inside: tuple[str, str, frozenset[str]]
    memory_bytes: int | None
    most_result_bytes: int


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Reads a body that the worker has decoded."""

    json: bytes
    version: int
    trace: str | None
    is_hidden: bool

    def decode(self, topic: str, id: str, raw: bytes) -> bytes:
        del topic, id, raw
        return self.json

    def version_in(self, raw: bytes) -> int:
        del raw
        return self.version

    def trace_in(self, raw: bytes) -> str | None:
        del raw
        return self.trace

    def hides(self, raw: bytes) -> bool:
        del raw
        return self.is_hidden

    def blocks(self, raw: bytes) -> bool:
        del raw
        return False


@dataclass(frozen=True, slots=True)
class _SentJob:
    """A job on its way to the child. ``deadline``: on the host's monotonic clock, which processes share."""

    fields: dict[str, Any]
    decoded: _Decoded | None
    deadline: float
    ttr_ms: int
    is_aborted: bool

    @classmethod
    def of(cls, held: ClaimedJob) -> _SentJob:
        job = held.job
        decoded = None
        if job.raw_body[:1] == ENCODED:
            decoded = _Decoded(job.json, job.version, job.trace, job.is_hidden)
        values = {field.name: getattr(job, field.name) for field in fields(Job)}
        return cls(values, decoded, held.deadline, held.touch_ms or held.ttr_ms, held.aborted)

    def held(self) -> ClaimedJob:
        job = RunningJob(**self.fields)
        job.read_by(self.decoded)
        job.aborted = self.is_aborted
        nowhere: Any = None
        return ClaimedJob(
            nowhere, "", job, b"", b"", job.due_ms, ttr_ms=self.ttr_ms, deadline=self.deadline, begun=True
        )


@dataclass(frozen=True, slots=True)
class Call:
    """``keep``: whether what the handler returns is sent back."""

    handler: Handler
    bodies: Sequence[Any]
    jobs: Sequence[_SentJob]
    keep: bool

    @classmethod
    def of(cls, handler: Handler, held: Sequence[ClaimedJob], bodies: Sequence[Any], *, keep: bool) -> Call:
        return cls(handler.bare, bodies, [_SentJob.of(one) for one in held] if handler.wants_job else [], keep)


def main(connection: Connection, setup: Setup) -> None:
    """Runs calls until the worker closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stay)
    try:
        os.nice(_NICE)
        if setup.memory_bytes is not None:
            _limit_memory(setup.memory_bytes)
        pickle.loads(setup.functions)  # noqa: S301 - of the worker
        child = _Child(connection, setup)
    except BaseException as error:
        connection.send((FAILED, f"{type(error).__name__}: {error}"))
        raise
    connection.send((READY,))
    child.run()


def _stay(_number: int, _frame: Any) -> None:
    """The worker gets the same signal from the terminal or systemd, and drains; it ends this process."""


def _limit_memory(most_bytes: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))


class _Child:
    def __init__(self, connection: Connection, setup: Setup) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._calls: SimpleQueue[bytes | None] = SimpleQueue()
        self._is_busy = False
        self._held: list[ClaimedJob] = []
        self._services = Services(self._touch, self._report, _queues_of(setup.where))
        self._inside = Inside(*setup.inside)
        self._most_result_bytes = setup.most_result_bytes

    def run(self) -> None:
        threading.Thread(target=self._read, name="streamdq-worker", daemon=True).start()
        while (data := self._calls.get()) is not None:
            done = copy_context().run(self._answer, data)
            self._is_busy = False
            self._send(DONE, done)
            del data, done

    def _read(self) -> None:
        try:
            while True:
                message = self._connection.recv_bytes()
                if message[:1] == CALL:
                    self._is_busy = True
                    self._calls.put(message[1:])
                else:
                    self._aborted(int(message[1:]))
        except Exception:  # as when memory does not suffice for a call
            if self._is_busy:
                os._exit(1)
            self._calls.put(None)
            time.sleep(END_S)
            os._exit(1)

    def _send(self, *message: Any) -> None:
        with self._sending:
            self._connection.send(message)

    # -- a call

    def _answer(self, data: bytes) -> bytes:
        """The result or the exception, pickled."""
        try:
            call: Call = pickle.loads(data)  # noqa: S301 - of the worker
        except BaseException as error:
            return pickle.dumps((None, RemoteError.of(error)))
        inside.set(self._inside)
        self._held = [job.held() for job in call.jobs]
        for held in self._held:
            job: Any = held.job
            job._held, job._services = held, self._services
        result, raised = _call(call, [held.job for held in self._held])
        for held in self._held:
            held.ended = True
        if raised is not None:
            return pickle.dumps((None, RemoteError.of(raised)))
        if not call.keep:
            return pickle.dumps((None, None))
        jobs = None if call.handler.batch is None else len(call.bodies)
        return pickle.dumps((written_results(result, jobs, self._most_result_bytes), None))

    # -- what its jobs can do

    def _touch(self, held: ClaimedJob, ttr: Duration | None) -> None:
        ttr_ms = held.ttr_ms if ttr is None else check_ttr(ttr)
        held.touch_ms, held.deadline = ttr_ms, time.monotonic() + ttr_ms / 1000
        self._tell(TOUCH, held, ttr)

    def _report(self, held: ClaimedJob, report: str) -> None:
        self._tell(PROGRESS, held, report)

    def _tell(self, kind: str, held: ClaimedJob, what: Any) -> None:
        with self._sending:
            if not held.ended:  # after the answer, the worker would take it for one of the next call
                self._connection.send((kind, self._held.index(held), what))

    def _aborted(self, number: int) -> None:
        if number < len(self._held):
            job: Any = self._held[number].job
            job.aborted = True


def _call(call: Call, jobs: list[Job]) -> tuple[Any, BaseException | None]:
    handler = call.handler
    if handler.batch is None:
        result, raised = called(handler.call, call.bodies[0], jobs[0] if jobs else None)
    else:
        result, raised = called(handler.call, call.bodies, jobs)
    if raised is None and not is_complete(result):
        drop(result)
        return None, TypeError(f"with process=True a handler can't return a {type(result).__name__}: nothing awaits it")
    return result, raised


def _queues_of(where: bytes | str) -> HandlerQueues:
    if isinstance(where, str):
        return _NoQueues(where)
    found: Where = pickle.loads(where)  # noqa: S301 - of the worker
    return HandlerQueues(found)


class _NoQueues(HandlerQueues):
    def __init__(self, why: str) -> None:
        self._why = why

    def blocking(self) -> Any:
        raise InvalidInput(f"job.queue: can't be used in another process: {self._why}; open a Queue in the handler")
