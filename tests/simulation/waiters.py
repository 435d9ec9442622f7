"""Processes that wait for results: several waits at once, of jobs that may be anywhere in their lives, or nowhere."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue
from streamdq.errors import JobCancelled, JobExpired, JobFailed, StreamdqError
from streamdq.times.durations import to_ms

from .model import Broken
from .plan import GROUPS

if TYPE_CHECKING:
    from .world import World

RESULTS = (0.66, 0.74)
"""Which part of the seeds keeps results."""
_LATE_S = 6.0
"""By which a wait may miss its deadline while calls to Redis fail: each of the last ones takes its time-out of 2 s."""
_AT_ONCE = 4


def retentions(seed: int) -> str:
    return Random(f"{seed} retentions").choice(("5s", "60s", "1h"))


def longest_s(retention: str | None) -> float:
    """After that time every result has expired, also one from when Redis's clock was ahead."""
    return 0.0 if retention is None else to_ms(retention, "result") / 1000 + 30.0


async def wait_for_results(world: World) -> None:
    """The main function of such a process."""
    random = world.waits
    async with AsyncQueue(settings=world.settings) as queue:
        waits = set[asyncio.Task[None]]()
        while not world.calm:
            await asyncio.sleep(random.expovariate(2.0))
            waits = {wait for wait in waits if not wait.done()}
            if len(waits) < _AT_ONCE:
                running = world.model.running() if random.random() < 0.4 else []
                topic, id = random.choice(running) if running else world.known_id(random)
                waits.add(asyncio.create_task(_wait(world, queue, topic, id, random.choice((0, 0.5, 3, 10, 10, 80)))))
        await asyncio.gather(*waits)


async def _wait(world: World, queue: AsyncQueue, topic: str, id: str, timeout_s: float) -> None:
    process, began, calls_seen = world.here(), world.loop.time(), world.model.calls_seen
    outcome, value = "done", None
    try:
        value = await queue.result(topic, id, group=GROUPS[0], timeout=timeout_s)
    except StreamdqError as error:
        outcome, value = _ENDS.get(type(error), ""), error
        world.note(f"result: {type(error).__name__}")
    else:
        world.note("result: done")
    late_s = world.loop.time() - began - timeout_s
    with world.judged():
        if late_s > _LATE_S and process.troubled_at < began:
            raise Broken(f"a wait for {id!r} of {topic} ended {late_s:.1f} s after its deadline: {value!r}")
        if outcome:
            world.model.results.returned(world.model, topic, id, GROUPS[0], calls_seen, outcome, value)


_ENDS: dict[type[Any], str] = {JobFailed: "dead", JobCancelled: "cancelled", JobExpired: "expired"}
