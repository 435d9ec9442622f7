"""Aborting a job while it runs: its handler hears of it at once, and the job ends as cancelled, whatever the handler
does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from streamdq import AbortResult, AsyncQueue, JobAborted, Retry, RunningJob, StaleClaim, UnknownTopic
from streamdq.link.session import Op
from streamdq.queue import carry_out, store_of
from streamdq.store import aborts
from streamdq.store.history.rows import Event
from streamdq.worker.deadline import Deadlines
from streamdq.worker.serving import WorkerRun
from tests.redis.harness import NAMESPACE, Seen, Space
from tests.waiting import HANG_S, eventually, forever

ABORTING, CANCELLED, ENDED, WAITING = (
    AbortResult.ABORTING,
    AbortResult.CANCELLED,
    AbortResult.ENDED,
    AbortResult.WAITING,
)


def is_cancelled(space: Space, id: str = "a") -> bool:
    """Whether the job ended as aborted, once, and nothing of it is left."""
    rows = [row for row in space.queue.history("t").rows if row.id == id]
    assert [(row.event, row.reason) for row in rows] in ([], [(Event.CANCELLED, "aborted")]), rows
    return bool(rows) and space.state(id) == "gone"


async def test_a_coroutine_is_cancelled_at_once(space: Space, seen: Seen) -> None:
    worker = space.worker(ttr_ms=600_000)

    @worker.handler("t")
    async def handler(_body: str, job: RunningJob) -> None:
        seen.add("began")
        try:
            await forever()
        finally:
            seen.add(job.aborted)

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        assert space.queue.abort("t", "a") == ABORTING == "aborting"
        await seen.count(2)
        await eventually(lambda: is_cancelled(space), "it is cancelled")
        assert space.queue.abort("t", "a") == ENDED
    assert seen.all == ["began", True]
    assert (space.stats().cancelled, space.stats().done, space.stats().dead) == (1, 0, 0)


async def test_a_function_sees_it(space: Space, seen: Seen) -> None:
    worker, loop = space.worker(), asyncio.get_running_loop()
    aborted = threading.Event()

    @worker.handler("t")
    def handler(_body: str, job: RunningJob) -> None:
        loop.call_soon_threadsafe(seen.add, "began")
        while not job.aborted:
            aborted.wait(0.005)
        loop.call_soon_threadsafe(seen.add, "stopped")

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        assert space.queue.abort("t", "a") == ABORTING
        await seen.count(2)
        await eventually(lambda: is_cancelled(space), "it is cancelled")


async def fails(_job: RunningJob) -> None:
    raise ValueError("no")


async def retries(_job: RunningJob) -> None:
    raise Retry("1s")


async def returns(_job: RunningJob) -> None:
    return None


@pytest.mark.parametrize("then", [fails, retries, returns])
async def test_whatever_it_does_then_it_is_cancelled(
    space: Space, seen: Seen, then: Callable[[RunningJob], Awaitable[None]]
) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str, job: RunningJob) -> None:
        seen.add("began")
        try:
            await forever()
        except asyncio.CancelledError:
            await then(job)

    dead: list[str] = []
    worker.on_dead(lambda job: dead.append(job.id))
    async with space.serving(worker):
        space.queue.configure("t", retry=["1s"])
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        assert space.queue.abort("t", "a") == ABORTING
        await eventually(lambda: is_cancelled(space), "it is cancelled")
    assert not dead


async def test_a_handler_that_ignores_it_until_its_ttr(space: Space, seen: Seen) -> None:
    worker, release = space.worker(), threading.Event()
    loop = asyncio.get_running_loop()

    @worker.handler("t", ttr="300ms", retry="1h")
    def handler(_body: str) -> None:
        loop.call_soon_threadsafe(seen.add, "began")
        release.wait(HANG_S)

    try:
        async with space.serving(worker):
            for number in count(1):
                space.queue.enqueue("t", "x", id=f"{number}")
                await seen.count(number)
                if space.queue.abort("t", f"{number}") == ABORTING:  # unless its TTR has passed
                    break
            await eventually(lambda: is_cancelled(space, f"{number}"), "it is cancelled")
            release.set()
    finally:
        release.set()


async def test_if_the_hint_is_lost_a_touch_tells(space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.operations.jobs.abort.notify_workers", lost)
    worker, touched = space.worker(), asyncio.Event()

    @worker.handler("t", ttr="10m")
    async def handler(_body: str, job: RunningJob) -> None:
        seen.add("began")
        await touched.wait()
        job.touch()
        try:
            await forever()
        finally:
            seen.add(job.aborted)

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        assert space.queue.abort("t", "a") == ABORTING
        touched.set()
        assert await seen.count(2) == ["began", True]
        await eventually(lambda: is_cancelled(space), "it is cancelled")


async def test_if_the_hint_is_lost_the_end_cancels_it(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.operations.jobs.abort.notify_workers", lost)
    worker, go = space.worker(), asyncio.Event()

    @worker.handler("t", ttr="10m")
    async def handler(_body: str) -> None:
        seen.add("began")
        await go.wait()

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        assert space.queue.abort("t", "a") == ABORTING
        go.set()
        await eventually(lambda: is_cancelled(space), "it is cancelled")


def lost(*_: object) -> Op[None]:
    return
    yield


async def test_a_handler_aborts_its_own_job(space: Space) -> None:
    """It is cancelled while it waits for the reply, or soon after."""
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str, job: RunningJob) -> None:
        await job.async_queue.abort("t", job.id)
        await forever()

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await eventually(lambda: is_cancelled(space), "it is cancelled")


async def test_one_of_a_batch_ends_alone(space: Space, seen: Seen) -> None:
    worker, go = space.worker(), asyncio.Event()
    running: dict[str, RunningJob] = {}

    @worker.handler("t", batch=3)
    async def handler(_bodies: list[str], jobs: list[RunningJob]) -> None:
        running.update({job.id: job for job in jobs})
        seen.add([job.id for job in jobs])
        await go.wait()
        seen.add([job.id for job in jobs if job.aborted])

    space.queue.enqueue_many("t", [{"body": "x", "id": id} for id in "abc"])
    async with space.serving(worker):
        await seen.count(1)
        assert seen.all == [["a", "b", "c"]]
        assert space.queue.abort("t", "b") == ABORTING
        await eventually(lambda: running["b"].aborted, "the worker was told")
        go.set()
        await seen.count(2)
        await eventually(lambda: is_cancelled(space, "b"), "it is cancelled")
        await eventually(lambda: space.stats().done == 2, "the others are done")
    assert seen.all[1] == ["b"]


async def test_a_whole_batch_is_cancelled(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", batch=2)
    async def handler(_bodies: list[str], jobs: list[RunningJob]) -> None:
        seen.add(len(jobs))
        await forever()

    space.queue.enqueue_many("t", [{"body": "x", "id": id} for id in "ab"])
    async with space.serving(worker):
        assert await seen.count(1) == [2]
        for id in "ab":
            assert space.queue.abort("t", id) == ABORTING
        await eventually(lambda: is_cancelled(space, "a") and is_cancelled(space, "b"), "both are cancelled")


async def test_middleware_that_swallows_it(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.middleware
    async def swallow(attempt: object, call_next: Callable[[], Awaitable[None]]) -> None:
        attempt.on_end(lambda end: seen.add(end.outcome))  # type: ignore[attr-defined]
        try:
            await call_next()
        except asyncio.CancelledError:
            seen.add("swallowed")

    @worker.handler("t")
    async def handler(_body: str) -> None:
        seen.add("began")
        await forever()

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        space.queue.abort("t", "a")
        assert await seen.count(3) == ["began", "swallowed", "aborted"]
    assert is_cancelled(space)


async def test_other_jobs_of_the_worker_go_on(space: Space, seen: Seen) -> None:
    worker, go = space.worker(), asyncio.Event()

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)
        await go.wait()

    async with space.serving(worker):
        for id in "ab":
            space.queue.enqueue("t", id, id=id)
        await seen.count(2)
        assert space.queue.abort("t", "a") == ABORTING
        await eventually(lambda: is_cancelled(space), "it is cancelled")
        assert space.state("b") == "running"
        go.set()
        await space.becomes("b", "gone")
    assert space.stats().done == 1


async def test_news_of_aborts_cost_no_look_at_the_registry(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, looks = Seen(), Seen()
    look = WorkerRun._look_for_topics

    async def counted(run: WorkerRun) -> None:
        looks.add(run)
        await look(run)

    monkeypatch.setattr(WorkerRun, "_look_for_topics", counted)
    monkeypatch.setattr(Deadlines, "notified", lambda _self, attempt: reported.add(attempt.main))
    async with space.serving(space.recording(seen)):
        space.queue.enqueue("t", "first")
        await seen.count(1)
        before = len(looks)
        for n in range(1, 21):  # each in a read of its own
            one = aborts.AbortedAttempt("elsewhere", b"somebody", str(n).encode(), b"")
            carry_out(space.queue, aborts.notify_workers(store_of(space.queue).session, [one]))
            await reported.count(n)
        assert len(looks) - before < 20, "the registry itself may have changed meanwhile, but not so often"


# -- without a worker


def test_a_claim_learns_it_from_its_touch(space: Space) -> None:
    space.queue.enqueue("t", "x", id="a")
    claim = space.queue.take("t")
    assert claim
    assert space.queue.abort("t", "a") == ABORTING
    with pytest.raises(JobAborted), claim:
        claim.touch()
    assert claim.aborted
    assert is_cancelled(space)


def test_a_claim_learns_it_when_it_finishes(space: Space) -> None:
    space.queue.enqueue("t", "x", id="a")
    claim = space.queue.take("t")
    assert claim
    space.queue.abort("t", "a")
    with pytest.raises(JobAborted, match="cancelled, not done"):
        claim.finish()
    assert is_cancelled(space)
    with pytest.raises(StaleClaim):
        claim.finish()


def test_a_claim_that_fails_or_is_buried_is_cancelled_too(space: Space) -> None:
    for id in "ab":
        space.queue.enqueue("t", "x", id=id)
        claim = space.queue.take("t")
        assert claim
        assert space.queue.abort("t", id) == ABORTING
        if id == "a":
            claim.fail("no")
        else:
            claim.bury("no")
        assert claim.aborted
        assert is_cancelled(space, id)


async def test_the_awaiting_queue(space: Space) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        await queue.enqueue("t", "x", id="a")
        claim = await queue.take("t")
        assert claim
        assert await queue.abort("t", "a") == ABORTING
        with pytest.raises(JobAborted):
            await claim.touch()
        assert claim.aborted
        await claim.fail("stopped")
    assert is_cancelled(space)


def test_jobs_that_do_not_run(space: Space) -> None:
    with pytest.raises(UnknownTopic):
        space.queue.abort("t", "a")
    space.queue.enqueue("t", "x", id="a", delay="1h")
    assert space.queue.abort("t", "a") == CANCELLED
    assert space.queue.abort("t", "a") == ENDED
    space.queue.configure("t", groups=["default", "other"])
    space.queue.enqueue("t", "x", id="a", delay="1h")
    assert space.queue.abort("t", "a", group="other") == WAITING
    assert space.queue.abort("t", "a") == CANCELLED
    assert space.stats().cancelled == 2


def test_where_the_job_shows_it(space: Space) -> None:
    space.queue.enqueue("t", "x", id="a")
    claim = space.queue.take("t")
    assert claim
    assert not space.job("a").groups["default"].aborted
    space.queue.abort("t", "a")
    assert space.job("a").groups["default"].aborted
    claim.fail("stopped")
