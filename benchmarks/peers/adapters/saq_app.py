"""SAQ: delayed jobs wait in a sorted set, at which a worker looks each second. Due times are whole seconds: rounded up,
or jobs would be early.
"""

from __future__ import annotations

from importlib.metadata import version

from peer import Log, Producer, ready, run
from saq import Queue, Worker


class SaqProducer(Producer):
    version = version("saq")
    bulk = "no call for many jobs"

    async def start(self) -> None:
        self._queue = Queue.from_url(self.url)
        await self._queue.connect()

    async def one(self, job: dict, due_ns: int | None) -> None:
        due_s = 0 if due_ns is None else -(-due_ns // 1_000_000_000)
        await self._queue.enqueue("handle", job=job, scheduled=due_s, timeout=2, retries=3, ttl=-1)


async def work(url: str, log: Log, crash: bool) -> None:
    async def handle(_: dict, *, job: dict) -> None:
        await log.note_async(job)

    queue = Queue.from_url(url)
    await queue.connect()
    in_crash = {"concurrency": 20, "timers": {"sweep": 2}} if crash else {"concurrency": 100}
    worker = Worker(queue, [("handle", handle)], **in_crash)
    ready()
    await worker.start()


if __name__ == "__main__":
    run(SaqProducer, work)
