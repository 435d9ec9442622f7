"""Changing one's mind: cancel and reschedule, wherever the job is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from streamdq import Bury
from streamdq.errors import InvalidInput, ServerUnavailable
from streamdq.link.command import Command
from streamdq.link.connection import LinkError
from tests.redis.harness import Seen, Space


async def test_a_cancelled_job_never_runs(space: Space, seen: Seen) -> None:
    worker = space.recording(seen)
    space.queue.enqueue("t", "cancelled", id="a", delay="50ms")
    space.queue.enqueue("t", "kept", id="b", delay="60ms")
    assert space.queue.cancel("t", "a") is True
    assert space.state("a") == "gone"
    await space.burst(worker)
    assert seen.all == ["kept"]
    assert (space.stats().cancelled, space.stats().done) == (1, 1)


@pytest.mark.usefixtures("only_wakeups")
async def test_an_earlier_due_time_wakes_a_mover_that_sleeps(space: Space, seen: Seen) -> None:
    worker = space.recording(seen)
    space.queue.enqueue("t", "x", id="a", delay="1h")
    async with space.serving(worker):
        assert space.queue.reschedule("t", "a", at=space.job("a").created_ms) is True
        await seen.count(1)


async def test_nothing_to_reschedule(space: Space) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str) -> None:
        raise Bury("x")

    space.queue.enqueue("t", "x", id="dead")
    await space.burst(worker)
    assert space.queue.reschedule("t", "dead", delay=1) is False
    assert space.queue.reschedule("t", "unheard of", delay=1) is False
    with pytest.raises(InvalidInput, match="delay or at"):
        space.queue.reschedule("t", "dead")
    with pytest.raises(InvalidInput, match="not both"):
        space.queue.reschedule("t", "dead", delay=1, at=1_700_000_000_000)


async def test_cancel_races_with_the_worker_and_one_of_them_wins(space: Space, seen: Seen) -> None:
    """Each job is either cancelled or run, never both, never neither."""
    worker = space.recording(seen, concurrency=5)
    ids = [f"j{n}" for n in range(300)]
    async with space.serving(worker):
        space.queue.enqueue_many("t", ({"body": id, "id": id, "delay": "5ms"} for id in ids))
        cancelled = set()
        for id in ids:
            if space.queue.cancel("t", id):
                cancelled.add(id)
            await asyncio.sleep(0)
        await seen.count(len(ids) - len(cancelled))
    await space.burst(worker)
    assert sorted(seen.all) == sorted(set(ids) - cancelled)
    assert space.stats().cancelled == len(cancelled)


def test_a_change_whose_reply_is_lost_is_not_denied(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated, the call might find the job running, because of what it did the first time."""
    space.queue.enqueue("t", "x", id="x", delay="1h")
    assert space.queue.reschedule("t", "x", delay="2h")  # the script is known
    send, lost = space.queue._link.send, 0

    def losing_one(commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        nonlocal lost
        replies = send(commands, timeout_s, blocking)
        lost += 1
        if lost == 1:
            raise LinkError(ConnectionResetError("the reply is lost"), sent=True)
        return replies

    monkeypatch.setattr(space.queue._link, "send", losing_one)
    with pytest.raises(ServerUnavailable):
        space.queue.reschedule("t", "x", delay="3h")
    assert lost == 1
    assert space.queue.reschedule("t", "x", delay="4h")
