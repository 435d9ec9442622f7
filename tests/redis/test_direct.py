"""Due jobs of an idle worker, which the mover's call claims for it: what that changes, and what it must not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streamdq import Job, NewJob, Worker
from streamdq.store.scripts import Scripts
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space
from tests.waiting import eventually


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each call that moves and claims asked for."""
    asked: list[int] = []
    move_and_claim = Scripts.move_and_claim

    def noted(self: Scripts, *args: Any, **options: Any) -> Any:
        asked.append(options["count"])
        return move_and_claim(self, *args, **options)

    monkeypatch.setattr(Scripts, "move_and_claim", noted)
    return asked


async def idle(worker: Worker) -> None:
    """Waits until its mover is at work, and it could take due jobs of ``t``."""

    def waits() -> bool:
        serving = worker._serving
        if serving is None or not (serving._mover.leading and serving._runner.waits):
            return False
        return serving.consumer.is_turn_of(serving.session.keys.shard("t", 0))

    await eventually(waits, "it is idle")


async def test_an_idle_worker_gets_its_due_jobs_without_a_claim_of_their_own(
    stepped: Space, clock: ManualClock, seen: Seen, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = stepped.recording(seen, concurrency=5)
    async with stepped.serving(worker):
        await idle(worker)
        stepped.queue.enqueue("t", "first", delay=1)
        clock.advance(1)
        await seen.count(1)
        claims: Counter[str] = Counter()
        claim = Scripts.claim

        def counted(self: Scripts, *args: Any, **options: Any) -> Any:
            claims["claim"] += 1
            return claim(self, *args, **options)

        monkeypatch.setattr(Scripts, "claim", counted)
        for n in range(5):
            await idle(worker)
            stepped.queue.enqueue("t", n, delay=1)
            clock.advance(1)
            await seen.count(2 + n)
        await eventually(lambda: stepped.stats().done == 6, "all have ended")
        assert not claims
    assert counts
    assert set(counts) == {2}
    assert stepped.stats().done == 6


async def test_a_batch_handler_gets_a_whole_batch(
    stepped: Space, clock: ManualClock, seen: Seen, counts: list[int]
) -> None:
    worker = stepped.worker(concurrency=2)

    @worker.handler("t", batch=8)
    async def handle(bodies: list[int], jobs: list[Job]) -> None:
        assert [job.attempt for job in jobs] == [1] * len(bodies)
        seen.add(sorted(bodies))

    async with stepped.serving(worker):
        await idle(worker)
        stepped.queue.enqueue_many("t", (NewJob(n, delay=1) for n in range(8)))
        clock.advance(1)
        assert await seen.count(1) == [list(range(8))]
    assert set(counts) == {8}


async def test_a_topic_with_a_rate(stepped: Space, clock: ManualClock, seen: Seen, counts: list[int]) -> None:
    stepped.queue.configure("t", rate=100)
    worker = stepped.recording(seen)
    async with stepped.serving(worker):
        await idle(worker)
        stepped.queue.enqueue_many("t", (NewJob(n, delay=1) for n in range(5)))
        for n in range(1, 6):
            clock.advance(1)
            await seen.count(n)
    assert sorted(seen.all) == list(range(5))
    assert counts
