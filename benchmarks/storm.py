"""Redis restarts under five hundred connections: how soon jobs are on time again, and what the clients do meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from streamdq import NewJob, Queue

from .figures import Figure
from .harness import NAMESPACE, TOPIC, Bench, body, hours, must
from .server import RedisServer
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
        while not ending.wait(_SAMPLE_S):
            stats = server.info("stats")
            sample = stats["total_connections_received"], stats["total_commands_processed"]
            load.samples.append((time.monotonic(), *sample))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield load
    finally:
        ending.set()
        thread.join()


def storm(bench: Bench) -> list[Figure]:
    """Redis is killed and started again under many idle workers; a million jobs wait, and some come due."""
    waiting, workers = bench.jobs(1_000_000), max(2, int(_WORKERS * bench.scale))
    due = int(_PER_SECOND * _DUE_FOR_S)
    with ExitStack() as stack:
        server = stack.enter_context(bench.server())
        with Queue(server.url, NAMESPACE) as queue:
            queue.enqueue_many(TOPIC, (NewJob(body(i), delay=hours(i)) for i in range(waiting)))
        herd = stack.enter_context(processes(server.url, "herd", _PROCESSES, 10, workers))
        for process in herd:
            process.serve()
        must(lambda: server.blocked() > _PROCESSES * workers, "workers and mover wait")
        time.sleep(2.0)
        connected = int(server.info("clients")["connected_clients"])
        first_ms = int(time.time() * 1000) + 1500
        with Queue(server.url, NAMESPACE) as queue:
            dues = (first_ms + i * 1000 // _PER_SECOND for i in range(due))
            queue.enqueue_many(TOPIC, (NewJob(body(i), at=when) for i, when in enumerate(dues)))
        back_s = server.restart(_DOWN_S)
        with _watched(server) as load:
            must(lambda: _started(herd) >= due, f"{due} jobs have started")
        stamps = sorted((started_ns, due_ms) for process in herd for due_ms, started_ns in process.lines())
        for process in herd:
            process.stop()
    return _figures(
        [(started_ns / 1e9 - back_s, started_ns / 1e6 - due_ms) for started_ns, due_ms in stamps],
        load,
        {"connections": connected, "waiting": waiting, "due": due, "workers": _PROCESSES * workers},
    )


def _started(herd: list[WorkerProcess]) -> int:
    return sum(len(process.lines()) for process in herd)


def _figures(starts: list[tuple[float, float]], load: _Load, raw: dict[str, object]) -> list[Figure]:
    """``starts``: of each attempt, seconds after Redis was back, and how many ms late it was."""
    after = [start for start in starts if start[0] >= 0]
    connections = raw["connections"]
    name = "storm"
    return [
        Figure(
            name, f"{connections} connections: first start after Redis is back", after[0][0], "s", at_most=2.5, raw=raw
        ),
        Figure(
            name, f"on time again: {_PER_SECOND} in a row within {_ON_TIME_MS:g} ms", _on_time_s(after), "s", at_most=3
        ),
        Figure(name, "early starts", sum(late_ms < 0 for _, late_ms in starts), "jobs", at_most=0),
        Figure(name, "most connections made in 50 ms", load.most(1, _SAMPLE_S), "connections", at_most=250),
        Figure(name, "most connections made in a second", load.most(1, 1.0), "connections"),
        Figure(name, "most commands in a second", load.most(2, 1.0), "commands"),
    ]


def _on_time_s(starts: list[tuple[float, float]]) -> float:
    """From when on, in seconds, a second's worth of jobs all started on time."""
    late = [late_ms > _ON_TIME_MS for _, late_ms in starts]
    first = next((i for i in range(len(late)) if not any(late[i : i + _PER_SECOND])), len(late) - 1)
    return starts[first][0]
