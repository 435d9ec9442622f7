"""How far a running handler says it is, as others see it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from streamdq import AsyncQueue, InvalidInput, JobAborted, RunningJob, StaleClaim
from streamdq.worker import progress_sender as module
from tests.redis.harness import NAMESPACE, Seen, Space
from tests.waiting import HANG_S, eventually


def shown(space: Space, id: str = "a") -> tuple[float | None, str] | None:
    job = space.queue.get("t", id)
    said = job.groups["default"].progress if job else None
    return (said.fraction, said.text) if said else None


async def test_a_coroutine(space: Space, seen: Seen) -> None:
    worker, go = space.worker(), asyncio.Event()

    @worker.handler("t")
    async def handler(_body: str, job: RunningJob) -> None:
        await job.progress(0.4, "page 12 of 30")
        seen.add(job)
        await go.wait()

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        (job,) = await seen.count(1)
        await eventually(lambda: shown(space) == (0.4, "page 12 of 30"), "it is seen")
        go.set()
        await space.becomes("a", "gone")
        with pytest.raises(StaleClaim):
            job.progress(0.5)
    assert space.stats().done == 1


async def test_a_function(space: Space) -> None:
    worker, go = space.worker(), threading.Event()

    @worker.handler("t")
    def handler(_body: str, job: RunningJob) -> None:
        job.progress(text="half way\n|")
        go.wait(HANG_S)

    try:
        async with space.serving(worker):
            space.queue.enqueue("t", "x", id="a")
            await eventually(lambda: shown(space) == (None, "half way |"), "it is seen")
            go.set()
    finally:
        go.set()


async def test_however_often_it_is_said_few_calls_go_to_redis(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EACH_S", 0.01)
    worker, go, sent = space.worker(), asyncio.Event(), 0
    call = module.ProgressSender._call

    async def counted(sender: module.ProgressSender, *args: Any) -> None:
        nonlocal sent
        sent += 1
        await call(sender, *args)

    monkeypatch.setattr(module.ProgressSender, "_call", counted)

    @worker.handler("t")
    async def handler(_body: str, job: RunningJob) -> None:
        for n in range(1001):
            job.progress(n / 1000)
        seen.add(n)
        await go.wait()

    async with space.serving(worker):
        for id in "ab":
            space.queue.enqueue("t", "x", id=id)
        await seen.count(2)
        await eventually(lambda: {shown(space, id) for id in "ab"} == {(1.0, "")}, "the last one is seen")
        assert sent <= 4
        go.set()


async def test_what_can_not_be_sent_ends_nothing(space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.store.scripts.attempts.AttemptScripts.report", lambda *_: 1 / 0)
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: str, job: RunningJob) -> None:
        await job.progress(0.4)
        with pytest.raises(InvalidInput, match="from 0 to 1"):
            job.progress(40)
        with pytest.raises(InvalidInput, match="is not text"):
            job.progress(0.4, 5)  # type: ignore[arg-type]
        seen.add(1)

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        await space.becomes("a", "gone")
    assert space.stats().done == 1


async def test_an_abort_whose_news_was_lost_comes_with_it(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EACH_S", 0.01)
    monkeypatch.setattr("streamdq.worker.deadline.Deadlines.notified", lambda *_: None)
    worker = space.worker()

    @worker.handler("t", ttr="1h")
    async def handler(_body: str, job: RunningJob) -> None:
        seen.add("began")
        while True:
            await job.progress(0.1)
            await asyncio.sleep(0.01)

    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="a")
        await seen.count(1)
        assert space.queue.abort("t", "a") == "aborting"
        await space.becomes("a", "gone")
    assert space.stats().cancelled == 1


async def test_a_claim(space: Space) -> None:
    space.queue.enqueue("t", "x", id="a")
    claim = space.queue.take("t")
    assert claim
    claim.progress(0.25, "x" * 300)
    assert shown(space) == (0.25, "x" * 200)
    space.queue.abort("t", "a")
    with pytest.raises(JobAborted):
        claim.progress(0.5)
    claim.fail("stopped")
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        await queue.enqueue("t", "x", id="b")
        taken = await queue.take("t")
        assert taken
        await taken.progress(1)
        assert shown(space, "b") == (1.0, "")
        await taken.finish()
        with pytest.raises(StaleClaim):
            await taken.progress(1)
