"""Redis restarts under hundreds of connections, or a replica takes its place: how soon jobs are on time again, and what
the clients do meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from streamdq import NewJob, Queue

from .figures import Figure
from .harness import NAMESPACE, TOPIC, Bench, body, hours, must
from .server import Guarded, RedisServer
from .workers import WorkerProcess, processes

_PROCESSES, _WORKERS = 5, 50  # in each process; an idle worker has two connections or more
_DOWN_S, _DUE_FOR_S = 1.0, 12.0
_PER_SECOND = 100
_ON_TIME_MS = 100.0
_SAMPLE_S = 0.05


@dataclass(slots=True)
class _Load:
    """What a server has had to do: samples of when, connections accepted, and commands, since its start."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    def most(self, column: int, within_s: float) -> int:
        """The most in any stretch of that length."""
        most = 0
        for i, first in enumerate(self.samples):
            for last in self.samples[i:]:
                if last[0] - first[0] <= within_s * 1.1:
                    most = max(most, int(last[column] - first[column]))
        return most


@contextmanager
def _watched(server: RedisServer) -> Iterator[_Load]:
    load, ending = _Load(), threading.Event()

    def watch() -> None:
        while not ending.is_set():
            stats = server.info("stats")
            sample = stats["total_connections_received"], stats["total_commands_processed"]
            load.samples.append((time.monotonic(), *sample))
            ending.wait(_SAMPLE_S)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield load
    finally:
        ending.set()
        thread.join()


def storm(bench: Bench) -> list[Figure]:
    """Redis goes under many idle workers, while a million jobs wait and some come due: it is killed and started again,
    or its replica takes its place, named by Sentinel.
    """
    return [*_restarted(bench), *_failed_over(bench)]


def _restarted(bench: Bench) -> list[Figure]:
    with bench.server() as server:
        found = _run(bench, server, server.url, lambda: server.restart(_DOWN_S), server)
    return _figures(found, "Redis is back", "restart")


def _failed_over(bench: Bench) -> list[Figure]:
    with Guarded(bench.binary) as guarded:

        def fail_over() -> float:
            guarded.replicate()
            return guarded.fail_over()

        found = _run(bench, guarded.primary, guarded.url, fail_over, guarded.replica)
    return _figures(found, "the replica is the primary", "failover")


@dataclass(frozen=True, slots=True)
class _Found:
    """``starts``: of each attempt, seconds after Redis was back, and how many ms late it was."""

    starts: list[tuple[float, float]]
    load: _Load  # of the server that was back
    raw: Mapping[str, object]


def _run(bench: Bench, server: RedisServer, url: str, fail: Callable[[], float], back: RedisServer) -> _Found:
    """``server``: which all are connected to. ``fail`` returns when Redis was there again, as the server ``back``."""
    waiting, workers = bench.jobs(1_000_000), max(2, int(_WORKERS * bench.scale))
    due = int(_PER_SECOND * _DUE_FOR_S)
    with ExitStack() as stack:
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, (NewJob(body(i), delay=hours(i)) for i in range(waiting)))
        herd = stack.enter_context(processes(url, "herd", _PROCESSES, 10, workers))
        for process in herd:
            process.serve()
        must(lambda: server.blocked() > _PROCESSES * workers, "workers and mover wait")
        time.sleep(2.0)
        connected = int(server.info("clients")["connected_clients"])
        first_ms = int(time.time() * 1000) + 1500
        with Queue(server.url, NAMESPACE) as queue:
            dues = (first_ms + i * 1000 // _PER_SECOND for i in range(due))
            queue.enqueue_many(TOPIC, (NewJob(body(i), at=when) for i, when in enumerate(dues)))
        failed_s, back_s = time.time(), fail()
        with _watched(back) as load:
            must(lambda: _started(herd) >= due, f"{due} jobs have started")
        stamps = sorted((started_ns, due_ms) for process in herd for due_ms, started_ns in process.lines())
        for process in herd:
            process.stop()
    raw = {"connections": connected, "waiting": waiting, "due": due, "workers": _PROCESSES * workers,
           "gone_for_s": back_s - failed_s}  # fmt: skip
    return _Found([(started_ns / 1e9 - back_s, started_ns / 1e6 - due_ms) for started_ns, due_ms in stamps], load, raw)


def _started(herd: list[WorkerProcess]) -> int:
    return sum(len(process.lines()) for process in herd)


def _figures(found: _Found, back: str, what: str) -> list[Figure]:
    after = [start for start in found.starts if start[0] >= 0]
    name, connections, load = "storm", found.raw["connections"], found.load
    return [
        Figure(
            name, f"{what}, {connections} connections: first start after {back}", after[0][0], "s", at_most=2.5,
            raw=found.raw,
        ),
        Figure(
            name, f"{what}: on time again, {_PER_SECOND} in a row within {_ON_TIME_MS:g} ms", _on_time_s(after), "s",
            at_most=3,
        ),
        Figure(name, f"{what}: early starts", sum(late_ms < 0 for _, late_ms in found.starts), "jobs", at_most=0),
        Figure(name, f"{what}: most connections made in 50 ms", load.most(1, _SAMPLE_S), "connections", at_most=250),
        Figure(name, f"{what}: most connections made in a second", load.most(1, 1.0), "connections"),
        Figure(name, f"{what}: most commands in a second", load.most(2, 1.0), "commands"),
    ]  # fmt: skip


def _on_time_s(starts: list[tuple[float, float]]) -> float:
    """From when on, in seconds, a second's worth of jobs all started on time."""
    late = [late_ms > _ON_TIME_MS for _, late_ms in starts]
    first = next((i for i in range(len(late)) if not any(late[i : i + _PER_SECOND])), len(late) - 1)
    return starts[first][0]
