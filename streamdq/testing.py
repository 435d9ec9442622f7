"""For your own tests: a queue in memory, a clock to advance, and a worker that steps through days in milliseconds.

Needs ``pip install 'streamdq[memory]'``. ``memory://`` runs the same scripts as Redis, so every state, order and count
is the same. Persistence, several processes and speed are not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from .config import MAX_BATCH, Settings, TopicSettings
from .errors import InvalidInput
from .job.flow import FLOWS
from .job.job import Job
from .keys import ShardKeys
from .link.connection import forget_memory
from .queue import AsyncQueue, Queue, carry_out_async, store_of
from .store.counters import Counters, GroupCounter
from .store.flows import decisions, reading
from .store.jobs import ordered
from .store.replies import RATED, Moved, ShardStats
from .store.scripts.flows import Run
from .times.clock import ManualClock
from .times.durations import Duration, to_ms
from .worker.worker import Worker, bound_to, config_of, run_of

__all__ = ["ManualClock", "Memory", "RunWorker", "drain", "memory"]

_LOOK_S = 0.001
_MOST_NAMED = 5
_OFF_S = 60.0  # clocks of one system differ by less


@dataclass(frozen=True, slots=True)
class Memory:
    """A new server in this process, and the clock for everything on it."""

    url: str
    clock: ManualClock

    def queue(self, namespace: str | None = None, settings: Settings | None = None) -> Queue:
        return Queue(self.url, namespace, settings=settings, clock=self.clock)

    def async_queue(self, namespace: str | None = None, settings: Settings | None = None) -> AsyncQueue:
        return AsyncQueue(self.url, namespace, settings=settings, clock=self.clock)

    def worker(self, namespace: str | None = None, group: str = "default", concurrency: int = 100) -> Worker:
        return Worker(self.url, namespace, group, concurrency, clock=self.clock)

    @contextmanager
    def bind(self, worker: Worker) -> Iterator[Worker]:
        """Your own worker, with its handlers and schedules, serves here until the end of the block:
        ``with server.bind(orders.worker) as worker:``.
        """
        before = bound_to(worker, self.url, self.clock)
        try:
            yield worker
        finally:
            bound_to(worker, *before)

    def close(self) -> None:
        """Deletes the server's data."""
        forget_memory(self.url)


class RunWorker(Protocol):
    """The type of pytest's fixture ``streamdq_run``; that of ``streamdq_server`` is Memory, that of ``streamdq_queue``
    Queue. ``worker`` serves on the test's server for this long by its clock, as with ``drain``.
    """

    def __call__(self, worker: Worker, for_: Duration = "26h", *, within_s: float = 30.0) -> None: ...


def memory(start_ms: int | None = None) -> Memory:
    """A new server and clock, which no other test shares. ``start_ms``: the clock's first time; None: now."""
    return Memory(f"memory://{uuid4().hex}", ManualClock(start_ms))


async def drain(worker: Worker, clock: ManualClock, for_: Duration = "26h", within_s: float = 30.0) -> None:
    """Lets the worker serve for this long by the clock, which jumps from one due time to the next. Every attempt starts
    in the millisecond in which it is due, and 15 hours between two attempts take no time.

    Works on ``memory://`` and on a real Redis, with any number of topics, and includes jobs that handlers enqueue. A
    handler that sleeps takes real time, because its event loop does not use this clock.

    Raises:
        TimeoutError: it took longer than ``within_s`` seconds of real time: a handler hangs, or another consumer
            holds a job. The message names the jobs that still run.
        InvalidInput: the event loop's clock stands still, as freezegun makes it.
    """
    end_ms = clock.now_ms + to_ms(for_, "for_")
    _refuse_frozen_time()
    limit, late = asyncio.timeout(within_s), list[Job]()
    try:
        async with (
            limit,
            AsyncQueue(worker.url, worker.namespace, clock=clock) as queue,
            _run(worker, late) as serving,
        ):
            while True:
                due_ms = await _until_idle(queue, worker, serving)
                if due_ms is None or due_ms > end_ms:
                    break
                clock.advance(max(0, due_ms - clock.now_ms) / 1000)
    except TimeoutError as error:
        if not limit.expired():  # it is one of the worker's own functions
            raise
        raise TimeoutError(f"drain: not done within {within_s:g} s; {_why_late(late)}") from error
    clock.advance(max(0, end_ms - clock.now_ms) / 1000)


def _refuse_frozen_time() -> None:
    """With a clock that stands still, the event loop would wait for ever, its own time-outs included."""
    now = asyncio.get_running_loop().time()
    if abs(now - time.clock_gettime(time.CLOCK_MONOTONIC)) > _OFF_S:
        raise InvalidInput(
            "drain: the event loop's clock stands still; if freeze_time does that, write freeze_time(..., "
            "real_asyncio=True), or set the time by memory(start_ms=...) instead"
        )


def _why_late(late: Sequence[Job]) -> str:
    if not late:
        return "no handler runs: another consumer holds a job, or jobs make jobs without end"
    named = ", ".join(f"{job.topic} / {job.id}" for job in late[:_MOST_NAMED])
    more = f" and {len(late) - _MOST_NAMED} more" if len(late) > _MOST_NAMED else ""
    return f"handlers still run: {named}{more}"


@asynccontextmanager
async def _run(worker: Worker, late: list[Job]) -> AsyncIterator[asyncio.Task[None]]:
    """While the worker serves. If that is cut off, its jobs that still run are added to ``late``, and handed back."""
    task = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)  # now the worker has started, and `stop` reaches it
    try:
        yield task
    except asyncio.CancelledError:
        if (serving := run_of(worker)) is not None:
            late += serving.running
        task.cancel()  # not `stop`, which waits for the handlers
        raise
    finally:
        worker.stop()
        await task


@dataclass(slots=True)
class _Look:
    """The result of one look at all shards. ``counts``: all counters, because every transition changes one."""

    busy: bool
    due_ms: int | None
    counts: dict[str, Counters]


async def _until_idle(queue: AsyncQueue, worker: Worker, serving: asyncio.Task[None]) -> int | None:
    """Waits until no job of the worker is due, ready or running; returns when the next one is due."""
    before = await _look(queue, worker)
    while not serving.done():
        await asyncio.sleep(_LOOK_S)
        look = await _look(queue, worker)
        # Two equal looks: otherwise a job may have moved from a shard that was not read yet to one already read.
        if not look.busy and not before.busy and look.counts == before.counts:
            return look.due_ms
        before = look
    return None


async def _rated(queue: AsyncQueue, shard: ShardKeys, stats: ShardStats) -> Moved:
    """What the worker's mover is about to do in a topic with a rate. Only the mover asks for permits."""
    store = store_of(queue)
    first = store.session.keys.shard(shard.topic, 0)
    _, now_ms, free_ms = await carry_out_async(queue, store.scripts.permit(first, 0))
    is_due = 0 <= stats.first_due_ms <= now_ms
    due_ms = max(free_ms, now_ms + 1) if is_due else stats.first_due_ms
    return Moved(int(is_due and free_ms <= now_ms), now_ms, due_ms, 0)


async def _look(queue: AsyncQueue, worker: Worker) -> _Look:
    store = store_of(queue)
    known = await carry_out_async(queue, store.topics.refresh())
    serving = run_of(worker)
    begun = serving is not None and serving.begun and _awaited(worker, known) <= (known.keys() & worker.topics)
    look = _Look(False, None, {})
    for topic in worker.topics & known.keys():
        for shard in store.topics.shards(topic):
            await _look_at(queue, shard, known[topic].group_names, worker.group, look)
        if known[topic].scheduled:
            await _look_at_schedules(queue, topic, look)
    await _look_at_endings(queue, known, look)
    if FLOWS in known:
        await _look_at_flows(queue, look)
    # Last, so that no time passes before the clock jumps: a claim under way has the time at which it was begun.
    look.busy = look.busy or not begun or serving is None or not serving.consumer.waits
    return look


def _awaited(worker: Worker, known: Mapping[str, TopicSettings]) -> frozenset[str]:
    """The topics that the worker serves, or will find by itself in a moment."""
    if config_of(worker).handlers.every is None:
        return worker.topics
    return worker.topics | {topic for topic, settings in known.items() if worker.group in settings.groups}


async def _look_at_endings(queue: AsyncQueue, known: Mapping[str, TopicSettings], look: _Look) -> None:
    """Adds what the worker's mover is about to tell jobs that wait for others, of any topic."""
    store = store_of(queue)
    linked = [topic for topic, settings in known.items() if settings.linked]
    for shard in (shard for topic in linked for shard in store.topics.all_shards(topic)):
        found = await carry_out_async(queue, store.scripts.endings(shard, 1))
        look.busy = look.busy or bool(found.endings) or 0 <= found.look_ms <= found.now_ms


async def _look_at_flows(queue: AsyncQueue, look: _Look) -> None:
    """Does what the worker's mover does every ten seconds of real time, when it is due by the clock: cancels flows at
    their deadlines, and withdraws those that were not completed.
    """
    store = store_of(queue)
    session, scripts = store.session, store.scripts
    for shard in store.topics.all_shards(FLOWS):
        (heads,) = await carry_out_async(queue, ordered.by_rank(session, [(shard.flow_times, 0)], 1))
        for at_ms, name in heads:
            run = Run(shard, name.decode(), "")
            if at_ms > int(session.clock.argument()):
                # One that is being built is looked at every ten seconds: the clock does not stop for that.
                if await carry_out_async(queue, reading.state(session, run)) != "b":
                    look.due_ms = min(look.due_ms or at_ms, at_ms)
                continue
            look.busy = True
            swept = await carry_out_async(queue, scripts.sweep_flows(shard, MAX_BATCH))
            for overdue in swept[-1]:
                run = Run(shard, overdue, "")
                await carry_out_async(queue, decisions.cancel(session, scripts, store.topics, run))


async def _look_at_schedules(queue: AsyncQueue, topic: str, look: _Look) -> None:
    """Adds the next occurrence of the topic's schedules, which the worker's mover makes a job of when it is due."""
    session = store_of(queue).session
    (heads,) = await carry_out_async(queue, ordered.by_rank(session, [(session.keys.shard(topic, 0).ticks, 0)], 1))
    for due_ms, _ in heads:
        look.busy = look.busy or due_ms <= int(session.clock.argument())
        look.due_ms = min(look.due_ms or due_ms, due_ms)


async def _look_at(queue: AsyncQueue, shard: ShardKeys, groups: Sequence[str], group: str, look: _Look) -> None:
    """Adds one shard's jobs of the worker's ``group`` to ``look``."""
    scripts = store_of(queue).scripts
    # The worker's mover does this, too; we need the reply.
    moved = await carry_out_async(queue, scripts.move(shard, groups, MAX_BATCH))
    stats = await carry_out_async(queue, scripts.stats(shard, groups))
    if moved.moved == RATED:
        moved = await _rated(queue, shard, stats)
    look.counts[shard.counts] = stats.counts
    ready, running = (stats.counts.of_group(counter, group) for counter in (GroupCounter.READY, GroupCounter.RUNNING))
    look.busy = look.busy or moved.moved != 0 or running > 0 or (ready > 0 and not stats.paused)
    if moved.next_due_ms >= 0:
        look.due_ms = min(look.due_ms or moved.next_due_ms, moved.next_due_ms)
