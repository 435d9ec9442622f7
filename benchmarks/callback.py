"""HTTP callbacks: how many per second, and how late they are while another receiver is dead."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from pydantic_core import to_json

from streamdq import Queue

from .figures import Figure
from .harness import DONE, NAMESPACE, SHARD, TOPIC, Bench, body, in_turn, median, must, new_jobs, percentile, spread
from .rows import rows
from .server import RedisServer, free_port
from .workers import processes

_ROUNDS = 3
_CONNECTIONS = 50  # to one receiver, as the callback worker has by default
_DEAD = 500
_HEALTHY = 2000


def callback(bench: Bench) -> list[Figure]:
    """Callbacks to a receiver in its own process, compared with a bare client; and while another receiver is dead."""
    count = bench.jobs(20_000)
    with bench.server() as server, _receiver("receive") as url:
        called, floor = in_turn(
            bench.rounds(_ROUNDS), lambda: _called(server, url, count), lambda: _bare(server, url, count)
        )
        calm_ms = _late_ms(server, url, None)
        with _receiver("silent") as dead:
            late_ms = _late_ms(server, url, dead)
    raw = {"jobs": count, "called": spread(called), "floor": spread(floor)}
    without = "without the dead one"
    return [
        Figure("callback", "one worker process", median(called), "/s", median(floor), "bare aiohttp POST",
               at_least=3000, raw=raw),
        Figure("callback", f"beside {_DEAD} to a dead receiver: done after due, p50", percentile(late_ms, 50), "ms",
               percentile(calm_ms, 50), without),
        Figure("callback", f"beside {_DEAD} to a dead receiver: done after due, p99", percentile(late_ms, 99), "ms",
               percentile(calm_ms, 99), without, at_most=2000),
    ]  # fmt: skip


@contextmanager
def _receiver(role: str) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/hook"
    with processes(url, role, 1) as (process,):
        process.serve()
        must(lambda: _listens(port), "the receiver listens")
        yield url
        process.stop()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _called(server: RedisServer, url: str, count: int) -> float:
    """Callbacks per second from the first attempt's start to the last one's finish, by Redis's clock."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        queue.enqueue_many(TOPIC, (replace(job, url=url) for job in new_jobs(count)))
    _carried_out(server, count)
    done = rows(server)
    took_ms = max(row.finished_ms for row in done) - min(row.started_ms for row in done)
    return count * 1000 / max(1, took_ms)


def _bare(server: RedisServer, url: str, count: int) -> float:
    server.empty()
    with processes(url, "post", 1, count, _CONNECTIONS, to_json(body(0)).decode()) as (process,):
        process.serve()
        process.join()
        return count / float(process.lines()[0])


def _late_ms(server: RedisServer, url: str, dead: str | None) -> list[float]:
    """How long after their due time a healthy receiver's jobs were done; all are due at once. The jobs of the dead
    receiver are due before.
    """
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        if dead is not None:
            queue.enqueue_many(TOPIC, (replace(job, url=dead) for job in new_jobs(_DEAD)))
        queue.enqueue_many(TOPIC, (replace(job, url=url) for job in new_jobs(_HEALTHY)))
    _carried_out(server, _HEALTHY)
    done = rows(server)
    began_ms = min(row.started_ms for row in done)  # not before there is a worker
    return [float(row.finished_ms - began_ms) for row in done]


def _carried_out(server: RedisServer, count: int) -> None:
    with processes(server.url, "callback", 1) as (worker,):
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) >= count, f"{count} callbacks are done")
        worker.kill()  # calls to a dead receiver would hold it up
