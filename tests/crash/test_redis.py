"""Redis goes away and comes back under running workers and a client that goes on putting jobs in."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from streamdq import Queue, StreamdqError
from tests.crash.worker_processes import WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.servers import Binary, Server
from tests.waiting import until

RUN = Options(topics=("now", "later"), ttr="1s", concurrency=10)


@pytest.fixture
def persistent(binary: Binary, tmp_path: Path) -> Iterator[WorkerProcesses]:
    """Worker processes on a server that has on disk what it has confirmed."""
    with (
        Server(binary, appendonly=True, options={"appendfsync": "always"}) as server,
        WorkerProcesses(server, tmp_path) as processes,
    ):
        yield processes


class Producer(threading.Thread):
    """Puts jobs in until it is told to stop; ``accepted`` are those whose enqueue returned."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._stop_it = threading.Event()
        self.accepted: list[str] = []
        self.refused: list[str] = []  # may be in all the same

    def run(self) -> None:
        number = 0
        with Queue(self._url) as queue:
            while not self._stop_it.wait(0.001):
                topic, delay = ("now", None) if number % 2 else ("later", 0.05 * (number % 20))
                try:
                    job = queue.enqueue(topic, asdict(Work(ms=number % 5)), id=f"job-{number}", delay=delay)
                    self.accepted.append(job.id)
                except StreamdqError:
                    self.refused.append(f"job-{number}")
                number += 1

    def stop(self) -> None:
        self._stop_it.set()
        self.join()


def produce_through(processes: WorkerProcesses, outage: str) -> list[str]:
    """Two busy workers and a producer, and Redis away in the middle of it; the jobs that were accepted."""
    for _ in range(2):
        processes.serving(processes.start(RUN))
    accepted = processes.fill(1000, Work(ms=15), topic="now")
    producer = Producer(processes.server.url)
    producer.start()
    try:
        until(lambda: len(processes.journal.ids("end")) > 200, "they are at work")
        if outage == "killed":
            processes.server.kill()
        else:
            processes.server.stop()
        before = len(producer.accepted)
        processes.server.start()
        until(lambda: len(producer.accepted) > before + 100, "the producer goes on")
    finally:
        producer.stop()
    assert producer.refused == [], "each call went on until Redis was back"
    return accepted + producer.accepted


@pytest.mark.parametrize("outage", ["stopped", "killed"])
def test_nothing_is_lost_that_was_accepted(persistent: WorkerProcesses, outage: str) -> None:
    processes = persistent
    accepted = produce_through(processes, outage)
    audit = processes.emptied()
    assert set(accepted) <= processes.journal.ids("end"), "lost"
    # An enqueue whose reply was lost is repeated: when its job had ended meanwhile, that puts it in once more.
    twice_in = sum(balance.done for balance in audit.balances) - len(accepted)
    again = sum(count - 1 for count in processes.journal.count("start").values())
    assert 0 <= twice_in <= 1
    assert again <= twice_in + sum(processes.counts(topic).reclaimed for topic in RUN.topics)
    for topic in RUN.topics:
        assert left_in(processes.server, topic) == {}


def test_workers_reconnect_after_a_long_outage(persistent: WorkerProcesses) -> None:
    processes = persistent
    worker = processes.serving(processes.start(RUN))
    processes.server.stop()
    until(lambda: worker.output.count("loop failed") >= 4, "it has tried in vain")
    processes.server.start()
    ids = processes.fill(50, Work(), topic="now") + processes.fill(50, Work(), topic="later", delay="100ms")
    until(lambda: processes.journal.ids("end") == set(ids), "it is at work again", 10)
    assert set(processes.journal.count("start").values()) == {1}
    processes.emptied()


def test_a_drain_without_redis_ends_all_the_same(persistent: WorkerProcesses) -> None:
    processes = persistent
    processes.put("job", Work(ms=300), topic="now")
    worker = processes.start(RUN, lease_s=0.5, call_timeout_s=0.5)
    processes.started("job")
    processes.server.stop()
    worker.signal(signal.SIGTERM)
    assert worker.wait(15) == 0
    processes.server.start()
    processes.start(RUN, lease_s=0.5)
    processes.started("job", attempts=2)
    processes.emptied()


def test_redis_restarted_while_workers_hold_long_jobs(persistent: WorkerProcesses) -> None:
    processes = persistent
    ids = processes.fill(20, Work(ms=700), topic="now")
    processes.start(Options(topics=("now",), ttr="20s", concurrency=20))
    for id in ids:
        processes.started(id)
    processes.server.restart()
    processes.emptied()
    assert processes.journal.ids("end") == set(ids)
    assert set(processes.journal.count("start").values()) == {1}, "finished by those who had begun"
