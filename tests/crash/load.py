"""A load under which things are made to fail: jobs are delayed, ready, running and waiting for their next attempt."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict

import httpx

from streamdq import NewJob, Queue
from streamdq.errors import ServerError
from tests.crash.judge import Accepted
from tests.crash.worker_processes import WorkerProcesses
from tests.crash.workers import Options, Work
from tests.waiting import until

TOPIC = "work"
TTR_S = 1.0
RETRY_S = 0.5
SLOTS = 10
BACKLOG = 50
REPEATED_S = 0.02  # the pause before a call is repeated
WORKER = Options(topics=(TOPIC,), ttr="", retry=f"{RETRY_S}s {RETRY_S}s", concurrency=SLOTS)

Put = Callable[[str, Work, float], float]
"""Enqueues a job with this id, body and delay in seconds; returns when it is due, in milliseconds."""


class Load:
    """Producers, and what they were promised. ``refused``: ids of calls that failed; these jobs may be in or not."""

    def __init__(
        self, processes: WorkerProcesses, producer: Callable[[], AbstractContextManager[Put]], seed: int
    ) -> None:
        self.accepted: dict[str, Accepted] = {}
        self.refused: set[str] = set()
        self._processes = processes
        self._producer = producer
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(f"{n}", seed + n), daemon=True) for n in range(2)]
        self._bursts = 0

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, jobs: int = 50) -> None:
        """Until so many more are accepted."""
        before = len(self.accepted)
        until(lambda: len(self.accepted) >= before + jobs, "producers go on")

    def every_state(self) -> None:
        """Returns while jobs are delayed, ready, running, and waiting for their next attempt."""
        until(self._in_every_state, "there are jobs in every state")

    def _in_every_state(self) -> bool:
        topic = self._processes.queue.stats(TOPIC).topics.get(TOPIC)
        if topic is None or not topic.groups:
            return False
        group = topic.groups["default"]
        journal = self._processes.journal
        retrying = journal.ids("raised") - {line.id for line in journal.lines("start") if line.attempt > 1}
        if group.ready < BACKLOG:
            self._burst()
            return False
        return bool(min(group.delayed, group.running, len(retrying)))

    def _burst(self) -> None:
        """More at once than can run at once."""
        self._bursts += 1
        ids = [f"burst-{self._bursts}-{number}" for number in range(4 * BACKLOG)]
        called = time.time()
        self._processes.queue.enqueue_many(TOPIC, [NewJob(asdict(Work(ms=20)), id=id) for id in ids])
        at = time.time()
        self.accepted |= {id: Accepted(at * 1000 - 5000, called, at) for id in ids}  # due at once, whenever that was

    def _produce(self, name: str, seed: int) -> None:
        dice, number = random.Random(seed), 0
        with self._producer() as put:
            while not self._ending.wait(0.015):
                number += 1
                kind, id = dice.random(), f"{name}-{number}"
                work = Work(ms=300 if kind < 0.1 else dice.choice((0, 1, 5, 20)), fail=1 if kind > 0.85 else 0)
                delay_s, called = dice.choice((0, 0, dice.random() * 3)), time.time()
                try:
                    due_ms = put(id, work, delay_s)
                except ServerError:
                    self.refused.add(id)
                    continue
                answered = time.time()
                # A call that lost its reply is repeated. If its job has ended meanwhile, it is put in again, and the
                # answer tells when that one is due.
                if answered - called > REPEATED_S:
                    due_ms = min(due_ms, (called + delay_s) * 1000)
                self.accepted[id] = Accepted(due_ms, called, answered)


class Through:
    """A producer with a queue of its own."""

    def __init__(self, url: str) -> None:
        self._queue = Queue(url)

    def __enter__(self) -> Put:
        return self._put

    def _put(self, id: str, work: Work, delay_s: float) -> float:
        return self._queue.enqueue(TOPIC, asdict(work), id=id, delay=delay_s).due_ms

    def __exit__(self, *_: object) -> None:
        self._queue.close()


class OverHttp:
    """A producer that puts jobs in over HTTP."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=5)

    def __enter__(self) -> Put:
        return self._put

    def _put(self, id: str, work: Work, delay_s: float) -> float:
        try:
            job = {"body": asdict(work), "delay": delay_s}
            answer = self._client.put(f"/v1/topics/{TOPIC}/jobs/{id}", json=job, params={"on_conflict": "keep"})
        except httpx.TransportError as error:
            raise ServerError(str(error)) from error
        if not answer.is_success:
            raise ServerError(answer.text)
        return float(answer.json()["due_ms"])

    def __exit__(self, *_: object) -> None:
        self._client.close()
