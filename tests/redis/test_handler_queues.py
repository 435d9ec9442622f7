"""What handlers enqueue with: ``job.queue`` and ``job.async_queue``."""

from __future__ import annotations

import asyncio

import pytest

from streamdq import InvalidInput, Job, RunningJob, StaleClaim, Worker
from streamdq.testing import drain, memory
from tests.redis.harness import Seen, Space


async def test_handlers_enqueue_follow_ups(space: Space, seen: Seen) -> None:
    worker = space.worker()
    loop = asyncio.get_running_loop()
    ran: list[RunningJob] = []

    @worker.handler("async")
    async def first(body: int, job: RunningJob) -> None:
        await job.async_queue.enqueue("thread", body + 1)
        with pytest.raises(InvalidInput, match=r"use job\.async_queue"):
            job.queue  # noqa: B018

    @worker.handler("thread")
    def second(body: int, job: RunningJob) -> None:
        job.queue.enqueue("last", body + 1)
        with pytest.raises(InvalidInput, match=r"use job\.queue"):
            job.async_queue  # noqa: B018

    @worker.handler("last")
    async def third(body: int, job: RunningJob) -> None:
        ran.append(job)
        loop.call_soon(seen.add, body)

    made = space.queue.enqueue("async", 1)
    async with space.serving(worker):
        assert await seen.count(1) == [3]

    assert type(made) is Job
    for job in ran:
        with pytest.raises(StaleClaim, match="belongs in its handler"):
            job.async_queue  # noqa: B018
        with pytest.raises(StaleClaim, match="belongs in its handler"):
            job.queue  # noqa: B018


async def test_a_bound_worker_s_follow_ups_go_to_the_test_s_server() -> None:
    worker = Worker("redis://127.0.0.1:1")  # where nothing is
    server, shipped = memory(), []

    @worker.handler("close")
    async def close(body: dict, job: RunningJob) -> None:
        await job.async_queue.enqueue("ship", body, delay="15h")

    @worker.handler("ship")
    def ship(body: dict, job: RunningJob) -> None:
        shipped.append(server.clock.now_ms)
        job.queue.enqueue("bill", body)

    with server.bind(worker), server.queue() as queue:
        began = server.clock.now_ms
        queue.enqueue("close", {"order": 1}, delay="30m")
        await drain(worker, server.clock)
        assert [at - began for at in shipped] == [int(15.5 * 3_600_000)]
        assert queue.stats("bill").topics["bill"].enqueued == 1
    server.close()
