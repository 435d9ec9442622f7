"""Workers: processes that serve until they are told to end, are killed, or hang; and what their handlers do."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streamdq import Bury, Retry, RunningJob, Snooze, Worker
from streamdq.errors import StreamdqError

from .flows import add_children
from .loop import Process
from .model import Broken
from .plan import GROUP_TTRS, GROUPS
from .results import returned

if TYPE_CHECKING:
    from .world import World

_DRAINED_WITHIN_S = 20.0  # the grace period, and a few calls that may fail
_LAST_START_S = 0.05  # after the signal


async def work(world: World, group: str) -> None:
    """The main function of a worker's process."""
    process = world.here()
    slots = world.random.choice((1, 3, 10))
    worker = Worker(group=group, settings=world.settings, concurrency=slots)
    world.serving[process] = worker
    world.progress.serves(process, group, slots)
    ttr = world.random.choice(GROUP_TTRS) if world.plan.own_ttrs else None
    keep: Any = {"result": world.retention} if world.retention and group == GROUPS[0] else {}
    for number, topic in enumerate(world.topics):
        if number == 1:
            worker.handler(topic, ttr=ttr, batch=3, **keep)(_batch_handler(world, worker, group))
        else:
            worker.handler(topic, ttr=ttr, **keep)(_handler(world, worker, group))
    while process.stop_requested_at is None:
        try:
            await worker.serve(signals=True)
        except StreamdqError as error:
            world.note(f"worker: {type(error).__name__}")
            await asyncio.sleep(0.5)
        else:
            break
    if process.stop_requested_at is None:
        raise Broken(f"{process.name} ended by itself")
    world.note("drained")
    if not world.calm:
        world.start("worker", partial(work, world, group))


def terminate(world: World, process: Process) -> None:
    """As SIGTERM does. It must end in time, if nothing else happens to it."""
    if not world.loop.signal(process, signal.SIGTERM):
        return
    world.note("terminated", process)
    if process.stop_requested_at is None:
        process.stop_requested_at = world.loop.time()
        world.loop.call_later(_DRAINED_WITHIN_S, _must_have_ended, world, process)


def _must_have_ended(world: World, process: Process) -> None:
    if process in world.at_work("worker") and not process.was_stopped:
        with world.judged():
            raise Broken(f"{process.name} did not end within {_DRAINED_WITHIN_S} s")


def _begin(world: World, worker: Worker, group: str, serial: int, job: RunningJob) -> None:
    process = world.here()
    with world.judged():
        world.model.started(serial, job.attempt, group, worker.name)
        requested_at = process.stop_requested_at
        if requested_at is not None and not process.was_stopped and world.loop.time() > requested_at + _LAST_START_S:
            raise Broken(f"job {serial} starts in {process.name}, which was told to end at {requested_at}")


def _handler(world: World, worker: Worker, group: str) -> Callable[[Any, RunningJob], Awaitable[Any]]:
    async def handle(body: Any, job: RunningJob) -> Any:
        with world.progress.runs([body["n"]]):
            _begin(world, worker, group, body["n"], job)
            await _do(world, body, job)
        return returned(body["n"], group, worker.name) if world.retention else None

    return handle


def _batch_handler(world: World, worker: Worker, group: str) -> Callable[[list[Any], list[RunningJob]], Awaitable[Any]]:
    async def handle(bodies: list[Any], jobs: list[RunningJob]) -> Any:
        world.note(f"batch of {len(jobs)}")
        with world.progress.runs([body["n"] for body in bodies]):
            for body, job in zip(bodies, jobs, strict=True):
                _begin(world, worker, group, body["n"], job)
            await _do(world, bodies[0], jobs[0])
        return [returned(body["n"], group, worker.name) for body in bodies] if world.retention else None

    return handle


async def _do(world: World, body: Any, job: RunningJob) -> None:
    """What the job's body says for this attempt."""
    plan = body["plan"]
    what, seconds = plan[job.attempt - 1] if job.attempt <= len(plan) else ("ok", 0.0)
    if what == "kill" and (world.calm or not world.plan.crashes):
        what = "raise"
    world.note(f"handler {what}")
    if world.reporting:
        await job.progress(0.5, what)
    if seconds:
        await asyncio.sleep(seconds)
    await add_children(world, job)
    if what == "raise":
        raise ValueError("as told")
    if what == "again":
        raise Retry(delay=world.random.choice((0, 0.5)))
    if what == "bury":
        raise Bury("as told")
    if what == "snooze" and job.snoozed < 2:
        raise Snooze(0.5)
    if what == "touch":
        job.touch(world.random.choice((None, 1, 5)))
        await asyncio.sleep(1.5)
    if what == "kill":
        world.loop.kill(world.here())
        await asyncio.sleep(0)
