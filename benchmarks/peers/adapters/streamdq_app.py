"""streamdq, as its documentation shows it."""

from __future__ import annotations

from peer import FLOWS, MS, Log, Producer, ready, run

from streamdq import NewJob, Queue, Worker
from streamdq.version import __version__


class StreamdqProducer(Producer):
    version = __version__

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._queue = Queue(url)
        self._queue.configure("t", create=True, **({"result": "1h"} if FLOWS else {}))

    def one(self, job: dict, due_ns: int | None) -> None:
        self._queue.enqueue("t", job, at=due_ns and due_ns // MS)

    def bulk(self, jobs: list[dict], dues: list) -> None:
        made = [NewJob(job, at=due_ns and due_ns // MS) for job, due_ns in zip(jobs, dues, strict=True)]
        self._queue.enqueue_many("t", made)

    def flow(self, jobs: list[dict], last: dict) -> None:
        with self._queue.flow(f"f{last['n']}") as flow:
            flow.enqueue("t", last, after=flow.enqueue_many("t", [NewJob(job) for job in jobs]))

    def result(self, job: dict) -> None:
        self._queue.result(self._queue.enqueue("t", job), timeout="30s")


def work(url: str, log: Log, crash: bool) -> None:
    worker = Worker(url, concurrency=20 if crash else 100)

    @worker.handler("t", ttr="2s" if crash else "30s", result="1h" if FLOWS else None)
    async def handle(body: dict) -> int:
        await log.note_async(body)
        return body["n"]

    ready()
    worker.run()


run(StreamdqProducer, work)
