"""streamdq, as its documentation shows it."""

from __future__ import annotations

import asyncio
import math

from peer import Log, Producer, ready, run

from streamdq import NewJob, Queue, Worker
from streamdq.version import __version__


def due(job: dict, delay_s: float) -> dict:
    return {"at": math.ceil(job["due"] / 1e6)} if delay_s else {}


class StreamdqProducer(Producer):
    version = __version__

    def __init__(self, url: str) -> None:
        self._queue = Queue(url)
        self._queue.configure("t")

    def one(self, job: dict, delay_s: float) -> None:
        self._queue.enqueue("t", job, **due(job, delay_s))

    def bulk(self, jobs: list[dict], delay_s: float) -> None:
        self._queue.enqueue_many("t", [NewJob(job, **due(job, delay_s)) for job in jobs])


def work(url: str, log: Log, crash: bool) -> None:
    worker = Worker(url, concurrency=20 if crash else 100)

    @worker.handler("t", ttr="2s" if crash else "30s")
    async def handle(body: dict) -> None:
        if log.work_s:
            await asyncio.sleep(log.work_s)
        log.ended(body)

    ready()
    worker.run()


run(StreamdqProducer, work)
