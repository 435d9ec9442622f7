"""A worker whose event loop is blocked, or whose threads hang, is alive: it says so, and it says where."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from streamdq import Job, JobState, RunningJob
from streamdq.errors import HandlersHung
from streamdq.keys import NamespaceKeys
from streamdq.link.failures import LinkError
from streamdq.operations.checks.doctor import doctor
from streamdq.queue import carry_out, store_of
from streamdq.worker import blocked_loop, hung
from tests.redis.harness import NAMESPACE, Seen, Space
from tests.waiting import HANG_S, eventually, until


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    lines: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(blocked_loop, "_log", lambda text, job: lines.append((text, job)))
    return lines


@pytest.fixture
def client(space: Space) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(space.url) as client:
        yield client


def await_heartbeats(client: redis.Redis, count: int) -> None:
    """Blocks the thread until the worker has sent so many more heartbeats."""
    key = NamespaceKeys(NAMESPACE).heartbeats
    seen: set[float] = set()

    def given() -> bool:
        rows: Any = client.zrange(key, 0, -1, withscores=True)
        seen.update(score for _, score in rows)
        return len(seen) > count

    until(given, "it sends heartbeats")


async def test_it_gives_signs_and_says_who_blocks_it(
    space: Space,
    client: redis.Redis,
    said: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocked_loop.LoopWatch, "_stood_still", lambda *_: None)  # this machine may, at any moment
    worker, attempts = space.worker(), []

    def wait_in_vain() -> None:
        await_heartbeats(client, 2)
        watch = worker._run._heartbeats._watch  # type: ignore[union-attr]

        def noticed() -> bool:
            asked = watch._asked
            return bool(watch._blames) and asked is not None and time.monotonic() >= asked + blocked_loop.BLOCKED_S

        until(noticed, "it is noticed")

    @worker.handler("t", ttr="1h")
    async def block(_body: int, job: Job) -> None:
        attempts.append(job.attempt)
        wait_in_vain()

    space.queue.enqueue("t", 1, id="j")
    async with space.serving(worker):
        await space.becomes("j", "gone")
        await eventually(lambda: said, "it is logged")
    assert attempts == [1]
    (text, job), *_ = said
    assert text.startswith("the event loop was blocked for ")
    assert f" s by {__file__}:{block.__code__.co_firstlineno + 3} " in text
    assert f".block, in {os.sep}" in text
    assert "wait_in_vain" not in text.split(" in ")[0]
    assert "make it `def`" in text
    assert (job["topic"], job["id"]) == ("t", "j")


async def test_an_attempt_whose_ttr_passes_in_a_blocked_loop_has_failed_and_not_crashed(space: Space) -> None:
    worker, seen = space.worker(), Seen()

    @worker.handler("t", ttr="1s", retry="1h")
    async def block(_body: int, job: Job) -> None:
        until(lambda: space.state("j") == JobState.DELAYED, "its attempt has ended in Redis")
        seen.add(job.attempt)
        await asyncio.Event().wait()

    async def others(body: str) -> None:
        seen.add(body)

    worker.handler("others")(others)
    space.queue.enqueue("t", 1, id="j")
    async with space.serving(worker):
        await seen.count(1)
        space.queue.enqueue("others", "later")
        await seen.count(2)
    group = space.job("j").groups["default"]
    assert (group.attempt, group.step, group.crashes) == (1, 1, 0)
    assert group.error == "TimeoutError: TTR 1s passed"
    assert space.queue.cancel("t", "j")


async def test_what_could_not_start_in_a_blocked_loop_goes_to_others_meanwhile(space: Space) -> None:
    """They are claimed together, and the first one blocks the loop."""
    worker, seen, ran = space.worker(), Seen(), []
    ids = [f"j{number}" for number in range(5)]

    def back() -> bool:
        return sum(space.state(id) == JobState.READY for id in ids) == len(ids) - 1

    @worker.handler("t", ttr="1h")
    async def block(_body: int, job: Job) -> None:
        ran.append(job.attempt)
        if len(ran) == 1:
            until(back, "the others are ready again")
        seen.add(job.id)

    for id in ids:
        space.queue.enqueue("t", 1, id=id)
    async with space.serving(worker):
        await seen.count(5)
        await eventually(lambda: not space.queue.stats().running, "all have ended")
    assert ran == [1] * 5, "none was counted that had not begun"


async def test_what_was_done_before_a_handler_blocks_the_loop_is_sent_meanwhile(space: Space) -> None:
    """They are claimed together, and the last one blocks the loop before anything else runs in it."""
    worker, seen, ran = space.worker(), Seen(), []
    ids = [f"j{number}" for number in range(5)]

    @worker.handler("t", ttr="1h")
    async def block(_body: int, job: Job) -> None:
        ran.append(job.id)
        if len(ran) == len(ids):
            until(lambda: all(space.state(id) == "gone" for id in ran[:-1]), "the others are done in Redis")
        seen.add(job.id)

    space.queue.enqueue_many("t", [{"body": 1, "id": id} for id in ids])
    async with space.serving(worker):
        await seen.count(5)
        await eventually(lambda: not space.queue.stats().running, "all have ended")
    assert sorted(ran) == ids
    group = space.queue.stats().topics["t"].groups["default"]
    assert (group.done, group.retried, group.reclaimed) == (5, 0, 0)


async def test_what_a_thread_returns_while_the_loop_is_blocked_is_sent_meanwhile(space: Space) -> None:
    worker, seen, blocked, waiting = space.worker(), Seen(), threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        waiting.release()
        blocked.wait()

    @worker.handler("done", ttr="1h")
    def done(_body: int) -> None:
        wait()

    @worker.handler("fails", ttr="1h", retry="1h")
    def fails(_body: int) -> None:
        wait()
        raise ValueError("not now")

    @worker.handler("together", ttr="1h", batch=10)
    def together(_bodies: list[int]) -> None:
        wait()

    def reported() -> bool:
        found = space.queue.stats().topics
        groups = [found[topic].groups["default"] for topic in ("done", "fails", "together")]
        return [(group.running, group.done) for group in groups] == [(0, 1), (0, 0), (0, 1)]

    @worker.handler("t", ttr="1h")
    async def block(_body: int) -> None:
        blocked.set()
        until(reported, "Redis knows how they ended")
        seen.add("it knew")

    try:
        async with space.serving(worker):
            for topic in ("done", "fails", "together"):
                space.queue.enqueue(topic, 1, id="j")
                await asyncio.to_thread(waiting.acquire)
            space.queue.enqueue("t", 1)
            await seen.count(1)
            await eventually(lambda: not space.queue.stats().running, "all have ended")
    finally:
        blocked.set()
    failed = space.queue.get("fails", "j")
    assert failed is not None
    assert (failed.groups["default"].attempt, failed.groups["default"].error) == (1, "ValueError: not now")
    assert space.queue.cancel("fails", "j")


async def test_a_thread_that_touches_its_job_keeps_it_while_the_loop_is_blocked(space: Space) -> None:
    worker, seen, loop = space.worker(), Seen(), asyncio.get_running_loop()
    is_blocked, reported = threading.Event(), threading.Event()

    def is_instruction() -> bool:
        group = space.job("j", "threads").groups["default"]
        assert group.deadline_ms is not None
        assert group.started_ms is not None
        return group.deadline_ms - group.started_ms >= 7_200_000

    @worker.handler("threads", ttr="1h", retry="none")
    def touch(_body: int, job: RunningJob) -> None:
        loop.call_soon_threadsafe(seen.add, job.id)
        assert is_blocked.wait(HANG_S)
        job.touch("2h")
        until(is_instruction, "Redis has received the touch")
        reported.set()

    @worker.handler("t", ttr="1h", retry="none")
    async def block(_body: int) -> None:
        is_blocked.set()
        assert reported.wait(HANG_S)

    async with space.serving(worker):
        space.queue.enqueue("threads", 1, id="j")
        await seen.count(1)
        space.queue.enqueue("t", 1, id="blocks")
        await eventually(lambda: not space.queue.stats().running, "both have ended")
    assert reported.is_set()


async def test_an_end_is_sent_though_the_threads_call_fails_when_the_loop_is_back(space: Space) -> None:
    worker, seen, hangs, fails = space.worker(), Seen(), threading.Event(), threading.Event()

    @worker.handler("t", ttr="1h", retry="1h")
    async def block(_body: int) -> None:
        assert worker._run is not None
        link, sender = worker._run._heartbeats._link, worker._run._sender
        send = link.send

        def hang(*what: Any) -> Any:
            if sender.size == 0:  # a sign
                return send(*what)
            hangs.set()
            fails.wait()
            raise LinkError(TimeoutError("it hangs"), sent=True)

        link.send = hang  # type: ignore[assignment, method-assign]
        for (held,) in worker._run._runner._running.values():
            held.deadline = 0.0  # to Redis its TTR has not passed: that would be a crash
        until(hangs.is_set, "the thread ends the attempt")
        seen.add("back")

    space.queue.enqueue("t", 1, id="j")
    try:
        async with space.serving(worker):
            await seen.count(1)
            await eventually(lambda: worker._run._runner.idle, "nobody runs it")  # type: ignore[union-attr]
            fails.set()
            await space.becomes("j", JobState.DELAYED)
    finally:
        fails.set()
    group = space.job("j").groups["default"]
    assert (group.attempt, group.error, group.crashes) == (1, "TimeoutError: TTR 1h passed", 0)
    assert space.queue.cancel("t", "j")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung, "_HUNG_S", 0.01)
    monkeypatch.setattr(hung, "_LOOK_S", 0.01)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []

    class Log:
        def __getattr__(self, _level: str) -> Callable[..., None]:
            return lambda text, **fields: found.append((text, fields))

    monkeypatch.setattr(hung, "log", Log())
    return found


@pytest.mark.usefixtures("soon", "no_take_over")
async def test_threads_that_hang_in_all_slots_are_shown_and_end_the_worker(
    space: Space, lines: list[tuple[str, dict[str, Any]]]
) -> None:
    worker, goes_on = space.worker(concurrency=2, hung_exit_s=0.0), threading.Event()

    @worker.handler("t", ttr="500ms", retry="1h")
    def hang(_body: int) -> None:
        goes_on.wait()

    for id in ("i", "j"):
        space.queue.enqueue("t", 1, id=id)
    findings: list[Any] = []

    def found() -> bool:
        findings[:] = [one for one in carry_out(space.queue, doctor(store_of(space.queue))) if "hang" in one.what]
        return bool(findings)

    try:
        async with space.serving(worker):
            await eventually(lambda: found() and findings[0].what.startswith("2 of the 2 slots"), "the doctor knows")
            assert findings[0].what.endswith(f" of worker {worker.name} are taken by handlers that hang")
            assert findings[0].verdict == "problem"
            goes_on.set()
            await eventually(lambda: not found(), "the slots are free again")
    finally:
        goes_on.set()
    reported = [fields for text, fields in lines if text.startswith("a handler's thread goes on beyond its TTR")]
    assert {one["id"] for one in reported} == {"i", "j"}
    assert len(reported) == 2, "each once"
    assert all(
        any(f"{__file__}:{hang.__code__.co_firstlineno + 2} " in call for call in one["calls"]) for one in reported
    )
    assert [text for text, _ in lines if "all slots" in text] == [
        "handlers hang in all slots: this worker claims no more jobs"
    ]
    for id in ("i", "j"):
        assert space.queue.cancel("t", id)


@pytest.mark.usefixtures("soon", "no_take_over")
async def test_handlers_that_ignore_their_cancellation_are_shown_and_end_the_process(
    space: Space, lines: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop would wait for them for ever before it ends."""
    worker, goes_on, left = space.worker(concurrency=1, hung_exit_s=0.01), asyncio.Event(), list[int]()
    monkeypatch.setattr("streamdq.worker.worker.leave", left.append)
    monkeypatch.setattr("streamdq.process.leaving.END_S", 0.01)
    monkeypatch.setattr("streamdq.worker.runner._IGNORES_CANCEL_S", 0.01)

    @worker.handler("t", ttr="200ms", retry="1h")
    async def ignores_cancellation(_body: int) -> None:
        while not goes_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await goes_on.wait()

    space.queue.enqueue("t", 1, id="j")
    try:
        with pytest.raises(HandlersHung):
            await worker._serve_alone(False, signals=False)
    finally:
        goes_on.set()
    assert left == [hung.EXIT_HUNG]
    (reported,) = [
        fields for text, fields in lines if text == "a handler ignores that it was cancelled and keeps its slot"
    ]
    assert reported["id"] == "j"
    assert any(f"{__file__}:{ignores_cancellation.__code__.co_firstlineno + 4} " in call for call in reported["calls"])
    assert space.job("j").groups["default"].error == "TimeoutError: TTR 200ms passed"
    assert space.queue.cancel("t", "j")


@pytest.mark.usefixtures("soon", "no_take_over")
async def test_after_some_time_the_worker_ends_and_says_why(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    worker, goes_on, seen = space.worker(concurrency=1, hung_exit_s=0.01), threading.Event(), Seen()

    @worker.handler("t", ttr="500ms", retry="1h")
    def hang(_body: int) -> None:
        goes_on.wait()

    @worker.on_shutdown
    async def end() -> None:
        seen.add("shut down")

    space.queue.enqueue("t", 1, id="j")
    try:
        with pytest.raises(HandlersHung, match="in all 1 slots of this worker"):
            await worker.serve()
    finally:
        goes_on.set()
    assert seen.all == ["shut down"], "it has drained"
    assert "the worker has stopped, but handlers go on" in caplog.text, "and the program goes on"
    assert space.job("j").groups["default"].error == "TimeoutError: TTR 500ms passed"
    assert space.queue.stats().topics["t"].groups["default"].consumers == 0
    assert space.queue.cancel("t", "j")
