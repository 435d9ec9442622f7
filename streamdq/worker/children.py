"""The processes of handlers with ``process=True``, as the worker sees them (child.py is their side).

Each call takes a process of its own for its time, over a connection of its own. So a process that crashes, or is killed
because a TTR has passed, takes no other job along. A thread of the worker waits for it, as for a ``def`` handler, and
does what the handler asks for. A job is claimed only when a process is ready: importing the user's code counts against
no TTR.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
import time
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ..errors import HandlerProcessDied, InvalidInput
from ..forks import renew_in_child
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.error_text import text_of
from ..operations.results.inside import Inside
from ..process.logs import log
from ..threads import HandlerThreads, ThreadOf
from .child import ABORT, CALL, DONE, END_S, FAILED, READY, TOUCH, Call, Setup, main
from .handlers import Handler
from .member import Where
from .process_pool import ProcessPool
from .running_job import Services, may_start

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


class Child:
    """One process. It is starting until ``begin`` has returned."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=main, args=(self._theirs, setup), name="streamdq-handler")
        self._sending = threading.Lock()
        self._closing = threading.Lock()  # so that what is shut down is not another file that has the number by now
        self._has_ended = False
        self.calls = 0

    def begin(self) -> None:
        """
        Raises:
            HandlerProcessDied: it can't import the handlers, or has ended.
        """
        try:
            self._process.start()
            self._theirs.close()
            kind, *rest = self._connection.recv()
        except EOFError:
            raise self.died("ended before it was ready, and has written why to stderr") from None
        except OSError as error:
            raise self.died(f"did not start: {error}") from None
        if kind == FAILED:
            self.end()
            raise HandlerProcessDied(f"a process for handlers can't start: {rest[0]}")
        assert kind == READY

    def send(self, kind: bytes, data: bytes) -> None:
        with self._sending:
            self._connection.send_bytes(kind + data)

    def send_at_once(self, kind: bytes, data: bytes) -> None:
        """As ``send``, but never waits, as the event loop calls it: what a process does not read is not sent."""
        if self._sending.acquire(blocking=False):
            try:
                writable = select.poll()
                writable.register(self._connection.fileno(), select.POLLOUT)
                if writable.poll(0):
                    self._connection.send_bytes(kind + data)
            finally:
                self._sending.release()

    @property
    def has_ended(self) -> bool:
        """Of one without a call: it would send nothing."""
        return self._connection.poll()

    def receive(self) -> Any:
        return self._connection.recv()

    def kill(self) -> None:
        with suppress(AttributeError):  # it has not been started
            self._process.kill()
        # Processes that the handler has forked hold the other end open, so that it would not end for who waits here.
        with self._closing, suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as pipe:
            pipe.shutdown(socket.SHUT_RDWR)

    def died(self, how: str = "ended") -> HandlerProcessDied:
        """The error, once it has ended."""
        code = self.end()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}" + (", as when memory is full" if name == "SIGKILL" else "")
        return HandlerProcessDied(f"the process of the handler {how} (exit code {code})")

    def close(self) -> None:
        """Asks it to end."""
        with self._closing:
            self._connection.close()

    def leave(self) -> None:
        """In a forked child of the worker: it must not hold the pipe open when the worker is gone."""
        self._connection.close()

    def end(self, within_s: float = END_S) -> int | None:
        """Waits until it has ended, and kills it if that takes long; returns the exit code."""
        if self._has_ended:
            return None
        self._has_ended = True
        self.close()
        self._theirs.close()
        if self._process.pid is None:
            return None
        self._process.join(within_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return self._process.exitcode  # without `close`: when the worker ends, another thread may wait for it as well


class Children:
    """All processes of one worker. ``changed`` is called, in any thread, when there may be another number of ready
    ones.
    """

    def __init__(
        self, pool: ProcessPool, most: int, handlers: Iterable[Handler], where: Where, of: Inside,
        services: Services, changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.services = services
        self._most = min(most, pool.processes)
        self._max_calls = pool.max_calls or float("inf")
        topics = frozenset(handler.topic for handler in handlers)
        self._setup = Setup(
            _functions(handlers), _sent(where), (of.namespace, of.group, topics), pool.memory_bytes,
            where.settings.max_decoded_bytes,
        )  # fmt: skip
        self._changed = changed
        self._idle: deque[Child] = deque()
        self._busy: set[Child] = set()
        self._starting: set[Child] = set()
        self._to_start = 0
        self._threads = HandlerThreads(2 * self._most)  # in which they start and end
        self._state = threading.Condition()
        self._closed = threading.Event()
        renew_in_child(self)

    def after_fork(self) -> None:
        for child in (*self._idle, *self._busy, *self._starting):
            child.leave()

    @property
    def ready(self) -> int:
        """How many calls can run at once now."""
        return len(self._idle) + len(self._busy)

    def call_of(self, held: Sequence[ClaimedJob]) -> ProcessCall:
        return ProcessCall(self, held)

    def begin(self) -> None:
        """Starts one; others follow when no ready one is idle.

        Raises:
            HandlerProcessDied: the user's modules can't be imported in another process.
            RuntimeError: the system starts no thread.
        """
        self._threads.begin()
        self._begin_one()

    def _begin_one(self) -> None:
        try:
            child = Child(self._setup)
        except OSError as error:
            raise HandlerProcessDied(f"a process for handlers can't start: {error}") from None
        with self._state:
            if self._closed.is_set():
                return
            self._starting.add(child)
        try:
            child.begin()
        finally:
            with self._state:
                self._starting.discard(child)
        with self._state:
            if not (late := self._closed.is_set()):
                self._idle.append(child)
                self._state.notify()
        if late:
            child.end()

    def take(self, until: float) -> Child | None:
        """A ready one; None: there is none until then, on the monotonic clock."""
        with self._state:
            while self._state.wait_for(lambda: self._idle, max(0.0, until - time.monotonic())):
                child = self._idle.pop()
                has_ended = child.has_ended
                if has_ended:  # it was killed meanwhile
                    self._threads.submit(child.end)
                else:
                    self._busy.add(child)
                self._start_another()
                if not has_ended:
                    return child
            return None

    def give_back(self, child: Child, *, is_free: bool) -> None:
        """``is_free``: it lives, and has answered its call. If it has to end, the answer does not wait for that."""
        child.calls += 1
        with self._state:
            self._busy.discard(child)
            if not (late := self._closed.is_set()):
                if is_free and child.calls < self._max_calls:
                    self._idle.append(child)
                    self._state.notify()
                else:
                    self._start_another()
                    self._threads.submit(child.end)
        if late:
            child.end()
        self._changed()

    def lose(self, child: Child) -> None:
        """It is being killed: it takes no more calls."""
        with self._state:
            self._busy.discard(child)

    def _start_another(self) -> None:
        if not self._idle and self.ready + self._to_start < self._most and not self._closed.is_set():
            self._to_start += 1
            self._threads.submit(self._start)

    def _start(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                self._begin_one()
                break
            except Exception as error:
                if not self._closed.is_set():
                    log.error("a process for handlers did not start", error=text_of(error), next_try_s=pause_s)
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        with self._state:
            self._to_start -= 1
        self._changed()

    def close(self) -> Future[None]:
        """Asks the idle ones to end, and kills the others. The Future is done when the idle ones have ended."""
        self._closed.set()
        with self._state:
            idle, others = list(self._idle), [*self._busy, *self._starting]
            self._idle.clear()
            ending = self._threads.submit(_end_all, idle)
        for child in others:
            child.kill()
        self._threads.shutdown()
        return ending


def _end_all(children: Sequence[Child]) -> None:
    for child in children:
        child.close()
    until = time.monotonic() + END_S
    for child in children:
        child.end(max(0.0, until - time.monotonic()))


class ProcessCall(ThreadOf):
    """A call of a handler: the thread that waits for it, and the process where it runs."""

    __slots__ = ("_child", "_children", "_held", "_is_stopped", "_lock")

    def __init__(self, children: Children, held: Sequence[ClaimedJob]) -> None:
        super().__init__()
        self._children = children
        self._held = held
        self._child: Child | None = None
        self._is_stopped = False
        self._lock = threading.Lock()  # so that no process is killed that has another call already

    def stop(self) -> bool:
        """The attempt is over: kills the process."""
        with self._lock:
            self._is_stopped = True
            if self._child is not None:
                self._children.lose(self._child)
                self._child.kill()
        return True

    def abort(self, held: ClaimedJob) -> None:
        """The handler can see that somebody has aborted the job."""
        with self._lock, suppress(OSError):  # it has ended
            if self._child is not None and held in self._held:
                self._child.send_at_once(ABORT, str(self._held.index(held)).encode())

    def carry_out(
        self, handler: Handler, held: list[ClaimedJob], bodies: list[Any], keep: bool
    ) -> tuple[Any, BaseException | None]:
        """What the handler returns, and what it raises; in the thread. Without a process in time, no job begins."""
        child = self._children.take(min(one.start_by for one in held))
        if child is None:
            return None, None
        with self._lock:
            self._child = child
        held, bodies = may_start(held, bodies)
        self._held = held
        is_free = True
        try:
            if not held:
                return None, None
            try:
                data = pickle.dumps(Call.of(handler, held, bodies, keep=keep))
            except Exception as error:
                return None, error
            if self._is_stopped:
                return None, CancelledError()
            is_free = False
            child.send(CALL, data)
            answered = self._answer(child)
            is_free = True
            return answered
        except (EOFError, OSError):
            return None, child.died()
        finally:
            self._give_back(child, is_free=is_free)

    def _answer(self, child: Child) -> tuple[Any, BaseException | None]:
        services = self._children.services
        while True:
            kind, *rest = child.receive()
            if kind == DONE:
                return _loaded(rest[0])
            held = self._held[rest[0]]
            (services.touch if kind == TOUCH else services.report)(held, rest[1])

    def _give_back(self, child: Child, *, is_free: bool) -> None:
        with self._lock:
            self._child = None
            is_free = is_free and not self._is_stopped
        self._children.give_back(child, is_free=is_free)


def _loaded(done: bytes) -> tuple[Any, BaseException | None]:
    result, error = pickle.loads(done)  # noqa: S301 - of this worker's process
    return result, None if error is None else error.exception()


def _functions(handlers: Iterable[Handler]) -> bytes:
    """
    Raises:
        InvalidInput: another process can't import one of them.
    """
    functions = []
    for handler in handlers:
        try:
            pickle.dumps(handler.function)
        except Exception as error:
            raise InvalidInput(
                f"handler of {handler.topic!r}: process=True needs a function at the top of a module, with no other "
                f"decorator above worker.handler: {error}"
            ) from None
        functions.append(handler.function)
    return pickle.dumps(functions)


def _sent(where: Where) -> bytes | str:
    if (where.url or where.settings.url).startswith("memory:"):
        return "memory:// lives in one process"
    try:
        return pickle.dumps(where)
    except Exception as error:
        return str(error)
