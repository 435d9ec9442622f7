"""What users need in their own tests, on memory:// and on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from streamdq import Bury, FlowState, Job, NewJob, Retry, RunningJob, Worker, testing
from streamdq.errors import InvalidInput
from streamdq.job.retry import DEFAULT_RETRY, RetrySchedule
from streamdq.link.command import Command
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.process.loop import cancel_and_wait
from streamdq.testing import ManualClock, Memory, drain, memory
from streamdq.worker.consumer import Consumer
from tests.conftest import EACH_BINARY
from tests.servers import Pool
from tests.waiting import HANG_S, eventually

START_MS = 1_800_000_000_000


@pytest.fixture(params=["memory", *EACH_BINARY])
def place(request: pytest.FixtureRequest, servers: Pool) -> Iterator[Memory]:
    """A queue's place with a clock: in memory, and on each real server."""
    if request.param == "memory":
        place = memory(START_MS)
        yield place
        place.close()
    else:
        server = servers[request.param]
        server.flush()
        yield Memory(server.url, ManualClock(START_MS))


async def test_ten_attempts_over_25_hours_take_no_time(place: Memory) -> None:
    worker, starts = place.worker(), []
    dead: list[Job] = []

    @worker.handler("pay.notify")
    async def notify(_: dict, job: Job) -> None:
        starts.append(place.clock.now_ms)
        assert job.attempt == len(starts)
        raise ConnectionError("merchant is down")

    worker.on_dead(dead.append)
    with place.queue() as queue:
        queue.enqueue("pay.notify", {"order": 42}, id="n-42", delay="1m")
        await drain(worker, place.clock)
        assert queue.audit().balanced
        assert [job.id for job in queue.dead("pay.notify")] == [job.id for job in dead] == ["n-42"]
    steps = RetrySchedule.of(DEFAULT_RETRY).steps_ms
    expected = [START_MS + 60_000 + sum(steps[:i]) for i in range(len(steps) + 1)]
    assert starts == expected
    assert len(starts) == 10
    assert place.clock.now_ms == START_MS + 26 * 3_600_000


async def test_it_stops_at_the_end_of_its_time(place: Memory) -> None:
    worker, seen = place.worker(), []

    @worker.handler("t")
    async def handle(body: int) -> None:
        seen.append(body)

    with place.queue() as queue:
        for hours in (1, 2, 3):
            queue.enqueue("t", hours, delay=f"{hours}h")
        await drain(worker, place.clock, "2h")
        assert seen == [1, 2]
        assert place.clock.now_ms == START_MS + 2 * 3_600_000
        assert queue.stats().delayed == 1
        await drain(worker, place.clock, "1h")
        assert seen == [1, 2, 3]


async def test_a_read_that_was_given_up_takes_no_job() -> None:
    """In memory as on a server: a worker that has stopped must not get the jobs of the next one."""
    place = memory()
    with place.queue() as queue:
        queue.configure("t", create=True)
        link, session = open_session(place.url, queue.namespace, None, place.clock, AsyncLink)
        ready = session.keys.shard("t", 0).ready
        words = ("XREADGROUP", "GROUP", "default", "gone", "BLOCK", 600_000, "STREAMS", ready, ">")
        read = asyncio.create_task(link.send([Command(ready, words)], HANG_S, blocking=True))

        async def ask(*words: str) -> Any:
            return (await link.send([Command(ready, words)], HANG_S))[0]

        for _ in range(100):
            await asyncio.sleep(0)
        assert await ask("XINFO", "CONSUMERS", ready, "default"), "the read waits"
        await cancel_and_wait([read])
        queue.enqueue("t", 1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await ask("XPENDING", ready, "default"))[0] == 0
        await link.close()
    place.close()


async def test_what_handlers_enqueue_and_ask_for_is_included(place: Memory) -> None:
    worker, seen = place.worker(), []
    with place.queue() as queue:

        @worker.handler("first")
        def first(body: int) -> None:
            seen.append(("first", place.clock.now_ms - START_MS))
            queue.enqueue("second", body, delay="10s")

        @worker.handler("second", retry="none")
        async def second(_: int, job: Job) -> None:
            seen.append(("second", place.clock.now_ms - START_MS))
            if job.attempt == 1:
                raise Retry(delay="1h")
            raise Bury("enough")

        queue.enqueue("first", 1, at=datetime.fromtimestamp(START_MS / 1000 + 5, UTC))
        await drain(worker, place.clock)
        assert seen == [("first", 5_000), ("second", 15_000), ("second", 3_615_000)]
        assert queue.stats().dead == 1


async def test_jobs_that_wait_for_others_are_included(place: Memory) -> None:
    """Also for those of a topic that the worker does not serve."""
    worker, ran = place.worker(), []

    @worker.handler("step", retry="none")
    async def step(name: str) -> None:
        ran.append((name, place.clock.now_ms - START_MS))
        if name == "fails":
            raise Bury("as told")

    with place.queue() as queue:
        queue.configure("step", shards=3)
        first = queue.enqueue("step", "first", delay="1h")
        many = [queue.enqueue("step", "some", after=first, delay="1m") for _ in range(3)]
        fails = queue.enqueue("step", "fails", after=many)
        queue.enqueue("step", "last", after=fails, on_failure="run", delay="5s")
        blocked = queue.enqueue("step", "blocked", after=fails)
        elsewhere = queue.enqueue("elsewhere", 1, delay="20h")
        queue.enqueue("step", "freed", after=elsewhere, on_failure="run")
        await drain(worker, place.clock, "2h")
        assert ran == [("first", 3_600_000), *[("some", 3_660_000)] * 3, ("fails", 3_660_000), ("last", 3_665_000)]
        assert queue.get("step", blocked.id).waits_for.blocked  # type: ignore[union-attr]
        queue.cancel("elsewhere", elsewhere.id)
        await drain(worker, place.clock, "1s")
        assert ran[-1][0] == "freed"


@pytest.mark.thorough
async def test_topics_that_handlers_make_are_included(place: Memory) -> None:
    """A handler for every topic, one of its own, and a topic that is another group's."""
    worker, ran = place.worker(), []

    @worker.every_topic
    async def any_other(body: int, job: Job) -> None:
        ran.append((job.topic, body))
        if body:
            async with place.async_queue() as queue:
                await queue.enqueue(f"more-{body}", body - 1, delay="1h")

    @worker.handler("own")
    async def own(body: int) -> None:
        ran.append(("handled", body))

    with pytest.raises(InvalidInput, match="for every topic already"):
        worker.every_topic(any_other)
    with place.queue() as queue:
        queue.configure("others", groups=["audit"])
        queue.enqueue("others", 0)
        queue.enqueue("first", 2, delay="1h")
        queue.enqueue("own", 9)
        await drain(worker, place.clock, "5h")
        assert set(queue.stats("others").topics["others"].groups) == {"audit"}
    assert ran == [("handled", 9), ("first", 2), ("more-2", 1), ("more-1", 0)]


async def test_a_rate_is_kept_by_the_clock(place: Memory) -> None:
    worker, starts = place.worker(), []

    @worker.handler("t")
    async def handle(_: int) -> None:
        starts.append(place.clock.now_ms - START_MS)

    with place.queue() as queue:
        queue.configure("t", rate=1)
        for i in range(5):
            queue.enqueue("t", i, delay="1s")
        await drain(worker, place.clock, "1m")
    assert starts == [1000, 2000, 3000, 4000, 5000]


async def test_the_clock_stands_still_while_a_claim_is_under_way(
    place: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim has the time at which it was begun. A job that became due later is not due for it, and goes back."""
    worker, looks, times = place.worker(), 0, []
    claim, look = Consumer._claim, testing._look

    async def slow_claim(*args: Any) -> Any:
        enough, before = looks + 5, place.clock.now_ms
        await eventually(lambda: looks >= enough or before != place.clock.now_ms, "drain looks again, or goes on")
        times.append((before, place.clock.now_ms))
        return await claim(*args)

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await look(*args)

    monkeypatch.setattr(Consumer, "_claim", slow_claim)
    monkeypatch.setattr(testing, "_look", counted)

    @worker.handler("t")
    async def handle(_: int) -> None: ...

    with place.queue() as queue:
        queue.enqueue("t", 1, delay="1s")
        await drain(worker, place.clock, "1m")
        assert queue.stats("t").topics["t"].groups["default"].done == 1
    assert times
    assert [before for before, _ in times] == [after for _, after in times]


async def test_a_handler_that_hangs_ends_in_an_error(place: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = place.worker()
    release, serve = asyncio.Event(), worker.stop

    @worker.handler("t")
    async def handle(_: int) -> None:
        await release.wait()

    def stop() -> None:
        release.set()  # so that draining the worker ends
        serve()

    monkeypatch.setattr(worker, "stop", stop)
    with place.queue() as queue:
        queue.enqueue("t", 1)
        with pytest.raises(TimeoutError):
            await drain(worker, place.clock, within_s=0.2)


def test_each_memory_is_its_own() -> None:
    with memory().queue() as one, memory().queue() as other:
        one.enqueue("t", 1, id="a")
        assert other.get("t", "a") is None


def test_a_closed_memory_is_empty() -> None:
    place = memory()
    with place.queue() as queue:
        queue.enqueue("t", 1, id="a")
    place.close()
    with place.queue() as queue:
        assert queue.get("t", "a") is None


# What a module of the user's has.
APPLICATION = Worker("redis://127.0.0.1:1")
RAN: list[tuple[str, int, int]] = []


@APPLICATION.handler("order.close", retry="15s 3m 10m 30m 30m 1h 2h 6h 15h")
async def close_order(_order: dict[str, int], job: Job) -> None:
    RAN.append((job.topic, job.attempt, job.created_ms))
    if job.attempt < 10:
        raise RuntimeError("the bank does not answer")


@APPLICATION.schedule("report.send", every="12h")
async def send_report(_body: dict[str, int], job: Job) -> None:
    RAN.append((job.topic, job.attempt, job.created_ms))


def test_an_applications_own_worker_serves_in_memory_as_long_as_it_is_bound() -> None:
    """Its schedule, and retries over 25 hours."""
    RAN.clear()
    server = memory()
    clock = APPLICATION._clock
    with server.queue() as queue, server.bind(APPLICATION) as worker:
        queue.enqueue("order.close", {"order_id": 1})
        asyncio.run(drain(worker, server.clock, for_="26h"))
        assert [attempt for topic, attempt, _ in RAN if topic == "order.close"] == list(range(1, 11))
        assert len([topic for topic, *_ in RAN if topic == "report.send"]) == 2
        assert queue.dead("order.close") == []
    server.close()
    assert (APPLICATION.url, APPLICATION._clock) == ("redis://127.0.0.1:1", clock)


async def test_a_flow_is_stepped_through_with_its_delays_and_results(place: Memory) -> None:
    worker, ran = place.worker(), list[tuple[str, int, Any]]()

    def note(what: str, found: Any = None) -> None:
        ran.append((what, (place.clock.now_ms - START_MS) // 60_000, found))

    @worker.handler("part", result="1d")
    async def part(n: int) -> int:
        return n * n

    @worker.handler("join")
    async def join(_: str, job: RunningJob) -> None:
        note("join", [one.result async for one in job.results()])

    @worker.handler("mail")
    async def mail(_: str) -> None:
        note("mail")

    with place.queue() as queue:
        with queue.flow("report-7") as flow:
            parts = flow.enqueue_many("part", (NewJob(n, delay="10m") for n in range(5)))
            flow.enqueue("mail", "x", after=flow.enqueue("join", "x", after=parts), delay="30m")
        await drain(worker, place.clock)
        status = queue.flow_status("report-7")
    assert ran == [("join", 10, [0, 1, 4, 9, 16]), ("mail", 40, None)]
    assert status is not None
    assert status.state is FlowState.DONE


@pytest.mark.thorough
async def test_a_flow_is_cancelled_at_its_deadline(place: Memory) -> None:
    worker, ran = place.worker(), list[str]()

    @worker.handler("part")
    async def part(what: str) -> None:
        ran.append(what)

    with place.queue() as queue:
        with queue.flow("late", deadline="2h") as flow:
            flow.enqueue("part", "never", after=flow.enqueue("part", "first", delay="1h"), delay="3h")
        await drain(worker, place.clock, "119m")
        before = queue.flow_status("late")
        await drain(worker, place.clock, "2m")
        assert [*queue.find("part")] == []
        await drain(worker, place.clock)
        after = queue.flow_status("late")
    assert ran == ["first"]
    assert [status and status.state for status in (before, after)] == [FlowState.RUNNING, FlowState.CANCELLED]


@pytest.mark.thorough
async def test_a_flow_whose_builder_was_killed_is_withdrawn(place: Memory) -> None:
    worker, ran = place.worker(), list[str]()

    @worker.handler("part")
    async def part(what: str) -> None:
        ran.append(what)

    with place.queue() as queue:
        queue.configure("part", create=True)
        flow = queue.flow("killed")
        flow.__enter__()
        for _ in range(500):  # so many are sent at once
            flow.enqueue("part", "x")
        assert len([*queue.find("part")]) == 500
        await drain(worker, place.clock, "2h")
        await drain(worker, place.clock, 0)
        assert [*queue.find("part")] == []
    assert ran == []
