"""What the queue says of the replicas that a topic needs."""

from __future__ import annotations

import threading

import pytest

from streamdq import AsyncQueue, InvalidInput, NewJob, UnknownGroup, UnknownTopic
from streamdq.operations.topics.scale import _Load
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, Space


async def test_measured_durations_and_due_times(stepped: Space, clock: ManualClock) -> None:
    worker = stepped.worker()

    @worker.handler("t")
    async def handler(seconds: float) -> None:
        clock.advance(seconds)

    for _ in range(4):
        stepped.queue.enqueue("t", 2)
        await stepped.burst(worker)
    queue = stepped.queue
    found = queue.scale("t", slo="1s")
    assert (found.attempt_ms, found.attempts) == (2000, 4)
    assert (found.replicas, found.due, found.ready, found.running) == (0, 0, 0, 0)

    queue.enqueue_many("t", [NewJob(1, delay="5m") for _ in range(800)])
    queue.enqueue_many("t", [NewJob(1, delay="15m") for _ in range(5000)])
    found = queue.scale("t", slo="1s", concurrency=10)
    # An attempt takes longer than the objective: each needs a slot of its own, and of ten, eight are planned.
    assert (found.replicas_now, found.replicas_ahead, found.replicas, found.due) == (0, 100, 100, 800)
    assert queue.scale("t", slo="1s", concurrency=10, attempt="100ms").replicas == 10, "a slot starts eleven in time"
    assert queue.scale("t", slo="1s", concurrency=10, within="1m").replicas == 0
    clock.advance(300)
    assert queue.scale("t", slo="1s", concurrency=10, within="1m").replicas_ahead == 100, "overdue ones are due now"
    queue.pause("t")
    assert queue.scale("t").replicas == 0, "of a paused topic nothing starts"


async def test_no_event_loop_waits_for_the_calculation(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, replicas = list[int](), _Load.replicas

    def noting(load: _Load, concurrency: int, *, ahead: bool) -> int:
        threads.append(threading.get_ident())
        return replicas(load, concurrency, ahead=ahead)

    monkeypatch.setattr(_Load, "replicas", noting)
    space.queue.enqueue("t", 1)
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        assert (await queue.scale("t")).replicas == 1
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_what_it_refuses(space: Space) -> None:
    space.queue.configure("t", create=True)
    with pytest.raises(UnknownTopic):
        space.queue.scale("nobody")
    with pytest.raises(UnknownGroup):
        space.queue.scale("t", "nobody")
    for options in ({"within": "61m"}, {"within": 0}, {"slo": 0}, {"concurrency": 0}, {"concurrency": True}):
        with pytest.raises(InvalidInput, match=next(iter(options))):
            space.queue.scale("t", **options)
