"""The settings of a topic: pause, rate, shards and so on; and that other processes learn of them."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from streamdq import NewJob
from streamdq.config import GroupSettings, Layout, TopicSettings
from streamdq.errors import InvalidInput, UnknownTopic
from streamdq.keys import ShardKeys
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import arun, run
from streamdq.mover.rate import RatedTopic
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, recorder
from tests.redis.topology import steps
from tests.servers import Server
from tests.waiting import eventually


async def test_a_paused_topic_holds_and_resumes(space: Space, seen: Seen) -> None:
    worker = space.recording(seen)
    worker.handler("other")(recorder(seen))
    async with space.serving(worker):
        space.queue.pause("t")
        space.queue.enqueue("t", "at once")
        space.queue.enqueue("t", "delayed", delay="20ms")
        space.queue.enqueue("other", "goes on", delay="60ms")
        await seen.count(1)
        assert seen.all == ["goes on"]
        assert space.queue.stats("t").topics["t"].paused
        assert space.stats().delayed == 2
        space.queue.resume("t")
        await seen.count(3)
    assert seen.all == ["goes on", "at once", "delayed"]
    assert not space.queue.stats("t").topics["t"].paused


async def test_rate_by_the_clock(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    worker = stepped.recording(seen)
    stepped.queue.configure("t", rate=10)
    stepped.queue.enqueue_many("t", (NewJob(n) for n in range(5)))
    async with stepped.serving(worker):
        for count in range(1, 6):
            await seen.count(count)
            await eventually(lambda n=count: stepped.stats().done == n, "done")  # type: ignore[misc]
            assert stepped.stats().ready == 0
            clock.advance("100ms")
    assert seen.all == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("after", [0, 1], ids=["the time", "the head"])
async def test_what_gets_due_while_a_rated_topic_is_looked_at_is_moved(
    stepped: Space, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """By the time at which the look began nothing was due: the shard must not be given back permanently."""
    stepped.queue.configure("t", rate=10)
    stepped.queue.enqueue("t", 1, delay="1s")
    link, session = open_session(stepped.url, NAMESPACE, SETTINGS, clock, AsyncLink)
    store, shard, moved = RedisStore(session), session.keys.shard("t", 0), asyncio.Event()

    async def move(_: ShardKeys, __: int) -> None:
        moved.set()

    rated = RatedTopic(link, store, "t", move, lambda *_: None)
    calls = count()

    async def answered_late(link: AsyncLink, op: Any) -> Any:
        reply = await arun(link, op)
        if next(calls) == after:
            clock.advance("1s")
            rated.want(shard)
        return reply

    monkeypatch.setattr("streamdq.mover.rate.arun", answered_late)
    await arun(link, store.topics.refresh())
    rated.want(shard)
    running = asyncio.create_task(rated.run())
    try:
        await moved.wait()
    finally:
        running.cancel()
        await link.close()


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.thorough), 64])
async def test_a_rate_holds_for_all_shards_from_the_first_second(
    space: Space, redis_server: Server, seen: Seen, shards: int
) -> None:
    """By what Redis says: when each job got ready. On a busy machine, one may get ready long after it was permitted."""
    worker = space.recording(seen)
    space.queue.configure("t", rate=8, shards=shards)
    space.queue.enqueue_many("t", (NewJob(n, id=f"j{n}") for n in range(60)))
    ready = []
    with redis_server.client() as client:
        seconds, microseconds = client.time()
        async with space.serving(worker):
            await seen.count(13)
            for shard in space.queue._store.topics.shards("t"):
                ready += [row.split(b"\x1f")[8] for _, rows in client.xrange(shard.history) for row in rows.values()]
            space.queue.pause("t")
    begun, moved = seconds * 1000 + microseconds // 1000, sorted(map(int, ready))
    assert len(moved) >= 12
    assert all(at - begun >= 124 * number for number, at in enumerate(moved)), moved
    assert sum(space.queue.cancel("t", f"j{n}") for n in range(60)) >= 20


async def test_shards_change_while_the_topic_is_empty(space: Space, seen: Seen) -> None:
    """With jobs: test_resharding.py."""
    worker = space.recording(seen)
    space.queue.enqueue("t", 1, id="a")
    other = space.another_queue()
    assert other.get("t", "a") is not None
    await space.burst(worker)
    assert space.queue.configure("t", shards=4).layout == Layout(4)
    # One that does not know yet: told by the scripts.
    other.enqueue_many("t", (NewJob(n) for n in range(20)))
    await space.burst(worker)
    assert sorted(seen.all) == sorted([1, *range(20)])
    assert space.audit().left == 0


async def test_a_running_worker_learns_of_new_shards_at_once(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when its mover looks by itself."""
    monkeypatch.setattr("streamdq.mover.mover._SHARDS_S", 3600.0)
    worker = space.recording(seen)
    async with space.serving(worker):
        space.queue.configure("t", shards=3)
        space.queue.enqueue_many("t", (NewJob(n, delay="10ms") for n in range(30)))
        await seen.count(30)
        await eventually(lambda: space.stats().done == 30, "all done")


def test_settings_are_merged_and_seen_by_others(space: Space) -> None:
    first = space.queue.configure("t", ttr="5s", retry="1s 2s", max_deliveries=9, rate=100, shards=2, groups=["a"])
    assert (first.ttr_ms, first.retry, first.max_deliveries, first.rate, first.shards) == (
        5000, "1s 2s", 9, 100, 2,
    )  # fmt: skip
    second = space.another_queue().configure("t", ttr=7)
    assert second == first.model_copy(update={"ttr_ms": 7000, "version": second.version})
    assert second.group_names == ("a",)
    plain = space.queue.configure("u", create=True)
    assert plain == TopicSettings(version=plain.version, groups={"default": GroupSettings()})


@pytest.mark.parametrize(
    "settings",
    [
        {"ttr": 0}, {"ttr": -1}, {"ttr": float("nan")}, {"retry": "soon"}, {"retry": 5}, {"retry": ["1s"] * 101},
        {"shards": 0}, {"shards": 257}, {"shards": 1.5}, {"shards": True}, {"max_deliveries": 0}, {"rate": -1},
        {"rate": float("nan")}, {"rate": "10"}, {"rate": True}, {"groups": []}, {"groups": "a"}, {"groups": ["a b"]},
        {"groups": ["a,b"]}, {"groups": [""]},
    ],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_change_nothing(space: Space, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings)).removesuffix("s")):
        space.queue.configure("t", **settings)
    assert space.queue.stats().topics == {}


def test_an_unknown_topic(space: Space) -> None:
    queue = space.queue
    calls = (queue.pause, queue.resume, queue.dead, queue.kick, queue.configure, queue.take)
    for call in (*calls, lambda topic: queue.purge(topic, all=True)):
        with pytest.raises(UnknownTopic, match="no topic 't'"):
            call("t")
    for ask in (space.queue.stats, space.queue.upcoming, space.queue.audit):
        with pytest.raises(UnknownTopic, match="no topic 't'"):
            ask("t")
    assert space.queue.get("t", "a") is None
    assert space.queue.stats().topics == {}


def test_for_a_misspelt_topic_the_error_names_the_likely_one_and_none_is_made(space: Space) -> None:
    queue = space.queue
    queue.configure("order.close", ttr="30s")
    slips = (
        queue.stats, queue.dead, queue.pause, queue.take, queue.configure, queue.delete_topic,
        lambda topic: queue.cancel(topic, "a"), lambda topic: queue.purge(topic, "a"),
    )  # fmt: skip
    for call in slips:
        with pytest.raises(UnknownTopic, match=r"no topic 'ordre.close'.*did you mean 'order.close'\?"):
            call("ordre.close")
    with pytest.raises(UnknownTopic, match=r"did you mean 'order.close'\?.*pass create=True \(--create\)"):
        space.another_queue().configure("ordre.close", rate=5)
    assert set(queue.stats().topics) == {"order.close"}
    assert queue.configure("order.close").ttr_ms == 30_000
    queue.configure("order.closed", rate=5, create=True)
    queue.configure("order.closed", rate=6)
    queue.configure("sms.remind", rate=5)
    assert set(queue.stats().topics) == {"order.close", "order.closed", "sms.remind"}


def test_settings_that_are_only_read_change_nothing(space: Space) -> None:
    space.queue.configure("t", shards=2)
    before = space.queue.configure("t", rate=5)
    assert space.another_queue().configure("t") == space.queue.configure("t") == before


def test_nobody_sees_the_group_of_a_new_topic_without_what_its_worker_asks_for(space: Space) -> None:
    """A producer that finds the topic may wait for a result at once."""
    reader = space.another_queue()
    seen = list[TopicSettings | None]()
    for _ in steps(space.queue, space.queue._store.topics.serve("t", "default", {"result_ms": 5000})):
        seen.append(run(reader._link, reader._store.topics.read("t")))
    assert seen[0] is None
    assert {one.groups["default"].result_ms for one in seen if one is not None} == {5000}
