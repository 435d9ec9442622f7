"""One call of a worker's serve: its connections, the loops that claim jobs, run handlers and send outcomes, a mover
beside them, and how they end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Literal, TypeVar

from ..config import MAX_BATCH
from ..errors import HandlersHung, NewerFormat, UnknownTopic
from ..job.flow import FLOWS
from ..job.job import Job
from ..link.connection import AsyncLink, ConnectionLimits, Link
from ..link.opening import may_wait, open_session
from ..link.session import Session, arun
from ..mover.mover import Mover
from ..operations.attempts.claimed import ClaimedJob
from ..operations.checks.redis_server import dangers
from ..operations.topics.stats import stats
from ..process.health import Report, WorkerHealth
from ..process.logs import log, what
from ..process.loop import cancel_and_wait, running_loop, supervise
from ..process.signals import ONE_SIGNAL_S, install, uninstall
from ..store.aborts import attempt_in
from ..store.blocking import read_new
from ..store.redis_store import RedisStore
from ..store.scripts import Scripts
from ..store.topics.misspelt import warn_of_slips
from .consumer import Consumer, Limits
from .deadline import Deadlines
from .declared_schedules import Declared, DeclaredSchedules
from .ended_files import EndedFiles
from .ends import Ends, EndSender
from .handlers import Handlers
from .heartbeats import CALL_S, Heartbeats
from .hung import HungHandlers
from .lifespan import shut_down, start, until
from .member import Member, Where
from .middleware import Middleware
from .process_pool import ProcessPool
from .queues import HandlerQueues
from .reports import DeadLetterNotices, Reports
from .runner import Runner
from .slots import Slots
from .topic_scheduler import Limit, TopicScheduler

T = TypeVar("T")
_MOST_UNSENT = 4 * MAX_BATCH
_BURST_WAIT_S = 0.2
_EACH_REGISTRY_S = 8.0
_REGISTRY_S = 300.0  # how often it looks at the registry if no wakeup comes: the active mover does, and sends one
_SCHEDULES_S = 20.0  # the same if it declares schedules: no wakeup tells that Redis has lost them


@dataclass(frozen=True, slots=True)
class Hooks:
    """The functions that users have registered, in their order."""

    on_startup: list[Callable[[], Any]] = field(default_factory=list)
    on_shutdown: list[Callable[[], Any]] = field(default_factory=list)
    on_dead: list[Callable[..., Any]] = field(default_factory=list)
    middleware: list[Middleware] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The configuration of a worker. ``prune``: it removes schedules that the code no longer declares."""

    where: Where
    group: str
    concurrency: int
    handlers: Handlers
    scheduler: TopicScheduler
    hooks: Hooks
    declared: Sequence[Declared]
    prune: bool
    show_errors: bool
    pool: ProcessPool


Burst = bool | Literal["due"]
"""Whether a worker ends when no job is left, or none that is due."""


class WorkerRun:
    """``name``: the consumer's. ``begun``: its topics and schedules are there."""

    def __init__(self, config: WorkerConfig) -> None:
        self.begun = False
        self.stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._ended = asyncio.Event()  # ends the mover, after the last outcome was sent
        self._config, self._group, at = config, config.group, config.where
        self._settings = at.settings
        self.handlers = config.handlers
        self._served = set(config.handlers)
        self.link, self.session = open_session(at.url, at.namespace, at.settings, at.clock, AsyncLink, at.codec)
        self.name = self.session.consumer
        self._store = RedisStore(self.session)
        self._topics = self._store.topics
        self._schedules = DeclaredSchedules(self.link, self._store, config.declared)
        self._queues = HandlerQueues(at)
        member = Member(self.link, self._store, self._group, self.name)
        freed = asyncio.Event()
        self._files = None if self.session.bodies.files is None else EndedFiles(member)
        self._notices = DeadLetterNotices(config.hooks.on_dead, member)
        reports = Reports(member, freed, self._notices, self._files, show_errors=config.show_errors)
        self._sender = EndSender(member, reports)
        self.consumer = Consumer(
            member, self._sender.failing, config.scheduler,
            lambda least_s, each_s: self._mover.election.apart_s(least_s, each_s),
        )  # fmt: skip
        self._ends = ends = Ends(member, self._sender, self.consumer, show_errors=config.show_errors)
        self._health = WorkerHealth(at.namespace, self._group, config.concurrency)
        self._health.consumer = self.name
        self._slots = Slots(config.concurrency, config.handlers, ends, config.scheduler, freed)
        self._hung = HungHandlers(member, self._health, at.settings.hung_exit_s, self.stopping)
        self._deadlines = Deadlines(member, config.handlers, self._slots, ends, self._hung)
        middleware = tuple(config.hooks.middleware)
        self._runner = Runner(member, config.handlers, self._slots, self._deadlines, ends, self._queues, middleware)
        self._mover = Mover(self.link, self._store, self.name, self._ended)
        self._heartbeats = self._heartbeats_of(at)
        self._loop = asyncio.get_running_loop()
        self._said_what_waits = False
        self._refused: NewerFormat | None = None
        self._signalled_at: float | None = None  # the last time; more within ONE_SIGNAL_S are the same signal

    async def serve(self, burst: Burst, signals: bool) -> None:
        self._ends.serve_in(asyncio.current_task())
        before = self._own_process() if signals else {}
        started = False
        try:
            async with until(self.stopping):
                await start(self._config.hooks.on_startup)
                started = True
            if not started:
                return
            self._runner.use_context()  # with what the functions have set
            # If Redis can't be reached at the start, that is an error; later the loops wait for it to come back.
            await self._prepare()
            bodies = {"mover": self._mover.run, "outcomes": self._sender.run, "watchdog": self._deadlines.run}
            if self._files is not None:
                bodies["files"] = self._files.run
            bodies |= {"topics": self._watch_topics, "hung": self._hung.run}
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
                if self._hung.ends_worker:
                    raise HandlersHung(self._config.concurrency, self._settings.hung_exit_s)
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
                if started:
                    await self._shut_down()
            finally:
                try:
                    await self._close()
                finally:
                    uninstall(before, self._signalled_at)

    def _own_process(self) -> dict[int, Any]:
        """The process is the worker's: signals end it, and it ends if the event loop hangs."""
        self._heartbeats.all_hang = None
        return install(self._on_signal)

    async def _close(self) -> None:
        self._heartbeats.close()
        self._hung.close()
        self._health.close()
        if goes_on := self._hung.goes_on():
            log.warning("the worker has stopped, but handlers go on", consumer=self.name, handlers=goes_on)
        try:
            await self._runner.end_processes()
            await self._queues.close()
        finally:
            await self.link.close()

    def _heartbeats_of(self, at: Where) -> Heartbeats:
        """Those of this consumer, with a connection of their own, on which no call takes long."""
        limits = ConnectionLimits(1, 1)
        link = Link(at.url or at.settings.url, CALL_S, limits, at.settings.credential_provider)
        brief = at.settings.model_copy(update={"call_timeout_s": min(CALL_S, at.settings.call_timeout_s)})
        own = Session(brief, self.session.keys.namespace, self.session.clock, link.target, self.session.bodies)
        own.use(link)
        heartbeats = Heartbeats(
            link, own, Scripts(own), self.name, self._deadlines, self._sender, self._holds_claims, self._health
        )
        heartbeats.all_hang = self._hung.end_worker
        return heartbeats

    async def _shut_down(self) -> None:
        self._hurrying.clear()  # who hurried the handlers did not mean what closes connections and writes what is left
        async with until(self._hurrying):
            await shut_down(self._config.hooks.on_shutdown, show_errors=self._config.show_errors)

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """Ends the worker if a loop ended because it met data of a newer version; loops survive any other error."""
        if not task.cancelled() and isinstance(error := task.exception(), NewerFormat):
            self._refused = error
            self.stopping.set()

    @property
    def running(self) -> list[Job]:
        """The jobs whose handlers run."""
        return self._deadlines.jobs

    def health(self) -> Report:
        """Any thread may ask. From now on the event loop is watched also while the worker is idle."""
        self._heartbeats.watch()
        return self._health.report(len(self._deadlines.running))

    def keeps_results(self, topic: str) -> bool:
        """Whether what handlers of the topic return is kept."""
        return self._runner.keeps(topic)

    def stop(self) -> None:
        if running_loop() is self._loop:
            self.stopping.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self.stopping.set)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._heartbeats.note_stop()
        self._loop.call_soon_threadsafe(self._signalled)

    def _signalled(self) -> None:
        """The first signal lets running handlers finish; the second hands them back at once."""
        now = time.monotonic()
        if self._signalled_at is not None and now - self._signalled_at <= ONE_SIGNAL_S:
            return
        self._signalled_at = now
        if self.stopping.is_set():
            self._runner.hurry()
            self._hurrying.set()
        self.stopping.set()

    async def _prepare(self) -> None:
        await arun(self.link, warn_of_slips(self._topics, self.handlers.named))
        for topic, handler in self.handlers.items():
            own = {"ttr_ms": handler.ttr_ms, "retry": handler.retry, "result_ms": handler.result_ms}
            await arun(self.link, self._topics.serve(topic, self._group, own))
        await may_wait(self.link, self.session)
        await self._schedules.put()
        if self._config.prune:
            await self._schedules.prune(self.handlers.named)
        await self._look_for_topics()
        self._runner.begin()
        async with until(self.stopping):
            await self._runner.begin_processes(self._config.pool, self._config.where, self._more_room)
        await self._heartbeats.begin(self.link)
        self.begun = True
        self._health.state = "ready"
        log.info("worker started", consumer=self.name, group=self._group, topics=sorted(self._served))
        for found in await arun(self.link, dangers(self._store)):
            log.warning("Redis may lose jobs", consumer=self.name, why=found.what, advice=found.advice)

    # -- topics

    async def _watch_topics(self) -> None:
        """A loop's body: looks at the registry, and at the declared schedules, whenever the registry changes, and in
        any case now and then. The same read brings the news of aborted attempts.
        """
        keys, seen, found = self.session.keys, dict[str, bytes](), dict[str, Any]()
        least_s = _SCHEDULES_S if self._config.declared else _REGISTRY_S
        while True:
            if keys.wake in found or not found:
                await self._look_for_topics()
                await self._schedules.keep()
            block_s = self._mover.election.apart_s(least_s, _EACH_REGISTRY_S)
            found = await arun(self.link, read_new(self.session, [keys.wake, keys.aborts], seen, block_s))
            seen |= {name: entries[-1][0] for name, entries in found.items()}
            for _, fields in found.get(keys.aborts, ()):
                if (attempt := attempt_in(fields)) is not None:
                    self._deadlines.notified(attempt)

    async def _look_for_topics(self) -> None:
        """Serves all shards of the topics with handlers. A handler for every topic serves the topics that have the
        group now: a topic whose group was removed must not get it back from here.
        """
        known = await arun(self.link, self._topics.refresh())
        served = set(self.handlers.named)
        if self.handlers.every is not None:
            served |= {topic for topic, one in known.items() if self._group in one.groups and topic != FLOWS}
            self.handlers.serve(served)
        self._served = served
        if not self.consumer.serve(list(served)):
            return
        await self.consumer.join()
        self._slots.freed.set()  # without a topic, _claim waits for room
        log.info("topics served", consumer=self.name, group=self._group, topics=sorted(served))

    # -- claiming

    async def _claim(self, burst: Burst) -> None:
        """Claims jobs whenever there is room."""
        stop = self._loop.create_task(self.stopping.wait())
        try:
            while not self.stopping.is_set():
                full = self._is_full(burst)
                if full:
                    self._slots.freed.clear()
                    held = await self._unless(stop, self._no_room())
                else:
                    wait_s = _BURST_WAIT_S if burst else None
                    held = await self._unless(stop, self.consumer.next(self._room, wait_s))
                if held:
                    self._runner.take(held)
                    self._heartbeats.claimed()
                    self._health.claimed()
                elif burst and not full and self._runner.idle and await self._nothing_left(burst):
                    return
        finally:
            stop.cancel()

    def _is_full(self, burst: Burst) -> bool:
        """Whether to wait for a free slot. A burst without any topic has nothing to wait for."""
        return not self._room() and not (burst and not self.handlers)

    def _room(self) -> Limits:
        """How many jobs of each topic can be claimed now; empty if none, or if no topic is served."""
        most, at_once = self._slots.room(ahead=not self.consumer.contended)
        if most == 0 or self._sender.unsent >= _MOST_UNSENT:
            return {}
        limits = {name: _limit(most, at_once, handler.batch or 1) for name, handler in self.handlers.items()}
        ready = self._runner.process_room()
        if ready is None:
            return limits
        for name, handler in self.handlers.items():
            if handler.process:
                least = min(ready, at_once)
                limits[name] = _limit(least, least, handler.batch or 1)
        return {name: limit for name, limit in limits.items() if limit.most > 0}

    def _more_room(self) -> None:
        """There may be, for handlers in processes: a claim that waits for other topics begins anew."""
        self._slots.freed.set()
        self.consumer.look_again()

    async def _no_room(self) -> list[ClaimedJob]:
        """Waits until there is room. Entries that a read returns meanwhile go back, for workers that have room."""
        if not self.consumer.reading:
            await self._slots.freed.wait()
            return []
        freed = self._loop.create_task(self._slots.freed.wait())
        back = self._loop.create_task(self.consumer.hand_back())
        try:
            await asyncio.wait((freed, back), return_when=asyncio.FIRST_COMPLETED)
            return back.result() if back.done() else []
        finally:
            await cancel_and_wait([freed, *([] if back.done() else [back])])

    async def _unless(self, stop: asyncio.Task[Any], waiting: Coroutine[Any, Any, T]) -> T | None:
        """The awaited result, or None if the worker is stopped first."""
        task = self._loop.create_task(waiting)
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                await cancel_and_wait([task])

    async def _nothing_left(self, burst: Burst) -> bool:
        await self._sender.drained()
        for topic in self._served:
            try:
                found = (await arun(self.link, stats(self._store, topic))).topics[topic]
            except UnknownTopic:
                return False
            group = found.groups.get(self._group)
            # A job that is blocked may never start.
            waits = found.overdue_ms if burst == "due" or group is None else max(0, group.delayed - found.blocked)
            if group is None or waits or group.ready + group.running:
                if burst is True and waits:
                    self._tell_what_waits(topic, waits, found.next_due_ms)
                return False  # None: deleted, or without the group; it is made again, or served no more
        return True

    def _tell_what_waits(self, topic: str, delayed: int, next_due_ms: int | None) -> None:
        """Says once why a burst goes on though nothing runs: it may be for hours."""
        if self._said_what_waits:
            return
        self._said_what_waits = True
        due = None if next_due_ms is None else datetime.fromtimestamp(next_due_ms / 1000, UTC)
        log.info(
            "waiting for delayed jobs", consumer=self.name, topic=topic, delayed=delayed,
            next_due=due and due.isoformat(timespec="milliseconds"),
        )  # fmt: skip

    # -- outcomes and stopping

    async def _in_time(self, telling: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._settings.call_timeout_s):
                await telling
        except Exception as error:
            log.warning("stopped; Redis did not confirm it", unsent=self._sender.size, error=what(error))

    async def _all_sent(self) -> None:
        """Waits until all outcomes are sent, or the task that sends them has ended because all tasks were cancelled
        together.
        """
        drained = self._loop.create_task(self._sender.drained())
        try:
            await asyncio.wait((drained, self._sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()

    def _holds_claims(self) -> bool:
        return not self._runner.idle or self._sender.size > 0

    async def _leave(self) -> None:
        await self.consumer.leave()
        await self._heartbeats.end(
            self.link
        )  # not if it could hand nothing back: without a heartbeat, the mover soon does

    async def _drain(self, grace_s: float) -> None:
        """Lets running handlers end, hands other jobs back, and leaves the group."""
        self._health.state = "draining"
        await self._runner.drain(grace_s)
        # Redis may be down, wholly or in part. Jobs whose outcome it doesn't get now are redelivered after their TTR.
        await self._in_time(self._all_sent())
        await self._in_time(self._leave())
        self._deadlines.close()
        await self._notices.close(self._settings.call_timeout_s)
        self._runner.close()
        log.info("worker stopped", consumer=self.name)


def _limit(most: int, at_once: int, batch: int) -> Limit:
    return Limit(min(MAX_BATCH, most * batch), at_once * batch)
