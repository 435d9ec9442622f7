"""Batch handlers: jobs due together, as one list."""

from __future__ import annotations

from pydantic import BaseModel

from streamdq import NewJob
from tests.redis.harness import Seen, Space


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
