"""The worker: what handlers may look like, how many run at once, when it stops."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from streamdq import Job, JobState, StaleClaim, Worker
from streamdq.errors import InvalidInput, ServerUnavailable
from streamdq.operations.inspect import stats
from tests.redis.harness import Seen, Space, recorder
from tests.servers import Server, free_port
from tests.waiting import HANG_S, eventually


class Payment(BaseModel):
    order_id: int
    paid_at: datetime
    key: UUID


async def test_bodies_arrive_as_the_handler_wants_them(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("model")
    async def model(payment: Payment) -> None:
        seen.add(payment)

    @worker.handler("dict")
    async def a_dict(body: dict[str, Any]) -> None:
        seen.add(body)

    @worker.handler("int")
    async def number(body: int) -> None:
        seen.add(body)

    @worker.handler("untyped")
    async def untyped(body) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        seen.add(body)

    payment = Payment(order_id=1, paid_at="2026-01-02T03:04:05Z", key=UUID(int=7))  # type: ignore[arg-type]
    space.queue.enqueue("model", payment)
    space.queue.enqueue("dict", {"a": [1, {"b": "ü"}]})
    space.queue.enqueue("int", 42)
    space.queue.enqueue("untyped", [None, 1.5])
    await space.burst(worker)
    assert len(seen) == 4
    for body in (payment, {"a": [1, {"b": "ü"}]}, 42, [None, 1.5]):
        assert body in seen.all


async def test_the_job_comes_along_when_it_is_asked_for(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(body: str, the_job: Job) -> None:
        seen.add((body, the_job))

    made = space.queue.enqueue("t", "x", id="a", delay="20ms", ttr="9s", retry="1s 2s", url="https://example.org/x")
    await space.burst(worker)
    body, job = seen.all[0]
    assert (body, job.id, job.topic, job.body) == ("x", "a", "t", "x")
    assert (job.state, job.attempt, job.step) == (JobState.RUNNING, 1, 0)
    assert (job.due_ms, job.created_ms, job.due_ms - job.created_ms) == (made.due_ms, made.created_ms, 20)
    assert (job.ttr_ms, job.retry, job.url) == (9000, "1000ms 2000ms", "https://example.org/x")
    with pytest.raises(StaleClaim):
        job.touch()


async def test_plain_functions_run_in_threads_side_by_side(space: Space) -> None:
    worker, together, names = space.worker(concurrency=3), threading.Barrier(3), []

    @worker.handler("t")
    def handler(_body: int) -> None:
        together.wait(HANG_S)  # breaks unless three run at once
        names.append(threading.current_thread().name)

    space.queue.enqueue_many("t", ({"body": n, "retry": "none"} for n in range(3)))
    await space.burst(worker)
    assert len(names) == 3
    assert threading.current_thread().name not in names
    assert space.stats().done == 3


async def test_plain_functions_see_context_variables(space: Space) -> None:
    worker, found = space.worker(), []
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")

    @worker.handler("t")
    def handler(_body: int) -> None:
        found.append(tenant.get())

    tenant.set("acme")
    space.queue.enqueue("t", 1)
    await space.burst(worker)
    assert found == ["acme"]


@pytest.mark.parametrize("kind", ["async", "threads"])
async def test_no_more_at_once_than_its_concurrency(space: Space, kind: str) -> None:
    worker, lock = space.worker(concurrency=4), threading.Lock()
    running = most = 0

    def enter(change: int) -> None:
        nonlocal running, most
        with lock:
            running += change
            most = max(most, running)

    if kind == "async":

        @worker.handler("t")
        async def handler(_body: int) -> None:
            enter(1)
            for _ in range(5):
                await asyncio.sleep(0)
            enter(-1)
    else:
        pair = threading.Event()

        @worker.handler("t")
        def handler_in_thread(_body: int) -> None:
            enter(1)
            pair.wait(0.002)
            enter(-1)

    space.queue.enqueue_many("t", ({"body": n} for n in range(100)))
    await space.burst(worker)
    assert space.stats().done == 100
    assert most == 4


async def test_one_slow_topic_leaves_room_for_the_next(space: Space, seen: Seen) -> None:
    worker, go_on = space.worker(concurrency=2), asyncio.Event()

    @worker.handler("slow")
    async def slow(_body: int) -> None:
        seen.add("slow")
        await go_on.wait()

    worker.handler("t")(recorder(seen))
    space.queue.enqueue("slow", 1)
    async with space.serving(worker):
        await seen.count(1)
        space.queue.enqueue_many("t", ({"body": n} for n in range(20)))
        await seen.count(21)
        go_on.set()
    assert sorted(seen.all[1:]) == list(range(20))


async def test_burst_waits_for_what_is_delayed_and_retried(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="20ms")
    async def handler(body: str, job: Job) -> None:
        seen.add((body, job.attempt))
        if body == "retried" and job.attempt == 1:
            raise RuntimeError

    space.queue.enqueue("t", "delayed", delay="100ms")
    space.queue.enqueue("t", "retried")
    await space.burst(worker)
    assert sorted(seen.all) == [("delayed", 1), ("retried", 1), ("retried", 2)]


async def test_burst_says_once_that_it_waits_for_what_is_delayed(
    space: Space, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counted(*asked: Any) -> Any:
        nonlocal looks
        looks += 1
        return stats(*asked)

    monkeypatch.setattr("streamdq.worker.serving.stats", counted)
    worker = space.worker()
    worker.handler("t")(recorder(Seen()))
    job = space.queue.enqueue("t", 1, id="later", delay="1h")

    def told() -> list[str]:
        return [line for record in caplog.records if "waiting for delayed jobs" in (line := record.getMessage())]

    with caplog.at_level(logging.INFO, "streamdq"):
        serving = asyncio.create_task(worker.serve(burst=True))
        await eventually(lambda: looks >= 5, "it looks again and again")
        worker.stop()
        await serving
    assert len(told()) == 1
    assert job.due.isoformat(timespec="milliseconds") in told()[0]
    space.queue.cancel("t", "later")


async def test_burst_returns_when_there_is_nothing(space: Space) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(Seen()))
    async with asyncio.timeout(HANG_S):
        await worker.serve(burst=True)
    async with asyncio.timeout(HANG_S):
        await worker.serve(burst=True)  # it can serve again


async def test_burst_sees_jobs_that_its_handlers_enqueue(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("first")
    async def first(body: int) -> None:
        space.queue.enqueue("second", body + 1, delay="30ms")

    worker.handler("second")(recorder(seen))
    space.queue.enqueue("first", 1)
    await space.burst(worker)
    assert seen.all == [2]


async def test_stop_lets_running_handlers_end(space: Space, seen: Seen) -> None:
    worker, go_on = space.worker(concurrency=2, grace_s=60), asyncio.Event()

    @worker.handler("t")
    async def handler(body: int) -> None:
        seen.add(body)
        await go_on.wait()

    space.queue.enqueue_many("t", ({"body": n} for n in range(10)))
    serving = asyncio.create_task(worker.serve())
    await seen.count(2)
    worker.stop()
    go_on.set()
    await serving
    assert (space.stats().done, space.stats().ready, space.stats().running) == (2, 8, 0)
    assert space.stats().consumers == 0


async def test_what_outlasts_the_grace_is_handed_back_without_losing_an_attempt(space: Space, seen: Seen) -> None:
    worker, never = space.worker(grace_s=0.05), asyncio.Event()

    @worker.handler("t", retry="none")
    async def handler(_body: int, job: Job) -> None:
        seen.add(job.attempt)
        if len(seen) == 1:
            await never.wait()

    space.queue.enqueue("t", 1, id="a")
    async with space.serving(worker):
        await seen.count(1)
    assert space.state("a") == JobState.READY
    assert space.job("a").attempt == 0
    await space.burst(worker)
    assert seen.all == [1, 1]
    assert space.stats().done == 1


async def test_serve_that_is_cancelled_hands_back_what_runs(space: Space, seen: Seen) -> None:
    """As an application does that ends its tasks. Grace is for those who ask it to stop."""
    worker, never = space.worker(concurrency=3, grace_s=60), asyncio.Event()
    left = threading.Event()

    @worker.handler("t")
    async def handler(_body: int, job: Job) -> None:
        seen.add(job.id)
        try:
            await never.wait()
        finally:
            seen.add("cancelled")

    @worker.handler("plain")
    def plain(_body: int) -> None:
        left.wait(HANG_S)

    space.queue.enqueue("plain", 1, id="p")
    space.queue.enqueue_many("t", ({"body": n} for n in range(9)))
    serving = asyncio.create_task(worker.serve())
    await space.becomes("p", JobState.RUNNING, "plain")
    await seen.count(2)
    serving.cancel()
    try:
        async with asyncio.timeout(HANG_S):
            with pytest.raises(asyncio.CancelledError):
                await serving
    finally:
        left.set()
    assert seen.all.count("cancelled") == 2
    assert (space.stats().ready, space.stats().running, space.stats().consumers) == (9, 0, 0)
    assert {space.job(id).attempt for id in seen.all if id != "cancelled"} == {0}
    assert (space.state("p", "plain"), space.job("p", "plain").attempt) == (JobState.READY, 0)


def test_a_loop_that_ends_with_its_worker_at_work_leaves_nothing_claimed(space: Space) -> None:
    """asyncio.run cancels every task at once, those of the worker itself among them."""
    worker = space.worker(concurrency=3)

    @worker.handler("t")
    async def handler(_body: int) -> None:
        await asyncio.Event().wait()

    space.queue.enqueue_many("t", ({"body": n} for n in range(9)))
    serving: list[asyncio.Task[None]] = []

    async def main() -> None:
        serving.append(asyncio.create_task(worker.serve()))
        await eventually(lambda: space.stats().running == 3, "three run")

    asyncio.run(main())
    assert serving[0].cancelled()
    assert (space.stats().ready, space.stats().running, space.stats().consumers) == (9, 0, 0)


async def test_a_cancellation_of_the_handlers_own_making_is_a_failure(space: Space, seen: Seen) -> None:
    """Nobody told it to stop: were it handed back, it would be run again at once, for ever."""
    worker = space.worker()

    @worker.handler("t", retry="1ms")
    async def handler(_body: int, job: Job) -> None:
        seen.add(job.attempt)
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    space.queue.enqueue("t", 1, id="a")
    async with space.serving(worker):
        await seen.count(2)
        await space.becomes("a", JobState.DEAD)
    assert seen.all == [1, 2]
    assert "CancelledError" in (space.job("a").groups["default"].error or "")


async def test_same_millisecond_keeps_its_order(space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.worker.runner._HOLD_S", 60)  # what is handed back loses its place
    worker = space.worker(concurrency=1)
    worker.handler("t")(recorder(seen))
    at_ms = space.queue.enqueue("other", 1).created_ms + 150
    for n in range(30):
        space.queue.enqueue("t", n, at=at_ms)
    space.queue.enqueue_many("t", ({"body": n, "at": at_ms} for n in range(30, 1200)), batch_size=400)
    await space.burst(worker)
    assert seen.all == list(range(1200))


async def test_earlier_due_comes_first_whatever_the_order_of_enqueue(space: Space, seen: Seen) -> None:
    worker = space.worker(concurrency=1)
    worker.handler("t")(recorder(seen))
    past_ms = space.queue.enqueue("other", 1).created_ms - 1000
    space.queue.pause("other")
    space.queue.configure("t", create=True)
    space.queue.pause("t")
    for n in (5, 3, 1, 4, 2):
        space.queue.enqueue("t", n, at=past_ms + n)
    space.queue.resume("t")
    await space.burst(worker)
    assert seen.all == [1, 2, 3, 4, 5]


async def test_expired_jobs_are_given_up(space: Space, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    past_ms = space.queue.enqueue("other", 1).created_ms - 10_000
    space.queue.enqueue("t", "too late", id="a", at=past_ms, expire="5s")
    space.queue.enqueue("t", "in time", id="b", at=past_ms, expire="1m")
    await space.burst(worker)
    assert seen.all == ["in time"]
    assert (space.stats().expired, space.stats().done) == (1, 1)
    assert space.state("a") == "gone"


async def test_run_in_a_running_loop_names_what_to_await(space: Space) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(Seen()))
    with pytest.raises(InvalidInput, match=r"await serve\(\)"):
        worker.run()


def test_a_handler_without_a_topic_names_the_way_to_write_it(space: Space) -> None:
    with pytest.raises(InvalidInput, match=r'@worker\.handler\("topic"\)'):
        space.worker().handler(print)  # type: ignore[call-overload]


async def test_two_workers_may_not_serve_as_one(space: Space) -> None:
    worker = space.worker()
    with pytest.raises(InvalidInput, match="no handlers"):
        await worker.serve()
    worker.handler("t")(recorder(Seen()))
    async with space.serving(worker):
        with pytest.raises(InvalidInput, match="serving already"):
            await worker.serve()
        assert worker.name


async def test_a_server_that_is_not_there_at_the_start_is_an_error() -> None:
    worker = Worker(f"redis://127.0.0.1:{free_port()}", settings=Space.quick())
    worker.handler("t")(recorder(Seen()))
    with pytest.raises(ServerUnavailable, match="did not answer"):
        await worker.serve()


def test_handlers_that_cannot_be_served_are_refused() -> None:
    worker = Worker("memory://handlers")
    register = worker.handler("t")

    async def nothing() -> None: ...

    async def two(a: int, b: int) -> None: ...

    async def keyword(*, body: int) -> None: ...

    async def unresolved(body: "Unheard") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    async def unchecked(body: threading.Lock) -> None: ...

    async def batch(body: dict[str, int]) -> None: ...

    for function in (nothing, two, keyword, unresolved, unchecked):
        with pytest.raises(InvalidInput, match=f"handler .*{function.__name__}"):
            register(function)
    with pytest.raises(InvalidInput, match="is a list"):
        worker.handler("t", batch=10)(batch)
    for wrong in (0, 501, True):
        with pytest.raises(InvalidInput, match="batch="):
            worker.handler("t", batch=wrong)(batch)
    register(recorder(Seen()))
    with pytest.raises(InvalidInput, match="a handler already"):
        worker.handler("t")
    for topic in ("", "a b", "{}", "a\n"):
        with pytest.raises(InvalidInput, match="topic"):
            worker.handler(topic)
    with pytest.raises(InvalidInput, match="ttr"):
        worker.handler("u", ttr=0)
    with pytest.raises(InvalidInput, match="retry"):
        worker.handler("u", retry="soon")


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, 10_001])
def test_concurrency_out_of_range(concurrency: Any) -> None:
    with pytest.raises(InvalidInput, match="concurrency"):
        Worker("memory://x", concurrency=concurrency)


async def test_a_handler_that_calls_exit_fails_and_the_worker_goes_on(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="none")
    async def leaving(body: dict[str, Any]) -> None:
        seen.add(body["n"])
        if body["n"] == 1:
            raise SystemExit(3)

    space.queue.enqueue("t", {"n": 1}, id="leaves")
    space.queue.enqueue("t", {"n": 2})
    await space.burst(worker)
    assert sorted(seen.all) == [1, 2]
    (dead,) = space.queue.dead("t")
    assert dead.groups["default"].error == "SystemExit: 3"


async def test_a_worker_that_waited_for_its_outcomes_to_be_sent_claims_again(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It claims nothing while too many are unsent; nothing runs then whose end could wake it."""
    monkeypatch.setattr("streamdq.worker.serving._MOST_UNSENT", 1)
    worker = space.worker(concurrency=5)

    @worker.handler("t")
    async def handle(body: int) -> None:
        seen.add(body)

    space.queue.enqueue_many("t", [{"body": number} for number in range(300)])
    async with asyncio.timeout(HANG_S):
        await space.burst(worker)
    assert sorted(seen.all) == list(range(300))


async def test_a_handler_for_every_topic_waits_for_the_first_one(
    space: Space, redis_server: Server, seen: Seen
) -> None:
    """Nobody has used the namespace when the worker begins."""
    worker = space.worker()
    worker.every_topic(recorder(seen))
    with redis_server.client() as client:
        async with space.serving(worker):
            await eventually(
                lambda: client.exists(space.queue._store.session.keys.mover), "it waits, as its mover works"
            )
            space.queue.enqueue("t", "x")
            await seen.count(1)


async def test_a_burst_in_a_namespace_without_topics_ends(space: Space) -> None:
    worker = space.worker()
    worker.every_topic(recorder(Seen()))
    await space.burst(worker)


async def test_what_two_reads_bring_of_one_topic_is_all_run(space: Space, seen: Seen) -> None:
    """While one read waits for jobs of two topics, a third topic appears, and another read with it."""
    worker = space.worker(concurrency=2)

    @worker.every_topic
    async def handle(body: int) -> None:
        seen.add(body)

    space.queue.enqueue("m", 0)
    space.queue.enqueue("z", 1)
    async with space.serving(worker):
        await seen.count(2)
        space.queue.enqueue("a", 2)
        await seen.count(3)
        for turn in range(10):
            space.queue.enqueue_many("z", ({"body": n} for n in range(2)))
            await seen.count(5 + 2 * turn)
    assert space.stats("z").done == 21


async def test_a_burst_of_what_is_due_leaves_the_rest(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="1h")
    async def handler(body: str) -> None:
        seen.add(body)
        if body == "again":
            raise RuntimeError("not yet")

    space.queue.enqueue("t", "later", delay="1h", id="later")
    for body in ("now", "again"):
        space.queue.enqueue("t", body, id=body)
    async with asyncio.timeout(HANG_S):
        await worker.serve("due")

    assert sorted(seen.all) == ["again", "now"]
    assert [space.state(id) for id in ("later", "again")] == [JobState.DELAYED, JobState.DELAYED]
    with pytest.raises(InvalidInput, match="burst: 'soon'"):
        await worker.serve("soon")  # type: ignore[arg-type]
