"""A worker killed with -9 in the middle of its work."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from streamdq import Queue

from .figures import Figure
from .harness import DONE, GROUP, NAMESPACE, SHARD, TOPIC, Bench, must, new_jobs, until
from .rows import rows
from .server import RedisServer
from .workers import WorkerProcess, processes

_TTR_S = 2.0
_WORK_S = 0.02
_CONCURRENCY = 20
_LOST_AFTER_S = 120.0
"""A job that has not run within that time is lost."""
_SHORT_S, _SHORT_CONCURRENCY = 0.005, 100


def crash(bench: Bench) -> list[Figure]:
    """Two worker processes; the one whose mover is active is killed when half of the jobs are done."""
    count = bench.jobs(2_000)
    with bench.server() as server:
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, new_jobs(count))
        options = (_CONCURRENCY, _TTR_S, _WORK_S)
        with processes(server.url, "witness", 2, *options) as workers:
            for worker in workers:
                worker.serve()
            must(lambda: server.count(SHARD.counts, DONE) >= count // 2, "half of the jobs are done")
            dead, alive = _mover_first(server, workers)
            must(lambda: _holds_jobs(server, dead), "the one to be killed has jobs, as between two rounds it has none")
            killed_ns = time.time_ns()
            dead.kill()
            until(lambda: server.count(SHARD.counts, DONE) >= count, within_s=_LOST_AFTER_S)
            all_done_s = (time.time_ns() - killed_ns) / 1e9
            alive.stop()
            with Queue(server.url, NAMESPACE) as queue:
                audit = queue.audit()
            seen = _Seen(_Log.of(dead), _Log.of(alive), count)
        return _figures(
            server,
            seen,
            dead,
            killed_ns,
            {"audit_balanced": audit.balanced, "left": audit.left, "all_done_s": all_done_s},
        )


def crash_short(bench: Bench) -> list[Figure]:
    """One worker, with short jobs on many slots, killed half way; another one does the rest. What is done twice is what
    was done, and Redis did not know of it.
    """
    count = bench.jobs(2_000)
    with bench.server() as server:
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, new_jobs(count))
        with processes(server.url, "witness", 2, _SHORT_CONCURRENCY, _TTR_S, _SHORT_S) as workers:
            dead, alive = workers
            dead.serve()
            must(lambda: server.count(SHARD.counts, DONE) >= count // 2 and _holds_jobs(server, dead), "half is done")
            dead.kill()
            alive.serve()
            until(lambda: server.count(SHARD.counts, DONE) >= count, within_s=10 * _TTR_S)
            alive.stop()
            seen = _Seen(_Log.of(dead), _Log.of(alive), count)
        running = len(seen.dead.starts.keys() - seen.dead.ends.keys())
    raw = {"jobs": count, "running": running, "concurrency": _SHORT_CONCURRENCY, "takes_s": _SHORT_S}
    return [
        Figure("crash-short", "jobs lost", seen.lost, "jobs", at_most=0, raw=raw),
        Figure("crash-short", "jobs done twice", seen.done_twice, "jobs", running, "running", raw=raw),
    ]


def _mover_first(server: RedisServer, workers: list[WorkerProcess]) -> list[WorkerProcess]:
    """The harder case: nobody moves or reclaims until the lease has expired."""
    holder = server.client.get(f"{{{NAMESPACE}}}:mover") or b""
    return sorted(workers, key=lambda worker: f"-{worker.pid}-".encode() not in holder)


def _holds_jobs(server: RedisServer, worker: WorkerProcess) -> bool:
    consumers = server.client.xinfo_consumers(SHARD.ready, GROUP)
    return any(f"-{worker.pid}-".encode() in one["name"] and one["pending"] for one in consumers)


@dataclass(slots=True)
class _Log:
    """One worker's log: ids and times."""

    starts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    attempts: int = 0

    @classmethod
    def of(cls, worker: WorkerProcess) -> _Log:
        log = cls()
        for what, id, when_ns in worker.lines():
            (log.starts if what == "start" else log.ends)[id] = when_ns
            log.attempts += what == "start"
        return log


@dataclass(slots=True)
class _Seen:
    """Both logs."""

    dead: _Log
    alive: _Log
    count: int

    @property
    def lost(self) -> int:
        return self.count - len(self.dead.ends.keys() | self.alive.ends.keys())

    @property
    def done_twice(self) -> int:
        """Jobs whose handler has come to its end in both."""
        return len(self.dead.ends.keys() & self.alive.ends.keys())

    @property
    def duplicates(self) -> int:
        """Attempts beyond the first of their job."""
        return self.dead.attempts + self.alive.attempts - len(self.dead.starts.keys() | self.alive.starts.keys())


def _figures(
    server: RedisServer, seen: _Seen, dead: WorkerProcess, killed_ns: int, more: dict[str, object]
) -> list[Figure]:
    flushed = {row.id for row in rows(server) if f"-{dead.pid}-" in row.consumer}
    running = seen.dead.starts.keys() - seen.dead.ends.keys()
    unflushed = seen.dead.ends.keys() - flushed
    held = {row.id for row in rows(server, "reclaimed") if f"-{dead.pid}-" in row.consumer}
    again_ns = [seen.alive.starts.get(id, time.time_ns()) for id in held]
    recovered_s = max((when - killed_ns for when in again_ns), default=0) / 1e9
    raw = {
        "jobs": seen.count,
        "running": len(running),
        "unflushed": len(unflushed),
        "held": len(held),
        "ttr_s": _TTR_S,
        **more,
    }
    allowed = len(running) + len(unflushed)
    return [
        Figure("crash", "jobs lost", seen.lost, "jobs", at_most=0, raw=raw),
        Figure("crash", "attempts made twice", seen.duplicates, "jobs", allowed, "running or unflushed",
               at_most=allowed),
        Figure("crash", f"last one started again, TTR {_TTR_S:g} s", recovered_s * 1000, "ms",
               at_most=(_TTR_S + 1) * 1000),
    ]  # fmt: skip
