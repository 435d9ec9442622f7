"""Producers: one job at a time, and many; and how much of Redis's memory a waiting job takes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import closing

import redis
import redis.asyncio

from streamdq import AsyncQueue, NewJob, Queue

from . import bare_calls as bare
from . import timers
from .figures import Figure
from .harness import BATCH, NAMESPACE, TOPIC, Bench, body, hours, in_turn, median, new_jobs, spread, timed
from .server import RedisServer

_SLICES = 20
_BODIES = {50: 100_000, 100: 100_000, 165: 100_000, 500: 100_000, 1000: 50_000, 4000: 25_000}
"""Sizes of bodies, and how many jobs: their tables in Redis are equally full."""


def one_by_one(bench: Bench) -> list[Figure]:
    """Sync enqueue of delayed jobs, beside the same calls without streamdq, and what such calls cost anybody: a script
    that does nothing, and one ZADD of a message as long as a record, which is what queues without a record send.
    """
    count = bench.jobs(1_000, least=50)
    with (
        bench.server() as server,
        Queue(server.url, NAMESPACE) as queue,
        redis.Redis.from_url(server.url) as client,
        closing(bare.BareSocket(server)) as connection,
    ):
        nothing = [(client.script_load("return 1"), 0)] * count
        message = b"m" * len(bare.enqueue_calls(1)[0][-1])
        bodies = [body(i) for i in range(count)]

        def subject() -> float:
            return count / timed(lambda: [queue.enqueue(TOPIC, bodies[i], delay=hours(i)) for i in range(count)])

        def same_call() -> float:
            calls = bare.enqueue_calls(count)
            return count / timed(lambda: bare.by_redis_py(client, calls))

        def on_a_socket() -> float:
            calls = bare.enqueue_calls(count)
            return count / timed(lambda: connection.evalsha(calls))

        def empty_script() -> float:
            return count / timed(lambda: bare.by_redis_py(client, nothing))

        def empty_on_a_socket() -> float:
            return count / timed(lambda: connection.evalsha(nothing))

        def zadd() -> float:
            return count / timed(lambda: [client.zadd("bare", {b"%d" % i + message: hours(i)}) for i in range(count)])

        rates = _after_warm_up(bench, subject, same_call, on_a_socket, empty_script, empty_on_a_socket, zadd)
    enqueued, same, least, empty, empty_least, added = rates
    what = "one by one, sync"
    return [
        _figure("enqueue", what, enqueued, same, "redis-py: the same EVALSHA", ratio_at_least=0.85),
        _figure("enqueue", what, enqueued, empty, "redis-py: a script that does nothing"),
        _figure("enqueue", what, enqueued, added, "redis-py: a ZADD"),
        _figure(
            "enqueue", "the same EVALSHA on a socket", least, empty_least, "a script that does nothing on a socket"
        ),
    ]


def at_once(bench: Bench) -> list[Figure]:
    """32 tasks that each enqueue one job after the other, beside one task, and as many that make the same calls by
    redis-py.
    """
    count = bench.jobs(3_000, least=64)
    with bench.server() as server:

        async def rates() -> list[list[float]]:
            client = redis.asyncio.Redis.from_url(server.url)
            async with AsyncQueue(server.url, NAMESPACE) as queue, client:

                async def enqueue_all(tasks: int) -> float:
                    async def some(first: int) -> None:
                        for i in range(first, count, tasks):
                            await queue.enqueue(TOPIC, body(i), delay=hours(i))

                    began = time.perf_counter()
                    await asyncio.gather(*(some(first) for first in range(tasks)))
                    return count / (time.perf_counter() - began)

                async def same_calls() -> float:
                    calls = bare.enqueue_calls(count)
                    began = time.perf_counter()
                    await bare.by_async_redis_py(client, calls, 32)
                    return count / (time.perf_counter() - began)

                await enqueue_all(1)
                await same_calls()
                measured = [
                    (await enqueue_all(32), await enqueue_all(1), await same_calls())
                    for _ in range(bench.rounds(_SLICES))
                ]
            return [list(column) for column in zip(*measured, strict=True)]

        together, alone, same = timers.run(rates())
    what = "32 tasks at once, async"
    return [
        _figure("enqueue", what, together, alone, "one task", at_least=20_000, ratio_at_least=3.0),
        _figure("enqueue", what, together, same, "redis-py: the same EVALSHA, 32 tasks", ratio_at_least=1.0),
    ]


def pipelined(bench: Bench) -> list[Figure]:
    """The same jobs one by one through a pipeline, sync and async."""
    count = bench.jobs(5_000, least=64)
    bodies = [body(i) for i in range(count)]
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:

        def through_pipeline() -> float:
            return count / timed(lambda: _through_pipeline(queue, bodies))

        def through_async_pipeline() -> float:
            return count / timers.run(_through_async_pipeline(server.url, bodies))

        def one_by_one(numbers: range) -> None:
            for i in numbers:
                queue.enqueue(TOPIC, bodies[i], delay=hours(i))

        def alone() -> float:
            some = range(0, count, 10)
            return len(some) / timed(lambda: one_by_one(some))

        runs = (through_pipeline, through_async_pipeline, alone)
        for run in runs:
            run()
        *rates, floor = in_turn(bench.rounds(_SLICES // 2), *runs)
    targets = {"sync": 20_000, "async": 20_000}
    return [
        Figure(
            "pipeline", what, median(found), "/s", median(floor), "one by one, sync",
            at_least=at_least, raw={"measured": spread(found), "floor": spread(floor)},
        )
        for (what, at_least), found in zip(targets.items(), rates, strict=True)
    ]  # fmt: skip


def _through_pipeline(queue: Queue, bodies: list[dict[str, object]]) -> None:
    with queue.pipeline() as pipe:
        for i, one in enumerate(bodies):
            pipe.enqueue(TOPIC, one, delay=hours(i))


async def _through_async_pipeline(url: str, bodies: list[dict[str, object]]) -> float:
    """How many seconds it took, without the connection."""
    async with AsyncQueue(url, NAMESPACE) as queue:
        await queue.enqueue(TOPIC, bodies[0], delay="1h")
        began = time.perf_counter()
        async with queue.pipeline() as pipe:
            for i, one in enumerate(bodies):
                await pipe.enqueue(TOPIC, one, delay=hours(i))
        return time.perf_counter() - began


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

        measured, least = _after_warm_up(bench, subject, floor)
    what, floor_is = f"batches of {BATCH}", "pipelined HSET + ZADD"
    return [_figure("enqueue_many", what, measured, least, floor_is, at_least=60_000, ratio_at_least=0.7)]


def _pipelined(bare: redis.Redis, rows: list[tuple[str, str, float]]) -> None:
    for start in range(0, len(rows), BATCH):
        pipe = bare.pipeline(transaction=False)
        for id, text, due in rows[start : start + BATCH]:
            pipe.hset("bare:jobs", id, text)
            pipe.zadd("bare:bucket", {id: due})
        pipe.execute()


def _after_warm_up(bench: Bench, *runs: Callable[[], float]) -> list[list[float]]:
    for run in runs:
        run()
    return in_turn(bench.rounds(_SLICES), *runs)


def _figure(
    workload: str,
    what: str,
    measured: list[float],
    floor: list[float],
    floor_is: str,
    *,
    at_least: float | None = None,
    ratio_at_least: float | None = None,
) -> Figure:
    return Figure(
        workload, what, median(measured), "/s", median(floor), floor_is,
        at_least=at_least, ratio_at_least=ratio_at_least, raw={"measured": spread(measured), "floor": spread(floor)},
    )  # fmt: skip


def memory(bench: Bench) -> list[Figure]:
    """How much Redis's used_memory grows per delayed job, by the size of its body."""
    return [_memory(bench, size, full) for size, full in _BODIES.items()]


def _memory(bench: Bench, size: int, full: int) -> Figure:
    count = bench.jobs(full)
    bodies = [body_of_size(i, size) for i in range(count)]
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue, redis.Redis.from_url(server.url) as bare:
        queue.enqueue(TOPIC, bodies[0], delay="3h")  # scripts and settings are there already
        jobs = [NewJob(bodies[i], delay=hours(i)) for i in range(count)]
        used = memory_growth(server, lambda: queue.enqueue_many(TOPIC, jobs))
        rows = [(f"bare-{i:09}", json.dumps(bodies[i], separators=(",", ":")), hours(i)) for i in range(count)]
        floor = memory_growth(server, lambda: _pipelined(bare, rows))
    return Figure(
        "memory", f"per delayed job, {size}-byte body", used / count, "bytes", floor / count, "bare HSET + ZADD",
        at_most=360 if size == 100 else None, raw={"jobs": count, "used_bytes": used},
    )  # fmt: skip


def memory_growth(server: RedisServer, run: Callable[[], object]) -> int:
    before = server.memory_bytes()
    run()
    return server.memory_bytes() - before


def body_of_size(number: int, size: int) -> dict[str, object]:
    """A body that is so many bytes long as JSON."""
    short = {"n": 1_000_000_000 + number, "note": ""}
    return {**short, "note": "x" * (size - len(json.dumps(short, separators=(",", ":"))))}
