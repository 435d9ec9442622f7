"""Connections that break at any moment, and replies that get lost: every job is done all the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.proxy import Proxy
from tests.crash.worker_processes import IN_TURNS, WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.servers import Server

pytestmark = IN_TURNS

TOPICS = ("quick", "failing", "later")
RUN = Options(topics=TOPICS, ttr="1s", concurrency=10, retry="100ms")


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def processes(redis_server: Server, proxy: Proxy, tmp_path: Path) -> Iterator[WorkerProcesses]:
    """Its workers reach Redis through the proxy; the test itself does not."""
    with WorkerProcesses(redis_server, tmp_path, proxy.url) as processes:
        yield processes


def fill(processes: WorkerProcesses) -> set[str]:
    ids = processes.fill(600, Work(ms=10), topic="quick")
    ids += processes.fill(50, Work(fail=1), topic="failing")
    ids += processes.fill(50, Work(), topic="later", delay="700ms")
    return set(ids)


def check(processes: WorkerProcesses, ids: set[str]) -> None:
    audit = processes.emptied()
    ended = processes.journal.ids("end")
    assert ended == ids, "lost"
    assert {balance.topic: (balance.enqueued, balance.done) for balance in audit.balances} == {
        topic: (count, count) for topic, count in (("quick", 600), ("failing", 50), ("later", 50))
    }, "each job is done once for the books, however often it ran"
    # What runs again was taken over: its worker could not tell that it had ended.
    reclaimed = sum(processes.counts(topic).reclaimed for topic in TOPICS)
    again = sum(count - 1 for id, count in processes.journal.count("start").items() if not id.startswith("failing"))
    assert again <= reclaimed
    for topic in TOPICS:
        assert left_in(processes.server, topic) == {}


def test_redis_does_not_answer_any_more_on_what_is_open(processes: WorkerProcesses, proxy: Proxy) -> None:
    for _ in range(2):
        processes.serving(processes.start(RUN, call_timeout_s=0.5))
    ids = fill(processes)
    processes.started("quick-50")
    proxy.swallow()
    check(processes, ids)
