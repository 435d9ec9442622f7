"""Failed attempts: the steps, what a handler can ask for, and where it ends."""

from __future__ import annotations

from pydantic import BaseModel

from streamdq import Bury, Job, JobState, Snooze
from streamdq.job.retry import DEFAULT_RETRY, RetrySchedule
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space


class Order(BaseModel):
    order_id: int


async def test_the_default_schedule_step_by_step_then_dead(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.worker()

    @worker.handler("t")
    async def handler(_body: dict[str, int], job: Job) -> None:
        seen.add((clock.now_ms, job.attempt))
        raise RuntimeError("no answer")

    stepped.queue.enqueue("t", {"n": 1}, id="a")
    steps = RetrySchedule.of(DEFAULT_RETRY).steps_ms
    assert len(steps) == 9
    expected, now_ms = [(clock.now_ms, 1)], clock.now_ms
    async with stepped.serving(worker):
        await seen.count(1)
        for attempt, step_ms in enumerate(steps, 2):
            await stepped.becomes("a", JobState.DELAYED)
            now_ms += step_ms
            assert stepped.job("a").due_ms == now_ms
            clock.advance((step_ms - 1) / 1000)
            clock.advance(0.001)
            expected.append((now_ms, attempt))
            await seen.count(attempt)
        await stepped.becomes("a", JobState.DEAD)
    assert seen.all == expected
    progress = stepped.job("a").groups["default"]
    assert (progress.reason, progress.error) == ("exhausted", "RuntimeError: no answer")
    assert (stepped.stats().retried, stepped.stats().dead) == (9, 1)


async def test_the_next_step_counts_from_the_failure_not_from_the_due_time(
    stepped: Space, clock: ManualClock, seen: Seen
) -> None:
    worker = stepped.worker()

    @worker.handler("t", retry="10s 10s")
    async def handler(_body: str, job: Job) -> None:
        if job.attempt == 1:
            clock.advance(5)  # the handler takes 5 s
        seen.add(clock.now_ms)
        raise RuntimeError

    first = stepped.queue.enqueue("t", "late", id="a", delay="1s")
    clock.advance("1h")  # nobody was at work
    async with stepped.serving(worker):
        await seen.count(1)
        await stepped.becomes("a", JobState.DELAYED)
        due_ms = stepped.job("a").due_ms
    assert due_ms == clock.now_ms + 10_000
    assert due_ms == first.created_ms + 3_600_000 + 5_000 + 10_000


async def test_a_snooze_is_no_attempt(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.worker()

    @worker.handler("t", retry="10s")
    async def handler(_body: str, job: Job) -> None:
        seen.add((clock.now_ms, job.attempt, job.step, job.snoozed))
        if job.snoozed < 3:
            raise Snooze("1h", "the till is closed")
        if job.attempt == 1:
            raise RuntimeError

    stepped.queue.enqueue("t", "x", id="a")
    began_ms, hour_ms = clock.now_ms, 3_600_000
    async with stepped.serving(worker):
        await stepped.becomes("a", JobState.DELAYED)
        progress = stepped.job("a").groups["default"]
        assert (progress.attempt, progress.step, progress.snoozed) == (0, 0, 1)
        assert (progress.due_ms, progress.error) == (began_ms + hour_ms, "Snooze: the till is closed")
    await drain(worker, clock, "5h")
    assert seen.all == [
        *((began_ms + number * hour_ms, 1, 0, number) for number in range(4)),
        (began_ms + 3 * hour_ms + 10_000, 2, 1, 3),
    ]
    assert (stepped.stats().done, stepped.stats().retried, stepped.stats().snoozed) == (1, 1, 3)
    rows = stepped.queue.history("t").rows
    assert [(row.event, row.attempt, row.error) for row in rows] == [
        *[("released", 1, "Snooze")] * 3, ("retry", 1, "RuntimeError"), ("done", 2, ""),
    ]  # fmt: skip


async def test_an_invalid_body_is_buried_with_the_validation_error(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="0 0 0")
    async def handler(order: Order) -> None:
        seen.add(order.order_id)

    space.queue.enqueue("t", {"order_id": "not a number"}, id="wrong")
    space.queue.enqueue("t", {}, id="missing")
    space.queue.enqueue("t", {"order_id": 7}, id="right")
    await space.burst(worker)
    assert seen.all == [7]
    dead = {job.id: job.groups["default"] for job in space.queue.dead("t")}
    assert set(dead) == {"wrong", "missing"}
    assert {progress.reason for progress in dead.values()} == {"invalid"}
    assert "order_id: Input should be a valid integer" in (dead["wrong"].error or "")
    assert dead["missing"].error == "order_id: Field required"
    assert {progress.attempt for progress in dead.values()} == {1}


async def test_on_dead_is_told_of_each_job_given_up(space: Space, seen: Seen) -> None:
    worker = space.worker()
    threads: list[str] = []

    @worker.handler("t", retry="none")
    async def handler(body: dict[str, str]) -> None:
        if body["how"] == "bury":
            raise Bury("why")
        if body["how"] == "fail":
            raise ValueError("what")

    @worker.on_dead
    async def told(job: Job) -> None:
        progress = job.groups["default"]
        # Redis has it already
        seen.add((job.id, space.state(job.id), progress.reason, progress.error, job.body))

    @worker.on_dead
    def told_in_a_thread(job: Job) -> None:
        threads.append(job.id)

    for how in ("bury", "fail", "finish"):
        space.queue.enqueue("t", {"how": how}, id=how)
    space.queue.enqueue("t", [1], id="invalid")
    await space.burst(worker)
    by_id = {told[0]: told[1:] for told in seen.all}
    assert len(seen) == 3
    assert by_id["bury"] == ("dead", "buried", "why", {"how": "bury"})
    assert by_id["fail"] == ("dead", "exhausted", "ValueError: what", {"how": "fail"})
    assert by_id["invalid"][:2] == ("dead", "invalid")
    assert sorted(threads) == ["bury", "fail", "invalid"]


async def test_an_on_dead_that_fails_stops_nothing(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="none")
    async def handler(_body: str) -> None:
        raise RuntimeError

    @worker.on_dead
    async def broken(_job: Job) -> None:
        raise OSError("the pager is down")

    @worker.on_dead
    async def told(job: Job) -> None:
        seen.add(job.id)

    for id in ("a", "b"):
        space.queue.enqueue("t", "x", id=id)
    await space.burst(worker)
    assert sorted(seen.all) == ["a", "b"]
    assert space.stats().dead == 2


async def test_dead_letters_are_in_order_over_all_shards(stepped: Space, clock: ManualClock) -> None:
    stepped.queue.configure("t", shards=4)
    ids = [f"j{n}" for n in range(12)]
    for id in ids:
        stepped.queue.enqueue("t", 1, id=id)
        claim = stepped.queue.take("t")
        assert claim
        claim.bury("x")
        clock.advance(1)
    assert [job.id for job in stepped.queue.dead("t")] == ids
    assert [job.id for job in stepped.queue.dead("t", limit=5)] == ids[:5]
