"""Runs handlers on claimed jobs: gives them slots, watches their TTR, and decides how each attempt ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from operator import attrgetter
from typing import Any

from pydantic import ValidationError

from ..config import MAX_BATCH
from ..errors import BodyUnreadable
from ..job.job import ENCODED, GroupProgress, Job, JobState, Queues, begin_attempt, check_ttr, end_attempt
from ..operations.attempts import (
    DeadReason,
    End,
    Held,
    Outcome,
    failed,
    hide,
    tell_calls,
    too_late,
    unreadable,
)
from ..operations.failures import is_a, text_of, why_invalid
from ..process.logs import log, way, what, where, where_called
from ..store.topics import Topics
from ..threads import HandlerThreads
from ..times.durations import Duration
from .ends_logged import log_end, passed
from .handlers import Handler
from .hung import HungHandlers, ThreadOf
from .middleware import Attempt, Middleware, listen, tell, through
from .on_dead import DeadLetterNotices
from .user_functions import called, completed, drop, is_complete, run
from .watchdog import Watchdog

_DEAF_S = 1.0  # how long the drain waits for a handler that ignores its cancellation
_AHEAD_S = 0.02  # how much work may be claimed ahead of free slots
_HOLD_S = 0.05  # how long such jobs may wait for a slot
_COMPLAIN_S = 10.0  # between warnings of bodies that can't be read
_NO_MORE_S = 1.0  # how long nothing is claimed ahead after jobs had to go back


_DONE = Outcome.DONE  # each look into the class of an Enum takes as long as a call
_is_elsewhere = attrgetter("job.is_elsewhere")


class RecentCount:
    """Counts the attempts that ended within a recent span of time."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._since = 0.0
        self._before = self._now = 0

    def count(self, now: float) -> None:
        if now - self._since >= self._span_s:
            self._roll(now)
        self._now += 1

    def recent(self) -> int:
        now = time.monotonic()
        if now - self._since >= self._span_s:
            self._roll(now)
        return max(self._before, self._now)

    def _roll(self, now: float) -> None:
        self._before = self._now if now - self._since < 2 * self._span_s else 0
        self._since, self._now = now, 0


def _is_up(attempts: Iterable[Held], now: float) -> bool:
    """Whether the TTR of one of them passes: then the call that makes them is cancelled for all."""
    return any(one.begun and not one.ended and now >= one.cut_at for one in attempts)


class Runner:
    """At most ``concurrency`` handler calls at once; jobs that were claimed ahead wait here for a slot."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        group: str,
        concurrency: int,
        topics: Topics,
        now_ms: Callable[[], int],
        consumer: str,
        *,
        ended: Callable[[End], None],
        touched: Callable[[Held, int], None],
        gave_back: Callable[[str, int], None],
        on_dead: Iterable[Callable[..., Any]],
        queues: Queues,
        hung: HungHandlers,
        with_files: bool = False,
        show_errors: bool = True,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """``now_ms``: Redis's time. ``consumer``: its name, for the log. ``ended`` and ``touched`` report to Redis.
        ``gave_back`` is told of a topic's jobs that go back without having started. ``queues``: those of running jobs.
        ``hung``: is told of threads that go on when their attempts have ended.
        ``with_files``: bodies may be in files. ``show_errors``: log and keep the messages and tracebacks of exceptions.
        ``middleware``: around each call of a handler.
        """
        self._handlers = handlers
        self._group = group
        self._concurrency = concurrency
        self._topics = topics
        self._now_ms = now_ms
        self._consumer = consumer
        self._queues = queues
        self._with_files = with_files
        self._show_errors = show_errors
        self._middleware = middleware
        self._tell_ended = ended
        self._tell_touched = touched
        self._tell_gave_back = gave_back
        self._notices = DeadLetterNotices(on_dead, self._naming)
        self._waiting: deque[tuple[float, list[Held]]] = deque()  # (arrival, jobs of one call)
        self._running: dict[asyncio.Task[None], list[Held]] = {}
        self._in_threads: dict[Held, Future[Any]] = {}  # the calls under way there
        self._ending = threading.Lock()  # an attempt ends once, here or in the thread of the signs
        self._watchdog = Watchdog(self._running, self._give_up_late)
        self.watch = self._watchdog.run
        self._draining = False
        self._busy = 0  # running calls, and threads that still run after their call was cancelled
        self._mean_s = 1.0
        self._ended_lately = RecentCount(_AHEAD_S)
        self._gave_up_at = self._no_more_until = self._complain_at = 0.0
        self._giving_up: asyncio.TimerHandle | None = None
        self._threads = HandlerThreads(concurrency)
        self._loop = asyncio.get_running_loop()
        self.hung = hung
        self.freed = asyncio.Event()
        self.context = copy_context()  # each attempt starts in a copy of it

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    def room(self, *, ahead: bool) -> tuple[int, int]:
        """How many more handler calls can be taken, and how many of them start at once, in free slots. With ``ahead``,
        the first number includes a few milliseconds' worth of short jobs, so that the next claim is under way while
        these run.
        """
        in_hand = self._busy + len(self._waiting)
        free = max(0, self._concurrency - in_hand)
        most = max(0, self._concurrency + (self._ahead() if ahead else 0) - in_hand)
        # While many jobs are in hand, a claim waits until it is worth its round trip.
        return (0 if in_hand > MAX_BATCH and most < MAX_BATCH // 2 else most), free

    def _ahead(self) -> int:
        """How many jobs will probably start within a few milliseconds: no more than have just ended, because all
        handlers may be stuck now; none if jobs take long on average.
        """
        if self._mean_s > _AHEAD_S or time.monotonic() < self._no_more_until:
            return 0
        return min(
            2 * MAX_BATCH, int(_AHEAD_S / max(self._mean_s, 1e-6)) * self._concurrency, self._ended_lately.recent()
        )

    def take(self, held: list[Held]) -> None:
        """Runs jobs of one topic as soon as slots are free. Their TTR is already running."""
        if self._draining or held[0].deadline - held[0].ttr_ms / 1000 < self._gave_up_at:
            self._release(
                held
            )  # it stops; or earlier jobs were handed back since, and starting these would overtake them
            return
        handler = self._handlers[held[0].job.topic]
        size, arrived = handler.batch or 1, time.monotonic()
        for i in range(0, len(held), size):
            self._waiting.append((arrived, held[i : i + size]))
        self._start()
        self._give_up_at_last()

    def _start(self) -> None:
        if not self._waiting:
            return
        now = time.monotonic()
        while self._waiting and self._busy < self._concurrency:
            held = self._in_time(self._waiting.popleft()[1], now)
            if not held:
                continue
            self._busy += 1
            # Not in the context of whoever has made room: that may be another attempt's thread.
            attempt = self._attempt(self._handlers[held[0].job.topic], held)
            task = self._loop.create_task(attempt, context=self.context.copy())
            self._running[task] = held
            task.add_done_callback(self._done)

    # -- jobs that were claimed ahead in vain

    def _give_up_at_last(self) -> None:
        if self._waiting and self._giving_up is None:
            due = self._waiting[0][0] + _HOLD_S - time.monotonic()
            self._giving_up = self._loop.call_later(max(0.0, due), self._give_up)

    def _give_up(self) -> None:
        """Hands back jobs that have waited too long for a slot: another worker may be idle."""
        self._giving_up = None
        until = time.monotonic() - _HOLD_S
        if self._waiting and self._waiting[0][0] <= until:
            self._gave_up_at = time.monotonic()
            self._no_more_until = self._gave_up_at + _NO_MORE_S
        while self._waiting and self._waiting[0][0] <= until:
            self._release(self._waiting.popleft()[1])
        self._give_up_at_last()

    def _release(self, held: list[Held]) -> None:
        self._tell_gave_back(held[0].job.topic, len(held))
        for one in held:
            self._end(one, End(one, Outcome.RELEASED), 0)

    def _in_time(self, held: list[Held], now: float) -> list[Held]:
        """The jobs that may still start. For others the time passed while they waited here, as after a SIGSTOP."""
        for one in held:
            if now >= one.start_by:
                self._too_late(one)
        return [one for one in held if not one.ended]

    def _too_late(self, held: Held) -> None:
        schedule = self._topics.settings_of(held.job.topic).retry_of(self._group)
        self._end(held, too_late(held, schedule, self._now_ms()), 0)

    def _done(self, task: asyncio.Task[None]) -> None:
        try:
            error = None if task.cancelled() else task.exception()
            for held in self._running.pop(task):
                if not held.ended:  # the task was cancelled before its first step, or failed outside the handler
                    if error is not None:
                        log.error("attempt failed outside its handler", error=what(error), **self._naming(held.job))
                    self._end(held, self._end_of(held, asyncio.CancelledError() if error is None else error), 0)
        finally:
            self._free_slot()

    def _free_slot(self) -> None:
        self._busy -= 1
        self._start()
        self.freed.set()

    # -- one attempt

    async def _attempt(self, handler: Handler, held: list[Held]) -> None:
        started = time.monotonic()
        now_ms, touch = self._now_ms(), self._touch
        for one in held:
            one.started, one.started_ms = started, max(now_ms, one.due_ms)
            self._watchdog.begins(one)
            begin_attempt(one.job, one, touch, self._queues)
        if self._with_files and any(map(_is_elsewhere, held)):
            await self._fetch(held)
        fit, bodies = self._check(handler, held)
        if not fit:
            return
        if self._middleware:
            error = await self._through_middleware(handler, fit, bodies)
        elif handler.is_async:
            error = await run(self._call, handler, fit, bodies)
        else:
            error = await self._in_thread(handler, fit, bodies)
        ended = time.monotonic()
        took_s = ended - started
        self._ended_lately.count(ended)
        self._mean_s += (took_s - self._mean_s) * 0.1
        for one in fit:
            if not one.begun:
                self._too_late(one)
            else:
                self._end(one, End(one, _DONE) if error is None else self._end_of(one, error), took_s)

    def _check(self, handler: Handler, held: list[Held]) -> tuple[list[Held], list[Any]]:
        """The jobs whose bodies the handler's type accepts, with these bodies. Ends the attempts of the others."""
        fit, bodies, upcasts = [], [], handler.upcasts
        for one in held:
            if one.crashes and one.crashes >= self._topics.settings_of(one.job.topic).max_deliveries:
                text = f"lost with its consumer {one.crashes} times in a row"
                self._end(one, End(one, Outcome.DEAD, text, reason=DeadReason.CRASHED), 0)
                continue
            raw = one.job.raw_body
            try:
                bodies.append(handler.accept(one.job) if raw[:1] == ENCODED or upcasts else handler.validate(raw))
            except BaseException as error:  # whatever the user's code raises
                self._refuse(one, error)
            else:
                fit.append(one)
        return fit, bodies

    def _refuse(self, held: Held, error: BaseException) -> None:
        """Ends an attempt whose body does not get as far as the handler."""
        if is_a(error, BodyUnreadable):
            self._complain(held, error)
            self._end(held, unreadable(held, error), 0)
        elif is_a(error, ValidationError):
            hidden = not self._show_errors
            why = why_invalid(error, hidden=held.job.is_hidden or hidden)
            self._end(held, End(held, Outcome.DEAD, why, reason=DeadReason.INVALID, hidden=hidden), 0)
        else:  # raised by the user's own validator or upcast function
            self._end(held, self._end_of(held, error), 0)

    def _complain(self, held: Held, error: BodyUnreadable) -> None:
        now = time.monotonic()
        if now >= self._complain_at:  # it may be so for every job, again and again
            self._complain_at = now + _COMPLAIN_S
            log.warning("a body can't be read here", why=error.why, **self._naming(held.job))

    def _call(self, handler: Handler, fit: list[Held], bodies: list[Any]) -> Any:
        """Calls the handler, in the thread where it runs, with the jobs that may still start. This is checked at the
        last moment, because the process may have been stopped since the claim: by now another worker may have the
        jobs, or they were cancelled, or their topic was paused.
        """
        now, on_time = time.monotonic(), True
        for one in fit:
            one.begun = now < one.start_by
            on_time = on_time and one.begun
        if not on_time:
            bodies = [body for one, body in zip(fit, bodies, strict=True) if one.begun]
            fit = [one for one in fit if one.begun]
            if not fit:
                return None
        if handler.batch is None:
            return handler.call(bodies[0], fit[0].job)
        return handler.call(bodies, [one.job for one in fit])

    async def _through_middleware(self, handler: Handler, fit: list[Held], bodies: list[Any]) -> BaseException | None:
        called, raised = False, None

        async def call() -> BaseException | None:
            nonlocal called, raised
            called = True
            raised = await self._called(handler, fit, bodies)
            return raised

        first = fit[0]
        late_ms = first.started_ms - first.due_ms
        attempt = Attempt(handler.topic, self._group, [one.job for one in fit], late_ms, first.crashes)
        listen(attempt, fit)
        error = await run(through, self._middleware, attempt, call)
        if not called:  # that was its decision, not the clock's
            for one in fit:
                one.begun = True
        was_cut = self._draining or any(one.late and not one.ended for one in fit)
        if error is None and was_cut and is_a(raised, asyncio.CancelledError):
            return raised  # the handler was stopped halfway: to catch that doesn't make it done
        return error

    async def _called(self, handler: Handler, fit: list[Held], bodies: list[Any]) -> BaseException | None:
        if handler.is_async:
            return await run(self._call, handler, fit, bodies)
        return await self._in_thread(handler, fit, bodies)

    async def _in_thread(self, handler: Handler, fit: list[Held], bodies: list[Any]) -> BaseException | None:
        try:
            result, error = await self._threaded(fit, called, self._call, handler, fit, bodies)
        except asyncio.CancelledError as cancelled:
            return cancelled
        return await completed(result) if error is None else error

    async def _fetch(self, held: list[Held]) -> None:
        """Reads the bodies that are in files. The TTR counts meanwhile."""

        def fetch() -> None:
            for one in held:
                one.job.fetch()

        await self._threaded(held, called, fetch)

    async def _threaded(self, held: list[Held], *call: Any) -> tuple[Any, BaseException | None]:
        thread = ThreadOf()
        future = self._threads.submit(thread.run, *call)
        running = asyncio.wrap_future(future, loop=self._loop)
        for one in held:
            self._in_threads[one] = future
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():  # a thread can't be cancelled: it keeps its slot until it ends
                self._busy += 1
                running.add_done_callback(self._thread_ended)
                self.hung.add(running, thread, self._naming(held[0].job))
            raise
        finally:
            for one in held:
                del self._in_threads[one]

    def _thread_ended(self, thread: asyncio.Future[Any]) -> None:
        if not thread.cancelled():
            drop(thread.result()[0])  # the attempt was given up, so its returned coroutine must not run
        self._free_slot()

    def _end_of(self, held: Held, error: BaseException) -> End:
        cancelled = is_a(error, asyncio.CancelledError)  # by the watchdog or by the drain; `late` tells which
        if cancelled and self._goes_back(held):
            return End(held, Outcome.RELEASED)
        log.debug("attempt failed", error=text_of(error).partition(":")[0], way=way(error), **self._naming(held.job))
        if cancelled:
            # Without `late` the handler awaited something that was cancelled. If its job were handed back, it would run
            # again at once, forever; so this counts as a failure.
            told: BaseException | str = passed(held) if held.late else "CancelledError: the handler cancelled itself"
        else:
            told = error
        end = failed(held, told, self._topics.settings_of(held.job.topic).retry_of(self._group))
        end.at = where_called(error) if held.late else where(error)
        if self._show_errors:
            tell_calls(end, error)
            end.cause = None if held.late or held.job.is_hidden else error
        else:
            hide(end, own=cancelled)
        return end

    def _goes_back(self, held: Held) -> bool:
        """Whether its cancellation is no failure."""
        return held.lost or (self._draining and not held.late)

    def _end(self, held: Held, end: End, took_s: float) -> None:
        if self._ends(held, took_s):
            self._tell_ended(end)

    def _ends(self, held: Held, took_s: float) -> bool:
        """Whether it ends now; otherwise it has ended before."""
        with self._ending:
            if held.ended:
                return False
            held.ended, held.took_s = True, took_s
        end_attempt(held.job)
        return True

    # -- while the event loop is blocked: in another thread (signs.py)

    def named(self, task: Any) -> dict[str, Any]:
        """The fields that name the job which the task runs, for the log; none if it runs no job."""
        held = self._running.get(task)
        return {} if held is None else self._naming(held[0].job)

    def overdue(self, now: float) -> Iterator[tuple[asyncio.Task[None] | None, End]]:
        """How attempts end that the loop should have ended by now: a thread has returned, their TTR passes, or they did
        not start in time. With the tasks whose handlers are to be cancelled; what has not begun finds out by itself
        that it is too late. The loop does not end them any more.
        """
        for task, attempts in [*list(self._running.items()), *((None, held) for _, held in list(self._waiting))]:
            is_cut = _is_up(attempts, now)
            for held in attempts:
                end = self._end_beside(held, now, is_cut=is_cut)
                if end is not None and self._ends(held, now - held.started if held.begun else 0):
                    yield (task if held.late else None), end

    def _end_beside(self, held: Held, now: float, *, is_cut: bool) -> End | None:
        if held.ended or (not held.begun and now < held.start_by):
            return None
        if not held.begun:
            return too_late(held, self._topics.settings_of(held.job.topic).retry_of(self._group), self._now_ms())
        if (returned := self._returned(held)) is not None:
            error = returned[1]
            return End(held, _DONE) if error is None else self._end_of(held, error)
        if not is_cut:
            return None
        held.late = True
        return self._end_of(held, asyncio.CancelledError())

    def _returned(self, held: Held) -> tuple[Any, BaseException | None] | None:
        """What its thread has returned, if nothing is left to do in the loop."""
        call = self._in_threads.get(held)
        if self._middleware or call is None or not call.done() or call.cancelled() or call.exception() is not None:
            return None
        returned: tuple[Any, BaseException | None] = call.result()
        return returned if is_complete(returned[0]) else None

    def cut(self, task: asyncio.Task[None]) -> None:
        """In the loop: cancels the handler of attempts that were ended so."""
        if (held := self._running.get(task)) is not None:
            task.cancel()
            self.hung.add_deaf(task, self._naming(held[0].job))

    # -- TTR

    def lost(self, held: Held) -> None:
        """Its claim was taken over, so its handler must not go on beside that of another worker: it is cancelled."""
        self._watchdog.lost(held)

    def _give_up_late(self, held: Held, deaf: asyncio.Task[None] | None) -> None:
        if deaf is not None:
            self.hung.add_deaf(deaf, self._naming(held.job))
        self._end(held, self._end_of(held, asyncio.CancelledError()), time.monotonic() - held.started)

    def _touch(self, held: Held, ttr: Duration | None) -> None:
        """Extends the deadline, here at once and in Redis as soon as the touch arrives. Any thread may call it.
        Once the handler was cancelled, it comes too late.
        """
        ttr_ms = held.ttr_ms if ttr is None else check_ttr(ttr)
        if held.late:
            return
        held.deadline = time.monotonic() + ttr_ms / 1000
        held.touch_ms = ttr_ms
        if not held.touching:  # otherwise the touch that is about to be sent carries the latest TTR
            held.touching = True
            self._loop.call_soon_threadsafe(self._touched, held, context=self.context)

    def _touched(self, held: Held) -> None:
        held.touching = False
        self._watchdog.begins(held)
        self._tell_touched(held, held.touch_ms)

    # -- endings

    def settled(self, ends: list[End], stale: set[int]) -> None:
        """Redis has received these ends of one topic and outcome; it refused those whose index is in ``stale``."""
        self.freed.set()  # a claim that waits because too many ends are unsent must look again
        if self._middleware:
            tell(ends, stale)
        outcome = ends[0].outcome
        if outcome is Outcome.DONE and not stale and not log.shows("debug"):
            return
        for i, end in enumerate(ends):
            self._report(end, Outcome.STALE if i in stale else outcome)

    def _report(self, end: End, outcome: Outcome) -> None:
        job = end.held.job
        log_end(end, outcome, self._naming(job), show=self._show_errors)
        if outcome is not Outcome.DEAD:
            return
        job.state = JobState.DEAD
        progress = GroupProgress(
            self._group,
            JobState.DEAD,
            job.attempt,
            job.step,
            end.held.crashes,
            job.snoozed,
            reason=end.reason,
            error=end.error,
        )
        job.groups = {self._group: progress}
        self._notices.put(job)

    def _naming(self, job: Job) -> dict[str, Any]:
        """The fields that name a job in the log."""
        return {
            "topic": job.topic, "id": job.id, "group": self._group, "attempt": job.attempt, "consumer": self._consumer,
        }  # fmt: skip

    @property
    def running(self) -> list[Job]:
        """The jobs whose handlers run."""
        return [held.job for attempts in self._running.values() for held in attempts]

    # -- stopping

    async def drain(self, grace_s: float) -> None:
        """Hands back waiting jobs. Running handlers have ``grace_s`` to finish; then they are cancelled and their jobs
        handed back.
        """
        self._draining = True
        while self._waiting:
            self._release(self._waiting.popleft()[1])
        if self._running:
            log.info("draining", running=len(self._running), grace_s=grace_s)
            await asyncio.wait(self._running, timeout=grace_s)
        late = list(self._running)
        for task in late:
            task.cancel()
        if late:
            _, deaf = await asyncio.wait(late, timeout=_DEAF_S)
            for task_left, held in [(each, one) for each in deaf for one in self._running[each]]:
                self.hung.add_deaf(task_left, self._naming(held.job))
                self._end(held, End(held, Outcome.RELEASED), 0)

    def hurry(self) -> None:
        """Ends the grace period: running handlers are cancelled now."""
        self._draining = True
        for task in self._running:
            task.cancel()

    async def close(self, timeout_s: float) -> None:
        """Waits for ``on_dead`` calls under way, and shuts the threads down."""
        await self._notices.close(timeout_s)
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._threads.shutdown()
