"""What goes on beside the attempts: touches, and the calls for dead jobs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from streamdq import Job, RunningJob
from streamdq.errors import ServerUnavailable
from streamdq.store.scripts import Scripts
from tests.redis.harness import Seen, Space
from tests.waiting import HANG_S, eventually


@pytest.fixture
def touches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many claims each call of the script touched."""
    calls: list[int] = []
    touch = Scripts.touch

    def counted(*args: Any) -> Any:
        calls.append(len(args[-1]) // 4)
        return touch(*args)

    monkeypatch.setattr(Scripts, "touch", counted)
    return calls


def ttr_left_ms(space: Space, id: str) -> int:
    group = space.job(id).groups["default"]
    assert group.deadline_ms is not None
    assert group.started_ms is not None
    return group.deadline_ms - group.started_ms


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_handler_that_touches_with_each_row_makes_few_calls(
    space: Space, seen: Seen, touches: list[int], plain: bool
) -> None:
    worker, loop = space.worker(), asyncio.get_running_loop()
    go_on = threading.Event()

    def rows(job: RunningJob) -> None:
        for seconds in range(1000):
            job.touch(100 + seconds)

    async def handle(_body: int, job: RunningJob) -> None:
        rows(job)
        seen.add(job.id)
        await asyncio.to_thread(go_on.wait, HANG_S)

    def handle_in_thread(_body: int, job: RunningJob) -> None:
        rows(job)
        loop.call_soon_threadsafe(seen.add, job.id)
        go_on.wait(HANG_S)

    worker.handler("t")(handle_in_thread if plain else handle)
    async with space.serving(worker):
        space.queue.enqueue("t", 1, id="a")
        await seen.count(1)
        await eventually(lambda: ttr_left_ms(space, "a") >= 1_099_000, "the last one has been told")
        go_on.set()
    assert len(touches) < (500 if plain else 3), "a thread's go out while it runs, one at a time"


async def test_a_touch_that_does_not_get_through_is_sent_again(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, go_on, touch = space.worker(), asyncio.Event(), Scripts.touch
    failures = [ServerUnavailable("away"), ServerUnavailable("still away")]

    def failing(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return touch(*args)

    monkeypatch.setattr(Scripts, "touch", failing)

    @worker.handler("t")
    async def handle(_body: int, job: RunningJob) -> None:
        job.touch("500s")
        seen.add(job.id)
        await go_on.wait()

    async with space.serving(worker):
        space.queue.enqueue("t", 1, id="a")
        await seen.count(1)
        await eventually(lambda: ttr_left_ms(space, "a") >= 500_000, "it has been told")
        go_on.set()
    assert failures == []


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_slow_on_dead_holds_up_nothing_and_hears_of_each_once(space: Space, seen: Seen, plain: bool) -> None:
    worker, loop, go_on = space.worker(), asyncio.get_running_loop(), threading.Event()
    running = most = 0

    def enter(change: int) -> None:
        nonlocal running, most
        running += change
        most = max(most, running)

    async def tell(job: Job) -> None:
        enter(1)
        await asyncio.to_thread(go_on.wait, HANG_S)
        seen.add(int(job.id))
        enter(-1)

    def tell_in_thread(job: Job) -> None:
        enter(1)
        go_on.wait(HANG_S)
        loop.call_soon_threadsafe(seen.add, int(job.id))
        enter(-1)

    ran: list[int] = []

    @worker.handler("t", retry="none")
    async def handle(body: int) -> None:
        ran.append(body)
        raise StopAsyncIteration

    worker.on_dead(tell_in_thread if plain else tell)
    async with space.serving(worker):
        space.queue.enqueue_many("t", ({"body": n, "id": str(n)} for n in range(200)))
        await eventually(lambda: space.stats().dead == 200, "all are dead, and nobody has heard of it")
        assert seen.all == []
        go_on.set()
        await seen.count(200)
    assert sorted(seen.all) == sorted(ran)
    assert sorted(ran) == list(range(200))
    assert most == 1
    space.queue.purge("t", all=True)


async def test_what_on_dead_raises_or_has_no_time_for_is_logged(
    space: Space, seen: Seen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.worker.reports._MOST", 2)
    worker = space.worker(call_timeout_s=3.0)

    @worker.handler("t", retry="none")
    async def handle(_body: int) -> None:
        raise ValueError

    @worker.on_dead
    def raises(job: Job) -> None:
        raise StopIteration if job.id == "0" else KeyboardInterrupt

    @worker.on_dead
    async def hangs(job: Job) -> None:
        seen.add(job.id)
        await asyncio.Event().wait()

    async with space.serving(worker):
        for number in range(4):
            space.queue.enqueue("t", 1, id=f"{number}")
            await eventually(lambda n=number: space.stats().dead == n + 1, "it is dead")  # type: ignore[misc]
        await seen.count(1)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("on_dead failed" in line for line in lines) == 4
    unannounced = [line for line in lines if "on_dead not called" in line]
    assert len(unannounced) == 4, "two that were too many, and two when it stopped"
    space.queue.purge("t", all=True)
