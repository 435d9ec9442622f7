"""ardiq: Redis streams, with the worker's loop and its calls of Redis in Rust."""

from __future__ import annotations

from importlib.metadata import version

from ardiq import Ardiq
from peer import FLOWS, MS, Log, Producer, ready, run


class ArdiqProducer(Producer):
    version = version("ardiq")

    def start(self) -> None:
        self._app = Ardiq(self.url)
        self._handle = self._app.ref("handle")

    async def result(self, job: dict) -> None:
        await (await self._handle.enqueue(job)).result(30)

    def _at(self, due_ns: int | None) -> object:
        return self._handle.options(schedule_ms=0 if due_ns is None else due_ns // MS)

    def one(self, job: dict, due_ns: int | None) -> object:
        return self._at(due_ns).enqueue(job)

    def bulk(self, jobs: list, dues: list) -> object:
        return self._app.enqueue_many([self._at(due_ns).prepare(job) for job, due_ns in zip(jobs, dues, strict=True)])


async def work(url: str, log: Log, crash: bool) -> None:
    in_crash = {"concurrency": 20, "idle_timeout_ms": 2000} if crash else {"concurrency": 100}
    app = Ardiq(url, **in_crash, result_ttl_ms=3_600_000 if FLOWS else 0)

    @app.task(name="handle")
    async def handle(job: dict) -> int:
        await log.note_async(job)
        return job["n"]

    ready()
    await app.run()


if __name__ == "__main__":
    run(ArdiqProducer, work)
