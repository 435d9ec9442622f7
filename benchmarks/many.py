"""Many topics: what it costs to look at all of them, and to start beside them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from prometheus_client import CollectorRegistry, generate_latest

from streamdq import Queue, Worker
from streamdq.exporter.exporter import RedisCollector
from streamdq.store.scripts.searches import STATS_STEP

from .figures import Figure
from .harness import NAMESPACE, Bench, body, hours, median, new_jobs, percentile, spread, timed
from .server import RedisServer
from .timing import PER_SECOND, trickled
from .web import asked

_TOPICS, _SHARDS, _GROUPS = 10_000, 256, 50
_ROUNDS, _VIEWS = 5, 40
_DONE = 3


def many(bench: Bench) -> list[Figure]:
    """10,000 topics, one of them with 256 shards and one with 50 groups: figures, metrics, pages, and start-up."""
    topics = max(_SHARDS, int(_TOPICS * bench.scale))
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:
        _fill(queue, topics)
        took = _looks(server, queue, bench.rounds(_ROUNDS))
        step_ms = _step_ms(server, queue, bench.rounds(_ROUNDS))
        pages = asked(server, bench.rounds(_VIEWS), {"overview": "/", "search": "/?q=99"}, ["topic.0"])
        count = int(PER_SECOND * bench.seconds(10))
        alone_ms = trickled(server, count)
        with _watching(server):
            beside_ms = trickled(server, count, before=count)
    label = f"{topics} topics"
    figures = [
        Figure("many", f"{label}: {what}", median(took[what]), "s", at_most=most, raw={"s": spread(took[what])})
        for what, most in _BOUNDS.items()
    ]
    for (what, _), found in pages.items():
        name, raw = f"{label}: page, {what}, p99", {"ms": spread(found)}
        figures.append(Figure("many", name, percentile(found, 99), "ms", at_most=200, raw=raw))
    for percent, most in ((50, 2.5), (99, 10)):
        late_ms, floor_ms = percentile(beside_ms, percent), percentile(alone_ms, percent)
        name = f"{label}: lateness beside stats, p{percent}"
        figures.append(Figure("many", name, late_ms, "ms", floor_ms, "without them", at_most=most))
    name = f"{label}: Redis's time for one call of stats"
    return [*figures, Figure("many", name, step_ms, "ms", at_most=2)]


_BOUNDS = {
    "stats": 0.5, "a scrape": 1.0, "upcoming": 0.5, "audit": 5.0, "doctor": 5.0, "a producer's first job": 0.1,
    "a worker from start to end": 1.0, f"stats of {_SHARDS} shards": 0.05, f"stats of {_GROUPS} groups": 0.05,
}  # fmt: skip
"""Seconds, at most."""


def _fill(queue: Queue, topics: int) -> None:
    """Three jobs that wait in each topic, and some that were done."""
    queue.configure("shards", shards=_SHARDS)
    queue.configure("groups", groups=[f"g{number}" for number in range(_GROUPS)])
    for name in ("shards", "groups"):
        queue.enqueue_many(name, new_jobs(1_000, hours))
    numbers = range(topics - 4)  # TOPIC and "work" are to come
    for number in numbers:
        queue.enqueue_many(f"topic.{number}", new_jobs(3, hours, number))
    for number in numbers[::_DONE]:
        queue.enqueue(f"topic.{number}", body(number))
        with queue.take(f"topic.{number}", timeout=0):
            pass


def _looks(server: RedisServer, queue: Queue, rounds: int) -> dict[str, list[float]]:
    """Seconds that each look takes, by a process that has looked before; and of those that start."""
    with closing(RedisCollector(server.url, NAMESPACE)) as collector:
        registry = CollectorRegistry()
        registry.register(collector)
        looks: dict[str, Callable[[], object]] = {
            "stats": queue.stats,
            "a scrape": lambda: generate_latest(registry),
            "upcoming": queue.upcoming,
            "audit": queue.audit,
            "doctor": queue.doctor,
            "a producer's first job": lambda: _produce(server),
            "a worker from start to end": lambda: _work(server, queue),
            f"stats of {_SHARDS} shards": lambda: queue.stats("shards"),
            f"stats of {_GROUPS} groups": lambda: queue.stats("groups"),
        }
        return {what: [timed(look) for _ in range(rounds)] for what, look in looks.items()}


def _step_ms(server: RedisServer, queue: Queue, rounds: int) -> float:
    """How long one call keeps Redis, with the scripts of as many shards as are sent together."""
    server.reset_statistics()
    for _ in range(rounds):
        queue.stats()
    calls, total_us = server.script_calls()
    return total_us / calls * STATS_STEP / 1000


def _produce(server: RedisServer) -> None:
    with Queue(server.url, NAMESPACE) as queue:
        queue.enqueue("topic.1", body(0), delay="1h")


def _work(server: RedisServer, queue: Queue) -> None:
    """A worker that starts, does the job that is due, and ends."""
    queue.enqueue("work", body(0))
    worker = Worker(server.url, NAMESPACE)
    done = []

    @worker.handler("work")
    async def handler(_: object) -> None:
        done.append(time.monotonic())

    asyncio.run(worker.serve(burst=True))
    if len(done) != 1:
        raise RuntimeError(f"{len(done)} jobs were done")


@contextmanager
def _watching(server: RedisServer) -> Iterator[None]:
    """Somebody who looks at all topics' figures every second, in a process of its own."""
    words = ["--url", server.url, "--namespace", NAMESPACE, "stats", "--watch", "--json"]
    watch = subprocess.Popen([sys.executable, "-m", "streamdq", *words], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        watch.terminate()
        watch.wait(20)
