"""What it costs that a job waits for others: a chain of two jobs, and very many that one waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from streamdq import NewJob, Queue

from .figures import Figure
from .harness import DONE, NAMESPACE, SHARD, TOPIC, Bench, body, must, percentile
from .server import RedisServer
from .workers import processes

_ROUNDS = 3
_EVERY_S = 1.0  # seldom, as asking is paid for by the server
_IDLE_S = 10.0
_WAITED_FOR = "waited-for"
_APART_S = 0.02  # each pair is done before the next one is due


@dataclass(frozen=True, slots=True)
class _Used:
    """CPU time for a job, of the server and of the worker process, until nothing of the jobs is left; µs."""

    server: float
    worker: float

    @property
    def both(self) -> float:
        return self.server + self.worker


def links(bench: Bench) -> list[Figure]:
    """Jobs that wait for others."""
    chains, many = bench.jobs(5_000), bench.jobs(10_000)
    with bench.server() as server:
        rounds = range(bench.rounds(_ROUNDS))
        alone = [_drained(server, 2 * chains, lambda queue, at: _pairs(queue, chains, at)) for _ in rounds]
        linked = [_drained(server, 2 * chains, lambda queue, at: _chains(queue, chains, at)) for _ in rounds]
        spread = [_drained(server, many, lambda queue, at: _many(queue, many, at)) for _ in rounds]
        joined = [_drained(server, many + 1, lambda queue, at: _joined(queue, many, at)) for _ in rounds]
        next_ms = _next(server, bench.jobs(1_000, least=100))
    two, chain, each, into = (min(runs, key=lambda used: used.both) for runs in (alone, linked, spread, joined))
    return [
        Figure("after", "CPU of Redis and a worker for a chain of two jobs", 2 * chain.both, "µs", 2 * two.both,
               "two jobs that wait for nothing", ratio_at_most=1.5,
               raw={"of_redis": 2 * chain.server, "of_redis_for_two": 2 * two.server}),
        Figure("after", f"the same, for each of {many:,} that one waits for", into.both, "µs", each.both,
               "one that nothing waits for", ratio_at_most=1.2,
               raw={"of_redis": into.server, "of_redis_alone": each.server}),
        Figure("after", "from a job's end to the start of the next, p50", percentile(next_ms, 50), "ms", at_most=2),
        Figure("after", "the same, p99", percentile(next_ms, 99), "ms"),
    ]  # fmt: skip


def _pairs(queue: Queue, count: int, at_ms: int) -> None:
    for number in range(count):
        queue.enqueue(TOPIC, body(number), at=at_ms)
        queue.enqueue(TOPIC, body(number), at=at_ms)


def _chains(queue: Queue, count: int, at_ms: int) -> None:
    for number in range(count):
        queue.enqueue(TOPIC, body(number), after=queue.enqueue(TOPIC, body(number), at=at_ms))


def _many(queue: Queue, count: int, at_ms: int) -> list[str]:
    ids = [f"{_WAITED_FOR}-{number}" for number in range(count)]
    queue.enqueue_many(TOPIC, [NewJob(body(number), at=at_ms, id=id) for number, id in enumerate(ids)])
    return ids


def _joined(queue: Queue, count: int, at_ms: int) -> None:
    queue.enqueue(TOPIC, body(0), after=[(TOPIC, id) for id in _many(queue, count, at_ms)])


def _drained(server: RedisServer, count: int, enqueue: Callable[[Queue, int], object]) -> _Used:
    """All are due when all are enqueued. The server's time is that from the first enqueue."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        queue.configure(TOPIC, create=True)
        redis_s = server.cpu_s()
        at_ms = int((time.time() + count / 300 + 3) * 1000)
        enqueue(queue, at_ms)
    must(lambda: time.time() * 1000 > at_ms, "all are due")
    with processes(server.url, "noop", 1) as (worker,):
        worker_s = worker.cpu_s()
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) >= count, f"{count} jobs are done")
        done_s = time.monotonic()
        must(lambda: not server.client.exists(SHARD.followers, SHARD.dependents), "they are forgotten", 150, _EVERY_S)
        waited_s = time.monotonic() - done_s
        redis_s, worker_s = server.cpu_s() - redis_s, worker.cpu_s() - worker_s
        idle_s = server.cpu_s(), worker.cpu_s()
        time.sleep(_IDLE_S)
        idle = waited_s / _IDLE_S
        redis_s -= (server.cpu_s() - idle_s[0]) * idle
        worker_s -= (worker.cpu_s() - idle_s[1]) * idle
        used = _Used(redis_s / count * 1e6, worker_s / count * 1e6)
        worker.stop()
    return used


def _next(server: RedisServer, count: int) -> list[float]:
    """From the end of a job to the start of the one that waits for it, pair after pair, in ms."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue, processes(server.url, "witness", 1, "100", "30", "0") as (worker,):
        queue.configure(TOPIC, create=True)
        begin_s = time.time() + count / 300 + 3
        for number in range(count):
            first = queue.enqueue(TOPIC, body(number), id=f"{number}-1", at=int((begin_s + number * _APART_S) * 1000))
            queue.enqueue(TOPIC, body(number), id=f"{number}-2", after=first)
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) >= 2 * count, f"{count} pairs are done", 120)
        worker.stop()
        at = {(what, id): ns for what, id, ns in worker.lines()}
    return [(at["start", f"{number}-2"] - at["end", f"{number}-1"]) / 1e6 for number in range(count)]
