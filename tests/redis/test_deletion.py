"""Topics that are deleted: cut off after every call, and raced by those who use them or make them again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.errors import StaleClaim, TopicNotEmpty, TopicServed, UnknownTopic
from streamdq.http.pages.overview import summary
from streamdq.link.session import Op, pause, run
from streamdq.mover.node_mover import NodeMover
from streamdq.operations.checks.audit import audit
from streamdq.operations.topics import configure
from streamdq.operations.topics.stats import stats, upcoming
from streamdq.store import blocking
from streamdq.store.scripts import Scripts
from streamdq.store.topics import changes, group_consumers
from tests.redis.harness import Seen, Space, recorder, taken
from tests.redis.movers import mover_at
from tests.redis.topology import all_run, each_cut, steps
from tests.servers import Server
from tests.waiting import HANG_S, eventually


@pytest.mark.parametrize("force", [False, True])
async def test_a_deletion_that_was_cut_anywhere_is_ended_by_a_mover(
    space: Space, redis_server: Server, force: bool
) -> None:
    def delete() -> Iterator[None]:
        space.queue.configure("t", shards=2, groups=["a", "b"])
        if force:
            space.queue.enqueue_many("t", [NewJob(n, delay=n % 2) for n in range(10)])
        return steps(space.queue, changes.delete(space.queue._store.topics, "t", force))

    for cuts in each_cut(delete):
        other = space.another_queue()
        run(other._link, other._store.topics.end_changes())
        if "t" in other.stats().topics:
            assert cuts <= 8, "it had not begun"
            other.delete_topic("t", force=True)
        with redis_server.client() as client:
            left = [key for key in client.scan_iter() if b"{t:" in key and client.pttl(key) < 0]
        assert left == []
        assert other.stats().topics == {}


def test_a_topic_with_jobs_is_deleted_by_force_alone(space: Space) -> None:
    space.queue.configure("t", shards=3)
    space.queue.enqueue("t", "x", id="x")
    with pytest.raises(TopicNotEmpty, match=r"force=True \(--force"):
        space.queue.delete_topic("t")
    assert space.state("x") == "ready"
    claim = taken(space.queue, "t", timeout=0)
    space.queue.delete_topic("t", force=True)
    with pytest.raises(StaleClaim):
        claim.finish()
    with pytest.raises(UnknownTopic):
        space.queue.stats("t")
    with pytest.raises(UnknownTopic):
        space.queue.delete_topic("t")


def test_a_job_that_comes_as_its_topic_is_deleted_stays_or_makes_it_again(space: Space) -> None:
    for moment in range(20):
        space.queue.configure("t", shards=2)
        stale = space.another_queue()
        stale.stats("t")
        calls = 0
        try:
            for calls, _ in enumerate(steps(space.queue, configure.delete_topic(space.queue._store, "t"))):
                if calls == moment:
                    stale.enqueue("t", "x", id="x")
        except TopicNotEmpty:
            pass
        if moment > calls:
            return
        assert space.another_queue().get("t", "x") is not None
        assert stale.cancel("t", "x")
    raise AssertionError("it never ends")


async def test_a_mover_does_not_make_a_deleted_topic_again(space: Space, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("served")(recorder(seen))
    async with space.serving(worker):
        space.queue.enqueue("t", "x", id="x", delay="1h")
        space.queue.enqueue("served", 1, delay="20ms")
        await seen.count(1)
        space.queue.delete_topic("t", force=True)
        space.queue.enqueue("served", 2, delay="20ms")
        await seen.count(2)
        await eventually(lambda: space.stats("served").done == 2, "done")
        assert list(space.queue.stats().topics) == ["served"]


def has_one_ready(space: Space, topic: str) -> bool:
    return space.stats(topic).ready == 1


async def test_a_mover_keeps_nothing_of_topics_that_are_deleted(space: Space, redis_server: Server) -> None:
    async with mover_at(redis_server.url, "m") as mover:
        for topic in ("t0", "t1", "t2", "t3"):
            space.queue.configure(topic, rate=1000)
            space.queue.enqueue(topic, "x", delay="1ms")
            await eventually(partial(has_one_ready, space, topic), "its rate lets the job pass")
            space.queue.delete_topic(topic, force=True)
            await eventually(lambda: not mover._topics.known, "the mover has heard of it")
            await eventually(lambda: len(mover._running) == 1, "only its part for the node goes on")
        assert mover._rated == {}
        mover._look_for_shards()  # as it does every ten seconds
        assert mover._listener._seen.keys() <= {mover._session.keys.wake}


@pytest.mark.parametrize(
    "looking",
    [
        lambda queue: audit(queue._store),
        lambda queue: upcoming(queue._store),
        lambda queue: stats(queue._store),
        lambda queue: summary(queue._store, ["a", "b"]),
        lambda queue: configure.pause(queue._store, "b"),
    ],
    ids=["audit", "upcoming", "stats", "summary", "pause"],
)
def test_a_topic_that_is_deleted_by_another_task_meanwhile(space: Space, looking: Callable[[Queue], Op[Any]]) -> None:
    """A process's tasks share what it knows of the topics."""
    for moment in range(100):
        for topic in ("a", "b"):
            space.queue.configure(topic, groups=["default", "late"], shards=2)
        calls = -1
        for calls, _ in enumerate(steps(space.queue, looking(space.queue))):
            if calls == moment:
                space.queue.delete_topic("b", force=True)
        if calls < moment:
            return
    raise AssertionError("it never ends")


async def test_a_shard_that_is_gone_holds_up_no_other(space: Space, seen: Seen) -> None:
    """A worker and its mover still look at shards of a topic that was deleted, and made anew with fewer."""
    worker = space.worker()
    worker.every_topic(recorder(seen))
    async with space.serving(worker):
        for _ in range(5):
            space.queue.configure("t", shards=8)
            space.queue.enqueue_many("t", [NewJob("lost", delay="1ms") for _ in range(16)])
            space.queue.delete_topic("t", force=True)
            space.queue.configure("t", shards=1)
            space.queue.enqueue("other", "x", delay="20ms")
            await eventually(lambda: "x" in seen.all, "another topic's job runs")
            seen.all.clear()


async def test_a_topic_that_is_served_is_not_deleted(space: Space, seen: Seen) -> None:
    worker = space.recording(seen, "audit")
    async with space.serving(worker):
        await eventually(lambda: space.stats("t", "audit").consumers, "its consumer is there")
        with pytest.raises(TopicServed, match=r"consumers in group audit, which would make it again.*--force"):
            space.queue.delete_topic("t")
        assert list(space.queue.stats().topics) == ["t"]
    space.queue.delete_topic("t")  # the worker has left
    assert space.queue.stats().topics == {}

    async with space.serving(worker):
        space.queue.delete_topic("t", force=True)
        assert space.queue.stats().topics == {}


async def test_a_mover_asks_once_for_a_shard_that_its_topic_no_longer_has(space: Space) -> None:
    space.queue.configure("t", shards=4)
    async with AsyncQueue(space.url, "test", settings=space.settings) as queue:
        store = queue._store
        await queue.stats("t")
        gone = store.topics.shards("t")[3]
        node_mover = NodeMover(queue._link, store, *[lambda *_: None] * 3)
        space.queue.delete_topic("t")
        space.queue.configure("t", shards=1)
        async with asyncio.timeout(HANG_S):
            assert await node_mover._call_move(gone, 10, permitted=False) is None


@pytest.mark.parametrize("stopped", range(2, 8))
def test_a_mover_that_was_stopped_while_ending_a_deletion_spares_the_topic_that_was_made_since(
    space: Space, stopped: int
) -> None:
    space.queue.configure("t", shards=2)
    space.queue.enqueue("t", "old")
    killed = steps(space.queue, configure.delete_topic(space.queue._store, "t", force=True))
    for _ in zip(range(3), killed, strict=False):  # it has begun
        pass
    other = space.another_queue()
    ending = steps(other, other._store.topics.end_changes())
    for _ in zip(range(stopped), ending, strict=False):
        pass
    with contextlib.suppress(UnknownTopic):
        space.another_queue().delete_topic("t", force=True)
    ids = {f"j{n}" for n in range(20)}
    space.another_queue().enqueue_many("t", [NewJob(id, id=id) for id in ids])
    for _ in ending:
        pass
    assert all(space.another_queue().get("t", id) is not None for id in ids)


@pytest.mark.parametrize("stopped", range(1, 10))
async def test_one_who_was_stopped_while_changing_does_not_bring_a_deleted_topic_back(
    space: Space, stopped: int
) -> None:
    space.queue.configure("t", shards=4)
    stale = space.another_queue()
    stale.stats("t")
    other = space.another_queue()
    begun = steps(other, configure.configure(other._store, "t", ttr="5s"))
    for _ in zip(range(stopped), begun, strict=False):
        pass
    space.queue.delete_topic("t", force=True)
    for _ in begun:
        pass
    ids = {f"j{n}" for n in range(20)}
    stale.enqueue_many("t", [NewJob(id, id=id) for id in ids])
    space.another_queue().enqueue("t", "more", id="more")
    await all_run(space, {*ids, "more"})


async def test_a_worker_leaves_also_shards_that_it_serves_no_more(space: Space, seen: Seen) -> None:
    space.queue.configure("t", shards=4)
    worker = space.recording(seen)
    async with space.serving(worker):
        await eventually(lambda: all(_consumers(space, shard) for shard in range(4)), "it is there")
        space.queue.configure("t", shards=1)
        await eventually(lambda: len(worker._run.consumer._shards) == 1, "it serves one shard")  # type: ignore[union-attr]
    space.queue.configure("t", shards=4)
    assert [_consumers(space, shard) for shard in range(4)] == [[]] * 4
    space.queue.delete_topic("t")


async def test_a_worker_that_has_left_is_not_made_known_again(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops as it makes itself known in new shards, and that call comes after the one that removes it."""
    real_join, real_remove = blocking.join, Scripts.remove_consumer
    joins, removed, joined = list[int](), asyncio.Event(), asyncio.Event()

    def late_join(*args: Any) -> Op[None]:
        joins.append(1)
        while len(joins) > 1 and not removed.is_set():
            yield from pause(0.001)
        yield from real_join(*args)
        if len(joins) > 1:
            joined.set()

    def remove(*args: Any) -> Op[bool]:
        gone = yield from real_remove(*args)
        removed.set()
        while not joined.is_set():
            yield from pause(0.001)
        return gone

    monkeypatch.setattr(blocking, "join", late_join)
    monkeypatch.setattr(Scripts, "remove_consumer", remove)
    space.queue.configure("t", shards=1)
    worker = space.recording(seen)
    async with space.serving(worker):
        await eventually(lambda: len(joins) == 1, "it serves")
        space.queue.configure("t", shards=2)
        await eventually(lambda: len(joins) == 2, "it serves both")
    assert [_consumers(space, shard) for shard in range(2)] == [[], []]
    space.queue.delete_topic("t")


def _consumers(space: Space, shard: int) -> list[str]:
    """Those that are known in a shard, in either stream."""
    keys = space.queue._store.session.keys.shard("t", shard)
    places = [(keys.ready, "default"), (keys.ready_of("default"), "default")]
    found = run(space.queue._link, group_consumers.consumers(space.queue._store.session, places))
    return sorted({one.name for some in found for one in some})
