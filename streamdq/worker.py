"""The worker: runs handlers on claimed jobs, and reports how each attempt ended."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pydantic import ValidationError

from . import metrics
from .claims import DeadReason, End, Held, Outcome, failed
from .clock import RedisClock
from .config import DEFAULT_GROUP, MAX_BATCH, Settings
from .connection import AsyncLink
from .consumer import Consumer
from .durations import Duration, to_ms
from .errors import InvalidInput
from .handlers import Handler, handler_of
from .job import GroupProgress, Job, JobState, check_group, check_topic, check_ttr
from .loop import cancel_and_wait, log, supervise
from .mover import Mover
from .operations import Operations
from .outbox import Outbox
from .retry import RetryInput, RetrySchedule
from .session import arun, open_session

F = TypeVar("F", bound=Callable[..., Any])
_WATCHDOG_S = 0.05
_SHORT_JOB_S = 0.005
_MOST_UNSENT = 4 * MAX_BATCH
_BURST_WAIT_S = 0.2


class Worker:
    """Runs the jobs of its handlers' topics, for one consumer group, in this process.

    ``concurrency``: how many handlers run at once; ``async def`` in the event loop, ``def`` each in a thread.
    Every worker also carries a mover, of which one per namespace is at work.
    """

    def __init__(
        self,
        url: str | None = None,
        namespace: str = "streamdq",
        group: str = DEFAULT_GROUP,
        concurrency: int = 100,
        *,
        settings: Settings | None = None,
        clock: RedisClock | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise InvalidInput(f"concurrency: {concurrency!r} is not a whole number between 1 and 10 000")
        self.url = url
        self.namespace = namespace
        self.group = check_group(group)
        self.concurrency = concurrency
        self.name = ""  # the consumer's, once it serves
        self._settings = settings or Settings()
        self._clock = clock
        self._handlers: dict[str, Handler] = {}
        self._on_dead: list[Callable[..., Any]] = []
        self._run: _Run | None = None

    def handler(
        self,
        topic: str,
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        batch: int | None = None,
    ) -> Callable[[F], F]:
        """Registers a function for a topic. ``ttr`` and ``retry`` become this group's settings of the topic; a job's
        own come first. ``batch``: the function gets lists of up to this many jobs that were due together.

        Raises:
            InvalidInput: the topic has a handler already, or the function's signature can't be served.
        """
        check_topic(topic)
        if topic in self._handlers:
            raise InvalidInput(f"topic {topic!r} has a handler already; one function per topic and worker")
        ttr_ms = None if ttr is None else check_ttr(ttr)
        schedule = None if retry is None else RetrySchedule.of(retry).encode()

        def register(function: F) -> F:
            self._handlers[topic] = handler_of(topic, function, batch, ttr_ms, schedule)
            return function

        return register

    def on_dead(self, function: F) -> F:
        """Registers a function that is told of each job this group gives up: it gets the Job, with the reason and the
        error in ``job.groups[group]``. It is told once Redis has the job among the dead letters.
        """
        self._on_dead.append(function)
        return function

    def run(self, burst: bool = False) -> None:
        """Serves until SIGTERM or SIGINT; ``burst``: until nothing is ready, running or delayed."""
        try:
            import uvloop
        except ImportError:
            asyncio.run(self.serve(burst, signals=True))
        else:
            uvloop.run(self.serve(burst, signals=True))

    async def serve(self, burst: bool = False, *, signals: bool = False) -> None:
        """The same within a running event loop; ``signals``: handle SIGTERM and SIGINT."""
        if not self._handlers:
            raise InvalidInput("worker: no handlers; register one with @worker.handler(topic)")
        if self._run is not None:
            raise InvalidInput("worker: it is serving already")
        self._run = _Run(self, self._settings, self._clock, self._handlers, self._on_dead)
        self.name = self._run.name
        try:
            await self._run.serve(burst, signals)
        finally:
            self._run = None

    def stop(self) -> None:
        """Begins to drain, as SIGTERM does: nothing more is claimed; what runs has ``grace_s`` to finish, and is handed
        back without losing an attempt if it does not. Call it from the loop that serves.
        """
        if self._run is not None:
            self._run.stopping.set()


class _Run:
    """One call of serve: connections, loops, and what is running."""

    def __init__(
        self,
        worker: Worker,
        settings: Settings,
        clock: RedisClock | None,
        handlers: dict[str, Handler],
        on_dead: list[Callable[..., Any]],
    ) -> None:
        self.stopping = asyncio.Event()
        self._ended = asyncio.Event()  # the mover goes on until the last outcome is sent
        self._settings = settings
        self._group = worker.group
        self._handlers = handlers
        self._on_dead = on_dead
        self._link, self._session = open_session(worker.url, worker.namespace, settings, clock, AsyncLink)
        self.name = self._session.consumer
        self._operations = Operations(self._session)
        scripts, topics = self._operations.scripts, self._operations.topics
        self._topics = topics
        self._consumer = Consumer(self._link, self._session, scripts, topics, self._group, self.name)
        self._mover = Mover(self._link, self._session, scripts, topics, self.name, self._ended)
        self._outbox = Outbox(self._link, scripts, self._group, self.name, self._settled)
        self._concurrency = worker.concurrency
        self._busy = 0
        self._freed = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], list[Held]] = {}
        self._deadlines: dict[Held, tuple[float, asyncio.Task[None]]] = {}  # when each TTR ends
        self._mean_s = 1.0
        self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="streamdq")
        self._callbacks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def serve(self, burst: bool, signals: bool) -> None:
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self.stopping.set)
        try:
            # A Redis that can't be reached at the start is an error; once at work, loops wait for it to come back.
            await self._prepare()
            loops = [
                asyncio.create_task(supervise(name, body, self._ended))
                for name, body in (
                    ("mover", self._mover.run), ("outbox", self._outbox.run), ("watchdog", self._watch)
                )
            ]  # fmt: skip
            try:
                await supervise("claim", lambda: self._claim(burst), self.stopping)
                await self._drain()
            finally:
                self._ended.set()
                _, late = await asyncio.wait(loops[:1], timeout=1)
                await cancel_and_wait([*late, *loops[1:]])
        finally:
            if signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    self._loop.remove_signal_handler(number)
            self._threads.shutdown(wait=False, cancel_futures=True)
            await self._link.close()

    async def _prepare(self) -> None:
        for topic, handler in self._handlers.items():
            own = {"ttr_ms": handler.ttr_ms, "retry": handler.retry}
            await arun(self._link, self._topics.ensure(topic, self._group, own))
        self._consumer.serve(list(self._handlers))
        log.info("worker started", consumer=self.name, group=self._group, topics=sorted(self._handlers))

    # -- claiming

    async def _claim(self, burst: bool) -> None:
        while not self.stopping.is_set():
            limits = self._limits()
            if not any(limits.values()):
                self._freed.clear()
                await self._either(self._freed, None)
                continue
            held = await self._next(limits, _BURST_WAIT_S if burst else None)
            for part in self._split(held):
                self._start(part)
            if burst and not held and not self._tasks and await self._nothing_left():
                return

    async def _next(self, limits: dict[str, int], wait_s: float | None) -> list[Held]:
        """The consumer's next jobs; none when the worker is to stop, even in the middle of a wait."""
        arguments = (limits,) if wait_s is None else (limits, wait_s)
        task = asyncio.create_task(self._consumer.next(*arguments))
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            return []
        finally:
            await cancel_and_wait([stop, *([] if task.done() else [task])])

    async def _either(self, event: asyncio.Event, timeout_s: float | None) -> None:
        stop = asyncio.create_task(self.stopping.wait())
        wanted = asyncio.create_task(event.wait())
        await asyncio.wait((stop, wanted), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait([stop, wanted])

    def _limits(self) -> dict[str, int]:
        """How many jobs of each topic there is room for. Short jobs are fetched ahead, by one more round at most."""
        free = self._concurrency - self._busy
        if self._outbox.size > _MOST_UNSENT:
            free = 0
        if free > 0 and self._mean_s < _SHORT_JOB_S:
            free += self._concurrency
        return {topic: min(MAX_BATCH, free * (handler.batch or 1)) for topic, handler in self._handlers.items()}

    def _split(self, held: list[Held]) -> list[list[Held]]:
        if not held:
            return []
        size = self._handlers[held[0].job.topic].batch or 1
        return [held[i : i + size] for i in range(0, len(held), size)]

    async def _nothing_left(self) -> bool:
        await self._outbox.drained()
        stats = await arun(self._link, self._operations.stats())
        for topic in self._handlers:
            group = stats.topics[topic].groups[self._group]
            if group.delayed + group.ready + group.running:
                return False
        return True

    # -- running

    def _start(self, held: list[Held]) -> None:
        self._busy += 1
        now, now_ms = time.monotonic(), int(self._consumer.time.now_ms())
        if self._session.clock.manual:
            now_ms = int(self._session.clock.argument())
        task = self._loop.create_task(self._attempt(self._handlers[held[0].job.topic], held))
        self._tasks[task] = held
        for one in held:
            one.started_ms = max(now_ms, one.due_ms)
            self._deadlines[one] = (now + self._ttr_ms(one) / 1000, task)
            one.job._touch = lambda ttr, one=one: self._loop.call_soon_threadsafe(self._touch, one, ttr)

    def _ttr_ms(self, held: Held) -> int:
        return held.job.ttr_ms or self._topics.known[held.job.topic].ttr_of(self._group)

    async def _attempt(self, handler: Handler, held: list[Held]) -> None:
        started = time.monotonic()
        error: BaseException | None = None
        fit: list[Held] = []
        try:
            bodies = self._check(handler, held, fit)
            if fit:
                await self._call(handler, bodies, fit)
        except asyncio.CancelledError as cancelled:
            # The watchdog's or the drain's; either has noted why.
            error = cancelled
        except Exception as raised:
            error = raised
        took_s = time.monotonic() - started
        self._mean_s += (took_s - self._mean_s) * 0.1
        for one in fit:
            self._end(one, self._end_of(one, error), took_s)
        del self._tasks[asyncio.current_task()]  # type: ignore[arg-type]
        self._busy -= 1
        self._freed.set()

    def _check(self, handler: Handler, held: list[Held], fit: list[Held]) -> list[Any]:
        """The bodies that the handler's type accepts; ``fit`` gets their jobs, the others are buried."""
        bodies = []
        for one in held:
            if one.crashes >= self._topics.known[one.job.topic].max_deliveries:
                text = f"lost with its consumer {one.crashes} times in a row"
                self._end(one, End(one, Outcome.DEAD, text, reason=DeadReason.CRASHED), 0)
                continue
            try:
                bodies.append(handler.adapter.validate_json(one.job.raw_body))
                fit.append(one)
            except ValidationError as error:
                text = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
                self._end(one, End(one, Outcome.DEAD, text[:1000], reason=DeadReason.INVALID), 0)
        return bodies

    async def _call(self, handler: Handler, bodies: list[Any], held: list[Held]) -> None:
        jobs = [one.job for one in held]
        body, job = (bodies, jobs) if handler.batch else (bodies[0], jobs[0])
        if handler.is_async:
            await handler.call(body, job)
            return
        context = contextvars.copy_context()
        thread = self._loop.run_in_executor(self._threads, context.run, handler.call, body, job)
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            if not thread.done():  # a thread can't be cancelled: it keeps its slot until it ends
                self._busy += 1
                thread.add_done_callback(self._thread_ended)
            raise

    def _thread_ended(self, thread: asyncio.Future[Any]) -> None:
        self._busy -= 1
        self._freed.set()
        if not thread.cancelled():
            thread.exception()  # seen: a job that was given up for its TTR may still fail later

    def _end_of(self, held: Held, error: BaseException | None) -> End:
        if error is None:
            return End(held, Outcome.DONE)
        if isinstance(error, asyncio.CancelledError):
            if not held.late:
                return End(held, Outcome.RELEASED)
            error = TimeoutError("the handler took longer than its TTR")
        schedule = self._topics.known[held.job.topic].retry_of(self._group)
        return failed(held, error, schedule)

    def _end(self, held: Held, end: End, took_s: float) -> None:
        if held.ended:
            return
        held.ended = True
        self._deadlines.pop(held, None)
        labels = (held.job.topic, self._group)
        if end.outcome is not Outcome.RELEASED:
            metrics.LATENESS.labels(*labels).observe(max(0, held.started_ms - held.due_ms) / 1000)
            metrics.DURATION.labels(*labels).observe(took_s)
        self._outbox.put(end)

    async def _watch(self) -> None:
        """Cancels handlers whose TTR has passed."""
        while True:
            await asyncio.sleep(_WATCHDOG_S)
            now = time.monotonic()
            for held, (deadline, task) in list(self._deadlines.items()):
                if deadline <= now and not held.late:
                    for one in self._tasks.get(task, ()):
                        one.late = True
                    task.cancel()

    def _touch(self, held: Held, ttr: Duration | None) -> None:
        """In the loop: the deadline here moves at once, Redis's as soon as it is told."""
        if held.ended or held not in self._deadlines:
            return
        ttr_ms = self._ttr_ms(held) if ttr is None else to_ms(ttr, "ttr")
        _, task = self._deadlines[held]
        self._deadlines[held] = (time.monotonic() + ttr_ms / 1000, task)
        self._background(self._tell_touch(held, ttr_ms))

    async def _tell_touch(self, held: Held, ttr_ms: int) -> None:
        group_ttr_ms = self._topics.known[held.job.topic].ttr_of(self._group)
        claim = [held.main, held.entry, held.job.id, ttr_ms]
        await arun(self._link, self._operations.scripts.touch(held.shard, self._group, group_ttr_ms, claim))

    # -- ending

    def _settled(self, end: End, stale: bool) -> None:
        job = end.held.job
        outcome = Outcome.STALE if stale else end.outcome
        metrics.ATTEMPTS.labels(job.topic, self._group, outcome).inc()
        if outcome is Outcome.DONE:
            return
        log.info(
            "attempt ended", outcome=outcome, topic=job.topic, id=job.id, group=self._group, attempt=job.attempt,
            consumer=self.name, reason=end.reason or None, delay_ms=end.delay_ms or None,
        )  # fmt: skip
        if outcome is Outcome.DEAD:
            self._tell_dead(end)

    def _tell_dead(self, end: End) -> None:
        job = end.held.job
        job.state = JobState.DEAD
        job.groups = {
            self._group: GroupProgress(
                self._group,
                JobState.DEAD,
                job.attempt,
                job.step,
                end.held.crashes,
                reason=end.reason,
                error=end.error,
            )
        }
        for function in self._on_dead:
            self._background(_tell(function, job))

    def _background(self, coroutine: Any) -> None:
        task = asyncio.create_task(_logged(coroutine))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    async def _drain(self) -> None:
        """Waits for what runs, hands back what can't finish in time, and leaves the group."""
        if self._tasks:
            log.info("draining", running=len(self._tasks), grace_s=self._settings.grace_s)
            await asyncio.wait(self._tasks, timeout=self._settings.grace_s)
        late = list(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        # Redis may be down: what it does not get now is delivered again when its TTR passes.
        try:
            async with asyncio.timeout(self._settings.call_timeout_s):
                await self._outbox.drained()
                await self._consumer.leave()
        except Exception as error:
            log.warning("left without a word", unsent=self._outbox.size, error=f"{type(error).__name__}: {error}")
        if self._callbacks:
            await asyncio.wait(self._callbacks, timeout=self._settings.call_timeout_s)
        log.info("worker stopped", consumer=self.name)


async def _tell(function: Callable[..., Any], job: Job) -> None:
    if asyncio.iscoroutinefunction(function):
        await function(job)
    else:
        await asyncio.to_thread(function, job)


async def _logged(coroutine: Any) -> None:
    try:
        await coroutine
    except Exception as error:
        log.error("background call failed", error=f"{type(error).__name__}: {error}")
