"""How long a caller waits for a job's result, and what many waits cost. The floor is what a program without results
does: the handler pushes to a list, from which the caller pops (BLPOP).
"""

from __future__ import annotations

import asyncio
import time

import redis

from streamdq import AsyncQueue, NewJob, Queue

from .figures import Figure
from .harness import NAMESPACE, Bench, body, in_turn, median, must, spread
from .server import RedisServer
from .workers import processes

_ROUNDS = 5
KEPT, PUSHED = "result.kept", "result.pushed"
REPLY = "bare:reply:"
_MOST_CONNECTIONS = 2


def results(bench: Bench) -> list[Figure]:
    """Round trips, one by one: enqueue a job, and wait for what its handler returns. Then very many waits at once."""
    count, waits = bench.jobs(2_000, least=100), bench.jobs(10_000)
    with bench.server() as server, processes(server.url, "answering", 1) as (worker,):
        worker.serve()
        with Queue(server.url, NAMESPACE) as queue, redis.Redis.from_url(server.url) as client:
            for topic in (KEPT, PUSHED):
                must(lambda topic=topic: topic in queue.stats().topics, "the worker serves")  # type: ignore[misc]
            kept, pushed = in_turn(
                bench.rounds(_ROUNDS), lambda: _kept(queue, count), lambda: _pushed(queue, client, count)
            )
        worker.stop()
        used = asyncio.run(_many(server, waits))
    connections, commands, seconds = used
    what = f"{waits:,} waits at once"
    return [
        Figure(
            "results", "enqueued, and its result awaited, one by one", median(kept), "/s", median(pushed),
            "pushed by the handler, BLPOP", ratio_at_least=0.6, raw={"kept": spread(kept), "pushed": spread(pushed)},
        ),
        Figure("results", f"connections of {what}", connections, "connections", at_most=_MOST_CONNECTIONS),
        Figure("results", f"commands of {what}, while nothing ends", commands, "/s", at_most=5),
        Figure("results", f"from the last of their jobs' ends to the last result, {what}", seconds, "s"),
    ]  # fmt: skip


def _kept(queue: Queue, count: int) -> float:
    started = time.perf_counter()
    for number in range(count):
        queue.result(queue.enqueue(KEPT, body(number)))
    return count / (time.perf_counter() - started)


def _pushed(queue: Queue, client: redis.Redis, count: int) -> float:
    started = time.perf_counter()
    for number in range(count):
        job = queue.enqueue(PUSHED, body(number))
        if client.blpop([f"{REPLY}{job.id}"], timeout=30) is None:
            raise TimeoutError("no reply")
    return count / (time.perf_counter() - started)


async def _many(server: RedisServer, count: int) -> tuple[int, float, float]:
    """Connections of the waits, commands a second while they wait, and how long their results took."""
    with redis.Redis.from_url(server.url) as client, Queue(server.url, NAMESPACE) as producer:
        ids = [f"job-{number}" for number in range(count)]
        producer.enqueue_many(KEPT, [NewJob(body(number), delay="1h", id=id) for number, id in enumerate(ids)])
        before, watched = client.info("clients")["connected_clients"], _watched(client)
        async with AsyncQueue(server.url, NAMESPACE) as queue:
            waits = [asyncio.create_task(queue.result(KEPT, id, timeout="10m")) for id in ids]
            await asyncio.to_thread(must, lambda: _watched(client) >= watched + count, "they wait")
            await asyncio.sleep(1)  # the last of them ask whether their jobs are there
            connections = client.info("clients")["connected_clients"] - before
            commands, began = client.info("stats")["total_commands_processed"], time.monotonic()
            await asyncio.sleep(2)
            commands = client.info("stats")["total_commands_processed"] - commands - 1
            per_second = commands / (time.monotonic() - began)
            await asyncio.to_thread(_cancel_all, producer)
            ended = time.perf_counter()
            await asyncio.gather(*waits, return_exceptions=True)
            return connections, per_second, time.perf_counter() - ended


def _watched(client: redis.Redis) -> int:
    """For how many keys Redis has been asked to tell of their changes."""
    found: int = client.info("stats")["tracking_total_keys"]
    return found


def _cancel_all(queue: Queue) -> None:
    queue.find(KEPT, state="delayed").cancel()
