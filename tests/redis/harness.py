"""One namespace for a test: its queue, its workers, and its accounts, which must balance at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import redis

from streamdq import Job, JobState, Queue, Worker
from streamdq.config import Settings
from streamdq.operations.checks.audit import Audit
from streamdq.operations.topics.stats import GroupStats
from streamdq.queue import Claim
from streamdq.times.clock import RedisClock
from tests.waiting import HANG_S, eventually

NAMESPACE = "test"
SETTINGS = Settings(call_timeout_s=30.0, grace_s=0.2, url="memory://unused")


class Seen:
    """What handlers saw, in order. Tests await it instead of sleeping. Only add to it in the event loop."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._news = asyncio.Event()

    def add(self, item: Any) -> None:
        self.all.append(item)
        self._news.set()

    async def count(self, count: int) -> list[Any]:
        """Waits until there are this many."""
        async with asyncio.timeout(HANG_S):
            while len(self.all) < count:
                self._news.clear()
                await self._news.wait()
        return self.all

    def __len__(self) -> int:
        return len(self.all)


class Space:
    """A namespace on one server."""

    def __init__(self, url: str, clock: RedisClock | None = None, **settings: Any) -> None:
        self.url = url
        self.clock = clock
        self.settings = SETTINGS.model_copy(update=settings)
        self._opened = ExitStack()
        self.queue = self.another_queue()

    @staticmethod
    def quick() -> Settings:
        """For calls that are bound to fail."""
        return SETTINGS.model_copy(update={"call_timeout_s": 0.3})

    def another_queue(self, url: str | None = None, **settings: Any) -> Queue:
        """A queue like another process's, closed at the end."""
        chosen = self.settings.model_copy(update=settings)
        return self._opened.enter_context(Queue(url or self.url, NAMESPACE, settings=chosen, clock=self.clock))

    def worker(self, group: str = "default", concurrency: int = 20, **settings: Any) -> Worker:
        chosen = self.settings.model_copy(update=settings)
        return Worker(self.url, NAMESPACE, group, concurrency, settings=chosen, clock=self.clock)

    def recording(self, seen: Seen, group: str = "default", **settings: Any) -> Worker:
        """A worker of the topic ``t`` that notes the bodies."""
        worker = self.worker(group, **settings)
        worker.handler("t")(recorder(seen))
        return worker

    @asynccontextmanager
    async def serving(self, *workers: Worker) -> AsyncIterator[None]:
        """Running workers; at the end they drain."""
        tasks = [asyncio.create_task(worker.serve()) for worker in workers]
        try:
            await self._started(workers, tasks)
            yield
        finally:
            for worker in workers:
                worker.stop()
            async with asyncio.timeout(HANG_S):
                await asyncio.gather(*tasks)

    async def _started(self, workers: Iterable[Worker], tasks: Iterable[asyncio.Task[None]]) -> None:
        """Their topics have the groups, with the settings of their handlers; one that can't start says why."""

        def there() -> bool:
            for task in tasks:
                if task.done():
                    task.result()
            return all(worker._run is not None and worker._run.begun for worker in workers)

        await eventually(there, "workers have started")

    async def burst(self, *workers: Worker) -> None:
        """Workers run until nothing is left for them: thousands of jobs, on a busy machine."""
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*(worker.serve(burst=True) for worker in workers))

    def state(self, id: str, topic: str = "t", group: str | None = None) -> str:
        """Where a job stands: delayed, ready, running, dead, done, or gone."""
        job = self.queue.get(topic, id)
        if job is None:
            return "gone"
        return job.state.value if group is None else job.groups[group].state.value

    def job(self, id: str, topic: str = "t") -> Job:
        job = self.queue.get(topic, id)
        assert job is not None, f"{id} is gone"
        return job

    async def becomes(self, id: str, state: JobState | str, topic: str = "t", group: str | None = None) -> None:
        """Waits until the job stands so."""
        await eventually(lambda: self.state(id, topic, group) == state, f"{id} is {state}")

    def stats(self, topic: str = "t", group: str = "default") -> GroupStats:
        return self.queue.stats(topic).topics[topic].groups[group]

    def audit(self) -> Audit:
        return self.queue.audit()

    def close(self) -> None:
        self._opened.close()


@contextmanager
def opened(url: str, clock: RedisClock | None = None, **settings: Any) -> Iterator[Space]:
    """A Space whose accounts are balanced at the end of the block, whatever happened in it."""
    space = Space(url, clock, **settings)
    with contextlib.closing(space):
        yield space
        audit = space.audit()
        assert audit.balanced, audit


def counting(client: redis.Redis) -> dict[str, int]:
    """Every key and how much is in it: equal before and after when nothing was written."""
    sizes = {}
    for key in client.scan_iter():
        sizes[key.decode()] = int(client.memory_usage(key) or 0)
    return sizes


Handler = Callable[..., Awaitable[None]]


def recorder(seen: Seen) -> Handler:
    """A handler that notes the body."""

    async def handler(body: Any) -> None:
        seen.add(body)

    return handler


def taken(queue: Queue, topic: str = "t", group: str = "default", **options: Any) -> Claim:
    """A claim of a job that is there."""
    claim = queue.take(topic, group, **options)
    assert claim
    return claim
