"""Searching a topic's jobs while a worker works on those of them that come due."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from streamdq import NewJob, Queue

from .figures import Figure
from .harness import DONE, NAMESPACE, SHARD, TOPIC, Bench, body, hours, must, new_jobs, percentile, spread
from .server import RedisServer
from .workers import processes

_EVERY_MS, _AHEAD_MS = 20, 1500
_CALM_S, _SEARCHED_S = 10, 60
_USERS = 1000
_SEARCHES = {
    "nothing matches": ("body.user=none", 0),
    "0.1 % match": ("body.user=7", 1),
    "0.1 % match, by order": (f"body.user>={_USERS - 1}", 1),
    "all match, by order": (f"body.user<{_USERS}", _USERS),
    "all match, by the order of texts": ("body.note>=leave", _USERS),
    "99.9 % match, by what is not": ("body.user!=7", _USERS - 1),
    "all match, by what a group knows": ("attempts=0", _USERS),
}
"""Conditions, and how many of each thousand jobs match."""
_MOST_S = 10.0


def find(bench: Bench) -> list[Figure]:
    """Searches of many waiting jobs, and how late other jobs of the topic start meanwhile."""
    count = bench.jobs(1_000_000)
    with bench.server() as server:
        server.must_share_clock()
        with Queue(server.url, NAMESPACE) as queue:
            for first in range(0, count, 100_000):
                jobs = new_jobs(min(100_000, count - first), hours, first)
                queue.enqueue_many(TOPIC, (replace(job, body=_body(first + i)) for i, job in enumerate(jobs)))
            return _beside(bench, server, queue, count)


def _body(number: int) -> dict[str, object]:
    return {**body(number), "user": number % _USERS}


def _beside(bench: Bench, server: RedisServer, queue: Queue, count: int) -> list[Figure]:
    """Searches all jobs, in turn in each way, while one worker process works on jobs that come due one after the other;
    before, the worker is alone.
    """
    calm_s, searched_s = bench.seconds(_CALM_S), bench.seconds(_SEARCHED_S)
    due_jobs = int((calm_s + searched_s) * 1000 / _EVERY_MS)
    with processes(server.url, "stamp", 1) as (worker,):
        worker.serve()
        must(lambda: server.blocked() >= 2, "worker and mover wait")
        first_ms = int(time.time() * 1000) + _AHEAD_MS
        dues = [first_ms + i * _EVERY_MS for i in range(due_jobs)]
        queue.enqueue_many(TOPIC, [NewJob(body(i), at=due) for i, due in enumerate(dues)])
        time.sleep(max(0.0, first_ms / 1000 + calm_s - time.time()))
        server.reset_statistics()
        begun_ms = time.time() * 1000
        took = _search(queue, count, dues)
        ended_ms = time.time() * 1000
        slow = server.slow_calls()
        must(lambda: server.count(SHARD.counts, DONE) >= due_jobs, "all that came due are done")
        worker.stop()
        late = [(due, (started_ns - due * 1_000_000) / 1e6) for due, started_ns in worker.lines()]
    if len(late) != due_jobs:
        raise RuntimeError(f"{len(late)} of {due_jobs} jobs that came due have started")
    calm = [ms for due, ms in late if due < begun_ms]
    beside = [ms for due, ms in late if begun_ms <= due <= ended_ms]
    raw = {
        "jobs": count, "searches_s": {name: spread(those) for name, those in took.items()},
        "beside_ms": spread(beside), "calm_ms": spread(calm), "longest_command": slow.command,
    }  # fmt: skip
    without = "without a search"
    return [
        *(
            Figure("find", f"{count:,} jobs, {name}", max(those), "s", at_most=_MOST_S, raw=raw)
            for name, those in took.items()
        ),
        Figure("find", "lateness beside them, p50", percentile(beside, 50), "ms", percentile(calm, 50), without),
        Figure("find", "lateness beside them, p99", percentile(beside, 99), "ms", percentile(calm, 99), without,
               at_most=10),
        Figure("find", "longest Redis call", slow.longest_ms, "ms"),
    ]  # fmt: skip


def _search(queue: Queue, count: int, dues: Sequence[int]) -> dict[str, list[float]]:
    """Seconds of each search; they take turns as long as jobs come due, and each is made at least once. Some of
    those that come due may match as well.
    """
    took: dict[str, list[float]] = {name: [] for name in _SEARCHES}
    for name in cycle(_SEARCHES):
        if all(took.values()) and time.time() * 1000 >= dues[-1]:
            break
        condition, share = _SEARCHES[name]
        started = time.perf_counter()
        found = queue.find(TOPIC, where=[condition]).count()
        took[name].append(time.perf_counter() - started)
        if not 0 <= found - count * share // _USERS <= len(dues):
            raise RuntimeError(f"{name}: {found} jobs were found")
    return took
