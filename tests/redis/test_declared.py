"""Schedules that a worker's code declares: put at its start, kept while it runs, pruned on demand."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq import Queue, Worker
from streamdq.errors import InvalidInput
from streamdq.operations.schedules.define import put_schedule
from streamdq.queue import carry_out, store_of
from streamdq.worker import serving as serving_module
from streamdq.worker.declared_schedules import DeclaredSchedules
from tests.redis.harness import Seen, Space, recorder
from tests.servers import Server
from tests.waiting import eventually


def declaring(space: Space, *ids: str, **options: Any) -> Worker:
    """A worker of ``t`` whose code has these schedules."""
    worker = space.worker()
    worker.prune = options.pop("prune", False)
    handler = recorder(Seen())
    worker.handler("t")(handler)
    for id in ids:
        worker.schedule("t", {"for": "{due}"}, id=id, **({"cron": "0 9 * * *"} | options))(handler)
    return worker


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker looks at the registry all the time, and not every eight seconds."""
    monkeypatch.setattr(serving_module, "_SCHEDULES_S", 0.02)
    monkeypatch.setattr(serving_module, "_EACH_REGISTRY_S", 0.02)


def ids(space: Space) -> list[str]:
    return [one.id for one in space.queue.schedules()]


async def test_a_worker_that_starts_puts_its_schedules(space: Space, redis_server: Server) -> None:
    async with space.serving(declaring(space, "a", "b", tz="Europe/Paris", ttr="5s")):
        await eventually(lambda: ids(space) == ["a", "b"], "they are there")
    made = space.queue.get_schedule("t", "a")
    assert (made.text, made.definition.tz, made.definition.declared) == ("0 9 * * *", "Europe/Paris", True)
    assert (made.body, made.ttr_ms) == ({"for": "{due}"}, 5000)
    space.queue.pause_schedule("t", "b")
    with redis_server.client() as client:
        before = client.hgetall("test:{t:0}:schedules")
        await space.burst(declaring(space, "a", "b", tz="Europe/Paris", ttr="5s"))
        assert client.hgetall("test:{t:0}:schedules") == before, "the same changes nothing, paused or not"
    await space.burst(declaring(space, "a", tz="Asia/Tokyo"))
    assert space.queue.get_schedule("t", "a").definition.tz == "Asia/Tokyo"
    assert ids(space) == ["a", "b"], "what is declared no more stays"


async def test_prune_removes_what_was_declared_and_is_no_more(space: Space) -> None:
    await space.burst(declaring(space, "kept", "dropped"))
    space.queue.schedule("t", id="by-hand", every="1h")
    space.queue.schedule("other", id="x", every="1h")
    store = store_of(space.queue)
    declared = declaring(space, "x")._declared["t", "x"]
    carry_out(space.queue, put_schedule(store, "other", "declared", declared.definition, declared.new))

    await space.burst(declaring(space, "kept", prune=True))

    assert [(one.topic, one.id) for one in space.queue.schedules()] == [
        ("other", "declared"), ("other", "x"), ("t", "by-hand"), ("t", "kept")
    ]  # fmt: skip
    await space.burst(declaring(space, prune=True))
    assert [one.id for one in space.queue.schedules("t")] == ["by-hand"]


async def test_a_lost_schedule_comes_back(space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)
    space.queue.schedule("t", id="removed-before", every="1h")
    space.queue.unschedule("t", "removed-before")
    async with space.serving(declaring(space, "a", "b")):
        await eventually(lambda: ids(space) == ["a", "b"], "they are there")
        with redis_server.client() as client:
            client.flushall()
            await eventually(lambda: ids(space) == ["a", "b"], "both came back after a flush")
            client.delete("test:{t:0}:schedules", "test:{t:0}:ticks")
            await eventually(lambda: ids(space) == ["a", "b"], "a shard lost them")
            client.hdel("test:{t:0}:schedules", "b")
            await eventually(lambda: ids(space) == ["a", "b"], "a failover lost one")


async def test_after_a_flush_that_somebody_else_made_good(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is there again when the worker looks, made by a producer that knew nothing of its schedules."""
    look_often(monkeypatch)
    other = Queue(space.url, "test", settings=space.settings)
    other.configure("t", create=True)
    async with space.serving(declaring(space, "a")):
        await eventually(lambda: ids(space) == ["a"], "it is there")
        with redis_server.client() as client:
            client.flushall()
        other.enqueue("t", 1)
        await eventually(lambda: ids(space) == ["a"], "it came back")
        known = space.another_queue()
        known.schedules()
        assert store_of(known).topics.known["t"].scheduled, "movers look for it"
    other.close()


async def test_what_somebody_removes_stays_removed(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Seen()
    keep = DeclaredSchedules.keep

    async def noted(self: Any) -> None:
        await keep(self)
        looks.add(1)

    look_often(monkeypatch)
    monkeypatch.setattr(DeclaredSchedules, "keep", noted)
    async with space.serving(declaring(space, "a", "b")):
        await eventually(lambda: ids(space) == ["a", "b"], "they are there")
        space.queue.unschedule("t", "a")
        await looks.count(len(looks) + 3)
        assert ids(space) == ["b"]
    await space.burst(declaring(space, "a", "b"))
    assert ids(space) == ["a", "b"], "until a worker starts"


def function(body: dict[str, Any]) -> None:
    """A handler."""


def test_how_it_is_written() -> None:
    worker = Worker()
    worker.schedule("a", every="1h")(function)
    assert worker.topics == {"a"}, "it is the handler, too"
    worker.handler("a", ttr="5s")(function)
    assert worker._handlers["a"].ttr_ms == 5000
    worker.schedule("a", id="second", every="1h")(worker.handler("b")(function))
    with pytest.raises(InvalidInput, match="has a handler already"):
        worker.handler("a")(function)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "either cron or every"),
        ({"cron": "x"}, "cron: can't read"),
        ({"every": "1h", "id": "x" * 201}, "at most 200 bytes"),
        ({"every": "1h", "body": "x" * 300_000}, "STREAMDQ_MAX_BODY_BYTES"),
        ({"every": "1h", "retry": "never"}, "retry"),
    ],
)
def test_what_is_refused_at_once(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        Worker().schedule("t", **given)


def test_one_function_and_one_id() -> None:
    worker = Worker()
    worker.handler("t")(function)
    worker.schedule("t", every="1h")(function)
    with pytest.raises(InvalidInput, match="has a schedule 'default' here already"):
        worker.schedule("t", every="2h")(function)
    with pytest.raises(InvalidInput, match="has another handler"):
        worker.schedule("t", every="2h", id="x")(lambda body: body)
    other = Worker()
    other.schedule("t", every="1h")(function)
    with pytest.raises(InvalidInput, match="has a handler already"):
        other.handler("t")(lambda body: body)
    with pytest.raises(InvalidInput, match="name the topic"):
        worker.schedule(function)  # type: ignore[arg-type]
