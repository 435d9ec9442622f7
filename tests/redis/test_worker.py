"""The worker: what handlers may look like, how many run at once, when it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from streamdq import Job, JobState, Worker
from streamdq.errors import InvalidInput, ServerError, ServerUnavailable
from streamdq.operations.topics.stats import stats
from tests.redis.harness import Seen, Space, recorder
from tests.servers import Server, free_port
from tests.waiting import HANG_S, eventually


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
    worker = space.recording(Seen())
    job = space.queue.enqueue("t", 1, id="later", delay="1h")

    def message() -> list[str]:
        return [line for record in caplog.records if "waiting for delayed jobs" in (line := record.getMessage())]

    with caplog.at_level(logging.INFO, "streamdq"):
        serving = asyncio.create_task(worker.serve(burst=True))
        await eventually(lambda: looks >= 5, "it looks again and again")
        worker.stop()
        await serving
    assert len(message()) == 1
    assert job.due.isoformat(timespec="milliseconds") in message()[0]
    space.queue.cancel("t", "later")


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


def test_a_loop_that_ends_with_its_worker_running_leaves_nothing_claimed(space: Space) -> None:
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


async def test_same_millisecond_keeps_its_order(space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is handed back, as it could not start in time, loses its place.
    monkeypatch.setattr("streamdq.worker.slots._HOLD_S", 60)
    monkeypatch.setattr("streamdq.operations.attempts.claimed.START_WITHIN_S", 60)
    worker = space.recording(seen, concurrency=1)
    at_ms = space.queue.enqueue("other", 1).created_ms + 150
    for n in range(30):
        space.queue.enqueue("t", n, at=at_ms)
    space.queue.enqueue_many("t", ({"body": n, "at": at_ms} for n in range(30, 1200)), batch_size=400)
    await space.burst(worker)
    assert seen.all == list(range(1200))


async def test_run_in_a_running_loop_names_what_to_await(space: Space) -> None:
    worker = space.recording(Seen())
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
    """What their signatures say: tests/unit/worker/test_handlers.py."""
    worker = Worker("memory://handlers")
    worker.handler("t")(recorder(Seen()))
    with pytest.raises(InvalidInput, match="a handler already"):
        worker.handler("t")
    for wrong, options in (("topic", {}), ("ttr", {"ttr": 0}), ("retry", {"retry": "soon"})):
        with pytest.raises(InvalidInput, match=wrong):
            worker.handler("u" if options else "a b", **options)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, 10_001])
def test_concurrency_out_of_range(concurrency: Any) -> None:
    with pytest.raises(InvalidInput, match="concurrency"):
        Worker("memory://x", concurrency=concurrency)


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


def dangers_logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records if "Redis may lose jobs" in (line := record.getMessage())]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, ["no append-only file and no snapshots"]),
        ({"save": "3600 1"}, []),
        ({"save": "3600 1", "maxmemory-policy": "allkeys-lru"}, ["maxmemory-policy is allkeys-lru"]),
    ],
)
async def test_a_redis_that_may_lose_jobs_is_warned_of_once(
    space: Space, redis_server: Server, caplog: pytest.LogCaptureFixture, settings: dict[str, str], message: list[str]
) -> None:
    worker = space.recording(Seen())
    with redis_server.client() as client, caplog.at_level(logging.WARNING, "streamdq"):
        before = {name: client.config_get(name)[name] for name in settings}
        for name, value in settings.items():
            client.config_set(name, value)
        try:
            await space.burst(worker)
        finally:
            for name, value in before.items():
                client.config_set(name, value)
    assert [why for line in dangers_logged(caplog) for why in message if why in line] == message
    assert len(dangers_logged(caplog)) == len(message)
    assert all("advice='" in line for line in dangers_logged(caplog))


async def test_where_a_worker_may_not_ask_for_the_settings_it_is_silent(
    space: Space, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refused(*_: Any) -> Any:
        asked.append("save")
        raise ServerError("NOPERM this user has no permissions to run the 'config|get' command")

    monkeypatch.setattr("streamdq.operations.checks.redis_server.namespace.snapshots", refused)
    with caplog.at_level(logging.WARNING, "streamdq"):
        await space.burst(space.recording(Seen()))
    assert (asked, dangers_logged(caplog)) == (["save"], [])
