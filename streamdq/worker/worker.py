"""The worker: the loops that claim jobs, run handlers and send outcomes, and a mover in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import FrameType
from typing import Any, Literal, TypeVar

from ..claims.attempts import End, Held, Outcome
from ..clock import RedisClock
from ..codec.envelope import check_version
from ..codec.protocol import Codec
from ..config import DEFAULT_GROUP, MAX_BATCH, Settings
from ..durations import Duration, Moment
from ..errors import InvalidInput, NewerFormat, UnknownTopic
from ..job import NewJob, check_group, check_topic, check_ttr
from ..link.connection import AsyncLink
from ..link.session import arun, open_session
from ..logs import log, what
from ..loop import cancel_and_wait, supervise
from ..mover.mover import Mover
from ..operations.inspect import stats
from ..operations.schedules import check_schedule_id
from ..retry import RetryInput, RetrySchedule
from ..schedules.definition import Overlap, define
from ..schedules.recurrence import Dst
from ..store.blocking import listen
from ..store.records import encode
from ..store.redis_store import RedisStore
from .consumer import BLOCK_S, Consumer, Limits
from .declared import Declared, DeclaredSchedules
from .ended_files import EndedFiles
from .handlers import Handler, Handlers, Upcast, handler_of, upcast_of, with_upcasts
from .heap import settled
from .outcomes import OutcomeSender
from .runner import Runner
from .signals import ONE_SIGNAL_S, install, uninstall
from .signs import Signs
from .touches import Touches
from .turns import Limit, turns_of

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_MOST_UNSENT = 4 * MAX_BATCH
_BURST_WAIT_S = 0.2
_REGISTRY_S = 20.0  # how often it looks at the registry if no ring comes


class Worker:
    """Runs the jobs of its handlers' topics, for one consumer group, in this process.

    ``concurrency``: how many handlers run at once; ``async def`` in the event loop, ``def`` each in a thread.
    ``codec``: as for Queue; a worker reads the bodies of these codecs. Every worker also runs a mover; one mover per
    namespace is at work. ``prune``: when it starts, it removes the schedules of its handlers' topics that a worker has
    declared and this one does not.

    Where slots are scarce, topics with ready jobs take turns. ``topics``: they share the starts by these weights,
    ``{"pay": 10, "mail": 1}``; a topic that is not named has weight 1. ``priority``: a topic's jobs start only if no
    topic before it in this list has a ready job; topics that are not named come last.
    """

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        group: str = DEFAULT_GROUP,
        concurrency: int = 100,
        *,
        codec: Sequence[Codec] | None = None,
        topics: Mapping[str, float] | None = None,
        priority: Sequence[str] | None = None,
        prune: bool = False,
        settings: Settings | None = None,
        clock: RedisClock | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise InvalidInput(f"concurrency: {concurrency!r} is not a whole number between 1 and 10,000")
        self.url = url
        self.group = check_group(group)
        self.concurrency = concurrency
        self.prune = prune
        self.take_turns(topics, priority)
        self.name = ""  # the consumer's, once it serves
        self._settings = settings or Settings()
        self.namespace = self._settings.namespace if namespace is None else namespace
        self._clock = clock
        self._codec = codec
        self._handlers: dict[str, Handler] = {}
        self._upcasts: dict[str, dict[int, Upcast]] = {}
        self._every: Handler | None = None
        self._declared: dict[tuple[str, str], Declared] = {}
        self._implied: set[str] = set()  # topics whose handler only a schedule has named so far
        self._on_dead: list[Callable[..., Any]] = []
        self._run: _Run | None = None

    def handler(
        self,
        topic: str,
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        batch: int | None = None,
        version: int | None = None,
    ) -> Callable[[F], F]:
        """Registers a function for a topic. ``ttr`` and ``retry`` become this group's settings of the topic; a job's
        own settings override them. ``batch``: the function gets lists of up to this many jobs that are due together.
        ``version``: of the newest body that it takes; a job with a newer one is handed back, for a newer release of the
        worker. None: the newest ``upcast``'s; without any, it takes whatever comes.

        Raises:
            InvalidInput: the topic has a handler already, or the function's signature can't be served.
        """
        if callable(topic):  # @worker.handler without parentheses passes the function
            raise InvalidInput('handler: name the topic: @worker.handler("topic")')
        check_topic(topic)
        if topic in self._handlers and topic not in self._implied:
            raise InvalidInput(f"topic {topic!r} has a handler already; one function per topic and worker")
        ttr_ms = None if ttr is None else check_ttr(ttr)
        schedule = None if retry is None else RetrySchedule.of(retry).encode()
        takes = None if version is None else check_version(version)

        def register(function: F) -> F:
            if topic in self._implied and self._handlers[topic].function is not function:
                raise InvalidInput(f"topic {topic!r} has a handler already; one function per topic and worker")
            self._handlers[topic] = handler_of(topic, function, batch, ttr_ms, schedule, takes)
            self._implied.discard(topic)
            return function

        return register

    def upcast(self, topic: str, *, since: int) -> Callable[[F], F]:
        """Registers a function that turns a body of the topic as it was before version ``since`` into one of that
        version. An older body goes through all later functions in turn, and then to the handler; a job keeps the body
        that it was enqueued with. The version of a body is what ``enqueue`` was told, 1 if nothing.

        Raises:
            InvalidInput: there is one for this topic and version already, or it is asynchronous.
        """
        check_topic(topic)
        if check_version(since) < 2:
            raise InvalidInput("upcast: since=1 is the first version, and no body is older")
        if since in self._upcasts.get(topic, {}):
            raise InvalidInput(f"upcast: topic {topic!r} has one since {since} already")

        def register(function: F) -> F:
            self._upcasts.setdefault(topic, {})[since] = upcast_of(topic, function, since)
            return function

        return register

    def schedule(
        self,
        topic: str,
        body: Any = None,
        *,
        id: str = "default",
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        dst: Dst = "once",
        jitter: Duration | None = None,
        start: Moment | None = None,
        until: Moment | None = None,
        overlap: Overlap = "allow",
        catch_up: Duration | Literal["none", "last"] = "last",
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        url: str | None = None,
        expire: Duration | None = None,
        version: int = 1,
    ) -> Callable[[F], F]:
        """Declares a schedule beside the handler of its jobs: a worker that starts makes it as ``Queue.schedule`` does,
        or changes it to what the code says, and makes it again if Redis loses it. The function becomes the topic's
        handler, unless ``handler`` registers it with options of its own. A schedule that is no longer declared stays,
        unless a worker with ``prune`` starts.

        Raises:
            InvalidInput: an argument is invalid, the topic has another handler, or the id was declared before.
        """
        if callable(topic):
            raise InvalidInput('schedule: name the topic: @worker.schedule("topic", every="10m")')
        definition = define(
            cron=cron, every=every, tz=tz, dst=dst, jitter=jitter, start=start, until=until, overlap=overlap,
            catch_up=catch_up, declared=True,
        )  # fmt: skip
        new = NewJob({} if body is None else body, ttr=ttr, retry=retry, url=url, expire=expire, version=version)
        encode(new, self._settings.max_body_bytes)
        one = Declared(check_topic(topic), check_schedule_id(id), definition, new)

        def register(function: F) -> F:
            if (topic, id) in self._declared:
                raise InvalidInput(f"topic {topic!r} has a schedule {id!r} here already; give each an id of its own")
            if topic not in self._handlers:
                self._handlers[topic] = handler_of(topic, function, None, None, None)
                self._implied.add(topic)
            elif self._handlers[topic].function is not function:
                raise InvalidInput(f"topic {topic!r} has another handler: declare its schedules with that function")
            self._declared[topic, id] = one
            return function

        return register

    def every_topic(self, function: F) -> F:
        """Registers a function for all topics that have this worker's group, except those with a handler of their own.
        That includes topics that are created while it serves. TTR and retry schedule are those of the topics.

        Raises:
            InvalidInput: there is such a function already, or its signature can't be served.
        """
        if self._every is not None:
            raise InvalidInput("worker: it has a handler for every topic already; one function per worker")
        self._every = handler_of("every topic", function, None, None, None)
        return function

    def take_turns(self, topics: Mapping[str, float] | None = None, priority: Sequence[str] | None = None) -> None:
        """Sets the ``topics`` with weights, or the ``priority``, as the constructor does; from the next ``serve`` on.

        Raises:
            InvalidInput: both are given, or one can't be read.
        """
        turns_of(topics, priority)
        self._weights, self._priority = topics, priority

    @property
    def topics(self) -> frozenset[str]:
        """The topics with handlers; with a handler for every topic, also those found while it serves."""
        return frozenset(self._handlers if self._run is None else self._run.handlers)

    def on_dead(self, function: F) -> F:
        """Registers a function that is called for each job this group gives up, once the job is a dead letter in Redis.
        It gets the Job, with the reason and the error in ``job.groups[group]``.
        """
        self._on_dead.append(function)
        return function

    def run(self, burst: bool = False) -> None:
        """Serves until SIGTERM or SIGINT; with ``burst``, until no job is ready, running or delayed. Only the main
        thread gets signals: in another thread, it serves until ``stop`` is called. In the main thread it also freezes
        the objects in memory, so that full garbage collections don't delay due jobs.
        """
        if _running_loop() is not None:
            raise InvalidInput("worker: run() starts an event loop, and one runs here already; await serve() instead")
        signals = threading.current_thread() is threading.main_thread()
        with settled() if signals else contextlib.nullcontext():
            try:
                import uvloop
            except ImportError:
                asyncio.run(self.serve(burst, signals=signals))
            else:
                uvloop.run(self.serve(burst, signals=signals))

    async def serve(self, burst: bool = False, *, signals: bool = False) -> None:
        """As ``run``, within a running event loop; ``signals``: handle SIGTERM and SIGINT. If it is cancelled, it hands
        running jobs back at once, without using up an attempt.
        """
        if not self._handlers and self._every is None:
            raise InvalidInput("worker: no handlers; register one with @worker.handler(topic)")
        if self._run is not None:
            raise InvalidInput("worker: it is serving already")
        for topic in (*(self._weights or ()), *(self._priority or ())):
            if topic not in self._handlers and self._every is None:
                raise InvalidInput(f"worker: it has no handler for {topic!r}, which it gives a weight or a priority")
        self._run = _Run(
            self, self._settings, self._clock, self._codec, handlers_of(self), self._every is not None, self._on_dead,
            list(self._declared.values()),
        )  # fmt: skip
        self.name = self._run.name
        try:
            await self._run.serve(burst, signals)
        finally:
            self._run = None

    def stop(self) -> None:
        """Begins to drain, as SIGTERM does: no more jobs are claimed, and running handlers have ``grace_s`` to finish;
        then their jobs are handed back without using up an attempt. Any thread may call it. It does nothing if the
        worker is not serving.
        """
        if self._run is not None:
            self._run.stop()


def serves_every_topic(worker: Worker) -> bool:
    """Whether the worker finds topics by itself. For other modules of streamdq."""
    return worker._every is not None


def handlers_of(worker: Worker) -> Handlers:
    """The worker's handlers, with their upcast functions. For other modules of streamdq.

    Raises:
        InvalidInput: an upcast function does not fit its handler.
    """
    return Handlers(with_upcasts(worker._handlers, worker._upcasts), worker._every)


def codec_of(worker: Worker) -> Sequence[Codec] | None:
    """What the worker was given. For other modules of streamdq."""
    return worker._codec


def has_begun(worker: Worker) -> bool:
    """Whether it serves, and its topics and schedules are there. For other modules of streamdq."""
    return worker._run is not None and worker._run.begun


class _Run:
    """One call of serve: connections, and the loops between them."""

    def __init__(
        self,
        worker: Worker,
        settings: Settings,
        clock: RedisClock | None,
        codec: Sequence[Codec] | None,
        handlers: Handlers,
        every_topic: bool,
        on_dead: list[Callable[..., Any]],
        declared: list[Declared],
    ) -> None:
        self.begun = False
        self.stopping = asyncio.Event()
        self._ended = asyncio.Event()  # ends the mover, after the last outcome was sent
        self._settings = settings
        self._group = worker.group
        self.handlers = handlers
        self._every_topic = every_topic
        self._served = set(handlers)
        self.link, self.session = open_session(worker.url, worker.namespace, settings, clock, AsyncLink, codec)
        self.name = self.session.consumer
        self._store = RedisStore(self.session)
        self._topics = self._store.topics
        self._schedules = DeclaredSchedules(self.link, self._store, declared)
        self._prune = worker.prune
        scripts = self._store.scripts
        self._outcomes = OutcomeSender(self.link, scripts, self._topics, self._group, self.name, self._settled)
        self.consumer = Consumer(
            self.link, self.session, scripts, self._topics, self._group, self.name, self._outcomes.failing,
            turns_of(worker._weights, worker._priority),
        )  # fmt: skip
        self._mover = Mover(self.link, self.session, scripts, self._topics, self.name, self._ended)
        self._touches = Touches(self.link, scripts, self._topics, self._group, self.name)
        self._runner = Runner(
            handlers, self._group, worker.concurrency, self._topics, self.consumer.now_ms, self.name,
            ended=self._outcomes.put, touched=self._touches.put, on_dead=on_dead,
            with_files=self.session.bodies.files is not None,
        )  # fmt: skip
        self._files = EndedFiles(self.link, self.session)
        self._signs = Signs(self.link, self.session, scripts, self._holds_claims)
        self._loop = asyncio.get_running_loop()
        self._refused: NewerFormat | None = None
        self._signalled_at: float | None = None  # the last time; more within ONE_SIGNAL_S are the same signal

    async def serve(self, burst: bool, signals: bool) -> None:
        before = install(self._on_signal) if signals else {}
        try:
            # If Redis can't be reached at the start, that is an error; later the loops wait for it to come back.
            await self._prepare()
            bodies = {"mover": self._mover.run, "outcomes": self._outcomes.run, "watchdog": self._runner.watch}
            if self.session.bodies.files is not None:
                bodies["files"] = self._files.run
            bodies |= {"alive": self.consumer.heartbeat, "topics": self._watch_topics, "signs": self._signs.run}
            namespace = self.session.keys.namespace
            loops = [
                self._loop.create_task(supervise(name, body, self._ended, namespace)) for name, body in bodies.items()
            ]
            for task in loops:
                task.add_done_callback(self._loop_ended)
            self._sending = loops[1]
            try:
                await supervise("claim", lambda: self._claim(burst), self.stopping, namespace)
                if self._refused is not None:
                    raise self._refused
                await self._drain(self._settings.grace_s)
            except (asyncio.CancelledError, NewerFormat):
                # From now on nobody watches the handlers or reports their outcomes, so running jobs go back as well.
                await self._drain(0.0)
                raise
            finally:
                self._ended.set()
                await asyncio.wait(loops[:1], timeout=1)  # the mover gives its lease up
                await cancel_and_wait(loops)
        finally:
            try:
                await self.link.close()
            finally:
                uninstall(before, self._signalled_at)

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """Ends the worker if a loop ended because it met data of a newer version; loops survive any other error."""
        if not task.cancelled() and isinstance(error := task.exception(), NewerFormat):
            self._refused = error
            self.stopping.set()

    def stop(self) -> None:
        if _running_loop() is self._loop:
            self.stopping.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self.stopping.set)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._signalled)

    def _signalled(self) -> None:
        """The first signal lets running handlers finish; the second hands them back at once."""
        now = time.monotonic()
        if self._signalled_at is not None and now - self._signalled_at <= ONE_SIGNAL_S:
            return
        self._signalled_at = now
        if self.stopping.is_set():
            self._runner.hurry()
        self.stopping.set()

    async def _prepare(self) -> None:
        for topic, handler in self.handlers.items():
            own = {"ttr_ms": handler.ttr_ms, "retry": handler.retry}
            await arun(self.link, self._topics.serve(topic, self._group, own))
        await self._schedules.put()
        if self._prune:
            await self._schedules.prune(self.handlers.named)
        await self._look_for_topics()
        await self._signs.begin()
        self.begun = True
        log.info("worker started", consumer=self.name, group=self._group, topics=sorted(self._served))

    # -- topics

    async def _watch_topics(self) -> None:
        """A loop's body: looks at the registry, and at the declared schedules, whenever the registry changes, and every
        ``_REGISTRY_S`` in any case.
        """
        seen: dict[str, bytes] = {}
        while True:
            await self._look_for_topics()
            await self._schedules.keep()
            seen |= await arun(self.link, listen(self.session, [self.session.keys.wake], seen, _REGISTRY_S))

    async def _look_for_topics(self) -> None:
        """Serves all shards of the topics with handlers. A handler for every topic serves the topics that have the
        group now: a topic whose group was removed must not get it back from here.
        """
        known = await arun(self.link, self._topics.refresh())
        served = set(self.handlers.named)
        if self._every_topic:
            served |= {topic for topic, settings in known.items() if self._group in settings.groups}
            self.handlers.serve(served)
        self._served = served
        if not self.consumer.serve(list(served)):
            return
        await self.consumer.join()
        self._runner.freed.set()  # without a topic, _claim waits for room
        log.info("topics served", consumer=self.name, group=self._group, topics=sorted(served))

    # -- claiming

    async def _claim(self, burst: bool) -> None:
        """Claims jobs whenever there is room."""
        while not self.stopping.is_set():
            full = self._is_full(burst)
            if full:
                self._runner.freed.clear()
                held = await self._unless_stopped(self._no_room())
            else:
                held = await self._unless_stopped(self.consumer.next(self._room, _BURST_WAIT_S if burst else BLOCK_S))
            if held:
                self._runner.take(held)
                self._signs.claimed()
            elif burst and not full and self._runner.idle and await self._nothing_left():
                return

    def _is_full(self, burst: bool) -> bool:
        """Whether to wait for a free slot. A burst without any topic has nothing to wait for."""
        return not self._room() and not (burst and not self.handlers)

    def _room(self) -> Limits:
        """How many jobs of each topic can be claimed now; empty if none, or if no topic is served."""
        most, at_once = self._runner.room(ahead=not self.consumer.crowded)
        if most == 0 or self._outcomes.unsent >= _MOST_UNSENT:
            return {}
        return {name: _limit(most, at_once, handler.batch or 1) for name, handler in self.handlers.items()}

    async def _no_room(self) -> list[Held]:
        """Waits until there is room. Entries that a read returns meanwhile go back, for workers that have room."""
        if not self.consumer.reading:
            await self._runner.freed.wait()
            return []
        freed = self._loop.create_task(self._runner.freed.wait())
        back = self._loop.create_task(self.consumer.hand_back())
        try:
            await asyncio.wait((freed, back), return_when=asyncio.FIRST_COMPLETED)
            return back.result() if back.done() else []
        finally:
            await cancel_and_wait([freed, *([] if back.done() else [back])])

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """The awaited result, or None if the worker is told to stop first."""
        task, stop = self._loop.create_task(waiting), self._loop.create_task(self.stopping.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await cancel_and_wait([stop, *([] if task.done() else [task])])

    async def _nothing_left(self) -> bool:
        await self._outcomes.drained()
        for topic in self._served:
            try:
                group = (await arun(self.link, stats(self._store, topic))).topics[topic].groups.get(self._group)
            except UnknownTopic:
                group = None
            if group is None or group.delayed + group.ready + group.running:
                return False  # None: deleted, or without the group; it is made again, or served no more
        return True

    # -- outcomes and stopping

    def _settled(self, ends: list[End], stale: set[int]) -> None:
        self._runner.settled(ends, stale)
        if self.session.bodies.files is not None and ends[0].outcome is Outcome.DONE:
            self._files.put(ends, stale)

    async def _in_time(self, telling: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._settings.call_timeout_s):
                await telling
        except Exception as error:
            log.warning("stopped without telling Redis", unsent=self._outcomes.size, error=what(error))

    async def _all_sent(self) -> None:
        """Waits until all outcomes are sent, or the task that sends them has ended because all tasks were cancelled
        together.
        """
        drained = self._loop.create_task(self._outcomes.drained())
        await asyncio.wait((drained, self._sending), return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()

    def _holds_claims(self) -> bool:
        return not self._runner.idle or self._outcomes.size > 0

    async def _leave(self) -> None:
        await self.consumer.leave()
        await self._signs.end()  # not if it could hand nothing back: without a sign, the mover soon does

    async def _drain(self, grace_s: float) -> None:
        """Lets running handlers end, hands other jobs back, and leaves the group."""
        await self._runner.drain(grace_s)
        # Redis may be down, wholly or in part. Jobs whose outcome it doesn't get now are redelivered after their TTR.
        await self._in_time(self._all_sent())
        await self._in_time(self._leave())
        self._touches.close()
        await self._runner.close(self._settings.call_timeout_s)
        log.info("worker stopped", consumer=self.name)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _limit(most: int, at_once: int, batch: int) -> Limit:
    return Limit(min(MAX_BATCH, most * batch), at_once * batch)
