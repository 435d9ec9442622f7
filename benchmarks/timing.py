"""Punctuality: a stampede of jobs due in the same millisecond, and a trickle with random delays, alone or among many
topics.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean

from streamdq import NewJob, Queue

from .figures import Figure
from .harness import DONE, NAMESPACE, SHARD, TOPIC, Bench, body, median, must, percentile, spread
from .rows import rows
from .server import RedisServer
from .workers import WorkerProcess, processes

_STAMPEDES = 3
PER_SECOND = 200


@contextmanager
def _idle_worker(server: RedisServer) -> Iterator[WorkerProcess]:
    """A worker process that records when attempts start; it is idle."""
    server.must_share_clock()
    with Queue(server.url, NAMESPACE) as queue:
        queue.configure(TOPIC, create=True)
    with processes(server.url, "stamp", 1) as (worker,):
        worker.serve()
        must(lambda: server.blocked() >= 2, "worker and mover wait")
        yield worker


def _lateness_ms(worker: WorkerProcess, count: int) -> list[float]:
    """Start of each attempt minus its due time, by the system's clock, which is Redis's; below 0 is early."""
    stamps = worker.lines()
    if len(stamps) != count:
        raise RuntimeError(f"{len(stamps)} attempts of {count} jobs")
    return [(started_ns - due_ms * 1_000_000) / 1e6 for due_ms, started_ns in stamps]


def _early(lateness_ms: list[float]) -> int:
    return sum(1 for late_ms in lateness_ms if late_ms < 0)


def stampede(bench: Bench) -> list[Figure]:
    """Jobs that are all due in the same millisecond, and one worker process."""
    count = bench.jobs(20_000)
    with bench.server() as server:
        runs = [_stampede(server, count) for _ in range(bench.rounds(_STAMPEDES))]
    first, done, early, longest, commands, preempted = map(list, zip(*runs, strict=True))
    raw = {
        "jobs": count, "first_start_ms": spread(first), "done_p99_ms": spread(done), "longest_call_ms": spread(longest),
        "longest_commands": commands, "redis_preempted": preempted,
    }  # fmt: skip
    name = "stampede"
    return [
        Figure(name, "first start after due", median(first), "ms", at_most=5, raw=raw),
        Figure(name, "all done, p99 after due", median(done), "ms", at_most=1000),
        Figure(name, "early starts", sum(early), "jobs", at_most=0),
        Figure(name, "longest Redis call", max(longest), "ms", at_most=5),
    ]


def _stampede(server: RedisServer, count: int) -> tuple[float, float, int, float, str, int]:
    server.empty()
    with _idle_worker(server) as worker:
        server.reset_statistics()
        preempted = server.preempted() or 0
        seconds, micros = server.client.time()
        # Late enough that all jobs are enqueued before, with time to spare.
        due_ms = seconds * 1000 + micros // 1000 + 500 + count // 20
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, (NewJob(body(i), at=due_ms) for i in range(count)))
        if time.time() * 1000 >= due_ms:
            raise RuntimeError("this machine took too long to enqueue the jobs before they were due")
        must(lambda: server.count(SHARD.counts, DONE) >= count, f"{count} jobs are done")
        slow = server.slow_calls()
        preempted = (server.preempted() or 0) - preempted
        worker.stop()
        lateness_ms = _lateness_ms(worker, count)
    done_ms = [row.finished_ms - row.due_ms for row in rows(server)]
    return min(lateness_ms), percentile(done_ms, 99), _early(lateness_ms), slow.longest_ms, slow.command, preempted


def schedules(bench: Bench) -> list[Figure]:
    """Of 10,000 schedules those that have the same minute, if they are spread over an hour; and all at once. Beside
    each, as many jobs without a schedule that are due in the same millisecond.
    """
    count = bench.jobs(10_000)
    with bench.server() as server:
        rounds = range(bench.rounds(_STAMPEDES))
        some = [_scheduled(server, count, count // 60) for _ in rounds]
        every = [_scheduled(server, count, count) for _ in rounds]
        plain = [[_together(server, jobs) for _ in rounds] for jobs in (count // 60, count)]
    early = sum(_early(late_ms) for late_ms in (*some, *every))
    p99 = [[percentile(late_ms, 99) for late_ms in one] for one in (some, every, *plain)]
    some_ms, every_ms, *plain_ms = map(median, p99)
    name, floor_is = "schedules", "as many jobs, p99"
    raw = {"schedules": count, "some_p99_ms": spread(p99[0]), "all_p99_ms": spread(p99[1])}
    return [
        Figure(
            name, f"{count // 60} at a full minute, lateness, p99", some_ms, "ms", plain_ms[0], floor_is,
            at_most=10, raw=raw,
        ),
        Figure(name, "all at a full minute, lateness, p99", every_ms, "ms", plain_ms[1], floor_is),
        Figure(name, "early starts", early, "jobs", at_most=0),
    ]  # fmt: skip


def _together(server: RedisServer, count: int) -> list[float]:
    """How late jobs started that were due in the same millisecond."""
    server.empty()
    with _idle_worker(server) as worker:
        seconds, _ = server.client.time()
        due_ms = (seconds + 2 + count // 5_000) * 1000
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, (NewJob(body(i), at=due_ms) for i in range(count)))
        if time.time() * 1000 >= due_ms:
            raise RuntimeError("this machine took too long to enqueue the jobs before they were due")
        must(lambda: server.count(SHARD.counts, DONE) >= count, f"{count} jobs are done")
        worker.stop()
        return _lateness_ms(worker, count)


def _scheduled(server: RedisServer, count: int, together: int) -> list[float]:
    """How late the jobs of those started that are due together."""
    server.empty()
    with _idle_worker(server) as worker:
        with Queue(server.url, NAMESPACE) as queue:
            for i in range(count - together):
                queue.schedule(TOPIC, body(i), id=f"other-{i}", cron=f"{i % 60} 0 1 1 *")
            seconds, _ = server.client.time()
            due = time.gmtime(seconds + 4 + together // 200)
            expression = f"{due.tm_sec} {due.tm_min} {due.tm_hour} {due.tm_mday} {due.tm_mon} *"
            for i in range(together):
                queue.schedule(TOPIC, body(i), id=f"s-{i}", cron=expression)
            if time.gmtime() >= due:
                raise RuntimeError("this machine took too long to make the schedules before they were due")
        must(lambda: server.count(SHARD.counts, DONE) >= together, f"{together} jobs are done")
        worker.stop()
        return _lateness_ms(worker, together)


def trickle(bench: Bench) -> list[Figure]:
    """Jobs at an even pace with delays of 0.5 to 5 s; the floor is measured before and after."""
    count = int(PER_SECOND * bench.seconds(20))
    with bench.server() as server:
        floor_ms = _timers(server, count // 4)
        late_ms = trickled(server, count)
        floor_ms += _timers(server, count // 4)
    name, floor_is = "trickle", "timer and 2 round trips"
    raw = {"jobs": count, "mean_ms": fmean(late_ms), "least_ms": min(late_ms)}

    def at(percent: float) -> tuple[float, str, float, str]:
        return percentile(late_ms, percent), "ms", percentile(floor_ms, percent), floor_is

    return [
        Figure(name, "lateness, p50", *at(50), at_most=0.8, raw=raw),
        Figure(name, "lateness, p99", *at(99), at_most=2),
        Figure(name, "lateness, most", *at(100)),
        Figure(name, "early starts", _early(late_ms), "jobs", at_most=0),
    ]


def trickled(server: RedisServer, count: int, before: int = 0) -> list[float]:
    """Lateness in ms of so many jobs, whatever else the server does. ``before``: so many were done before."""
    with _idle_worker(server) as worker:
        _produce(server, count)
        must(lambda: server.count(SHARD.counts, DONE) >= before + count, f"{count} jobs are done", 15)
        worker.stop()
        return _lateness_ms(worker, count)


def topics(bench: Bench) -> list[Figure]:
    """A trickle in one topic, while as many jobs go to others, each of which may send a wakeup there: with five
    thousand others, and with one.
    """
    count, others = int(PER_SECOND * bench.seconds(10)), max(50, int(5_000 * bench.scale))
    with bench.server() as server:
        few_ms, many_ms = (_among(server, count, number) for number in (1, others))
    name, floor_is = "topics", "two topics"
    return [
        Figure(name, f"{others + 1} topics: lateness, p50", percentile(many_ms, 50), "ms", percentile(few_ms, 50),
               floor_is, at_most=2, raw={"jobs": count, "most_ms": max(many_ms)}),
        Figure(name, f"{others + 1} topics: lateness, p99", percentile(many_ms, 99), "ms", percentile(few_ms, 99),
               floor_is, at_most=10),
    ]  # fmt: skip


def _among(server: RedisServer, count: int, others: int) -> list[float]:
    """Lateness in ms of half of the jobs; the others are due in minutes, many before all else in their topic."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        for number in range(others):
            queue.configure(f"other-{number}", create=True)
    chance = random.Random(1)
    with _idle_worker(server) as worker, Queue(server.url, NAMESPACE) as queue:
        first = time.monotonic() + 2.0  # until the mover has looked at each topic
        for i in range(count):
            time.sleep(max(0.0, first + i / PER_SECOND - time.monotonic()))
            if i % 2:
                queue.enqueue(TOPIC, body(i), delay=chance.uniform(0.5, 5))
            else:
                queue.enqueue(f"other-{chance.randrange(others)}", body(i), delay=chance.uniform(600, 3600))
        must(lambda: server.count(SHARD.counts, DONE) >= count // 2, f"{count // 2} jobs are done", 15)
        worker.stop()
        return _lateness_ms(worker, count // 2)


def _produce(server: RedisServer, count: int) -> None:
    chance = random.Random(1)
    with Queue(server.url, NAMESPACE) as queue:
        first = time.monotonic()
        for i in range(count):
            time.sleep(max(0.0, first + i / PER_SECOND - time.monotonic()))
            queue.enqueue(TOPIC, body(i), delay=chance.uniform(0.5, 5))


def _timers(server: RedisServer, count: int) -> list[float]:
    with processes(server.url, "timers", 1, count, PER_SECOND) as (process,):
        process.serve()
        process.join()
        found: list[float] = process.lines()[0]
        return found
