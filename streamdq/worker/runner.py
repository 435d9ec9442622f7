"""Runs attempts: checks the bodies, calls the handlers, in the event loop or in threads, and ends the attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from ..job.job import ENCODED, Job
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.ends import lost_too_often
from ..operations.attempts.error_text import is_a, text_of
from ..operations.attempts.returned import each_result, kept_result
from ..operations.results.inside import Inside, inside
from ..process.logs import log, what
from ..threads import HandlerThreads, ThreadOf
from .deadline import Deadlines, returned_by
from .ends import Ends
from .handlers import Handler, called, completed, drop, is_complete, run, run_keeping
from .member import Member, Where
from .middleware import Attempt, Middleware, listen, run_middleware
from .process_pool import ProcessPool
from .queues import HandlerQueues
from .running_job import RunningJob, Services, begin_attempt, may_start
from .slots import Slots

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .children import Children

_IGNORES_CANCEL_S = 1.0  # how long the drain waits for a handler that ignores its cancellation
_is_elsewhere = attrgetter("job.is_elsewhere")


class Returned:
    """What a handler returns; if it never does, as a middleware has not called it, None. ``is_encoded``: its jobs have
    what is kept of it.
    """

    __slots__ = ("is_encoded", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.is_encoded = False

    def keep(self, value: Any) -> None:
        self.value = value


class Runner:
    """``queues``: those of running jobs. ``middleware``: around each call of a handler."""

    def __init__(
        self,
        member: Member,
        handlers: Mapping[str, Handler],
        slots: Slots,
        deadlines: Deadlines,
        ends: Ends,
        queues: HandlerQueues,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._member = member
        self._handlers = handlers
        self._slots = slots
        self._deadlines = deadlines
        self._running = deadlines.running
        self._ends = ends
        self._services = Services(deadlines.touch, deadlines.report, queues)
        self._middleware = middleware
        self._with_files = member.session.bodies.files is not None
        self._threads = HandlerThreads(slots.concurrency)
        self._children: Children | None = None
        self._killed: set[asyncio.Future[Any]] = set()  # calls whose process is about to end
        self._loop = asyncio.get_running_loop()
        self.use_context()

    def use_context(self) -> None:
        """From now on, each attempt starts in a copy of the present context, and is known as one of this worker."""
        self.context = copy_context()
        self.context.run(inside.set, Inside(self._member.namespace, self._member.group, self._handlers))

    def begin(self) -> None:
        """A worker whose system starts no thread ends before it claims jobs: each would fail, and use up its retries.

        Raises:
            RuntimeError: handlers need threads, and the system starts none.
        """
        if self._with_files or not all(handler.is_async for handler in self._handlers.values()):
            self._threads.begin()

    async def begin_processes(self, pool: ProcessPool, where: Where, changed: Callable[[], None]) -> None:
        """For handlers that run in processes, if there are any. ``changed``: is called in the loop when there may be
        another number of processes.

        Raises:
            InvalidInput, HandlerProcessDied: another process can't import such a handler.
        """
        handlers = [handler for handler in self._handlers.values() if handler.process]
        if not handlers:
            return
        from .children import Children  # few workers need it

        of = Inside(self._member.namespace, self._member.group, self._handlers)

        def notify() -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(changed)

        self._children = Children(pool, self._slots.concurrency, handlers, where, of, self._services, notify)
        await self._loop.run_in_executor(self._threads, self._children.begin)

    async def end_processes(self) -> None:
        """Whatever has become of their calls."""
        if self._children is not None:
            await asyncio.wrap_future(self._children.close())

    def process_room(self) -> int | None:
        """How many more calls in processes can start at once; None: no handler has any."""
        if self._children is None:
            return None
        topics = [*self._slots.topics_in_line(), *(held[0].job.topic for held in self._running.values())]
        return max(0, self._children.ready - sum(self._handlers[topic].process for topic in topics))

    @property
    def idle(self) -> bool:
        return not self._running and not self._slots.is_any_waiting

    def take(self, held: list[ClaimedJob]) -> None:
        """Runs jobs of one topic as soon as slots are free."""
        self._slots.put(held)
        self._start()

    def _start(self) -> None:
        for held in self._slots.filled():
            # Not in the context of the code that has made room: that may be another attempt's thread.
            attempt = self._attempt(self._handlers[held[0].job.topic], held)
            task = self._loop.create_task(attempt, context=self.context.copy())
            self._running[task] = held
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        try:
            error = None if task.cancelled() else task.exception()
            for held in self._running.pop(task):
                if not held.ended:  # the task was cancelled before its first step, or failed outside the handler
                    if error is not None:
                        naming = self._member.naming(held.job)
                        log.error("attempt failed outside its handler", error=what(error), **naming)
                    self._ends.end(held, self._ends.raised(held, asyncio.CancelledError() if error is None else error))
        finally:
            self._free_slot()

    def _free_slot(self) -> None:
        self._slots.busy -= 1
        self._start()
        self._slots.freed.set()

    async def _attempt(self, handler: Handler, held: list[ClaimedJob]) -> None:
        started, now_ms, services = time.monotonic(), self._ends.clock.now_ms(), self._services
        for one in held:
            one.started, one.started_ms = started, max(now_ms, one.due_ms)
            self._deadlines.begins(one)
            begin_attempt(one, services)
        if self._with_files and any(map(_is_elsewhere, held)):
            await self._fetch(held)
        fit, bodies = self._check(handler, held)
        if not fit:
            return
        returned = Returned() if self.keeps(handler.topic) else None
        if self._middleware:
            error = await self._through_middleware(handler, fit, bodies, returned)
        else:
            error = await self._handled(handler, fit, bodies, returned)
        if returned is not None and error is None and not returned.is_encoded:
            error = await self._encode(handler, fit, returned.value)
        ended = time.monotonic()
        self._slots.took(started, ended)
        self._end(fit, error, ended - started)

    def _end(self, fit: Sequence[ClaimedJob], error: BaseException | None, took_s: float) -> None:
        ends = self._ends
        for one in fit:
            if one.begun:
                ends.end(one, ends.returned(one, error), took_s)
            else:
                ends.end(one, ends.too_late(one))

    def _check(self, handler: Handler, held: list[ClaimedJob]) -> tuple[list[ClaimedJob], list[Any]]:
        """The jobs whose bodies the handler's type accepts, with these bodies. Ends the attempts of the others."""
        fit, bodies, upcasts = [], [], handler.upcasts
        for one in held:
            if one.crashes:
                end = lost_too_often(one, self._member.topics.settings_of(one.job.topic).max_deliveries)
                if end is not None:
                    self._ends.end(one, end)
                    continue
            raw = one.job.raw_body
            try:
                bodies.append(handler.accept(one.job) if raw[:1] == ENCODED or upcasts else handler.validate(raw))
            except BaseException as error:  # whatever the user's code raises
                self._ends.end(one, self._ends.refused(one, error))
            else:
                fit.append(one)
        return fit, bodies

    def _handled(
        self, handler: Handler, fit: list[ClaimedJob], bodies: list[Any], returned: Returned | None
    ) -> Coroutine[Any, Any, BaseException | None]:
        """Calls the handler; the exception that it raises."""
        if not handler.is_async:
            return self._in_thread(handler, fit, bodies, returned)
        if returned is not None:
            return run_keeping(returned.keep, _call, handler, fit, bodies)
        return run(_call, handler, fit, bodies)

    # -- what it returns

    def keeps(self, topic: str) -> bool:
        """Whether what handlers of the topic return is kept."""
        own = self._member.topics.settings_of(topic).groups.get(self._member.group)
        return own is not None and bool(own.result_ms)

    async def _encode(self, handler: Handler, fit: Sequence[ClaimedJob], value: Any) -> BaseException | None:
        """As ``_keep``, which blocks if there is a storage of large bodies. Returns what it has raised; or the
        exception with which it was cancelled, as the TTR has passed.
        """
        if self._member.session.bodies.offload is None:
            return called(self._keep, handler, fit, value)[1]
        begun = [one for one in fit if one.begun]
        try:
            return (await self._threaded(begun, called, self._keep, handler, fit, value))[1]
        except asyncio.CancelledError as cancelled:
            return cancelled

    def _keep(self, handler: Handler, fit: Sequence[ClaimedJob], value: Any) -> None:
        """Gives each job what is kept of what its handler has returned."""
        begun = [one for one in fit if one.begun]
        bodies, group = self._member.session.bodies, self._member.group
        try:
            values = each_result(value, len(begun)) if handler.batch is not None else [value]
        except TypeError as error:
            for one in begun:
                one.result = self._ends.result_refused(one, text_of(error))
            return
        for one, each in zip(begun, values, strict=False):
            stored, why = kept_result(bodies, handler.topic, group, one.job.id, each)
            one.result = self._ends.result_refused(one, why) if why else stored

    def _kept_at_once(
        self, returned: Returned, handler: Handler, fit: Sequence[ClaimedJob], call: Callable[..., Any], *args: Any
    ) -> tuple[Any, BaseException | None]:
        """The call, in its thread, and there also what is kept of its value: if the loop is blocked, the attempt ends
        without it (Deadlines.overdue).
        """
        value, error = call(*args)
        if error is None and is_complete(value):
            error = called(self._keep, handler, fit, value)[1]
            returned.is_encoded = True
        return value, error

    async def _through_middleware(
        self, handler: Handler, fit: list[ClaimedJob], bodies: list[Any], returned: Returned | None
    ) -> BaseException | None:
        called, raised = False, None

        async def call() -> BaseException | None:
            nonlocal called, raised
            called = True
            raised = await self._handled(handler, fit, bodies, returned)
            return raised

        first = fit[0]
        late_ms = first.started_ms - first.due_ms
        jobs = cast("list[RunningJob]", [one.job for one in fit])
        attempt = Attempt(handler.topic, self._member.group, jobs, late_ms, first.crashes)
        listen(attempt, fit)
        error = await run(run_middleware, self._middleware, attempt, call)
        if not called:  # that was its decision, not the clock's
            for one in fit:
                one.begun = True
        was_cut = self._ends.is_stopped() or any(map(_is_cut, fit))
        if error is None and was_cut and is_a(raised, asyncio.CancelledError):
            return raised  # the handler was stopped halfway: to catch that doesn't make it done
        return error

    # -- in threads

    async def _in_thread(
        self, handler: Handler, fit: list[ClaimedJob], bodies: list[Any], returned: Returned | None
    ) -> BaseException | None:
        process: ThreadOf | None = None
        call: tuple[Any, ...] = called, _call, handler, fit, bodies
        if self._children is not None and handler.process:
            process = child = self._children.call_of(fit)
            call = child.carry_out, handler, fit, bodies, returned is not None
        if returned is not None:
            call = self._kept_at_once, returned, handler, fit, *call
        try:
            result, error = await self._threaded(fit, *call, thread=process)
        except asyncio.CancelledError as cancelled:
            return cancelled
        keep = None if returned is None else returned.keep
        return await completed(result, keep) if error is None else error

    async def _fetch(self, held: list[ClaimedJob]) -> None:
        """Reads the bodies that are in files. The TTR counts meanwhile."""

        def fetch() -> None:
            for one in held:
                one.job.fetch()

        await self._threaded(held, called, fetch)

    async def _threaded(
        self, held: list[ClaimedJob], *call: Any, thread: ThreadOf | None = None
    ) -> tuple[Any, BaseException | None]:
        thread = thread or ThreadOf()
        future = self._threads.submit(thread.run, *call)
        running = asyncio.wrap_future(future, loop=self._loop)
        for one in held:
            one.runs_in = thread
            if not self._middleware:  # which the loop has to go on with
                one.thread = future
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The loop may not know yet that the handler has returned.
            if any(one.begun for one in held) and (returned := returned_by(future)) is not None:
                return returned
            self._give_up(running, future, thread, held[0].job)
            raise
        finally:
            for one in held:
                one.thread = one.runs_in = None

    def _give_up(self, running: asyncio.Future[Any], future: Future[Any], thread: ThreadOf, job: Job) -> None:
        """A call that no thread has begun never will; a thread can't be cancelled, and keeps its slot until it ends."""
        if running.done():
            drop(running.result()[0])
            return
        if future.cancel():
            return
        if thread.stop():
            self._killed.add(running)
            running.add_done_callback(self._killed.discard)
        self._slots.busy += 1
        running.add_done_callback(self._thread_ended)
        self._deadlines.hung.add(running, thread, job)

    def _thread_ended(self, thread: asyncio.Future[Any]) -> None:
        if not thread.cancelled():
            drop(thread.result()[0])  # the attempt was given up, so its returned coroutine must not run
        self._free_slot()

    # -- stopping

    async def drain(self, grace_s: float) -> None:
        """Hands back waiting jobs. Running handlers have ``grace_s`` to finish; then they are cancelled and their jobs
        handed back.
        """
        self._ends.is_draining = True
        self._slots.drain()
        if self._running:
            log.info("draining", running=len(self._running), grace_s=grace_s)
            await asyncio.wait(self._running, timeout=grace_s)
        late = list(self._running)
        for task in late:
            task.cancel()
        if late:
            _, unfinished = await asyncio.wait(late, timeout=_IGNORES_CANCEL_S)
            for task, held in [(each, one) for each in unfinished for one in self._running[each]]:
                self._deadlines.hung.add_uncancellable(task, held.job)
                self._ends.release(held)
        if self._killed:
            await asyncio.wait(self._killed, timeout=_IGNORES_CANCEL_S)

    def hurry(self) -> None:
        """Ends the grace period: running handlers are cancelled now."""
        self._ends.is_draining = True
        for task in self._running:
            task.cancel()

    def close(self) -> None:
        """Shuts the threads down."""
        self._slots.close()
        self._threads.shutdown()


def _is_cut(held: ClaimedJob) -> bool:
    return (held.late or held.aborted) and not held.ended


def _call(handler: Handler, fit: list[ClaimedJob], bodies: list[Any]) -> Any:
    """Calls the handler, in the thread where it runs, with the jobs that may still start."""
    fit, bodies = may_start(fit, bodies)
    if not fit:
        return None
    if handler.batch is None:
        return handler.call(bodies[0], fit[0].job)
    return handler.call(bodies, [one.job for one in fit])
