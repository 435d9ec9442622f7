"""How long the web pages take with a million waiting jobs, and with ten thousand."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection

from streamdq import Queue

from .figures import Figure
from .harness import BATCH, NAMESPACE, Bench, hours, must, new_jobs, percentile, spread
from .server import RedisServer

_FEW, _MANY = 10_000, 1_000_000
_ROUNDS = 40
_DEAD = 2_000
_PAGES = {
    "all topics": "/",
    "a topic's delayed jobs": "/topics/{topic}",
    "a topic's coming week": "/topics/{topic}?horizon=1w",
    "a topic's dead letters": "/topics/{topic}?state=dead",
    "one job": "/topics/{topic}/jobs/job-7",
    "what failed, by its error": "/failed?error=such&in_topic={topic}",
    "jobs that wait for a retry": "/failed?state=retrying&in_topic={topic}",
}


def web(bench: Bench) -> list[Figure]:
    """`streamdq serve` in its own process; one client requests each page in turn, topic by topic."""
    few, many = _FEW, bench.jobs(_MANY, least=2 * _FEW)
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:
        for topic, count in (("few", few), ("many", many)):
            _fill(queue, topic, count)
        times = asked(server, bench.rounds(_ROUNDS), _PAGES, ("few", "many"))
    label = f"{many:,} jobs wait"
    return [_figure(what, label, times[what, "few"], times[what, "many"], few) for what in _PAGES]


def _figure(what: str, label: str, few_ms: list[float], many_ms: list[float], few: int) -> Figure:
    return Figure(
        "web", f"{what}, {label}, p99", percentile(many_ms, 99), "ms", percentile(few_ms, 99),
        f"{few:,} wait", at_most=200, raw={"many_ms": spread(many_ms), "few_ms": spread(few_ms)},
    )  # fmt: skip


def _fill(queue: Queue, topic: str, count: int) -> None:
    """Waiting jobs, and some dead ones."""
    queue.enqueue(topic, 1, id="job-7", delay="1h")
    for first in range(0, count, BATCH):
        queue.enqueue_many(topic, new_jobs(BATCH, hours, first))
    queue.enqueue_many(topic, new_jobs(min(_DEAD, count // 5)))
    while claim := queue.take(topic, timeout=0):
        claim.bury("no such order")


def asked(
    server: RedisServer, rounds: int, pages: Mapping[str, str], topics: Sequence[str]
) -> dict[tuple[str, str], list[float]]:
    """Milliseconds for each page of each topic; the first round is not counted."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "import sys; from streamdq.cli import main; sys.exit(main())"]
    options = ["--url", server.url, "--namespace", NAMESPACE, "serve", "--port", str(port), "--log-level", "error"]
    served = subprocess.Popen([*command, *options])
    try:
        must(lambda: _answers(port), "the server answers")
        times: dict[tuple[str, str], list[float]] = {(what, topic): [] for what in pages for topic in topics}
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        for turn in range(rounds + 1):
            for (what, topic), taken in times.items():
                taken_ms = _ask(connection, pages[what].format(topic=topic))
                taken += [taken_ms] if turn else []
        connection.close()
        return times
    finally:
        served.terminate()
        served.wait(20)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _ask(connection: HTTPConnection, path: str) -> float:
    started = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise RuntimeError(f"{path} answers {response.status}")
    return (time.perf_counter() - started) * 1000
