"""Changing one's mind: cancel and reschedule, wherever the job is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from streamdq import Bury, Job, JobState, Retry
from streamdq.errors import InvalidInput, ServerUnavailable, UnknownTopic
from streamdq.link.command import Command
from streamdq.link.connection import LinkError
from tests.redis.harness import Seen, Space, recorder


async def test_a_cancelled_job_never_runs(space: Space, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    space.queue.enqueue("t", "cancelled", id="a", delay="50ms")
    space.queue.enqueue("t", "kept", id="b", delay="60ms")
    assert space.queue.cancel("t", "a") is True
    assert space.state("a") == "gone"
    await space.burst(worker)
    assert seen.all == ["kept"]
    assert (space.stats().cancelled, space.stats().done) == (1, 1)


async def test_cancel_after_the_move(space: Space, seen: Seen) -> None:
    mover, worker = space.worker(), space.worker()
    mover.handler("another")(recorder(seen))
    worker.handler("t")(recorder(seen))
    space.queue.enqueue("t", "moved", id="a", delay="20ms")
    space.queue.enqueue("t", "straight", id="b")
    async with space.serving(mover):
        await space.becomes("a", JobState.READY)
        assert space.state("b") == JobState.READY
        assert space.queue.cancel("t", "a") is True
        assert space.queue.cancel("t", "b") is True
        assert space.stats().ready == 0
    space.queue.enqueue("t", "after", id="a")
    await space.burst(worker)
    assert seen.all == ["after"]
    assert space.stats().cancelled == 2


async def test_a_running_job_is_not_cancelled(space: Space, seen: Seen) -> None:
    worker, go_on = space.worker(), asyncio.Event()

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)
        await go_on.wait()

    space.queue.enqueue("t", "x", id="a")
    async with space.serving(worker):
        await seen.count(1)
        assert space.queue.cancel("t", "a") is False
        assert space.queue.reschedule("t", "a", delay="1h") is False
        assert space.state("a") == JobState.RUNNING
        go_on.set()
        await space.becomes("a", "gone")
    assert (space.stats().done, space.stats().cancelled) == (1, 0)


async def test_cancel_between_attempts(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="1h")
    async def handler(_body: str, job: Job) -> None:
        seen.add(job.attempt)
        raise RuntimeError

    space.queue.enqueue("t", "x", id="a")
    async with space.serving(worker):
        await seen.count(1)
        await space.becomes("a", JobState.DELAYED)
        assert space.queue.cancel("t", "a") is True
    await space.burst(worker)
    assert seen.all == [1]


async def test_cancel_of_a_retry_that_is_ready(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str, job: Job) -> None:
        seen.add(job.attempt)
        if job.attempt == 1:
            raise Bury("first")

    space.queue.enqueue("t", "x", id="a")
    await space.burst(worker)
    assert space.queue.kick("t", "a") == 1
    assert space.queue.cancel("t", "a") is True
    await space.burst(worker)
    assert seen.all == [1]
    assert space.stats().cancelled == 1


async def test_nothing_to_cancel(space: Space) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str) -> None:
        raise Bury("x")

    with pytest.raises(UnknownTopic):
        space.queue.cancel("t", "a")
    space.queue.enqueue("t", "x", id="dead")
    await space.burst(worker)
    assert space.queue.cancel("t", "unheard of") is False
    assert space.queue.cancel("t", "dead") is False
    assert space.state("dead") == JobState.DEAD


async def test_cancel_takes_a_dead_letter_of_another_group_with_it(space: Space, seen: Seen) -> None:
    space.queue.configure("t", groups=["a", "b"])
    worker = space.worker("a")

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)
        raise Bury("x")

    space.queue.enqueue("t", "x", id="j")
    await space.burst(worker)
    assert (space.state("j", group="a"), space.state("j", group="b")) == ("dead", "ready")
    assert space.queue.cancel("t", "j") is True
    assert space.state("j") == "gone"
    assert space.queue.kick("t", "j", "a") == 0
    other = space.worker("b")
    other.handler("t")(recorder(seen))
    await space.burst(other)
    assert len(seen) == 1
    assert space.queue.dead("t", "a") == []


async def test_cancel_while_another_group_has_finished(space: Space, seen: Seen) -> None:
    space.queue.configure("t", groups=["a", "b"])
    worker = space.worker("a")
    worker.handler("t")(recorder(seen))
    space.queue.enqueue("t", "x", id="j")
    await space.burst(worker)
    assert space.queue.cancel("t", "j") is True
    assert space.state("j") == "gone"
    assert (space.stats(group="a").done, space.stats(group="b").cancelled) == (1, 1)


@pytest.mark.parametrize("when", ["30ms", "1h"])
async def test_reschedule_a_delayed_job(space: Space, seen: Seen, when: str) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    first = space.queue.enqueue("t", "x", id="a", delay="1m" if when == "30ms" else "30ms")
    assert space.queue.reschedule("t", "a", delay=when) is True
    job = space.job("a")
    assert (job.state, job.created_ms) == (JobState.DELAYED, first.created_ms)
    if when == "1h":
        space.queue.enqueue("t", "other", delay="60ms")
        async with space.serving(worker):
            await seen.count(1)
        assert seen.all == ["other"]
        assert job.due_ms - job.created_ms >= 3_600_000
    else:
        await space.burst(worker)
        assert seen.all == ["x"]


@pytest.mark.usefixtures("rings_alone")
async def test_an_earlier_due_time_wakes_a_mover_that_sleeps(space: Space, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    space.queue.enqueue("t", "x", id="a", delay="1h")
    async with space.serving(worker):
        assert space.queue.reschedule("t", "a", at=space.job("a").created_ms) is True
        await seen.count(1)


async def test_reschedule_a_ready_job(space: Space, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    space.queue.enqueue("t", "later", id="a")
    space.queue.enqueue("t", "now", id="b")
    assert space.state("a") == JobState.READY
    assert space.queue.reschedule("t", "a", delay="150ms") is True
    assert (space.state("a"), space.stats().ready, space.stats().delayed) == (JobState.DELAYED, 1, 1)
    await space.burst(worker)
    assert seen.all == ["now", "later"]
    assert space.stats().done == 2


async def test_reschedule_again_and_again_runs_once(space: Space, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    space.queue.enqueue("t", "x", id="a")
    for _ in range(20):
        assert space.queue.reschedule("t", "a", delay=0) is True
    async with space.serving(worker):
        await seen.count(1)
    await space.burst(worker)
    assert seen.all == ["x"]


async def test_reschedule_between_attempts_keeps_their_count(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str, job: Job) -> None:
        seen.add((job.attempt, job.step))
        if job.attempt == 1:
            raise RuntimeError

    space.queue.enqueue("t", "x", id="a", retry="1h")
    async with space.serving(worker):
        await seen.count(1)
        await space.becomes("a", JobState.DELAYED)
        assert space.queue.reschedule("t", "a", delay="1ms") is True
        await seen.count(2)
        await space.becomes("a", "gone")
    assert seen.all == [(1, 0), (2, 1)]


async def test_reschedule_reaches_only_groups_that_wait(space: Space) -> None:
    space.queue.configure("t", groups=["a", "b"])
    a, b = Seen(), Seen()
    workers = space.worker("a"), space.worker("b")
    workers[0].handler("t")(recorder(a))
    workers[1].handler("t")(recorder(b))
    space.queue.enqueue("t", "x", id="j")
    await space.burst(workers[0])
    assert space.queue.reschedule("t", "j", delay="20ms") is True
    assert (space.state("j", group="a"), space.state("j", group="b")) == ("done", "delayed")
    await space.burst(*workers)
    assert (a.all, b.all) == (["x"], ["x"])
    assert space.state("j") == "gone"


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
    worker = space.worker(concurrency=5)
    worker.handler("t")(recorder(seen))
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


async def test_a_retry_asked_for_can_be_rescheduled_to_a_moment(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str, job: Job) -> None:
        seen.add(job.attempt)
        raise Retry(delay="1h")

    space.queue.enqueue("t", "x", id="a")
    async with space.serving(worker):
        await seen.count(1)
        await space.becomes("a", JobState.DELAYED)
    at_ms = space.job("a").created_ms + 7_200_000
    assert space.queue.reschedule("t", "a", at=at_ms) is True
    assert space.job("a").due_ms == at_ms


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
