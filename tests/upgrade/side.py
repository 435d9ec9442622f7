"""A process of one version beside those of another: ``python side.py produce|work URL JOURNAL``.

It is run as a file by the Python of either version's environment, so it imports nothing else of the tests, and uses
what both versions have. Each line of the journal is JSON: what, topic, id, process, time, and more.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from typing import Any

from streamdq import Job, NewJob, Queue, Worker

TOPICS = ("work", "by_key", "unique", "before", "after", "part", "join", "ticks")
SHARDS = {"work": 3, "part": 2}
RESULTS = {"before": "1h"}
LONGEST_S = 1.0


class Journal:
    """Appends lines, each by one write, so that those of several processes don't mix."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, topic: str, id: str, *more: Any) -> None:
        line = [what, topic, id, os.getpid(), time.time() * 1000, *more]
        os.write(self._file, (json.dumps(line) + "\n").encode())


class Producer:
    """Enqueues jobs of each kind, and notes those whose call returned."""

    def __init__(self, queue: Queue, journal: Journal) -> None:
        self._queue = queue
        self._journal = journal
        self._dice = random.Random(os.getpid())
        self.stopped = False

    def run(self) -> None:
        kinds = (self._work, self._cancelled, self._by_key, self._unique, self._chain, self._flow)
        number = 0
        while not self.stopped:
            number += 1
            self._dice.choices(kinds, (6, 2, 4, 2, 2, 0.3))[0](f"{os.getpid()}-{number}")
            if number % 50 == 0:
                self._queue.kick("work", all=True)
            time.sleep(0.005)  # real time: a producer's pace

    def _put(self, topic: str, id: str, **options: Any) -> None:
        body = {"ms": self._dice.choice((0, 1, 5, 50)), "fails": int(self._dice.random() < 0.1)}
        self._note(topic, self._queue.enqueue(topic, body, id=id, **options))

    def _note(self, topic: str, job: Job, *more: Any) -> None:
        self._journal.write("accepted", topic, job.id, job.due_ms, *more)

    def _work(self, id: str) -> None:
        if self._dice.random() < 0.05:  # a dead letter, until it is kicked
            self._note("work", self._queue.enqueue("work", {"ms": 0, "fails": 1}, id=id, retry="none"))
        else:
            self._put("work", id, delay=self._dice.choice((0, self._dice.random() * LONGEST_S)))

    def _cancelled(self, id: str) -> None:
        self._queue.enqueue("work", {"ms": 0, "fails": 0}, id=id, delay=self._dice.random() * 0.1)
        time.sleep(self._dice.random() * 0.1)  # real time: it may start meanwhile
        if self._queue.cancel("work", id):
            self._journal.write("cancelled", "work", id)
        else:
            self._journal.write("accepted", "work", id, 0)

    def _by_key(self, id: str) -> None:
        self._put("by_key", id, key=f"k{self._dice.randrange(4)}", delay=self._dice.random() * 0.2)

    def _unique(self, _id: str) -> None:
        """The same few ids from all producers: each runs once."""
        name = f"u{int(time.time() * 2)}"
        self._put("unique", name, unique_for="1h", on_conflict="keep")

    def _chain(self, id: str) -> None:
        self._put("before", id)
        job = self._queue.enqueue("after", {"ms": 0, "fails": 0}, id=id, after=("before", id), delay="20ms")
        self._journal.write("accepted", "after", job.id, 0, [["before", id]])

    def _flow(self, id: str) -> None:
        with self._queue.flow(id) as flow:
            parts = flow.enqueue_many("part", (NewJob({"ms": 1, "fails": n % 2}, id=f"{id}-{n}") for n in range(5)))
            flow.enqueue("join", {"ms": 0, "fails": 0}, id=id, after=parts)
        for n in range(5):
            self._journal.write("accepted", "part", f"{id}-{n}", 0)
        self._journal.write("accepted", "join", id, 0, [["part", f"{id}-{n}"] for n in range(5)])


def worker_of(url: str, journal: Journal) -> Worker:
    """Its handlers fail as often as the body says, and note how each attempt begins and ends."""
    worker = Worker(url, concurrency=10)

    async def handler(body: dict[str, int], job: Job) -> None:
        journal.write("start", job.topic, job.id, job.key)
        try:
            await asyncio.sleep(body["ms"] / 1000)  # real time: as told
            if job.attempt <= body["fails"]:
                raise ValueError("as told")
        except BaseException:
            journal.write("raised", job.topic, job.id, job.key)
            raise
        journal.write("end", job.topic, job.id, job.key)

    for topic in TOPICS:
        worker.handler(topic, ttr="2s", retry="20ms 20ms", result=RESULTS.get(topic))(handler)
    return worker


def main(role: str, url: str, path: str) -> None:
    journal = Journal(path)
    if role == "work":
        worker_of(url, journal).run()
        return
    with Queue(url) as queue:
        producer = Producer(queue, journal)
        signal.signal(signal.SIGTERM, lambda *_: setattr(producer, "stopped", True))
        producer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
