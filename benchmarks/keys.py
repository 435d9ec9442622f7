"""Limits of keys: one tenant's many jobs beside another tenant's few, and what a limit costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from streamdq import NewJob, Queue

from .drain import Drained, drained
from .figures import Figure
from .harness import DONE, NAMESPACE, SHARD, TOPIC, Bench, body, in_turn, median, must, new_jobs, percentile, spread
from .server import RedisServer
from .workers import processes

_ROUNDS = 5
_KEYS = 1000
_OTHERS, _FEW, _EVERY_MS, _AHEAD_MS = 200, 5, 20, 1000


def keys(bench: Bench) -> list[Figure]:
    """The lateness of a tenant's jobs beside another one's many, all due before; and drains with limits of keys."""
    with bench.server() as server:
        return [*_lateness(bench, server), *_drains(bench, server)]


def _lateness(bench: Bench, server: RedisServer) -> list[Figure]:
    count = bench.jobs(1_000_000)
    calm, late = _late_ms(server, 0), _late_ms(server, count)
    raw = {"jobs": count, "late_ms": spread(late), "calm_ms": spread(calm)}
    what = f"another tenant's lateness beside {count:,} jobs"
    without = "without them"
    return [
        Figure("keys", f"{what}, p50", percentile(late, 50), "ms", percentile(calm, 50), without, raw=raw),
        Figure("keys", f"{what}, the most", max(late), "ms", max(calm), without, at_most=50),
    ]


def _late_ms(server: RedisServer, count: int) -> list[float]:
    """Start minus due of jobs of a tenant that come due one after the other, while one worker process is busy with
    ``count`` jobs of another tenant.
    """
    server.empty()
    server.must_share_clock()
    with Queue(server.url, NAMESPACE) as queue, processes(server.url, "stamp", 1) as (worker,):
        queue.configure(TOPIC, key_concurrency=1)
        queue.enqueue_many(TOPIC, (NewJob(body(i), key="many") for i in range(count)))
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) > 0 if count else server.blocked() >= 2, "the worker is there")
        first_ms = int(time.time() * 1000) + _AHEAD_MS
        dues = {first_ms + i * _EVERY_MS for i in range(_OTHERS)}
        few = [NewJob(body(i), id=str(i), key=f"few-{i % _FEW}", at=due) for i, due in enumerate(sorted(dues))]
        queue.enqueue_many(TOPIC, few)
        last = [str(i) for i in range(_OTHERS)[-_FEW:]]  # of each key
        must(lambda: not any(queue.get(TOPIC, id) for id in last), "the others are done")
        worker.stop()
        return [(started_ns - due * 1_000_000) / 1e6 for due, started_ns in worker.lines() if due in dues]


def _drains(bench: Bench, server: RedisServer) -> list[Figure]:
    """Jobs per second of one worker process. Jobs of the same key follow each other, each by way of the mover."""
    count, few = bench.jobs(50_000), bench.jobs(5_000)

    def drain(jobs: Callable[[], list[NewJob]], limit: int) -> Callable[[], float]:
        runs: list[Drained] = []
        return lambda: drained(server, 1, runs, jobs(), key_concurrency=limit)

    def of_keys(number: int, count: int) -> Callable[[], list[NewJob]]:
        return lambda: [replace(job, key=f"key-{i % number}") for i, job in enumerate(new_jobs(count))]

    def plain() -> list[NewJob]:
        return new_jobs(count)

    names = ("plain", "plain_limited", "keyed", "keyed_limited", "one_key")
    rates = dict(
        zip(
            names,
            in_turn(
                bench.rounds(_ROUNDS),
                drain(plain, 0), drain(plain, 1), drain(of_keys(_KEYS, count), 0), drain(of_keys(_KEYS, count), 1),
                drain(of_keys(1, few), 1),
            ),
            strict=True,
        )
    )  # fmt: skip
    found = {name: median(samples) for name, samples in rates.items()}
    raw = {"jobs": count, **{name: spread(samples) for name, samples in rates.items()}}
    return [
        Figure("keys", "drain without keys, topic with a limit", found["plain_limited"], "/s", found["plain"],
               "topic without a limit", ratio_at_least=0.98, raw=raw),
        Figure("keys", f"drain of {_KEYS:,} keys, one at once of each", found["keyed_limited"], "/s", found["keyed"],
               "topic without a limit"),
        Figure("keys", "drain of one key, one at once", found["one_key"], "/s"),
    ]  # fmt: skip
