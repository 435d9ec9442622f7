"""A client that goes on putting jobs in while Redis goes away and comes back."""

import threading
from dataclasses import asdict

from streamdq import Queue, StreamdqError
from tests.crash.worker_processes import WorkerProcesses
from tests.crash.workers import Options, Work
from tests.waiting import until

RUN = Options(topics=("now", "later"), ttr="1s", concurrency=10)


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


def produce_through(processes: WorkerProcesses, jobs: int) -> list[str]:
    """Two busy workers and a producer, and Redis killed in the middle of it; the jobs that were accepted."""
    for _ in range(2):
        processes.serving(processes.start(RUN))
    accepted = processes.fill(jobs, Work(ms=15), topic="now")
    producer = Producer(processes.server.url)
    producer.start()
    try:
        until(lambda: len(processes.journal.ids("end")) > jobs // 5, "they are active")
        processes.server.kill()
        before = len(producer.accepted)
        processes.server.start()
        until(lambda: len(producer.accepted) > before + jobs // 10, "the producer goes on")
    finally:
        producer.stop()
    assert producer.refused == [], "each call went on until Redis was back"
    return accepted + producer.accepted
