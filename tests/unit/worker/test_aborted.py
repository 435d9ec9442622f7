"""A worker learns that an attempt was aborted."""

from __future__ import annotations

import asyncio

from streamdq import RunningJob
from streamdq.operations.attempts.claimed import ClaimedJob
from streamdq.operations.attempts.ends import AttemptResult
from streamdq.store.aborts import AbortedAttempt, attempt_in
from tests.unit.virtual_time import in_virtual_time
from tests.unit.worker.rig import Rig, held
from tests.waiting import forever


def notify(rig: Rig, one: ClaimedJob, consumer: bytes = b"me") -> None:
    rig.deadlines.notified(AbortedAttempt(one.shard.prefix, consumer, one.main, one.entry))


def claimed(body: str, main: bytes) -> ClaimedJob:
    one = held(body)
    one.main = main
    return one


@in_virtual_time
async def test_a_job_that_waits_for_a_slot_goes_back_at_once() -> None:
    async def handler(_body: int) -> None:
        await forever()

    rig = Rig(handler, concurrency=1)
    running, waiting = held("1"), claimed("2", b"2-0")
    rig.runner.take([running, waiting])
    notify(rig, waiting)
    assert await rig.have_ended(1) == {"2": AttemptResult.RELEASED}
    notify(rig, running)
    assert await rig.have_ended(2) == {"2": AttemptResult.RELEASED, "1": AttemptResult.RELEASED}
    await rig.close()


@in_virtual_time
async def test_what_concerns_another_worker_or_has_ended_does_nothing() -> None:
    go = asyncio.Event()

    async def handler(_body: int) -> None:
        await go.wait()

    rig = Rig(handler)
    one = held("1")
    rig.runner.take([one])
    notify(rig, one, consumer=b"another")
    notify(rig, claimed("2", b"9-0"))
    go.set()
    assert await rig.have_ended(1) == {"1": AttemptResult.DONE}
    notify(rig, one)
    rig.deadlines.aborted(one)
    assert not one.aborted
    await rig.close()


@in_virtual_time
async def test_a_handler_is_cancelled_once_and_touches_no_more() -> None:
    cancelled = 0

    async def handler(_body: int, job: RunningJob) -> None:
        nonlocal cancelled
        for _ in range(3):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                cancelled += 1
                job.touch()

    rig = Rig(handler)
    one = held("1")
    rig.runner.take([one])
    await asyncio.sleep(0)
    notify(rig, one)
    await asyncio.sleep(0.5)
    notify(rig, one)
    assert await rig.have_ended(1) == {"1": AttemptResult.DONE}
    assert cancelled == 1
    assert rig.touches == []
    await rig.close()


def test_what_another_client_has_put_there() -> None:
    assert attempt_in([b"x", b"y"]) is None
    one = attempt_in([b"c", b"me", b"s", b"ns:{t:0}", b"m", b"1-0", b"e", b""])
    assert one == AbortedAttempt("ns:{t:0}", b"me", b"1-0", b"")
