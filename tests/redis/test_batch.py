"""Batch handlers: jobs due together, as one list."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pydantic import BaseModel

from streamdq import Job, JobState, NewJob
from tests.redis.harness import Seen, Space
from tests.waiting import eventually


class Slot(BaseModel):
    n: int


async def test_jobs_due_together_come_together(space: Space, seen: Seen) -> None:
    worker = space.worker(concurrency=2)

    @worker.handler("t", batch=100)
    async def handler(slots: list[Slot]) -> None:
        seen.add([slot.n for slot in slots])

    at_ms = space.queue.enqueue("other", 1).created_ms + 100
    space.queue.enqueue_many("t", (NewJob(Slot(n=n), at=at_ms) for n in range(250)))
    await space.burst(worker)
    assert sorted(n for batch in seen.all for n in batch) == list(range(250))
    assert max(map(len, seen.all)) <= 100
    assert len(seen) <= 10
    assert space.stats().done == 250


async def test_the_jobs_come_along_in_the_same_order(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", batch=50)
    def handler(bodies: list[int], jobs: list[Job]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.all.append([(body, job.body, job.attempt) for body, job in zip(bodies, jobs, strict=True)])

    space.queue.enqueue_many("t", (NewJob(n) for n in range(50)))
    await space.burst(worker)
    rows = [row for batch in seen.all for row in batch]
    assert sorted(rows) == [(n, n, 1) for n in range(50)]


async def test_a_failed_batch_retries_each_of_its_jobs(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", batch=20, retry="1ms")
    async def handler(bodies: list[int], jobs: list[Job]) -> None:
        seen.add(sorted(bodies))
        if any(job.attempt == 1 for job in jobs):
            raise RuntimeError

    space.queue.enqueue_many("t", (NewJob(n) for n in range(10)))
    await space.burst(worker)
    assert (space.stats().done, space.stats().retried) == (10, 10)


async def test_an_invalid_body_is_buried_and_the_others_run(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", batch=20)
    async def handler(slots: list[Slot]) -> None:
        seen.add(sorted(slot.n for slot in slots))

    for n in range(5):
        space.queue.enqueue("t", {"n": "wrong" if n == 2 else n}, id=f"j{n}")
    await space.burst(worker)
    assert sorted(n for batch in seen.all for n in batch) == [0, 1, 3, 4]
    assert space.job("j2").groups["default"].reason == "invalid"


@pytest.mark.usefixtures("no_take_over")
async def test_a_batch_over_its_ttr_is_cut_off(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", batch=20, ttr="30s", retry="1ms")
    async def handler(bodies: list[int], jobs: list[Job]) -> None:
        if jobs[0].attempt == 1:
            for job in jobs:
                job.touch("150ms")  # once it has begun, however late that is
            await asyncio.Event().wait()
        for body in bodies:
            seen.add(body)

    space.queue.enqueue_many("t", (NewJob(n) for n in range(3)))
    async with space.serving(worker):
        await seen.count(3)
        await eventually(lambda: space.audit().left == 0, "all done")
    assert space.stats().retried == 3


async def test_a_batch_that_outlasts_the_grace_is_handed_back(space: Space, seen: Seen) -> None:
    worker = space.worker(grace_s=0.05)

    @worker.handler("t", batch=20, retry="none")
    async def handler(bodies: list[int]) -> None:
        seen.add(len(bodies))
        await asyncio.Event().wait()

    space.queue.enqueue_many("t", (NewJob(n, id=f"j{n}") for n in range(3)))
    async with space.serving(worker):
        await seen.count(1)
    assert {space.state(f"j{n}") for n in range(3)} == {JobState.READY}
    assert {space.job(f"j{n}").attempt for n in range(3)} == {0}
