"""Producers: one job at a time, and many; and how much of Redis's memory a waiting job takes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import redis

from streamdq import AsyncQueue, Queue

from . import timers
from .figures import Figure
from .harness import BATCH, NAMESPACE, TOPIC, Bench, body, hours, in_turn, median, new_jobs, spread, timed

_SLICES = 20


def one_by_one(bench: Bench) -> list[Figure]:
    """Sync enqueue of delayed jobs, beside redis-py calling a script that does nothing."""
    count = bench.jobs(1_000, least=50)
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue, redis.Redis.from_url(server.url) as bare:
        sha = bare.script_load("return 1")

        def subject() -> float:
            bodies = [body(i) for i in range(count)]
            return count / timed(lambda: [queue.enqueue(TOPIC, bodies[i], delay=hours(i)) for i in range(count)])

        def floor() -> float:
            return count / timed(lambda: [bare.evalsha(sha, 0) for _ in range(count)])

        rates = _after_warm_up(bench, subject, floor)
    return [_beside_floor("enqueue", "one by one, sync", "bare EVALSHA", rates, None)]


def at_once(bench: Bench) -> list[Figure]:
    """32 tasks that each enqueue one job after the other, beside one task."""
    count = bench.jobs(3_000, least=64)
    with bench.server() as server:

        async def rates() -> list[list[float]]:
            async with AsyncQueue(server.url, NAMESPACE) as queue:

                async def enqueue_all(tasks: int) -> float:
                    async def some(first: int) -> None:
                        for i in range(first, count, tasks):
                            await queue.enqueue(TOPIC, body(i), delay=hours(i))

                    began = time.perf_counter()
                    await asyncio.gather(*(some(first) for first in range(tasks)))
                    return count / (time.perf_counter() - began)

                await enqueue_all(1)
                measured = [(await enqueue_all(32), await enqueue_all(1)) for _ in range(bench.rounds(_SLICES))]
            return [list(column) for column in zip(*measured, strict=True)]

        together, alone = timers.run(rates())
    return [
        Figure(
            "enqueue", "32 tasks at once, async", median(together), "/s", median(alone), "one task",
            at_least=20_000, ratio_at_least=3.0, raw={"measured": spread(together), "floor": spread(alone)},
        )
    ]  # fmt: skip


def many(bench: Bench) -> list[Figure]:
    """enqueue_many of delayed jobs, beside redis-py's pipelines of HSET and ZADD."""
    count = bench.jobs(5_000)
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue, redis.Redis.from_url(server.url) as bare:
        made = iter(range(10**9))

        def subject() -> float:
            jobs = new_jobs(count, hours)
            return count / timed(lambda: queue.enqueue_many(TOPIC, jobs, batch_size=BATCH))

        def floor() -> float:
            rows = [(f"job-{next(made)}", json.dumps(body(i), separators=(",", ":")), hours(i)) for i in range(count)]
            return count / timed(lambda: _pipelined(bare, rows))

        rates = _after_warm_up(bench, subject, floor)
    return [_beside_floor("enqueue_many", f"batches of {BATCH}", "pipelined HSET + ZADD", rates, 60_000)]


def _pipelined(bare: redis.Redis, rows: list[tuple[str, str, float]]) -> None:
    for start in range(0, len(rows), BATCH):
        pipe = bare.pipeline(transaction=False)
        for id, text, due in rows[start : start + BATCH]:
            pipe.hset("bare:jobs", id, text)
            pipe.zadd("bare:bucket", {id: due})
        pipe.execute()


def _after_warm_up(bench: Bench, subject: Callable[[], float], floor: Callable[[], float]) -> list[list[float]]:
    subject()
    floor()
    return in_turn(bench.rounds(_SLICES), subject, floor)


def _beside_floor(workload: str, what: str, floor_is: str, rates: list[list[float]], at_least: float | None) -> Figure:
    subject, floor = rates
    return Figure(
        workload, what, median(subject), "/s", median(floor), floor_is,
        at_least=at_least, ratio_at_least=0.7, raw={"measured": spread(subject), "floor": spread(floor)},
    )  # fmt: skip


def memory(bench: Bench) -> list[Figure]:
    """How much Redis's used_memory grows per delayed job."""
    count = bench.jobs(100_000)
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:
        queue.enqueue_many(TOPIC, new_jobs(1, hours))  # scripts and settings are there already
        before = server.info("memory")["used_memory"]
        queue.enqueue_many(TOPIC, new_jobs(count, hours))
        used = server.info("memory")["used_memory"] - before
    raw = {"jobs": count, "used_bytes": used}
    return [Figure("memory", "per delayed job, 100-byte body", used / count, "bytes", at_most=360, raw=raw)]
