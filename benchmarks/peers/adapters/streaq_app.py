"""streaQ: streams, and a sorted set for delayed tasks, at which a worker looks twice a second."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version

from peer import FLOWS, Log, Producer, ready, run
from streaq import Worker


class StreaqProducer(Producer):
    version = version("streaq")

    async def start(self) -> None:
        self._worker = Worker(redis_url=self.url)

        @self._worker.task(name="handle")
        async def handle(job: dict) -> None: ...

        self._handle = handle
        await self._worker.__aenter__()

    async def flow(self, jobs: list[dict], last: dict) -> None:
        made = [self._handle.enqueue(job) for job in jobs]
        await self._worker.enqueue_many([*made, self._handle.enqueue(last).start(after=[one.id for one in made])])

    async def result(self, job: dict) -> None:
        await (await self._handle.enqueue(job)).result(30)

    def _made(self, job: dict, due_ns: int | None) -> object:
        made = self._handle.enqueue(job)
        return made if due_ns is None else made.start(schedule=datetime.fromtimestamp(due_ns / 1e9, UTC))

    async def one(self, job: dict, due_ns: int | None) -> None:
        await self._made(job, due_ns)

    async def bulk(self, jobs: list[dict], dues: list) -> None:
        await self._worker.enqueue_many([self._made(*both) for both in zip(jobs, dues, strict=True)])


async def work(url: str, log: Log, crash: bool) -> None:
    in_crash = {"concurrency": 20, "idle_timeout": 2} if crash else {"concurrency": 100}
    worker = Worker(redis_url=url, **in_crash)

    @worker.task(name="handle", silent=True, ttl=3600 if FLOWS else 0)
    async def handle(job: dict) -> int:
        await log.note_async(job)
        return job["n"]

    ready()
    await worker.run_async()


if __name__ == "__main__":
    run(StreaqProducer, work)
