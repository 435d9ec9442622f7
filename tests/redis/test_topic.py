"""Typed topics: what they set on both sides."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import BaseModel

from streamdq import AsyncQueue, InvalidInput, Job, NewJob, Queue, Topic
from streamdq.topic import JobOptions
from tests.redis.harness import NAMESPACE, Seen, Space


class CloseOrder(BaseModel):
    order_id: int


orders = Topic("order.close", CloseOrder, ttr="30s", retry="15s 3m", version=2)


async def test_both_sides_use_it(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler(orders)
    async def close(order: CloseOrder, job: Job) -> None:
        seen.add((order, job.version))

    orders.enqueue(space.queue, CloseOrder(order_id=1), id="a")
    orders.enqueue_many(space.queue, [NewJob(CloseOrder(order_id=2))])
    with space.queue.pipeline() as pipe:
        collected = orders.enqueue(pipe, CloseOrder(order_id=3))
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        await orders.enqueue(queue, CloseOrder(order_id=4))
        await orders.enqueue_many(queue, [NewJob(CloseOrder(order_id=5))])
    assert collected.job.topic == "order.close"
    async with space.serving(worker):
        found = await seen.count(5)

    assert sorted(found, key=lambda one: one[0].order_id) == [(CloseOrder(order_id=n), 2) for n in range(1, 6)]
    group = space.queue.configure("order.close").groups["default"]
    assert (group.ttr_ms, group.retry) == (30_000, "15s 3m")


def test_a_queue_that_gets_it_as_a_name_says_where_the_name_is(space: Space) -> None:
    with pytest.raises(InvalidInput, match=r"Topic\('order.close', CloseOrder\) is not text.*\.name"):
        space.queue.enqueue(orders, CloseOrder(order_id=1))  # type: ignore[arg-type]


async def test_a_handler_without_a_type_gets_the_topic_s(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler(orders, ttr="1m")
    def one(order, job):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
        seen.add(order)

    @worker.handler(Topic("many", CloseOrder), batch=2)
    async def several(bodies, job):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
        seen.add(bodies[0])

    orders.enqueue(space.queue, CloseOrder(order_id=1))
    space.queue.enqueue("many", {"order_id": 1})
    async with space.serving(worker):
        assert await seen.count(2) == [CloseOrder(order_id=1)] * 2
    assert space.queue.configure("order.close").groups["default"].ttr_ms == 60_000, "its own"


def test_a_topic_without_settings_says_nothing_of_them(space: Space) -> None:
    plain = Topic("plain", dict)
    worker = space.worker()
    worker.handler(plain, ttr="5s")(lambda _: None)

    assert plain.enqueue(space.queue, {}).version == 1
    assert repr(plain) == "Topic('plain', dict)"
    with pytest.raises(InvalidInput, match="has a handler already"):
        worker.handler(plain)


@pytest.mark.parametrize("version", [None, 2])
def test_what_is_no_job_is_refused_alike_with_a_version_and_without(space: Space, version: int | None) -> None:
    topic: Topic[Any] = Topic("t", dict, version=version)
    for wrong in (CloseOrder(order_id=1), None, "body", 7):
        with pytest.raises(InvalidInput, match="is neither a NewJob nor a dict"):
            topic.enqueue_many(space.queue, [wrong])  # type: ignore[list-item]
    fields: Any = [{"body": {"n": 1}, "id": "a"}, NewJob({"n": 2}, id="b")]
    assert topic.enqueue_many(space.queue, fields).created == 2
    assert [space.job(id).version for id in ("a", "b")] == [version or 1] * 2


def test_configure_makes_its_settings_the_topic_s(space: Space) -> None:
    settings = orders.configure(space.queue)

    assert (settings.ttr_ms, settings.retry) == (30_000, "15s 3m")
    assert space.queue.configure("order.close") == settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a b"},
        {"ttr": "0s"},
        {"retry": "soon"},
        {"version": 0},
        {"body": "CloseOrder"},
        {"body": {"order_id": int}},
    ],
)
def test_what_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Topic(**({"name": "a", "body": dict} | wrong))  # type: ignore[arg-type]


def test_its_options_are_those_of_a_queue() -> None:
    options = set(inspect.signature(Queue.enqueue).parameters) - {"self", "topic", "body", "version"}
    assert set(JobOptions.__annotations__) == options


async def test_a_handler_of_a_topic_enqueues_to_it(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler(orders)
    async def close(order: CloseOrder) -> None:
        seen.add(order.order_id)

    @worker.handler(Topic("many", CloseOrder), batch=2)
    async def several(bodies: list[CloseOrder]) -> None:
        seen.add([one.order_id for one in bodies])

    async with space.serving(worker):
        job = close.enqueue(space.queue, CloseOrder(order_id=1), id="a", delay="1ms")
        with space.queue.pipeline() as pipe:
            several.enqueue(pipe, CloseOrder(order_id=2))
        assert sorted(await seen.count(2), key=str) == [1, [2]]
    assert (job.topic, job.version) == ("order.close", 2)
    await close(CloseOrder(order_id=3))  # it stays the function that it is
    assert seen.all[-1] == 3
    assert inspect.iscoroutinefunction(close)


def test_a_handler_of_several_topics_can_not_tell_which_is_meant(space: Space) -> None:
    def close(order: CloseOrder) -> None: ...

    space.worker().handler(orders)(close)
    again = space.worker("audit").handler(orders)(close)
    again.enqueue(space.queue, CloseOrder(order_id=1), id="a")
    both = space.worker().handler(Topic("other", CloseOrder))(close)
    with pytest.raises(InvalidInput, match=r"close handles several topics; use the enqueue of one of them"):
        both.enqueue(space.queue, CloseOrder(order_id=2))
    assert [job.id for job in space.queue.find("order.close")] == ["a"]


def test_handlers_that_take_no_attribute_work_without(space: Space) -> None:
    class Shop:
        def close(self, order: CloseOrder) -> None: ...

    registered = space.worker().handler(orders)(Shop().close)
    assert not hasattr(registered, "enqueue")
