"""memory://: the same API without a server, for unit tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from streamdq import AsyncQueue, Job, JobExists, NewJob, Queue, Worker
from streamdq.errors import InvalidInput
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space, opened, recorder
from tests.waiting import eventually


@pytest.fixture
def memory() -> Iterator[Space]:
    with opened(f"memory://{uuid4().hex}") as space:
        yield space


async def test_a_job_from_end_to_end(memory: Space, seen: Seen) -> None:
    worker = memory.worker()

    @worker.handler("t", retry="5ms")
    async def handler(body: dict[str, int], job: Job) -> None:
        seen.add((body["n"], job.attempt))
        if job.attempt == 1:
            raise RuntimeError

    memory.queue.enqueue("t", {"n": 1}, delay="20ms", id="a")
    with pytest.raises(JobExists):
        memory.queue.enqueue("t", {"n": 2}, id="a")
    await memory.burst(worker)
    assert seen.all == [(1, 1), (1, 2)]
    assert (memory.stats().done, memory.stats().retried) == (1, 1)


async def test_groups_shards_and_many_jobs(memory: Space, seen: Seen) -> None:
    memory.queue.configure("t", shards=3, groups=["a", "b"])
    workers = [memory.worker("a"), memory.worker("b")]
    for worker in workers:
        worker.handler("t")(recorder(seen))
    memory.queue.enqueue_many("t", (NewJob(n) for n in range(200)))
    await memory.burst(*workers)
    assert sorted(seen.all) == sorted([*range(200), *range(200)])
    assert memory.audit().left == 0


def test_take_cancel_and_reschedule(memory: Space) -> None:
    memory.queue.enqueue("t", 1, id="a", delay="1h")
    assert memory.queue.cancel("t", "a")
    memory.queue.enqueue("t", 2, id="b", delay="1h")
    assert memory.queue.reschedule("t", "b", delay=0)
    with memory.queue.take("t", timeout=3) or pytest.fail("nothing came") as claim:
        assert claim.job.id == "b"
    memory.queue.enqueue("t", 3, id="c")
    buried = memory.queue.take("t", timeout=3)
    assert buried
    buried.bury("x")
    assert memory.queue.purge("t", all=True) == 1


async def test_fifteen_hours_in_no_time(seen: Seen) -> None:
    clock = ManualClock()
    with opened(f"memory://{uuid4().hex}", clock) as memory:
        worker = memory.worker()

        @worker.handler("t", retry="15h")
        async def handler(_body: int, job: Job) -> None:
            seen.add(job.attempt)
            if job.attempt == 1:
                raise RuntimeError

        memory.queue.enqueue("t", 1, id="a")
        async with memory.serving(worker):
            await seen.count(1)
            await memory.becomes("a", "delayed")
            clock.advance("14h59m")
            clock.advance("1m")
            await seen.count(2)
            await memory.becomes("a", "gone")


async def test_names_tell_memories_apart() -> None:
    one, other = f"memory://{uuid4().hex}", f"memory://{uuid4().hex}"
    with Queue(one) as queue, Queue(other) as apart, Queue(one) as same:
        queue.enqueue("t", 1, id="a")
        assert same.get("t", "a") is not None
        assert apart.get("t", "a") is None
    async with AsyncQueue(one) as queue_again:
        assert await queue_again.get("t", "a") is not None


async def test_a_worker_of_the_same_memory_in_the_same_process(seen: Seen) -> None:
    url = f"memory://{uuid4().hex}"
    worker = Worker(url)
    worker.handler("t")(recorder(seen))
    async with AsyncQueue(url) as queue:
        await queue.enqueue("t", "x", delay="20ms")
        await worker.serve(burst=True)
        assert (await queue.audit()).left == 0
    assert seen.all == ["x"]


def test_without_fakeredis_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(InvalidInput, match=r"pip install 'streamdq\[memory\]'"):
        Queue(f"memory://{uuid4().hex}")


async def test_a_pause(memory: Space, seen: Seen) -> None:
    worker = memory.worker()
    worker.handler("t")(recorder(seen))
    memory.queue.enqueue("t", 1)
    memory.queue.pause("t")
    async with memory.serving(worker):
        assert memory.stats().running == 0
        memory.queue.resume("t")
        await seen.count(1)
        await eventually(lambda: memory.audit().left == 0, "all done")
