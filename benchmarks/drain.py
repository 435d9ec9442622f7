"""Draining ready jobs with worker processes, compared with a bare loop over a stream."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any, cast

import redis

from streamdq import NewJob, Queue

from .figures import Figure
from .harness import (
    BATCH,
    DONE,
    GROUP,
    NAMESPACE,
    SHARD,
    TOPIC,
    Bench,
    in_turn,
    median,
    must,
    new_jobs,
    spread,
)
from .rows import rows
from .server import RedisServer
from .workers import processes

_ROUNDS = 3
_SPIN_S = 2.0
_MEET_S = 30.0
_together: Barrier  # of the processes that drain a bare stream; set as each begins


@dataclass(frozen=True, slots=True)
class Drained:
    """One run: jobs per second, and the CPU time of each side for one job. ``from_start_us``: that of the workers since
    their processes began, imports included.
    """

    per_s: float
    redis_us: float
    workers_us: float
    from_start_us: float = 0.0


def drain(bench: Bench) -> list[Figure]:
    """No-op jobs that are all ready before a worker starts."""
    count = bench.jobs(100_000)
    ones: list[Drained] = []
    twos: list[Drained] = []
    with bench.server() as server:
        one, two, floor, floor_of_two = in_turn(
            bench.rounds(_ROUNDS),
            lambda: drained(server, 1, ones, new_jobs(count)),
            lambda: drained(server, 2, twos, new_jobs(count)),
            lambda: _bare(server, count, 1),
            lambda: _bare(server, count, 2),
        )
    raw = {
        "jobs": count, "one": spread(one), "two": spread(two),
        "floor": spread(floor), "floor_of_two": spread(floor_of_two),
    }  # fmt: skip
    cpu = {name: [(run.redis_us, run.workers_us) for run in runs] for name, runs in (("one", ones), ("two", twos))}
    cores = len(os.sched_getaffinity(0))
    allowed = median(cores * 1e6 / (run.redis_us + run.workers_us) for run in twos)
    worker_1, worker_2 = (_least(runs, "workers_us") for runs in (ones, twos))
    redis_1, redis_2 = (_least(runs, "redis_us") for runs in (ones, twos))
    # With cores of their own, two workers do twice as much, but for what a job costs them more; unless Redis is busy.
    apart = min(2 * median(one) * min(1.0, worker_1 / worker_2), 1e6 / redis_2)
    return [
        Figure("drain", "one worker process", median(one), "/s", median(floor), "bare XREADGROUP, XACK, XDEL",
               at_least=40_000, ratio_at_least=0.2, raw={**raw, "cpu_us_per_job_of_redis_and_workers": cpu}),
        Figure("drain", "two worker processes", median(two), "/s", median(one), "one worker process",
               ratio_at_least=1.3),
        Figure("drain", f"two, were {cores} cores never idle", allowed, "/s", median(one), "one worker process"),
        Figure("drain", "two, had Redis and each its own core", apart, "/s", median(one), "one worker process",
               ratio_at_least=1.8),
        Figure("drain", "CPU of Redis for a job, one worker", redis_1, "µs", at_most=8),
        Figure("drain", "CPU of Redis for a job, two workers", redis_2, "µs", redis_1, "one worker"),
        Figure("drain", "CPU of one worker process, for a job", worker_1, "µs", at_most=25),
        Figure("drain", "the same with its start", _least(ones, "from_start_us"), "µs"),
        Figure("drain", "CPU of two worker processes, for a job", worker_2, "µs", worker_1, "one worker"),
        Figure("drain", "the same with their starts", _least(twos, "from_start_us"), "µs"),
        Figure("drain", "two bare loops", median(floor_of_two), "/s", median(floor), "one bare loop"),
        Figure("drain", "the machine: two busy processes", _spins(2), "/s", _spins(1), "one busy process"),
    ]  # fmt: skip


def _least(runs: Sequence[Drained], what: str) -> float:
    """Other processes can only add to CPU time."""
    return min(float(getattr(run, what)) for run in runs)


def drained(
    server: RedisServer,
    workers: int,
    runs: list[Drained],
    jobs: Sequence[NewJob],
    key_concurrency: int = 0,
    role: Sequence[object] = ("noop",),
) -> float:
    """Jobs per second from the first attempt's start to the last one's finish, by Redis's clock. ``role``: of the
    worker processes, with its options.
    """
    server.empty()
    count = len(jobs)
    with Queue(server.url, NAMESPACE) as queue:
        if key_concurrency:
            queue.configure(TOPIC, key_concurrency=key_concurrency)
        queue.enqueue_many(TOPIC, jobs)
    waits = key_concurrency or any(job.priority for job in jobs)
    assert waits or server.client.xlen(SHARD.ready) == count
    name, *options = role
    with processes(server.url, str(name), workers, *options) as started:
        redis_s, workers_s = server.cpu_s(), sum(worker.cpu_s() for worker in started)
        for worker in started:
            worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) >= count, f"{count} jobs are done")
        in_all_s = sum(worker.cpu_s() for worker in started)
        redis_s, workers_s = server.cpu_s() - redis_s, in_all_s - workers_s
        for worker in started:
            worker.stop()
    done = rows(server)
    took_ms = max(row.finished_ms for row in done) - min(row.started_ms for row in done)
    redis_us, workers_us, from_start_us = (cpu_s / count * 1e6 for cpu_s in (redis_s, workers_s, in_all_s))
    runs.append(Drained(count * 1000 / max(1, took_ms), redis_us, workers_us, from_start_us))
    return runs[-1].per_s


def _spins(count: int) -> float:
    """Iterations per second of processes that only count: what a second process can add on this machine."""
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        return sum(pool.map(_spin, range(count), chunksize=1))


def _spin(_number: int) -> float:
    turns, began = 0, time.perf_counter()
    while (took_s := time.perf_counter() - began) < _SPIN_S:
        for number in range(1000):
            turns += number & 1
    return turns / took_s


def _bare(server: RedisServer, count: int, consumers: int) -> float:
    """Entries per second of processes that only read, acknowledge and delete."""
    server.empty()
    with redis.Redis.from_url(server.url) as bare:
        bare.xgroup_create("bare", GROUP, id="0", mkstream=True)
        for start in range(0, count, BATCH):
            pipe = bare.pipeline(transaction=False)
            for i in range(start, start + BATCH):
                pipe.xadd("bare", {"j": f"{i:012x}job-{i}"})
            pipe.execute()
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(consumers)
    with spawn.Pool(consumers, _meet_at, (together,)) as pool:
        times = pool.starmap(_consume, [(server.url, number) for number in range(consumers)], chunksize=1)
    return count / (max(ended for _, ended in times) - min(began for began, _ in times))


def _meet_at(together: Barrier) -> None:
    global _together
    _together = together


def _consume(url: str, number: int) -> tuple[float, float]:
    """Start and end, by the clock that all processes share."""
    # Protocol 2, like streamdq: the form of the reply differs.
    with redis.Redis.from_url(url, protocol=2) as bare:
        bare.ping()
        _together.wait(_MEET_S)
        began = time.monotonic()
        while reply := cast(list[Any], bare.xreadgroup(GROUP, f"c{number}", {"bare": ">"}, count=BATCH)):
            ids = [entry for entry, _ in reply[0][1]]
            bare.xack("bare", GROUP, *ids)
            bare.xdel("bare", *ids)
        return began, time.monotonic()
