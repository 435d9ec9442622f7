"""docket: a stream, and a sorted set for tasks of the future, at which each worker looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from docket import Docket, Worker
from peer import Log, Producer, ready, run

KEPT = timedelta(0)


def at(due_ns: int | None) -> datetime:
    return datetime.now(UTC) if due_ns is None else datetime.fromtimestamp(due_ns / 1e9, UTC)


class DocketProducer(Producer):
    version = version("pydocket")

    async def start(self) -> None:
        async def handle(job: dict) -> None: ...

        self._docket = await Docket("t", self.url, execution_ttl=KEPT).__aenter__()
        self._docket.register(handle)

    async def one(self, job: dict, due_ns: int | None) -> None:
        await self._docket.add("handle", at(due_ns))(job)

    async def bulk(self, jobs: list[dict], dues: list) -> None:
        pairs = zip(jobs, dues, strict=True)
        await self._docket.add_many([self._docket.call("handle", at(due_ns))(job) for job, due_ns in pairs])


async def work(url: str, log: Log, crash: bool) -> None:
    async def handle(job: dict) -> None:
        await log.note_async(job)

    in_crash = {"concurrency": 20, "redelivery_timeout": timedelta(seconds=2)} if crash else {"concurrency": 100}
    look = timedelta(milliseconds=50)
    async with Docket("t", url, execution_ttl=KEPT) as docket:
        docket.register(handle)
        async with Worker(docket, minimum_check_interval=look, scheduling_resolution=look, **in_crash) as worker:
            ready()
            await worker.run_forever()


if __name__ == "__main__":
    run(DocketProducer, work)
