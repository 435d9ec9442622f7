"""Bodies change their shape, and what was enqueued before a release still runs after it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from streamdq import Job, NewJob, Worker
from streamdq.codec.encrypt import new_key
from streamdq.errors import InvalidInput
from streamdq.queue import carry_out, store_of
from streamdq.worker.rehearsal import Refusal, Rehearsed, rehearse
from streamdq.worker.worker import config_of
from tests.redis.harness import Seen, Space, taken
from tests.waiting import eventually


class Order(BaseModel):
    order_id: int
    currency: str
    lines: list[str]


def new_release(worker: Worker, seen: Seen) -> None:
    """Version 1: {"id"}; version 2: {"order_id"}; version 3 also has the currency and lines."""

    @worker.upcast("order.close", since=3)
    def with_currency(body: dict[str, Any]) -> dict[str, Any]:
        return body | {"currency": "EUR", "lines": []}

    @worker.upcast("order.close", since=2)
    def with_order_id(body: dict[str, Any]) -> dict[str, Any]:
        return {"order_id": body["id"]}

    @worker.handler("order.close", retry="none")
    async def close(order: Order, job: Job) -> None:
        seen.add((job.version, order.order_id, order.currency))


async def test_old_bodies_take_the_new_shape(space: Space, seen: Seen) -> None:
    worker = space.worker()
    new_release(worker, seen)
    for job in (
        NewJob({"id": 1}),
        NewJob({"order_id": 2}, version=2),
        NewJob({"order_id": 3, "currency": "JPY", "lines": ["a"]}, version=3),
    ):
        space.queue.enqueue_many("order.close", [job])
    await space.burst(worker)
    assert sorted(seen.all) == [(1, 1, "EUR"), (2, 2, "EUR"), (3, 3, "JPY")]


async def test_a_worker_of_an_older_release_leaves_new_bodies_to_newer_ones(space: Space, seen: Seen) -> None:
    old, new = space.worker(), space.worker()
    new_release(new, seen)

    @old.handler("order.close", version=2)
    async def close(order: dict[str, Any]) -> None:
        seen.add(order)

    space.queue.enqueue("order.close", {"order_id": 3, "currency": "JPY", "lines": []}, id="j", version=3)
    async with space.serving(old):
        await eventually(lambda: _went_back(space.job("j", "order.close")), "it went back, and that was no attempt")
        assert not seen.all
    async with space.serving(new):
        assert await seen.count(1) == [(3, 3, "JPY")]


def _went_back(job: Job) -> bool:
    return (job.snoozed >= 1, job.attempt) == (True, 0)


async def test_a_failing_upcast_is_a_failed_attempt(space: Space, seen: Seen) -> None:
    worker = space.worker()
    new_release(worker, seen)
    space.queue.enqueue("order.close", {"idd": 1}, id="j")
    await space.burst(worker)
    job = space.job("j", "order.close")
    assert (job.state, job.attempt) == ("dead", 1)
    assert (job.groups["default"].reason, job.groups["default"].error) == ("exhausted", "KeyError: 'id'")
    assert job.body == {"idd": 1}
    space.queue.purge("order.close", all=True)


async def test_batches_take_old_bodies_as_well(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.upcast("t", since=2)
    def doubled(body: int) -> int:
        return 2 * body

    @worker.handler("t", batch=10)
    async def handler(bodies: list[int]) -> None:
        for body in bodies:
            seen.add(body)

    space.queue.enqueue_many("t", [NewJob(1), NewJob(2), NewJob(3, version=2)])
    await space.burst(worker)
    assert sorted(seen.all) == [2, 3, 4]


def test_what_does_not_fit_together_is_refused(space: Space) -> None:
    worker = space.worker()
    with pytest.raises(InvalidInput, match="since=1 is the first version"):
        worker.upcast("t", since=1)
    with pytest.raises(InvalidInput, match="version: 0"):
        worker.handler("t", version=0)
    with pytest.raises(InvalidInput, match="must be a plain function"):

        @worker.upcast("t", since=2)
        async def later(body: Any) -> Any: ...

    worker.upcast("t", since=3)(lambda body: body)
    with pytest.raises(InvalidInput, match="version 3 of topic 't' already has an upcast"):
        worker.upcast("t", since=3)
    with pytest.raises(InvalidInput, match="topic 't' has no handler in this worker"):
        config_of(worker)
    worker.handler("t", version=2)(lambda body: body)
    with pytest.raises(InvalidInput, match="has an upcast, but the handler takes version 2"):
        config_of(worker)
    for version in (0, -1, 1.5, "2", 10**7):
        with pytest.raises(InvalidInput, match="version:"):
            space.queue.enqueue("t", 1, version=version)  # type: ignore[arg-type]


# -- before a release


def rehearsed(space: Space, worker: Worker, most: int | None = None, **settings: Any) -> Rehearsed:
    queue = space.another_queue(**settings)
    orders = config_of(worker)
    (handler,), declared = orders.handlers.values(), {(one.topic, one.id) for one in orders.declared}
    return carry_out(queue, rehearse(store_of(queue), handler, worker.group, most, declared=declared))


async def test_a_rehearsal_tells_what_would_be_refused(stepped: Space, seen: Seen) -> None:
    queue = stepped.queue
    key = new_key("k")
    queue.configure("order.close", groups=["default", "other"])
    queue.enqueue("order.close", {"order_id": 1, "currency": "EUR", "lines": []}, id="fine", version=3, delay="1h")
    queue.enqueue("order.close", {"id": 1}, id="old", delay="1h")
    queue.enqueue("order.close", {"order_id": "x"}, id="delayed", version=2, delay="1h")
    queue.enqueue("order.close", {"order_id": 1}, id="newer", version=4, delay="1h")
    stepped.another_queue(codec="encrypt", body_keys=key).enqueue("order.close", {"a": 1}, id="locked", delay="1h")
    for id in ("dead", "retrying", "running", "done"):
        queue.enqueue("order.close", {"nothing": 1}, id=id)
        claim = taken(queue, "order.close")
        if id == "dead":
            claim.bury("no")
        elif id == "retrying":
            claim.fail("no", delay="1h")
        elif id == "done":
            claim.finish()
    queue.enqueue("order.close", {"nothing": 1}, id="ready")
    worker = stepped.worker()
    new_release(worker, seen)

    found = rehearsed(stepped, worker)

    assert (found.checked, found.refused, found.complete) == (9, 7, True)
    assert sorted((one.id, one.state, one.why) for one in found.refusals) == [
        ("dead", "dead", "KeyError: 'id'"),
        ("delayed", "delayed", "order_id: Input should be a valid integer, unable to parse string as an integer"),
        ("locked", "delayed", "it is encrypted with the key 'k', which is not configured here; see STREAMDQ_BODY_KEYS"),
        ("newer", "delayed", "it has version 4, and this handler takes version 3 at most"),
        ("ready", "ready", "KeyError: 'id'"),
        ("retrying", "retrying", "KeyError: 'id'"),
        ("running", "running", "KeyError: 'id'"),
    ]
    assert not seen.all
    locked = [one for one in rehearsed(stepped, worker, body_keys=key).refusals if one.id == "locked"]
    assert locked == [Refusal("locked", "delayed", "KeyError: its message is not kept, as the body is encrypted")]
    queue.delete_topic("order.close", force=True)


def test_a_rehearsal_tells_what_schedules_would_make(space: Space, seen: Seen) -> None:
    """They go on after the release. Those that the code declares are made anew by it."""
    space.queue.schedule("order.close", {"order": 1}, id="old", cron="0 9 * * *")
    space.queue.schedule("order.close", {"id": 1}, id="fine", every="1h")
    space.queue.schedule("order.close", {"order_id": "{due}"}, id="time", every="1h", version=2)
    space.queue.pause_schedule("order.close", "time")
    space.queue.schedule("order.close", {"order": 1}, id="over", every="1h", until=datetime(2020, 1, 1, tzinfo=UTC))
    worker = space.worker()
    new_release(worker, seen)
    found = rehearsed(space, worker)
    why = "order_id: Input should be a valid integer, unable to parse string as an integer"
    assert (found.checked, found.refused) == (3, 2)
    assert found.refusals == [Refusal("old", "schedule", "KeyError: 'id'"), Refusal("time", "schedule", why)]
    worker.schedule("order.close", {"id": 1}, id="old", every="1h")(config_of(worker).handlers["order.close"].function)
    assert [one.id for one in rehearsed(space, worker).refusals] == ["time"]
    assert space.queue.stats("order.close").delayed == 0
    space.queue.delete_topic("order.close", force=True)


def test_a_rehearsal_goes_by_pages(space: Space, seen: Seen) -> None:
    worker = space.worker()
    new_release(worker, seen)
    assert rehearsed(space, worker) == Rehearsed("order.close")
    space.queue.configure("order.close", shards=2)
    space.queue.enqueue_many("order.close", [NewJob({"bad": 1}, delay="1h") for _ in range(1500)])
    whole = rehearsed(space, worker)
    assert (whole.checked, whole.refused, len(whole.refusals), whole.complete) == (1500, 1500, 20, True)
    some = rehearsed(space, worker, most=300)
    assert 300 <= some.checked < 1500
    assert not some.complete
    space.queue.delete_topic("order.close", force=True)
