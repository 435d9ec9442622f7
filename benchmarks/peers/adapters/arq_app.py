"""arq: all jobs wait in one sorted set, which the worker polls."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version

from arq import Worker, create_pool
from arq.connections import RedisSettings
from arq.worker import func
from peer import Log, Producer, ready, run


class ArqProducer(Producer):
    version = version("arq")
    bulk = "no call for many jobs"

    async def start(self) -> None:
        self._pool = await create_pool(RedisSettings.from_dsn(self.url))

    async def one(self, job: dict, due_ns: int | None) -> None:
        until = None if due_ns is None else datetime.fromtimestamp(due_ns / 1e9, UTC)
        await self._pool.enqueue_job("handle", job, _defer_until=until)


async def work(url: str, log: Log, crash: bool) -> None:
    async def handle(_: dict, job: dict) -> None:
        await log.note_async(job)

    in_crash = {"max_jobs": 20, "job_timeout": 2} if crash else {"max_jobs": 100}
    settings = RedisSettings.from_dsn(url)
    worker = Worker([func(handle, name="handle")], redis_settings=settings, poll_delay=0.1, keep_result=0, **in_crash)
    ready()
    await worker.async_run()


if __name__ == "__main__":
    run(ArqProducer, work)
