"""Wakeups that come at a bad moment, or not at all: what is due is moved all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from streamdq.keys import shard_of
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import run
from streamdq.mover.mover import Mover
from streamdq.mover.node_mover import NodeMover
from streamdq.mover.wakeups import Listener
from streamdq.process.loop import cancel_and_wait
from tests.redis.harness import NAMESPACE, Seen, Space, recorder
from tests.redis.movers import idle_s, mover_at
from tests.servers import Server
from tests.waiting import HANG_S, eventually

SHARDS = 64


def id_in(shard: int, shards: int = SHARDS) -> str:
    """Some id whose job is in that shard."""
    return next(id for id in map(str, range(100_000)) if shard_of(id, shards) == shard)


async def _nothing(*_: Any) -> None: ...


async def test_a_claim_whose_wakeup_was_lost_is_taken_over(space: Space, redis_server: Server) -> None:
    """The first claim in a quiet shard sends a wakeup, so that its TTR is watched. Nothing else would tell of it."""
    space.queue.configure("t", shards=20, ttr="300ms")
    store, link = space.queue._store, space.queue._link
    shard = store.topics.shards("t")[11]
    worker, id, last = space.worker(), id_in(11, 20), id_in(19, 20)
    worker.handler("other")(recorder(Seen()))
    async with space.serving(worker):
        # The mover has looked everywhere meanwhile, as it does when it begins.
        space.queue.enqueue("t", "last", id=last, delay="500ms")
        await space.becomes(last, "ready")
        with redis_server.client() as client:
            # Calls that enqueue or claim take it that the shard is watched already.
            client.hset(shard.settings, "watch_until", client.time()[0] * 1000 + 5_000)
        space.queue.enqueue("t", "x", id=id)
        assert run(link, store.scripts.claim(shard, "default", "dead", 1, 300)).rows
        await eventually(lambda: space.stats().reclaimed == 1, "it is taken over")
    assert space.queue.cancel("t", id)
    assert space.queue.cancel("t", last)


async def test_wakeups_are_received_again_once_one_was_missed(
    space: Space, redis_server: Server, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read that waits for ids which Redis no longer gives out is given up, not only what it knows."""
    monkeypatch.setattr("streamdq.mover.node_mover._QUIET_S", 0.2)
    worker = space.recording(seen)
    shard = space.queue._store.session.keys.shard("t", 0)
    missed, mistrust = asyncio.Event(), Listener.mistrust
    received, hear = asyncio.Event(), Mover._on_wakeup

    def noted(self: Listener, stream: str) -> None:
        mistrust(self, stream)
        missed.set()

    async def listening(self: Mover, woken: Collection[str]) -> None:
        await hear(self, woken)
        if shard.wake in woken:
            received.set()

    monkeypatch.setattr(Listener, "mistrust", noted)
    monkeypatch.setattr(Mover, "_on_wakeup", listening)
    async with space.serving(worker):
        with redis_server.client() as client:
            seconds, _ = client.time()
            client.xadd(shard.wake, {"due": "0"}, id=f"{(seconds + 3600) * 1000}-0")
            space.queue.enqueue("t", "before")
            await seen.count(1)
            await received.wait()
            assert worker._run is not None
            mover = worker._run._mover

            def is_over() -> bool:
                ((last, _),) = client.xrange(shard.wake)  # the claim sends one as well, after the job
                return mover._listener._seen.get(shard.wake) == last and idle_s(mover) > 60

            await eventually(is_over, "the looks that these wakeups led to are over")
            client.delete(shard.wake)
        space.queue.enqueue("t", "found", delay="50ms")
        await seen.count(2)
        async with asyncio.timeout(HANG_S):
            await missed.wait()
        monkeypatch.setattr(NodeMover, "_look_for_missed", _nothing)
        space.queue.enqueue("t", "received", id="a", delay="50ms")
        await seen.count(3)
        await space.becomes("a", "gone")


async def test_a_wakeup_that_is_deleted_between_two_reads_is_made_up_for(
    space: Space, redis_server: Server, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only moment at which one can be lost: nobody waits for it, and another client deletes its entry."""
    monkeypatch.setattr("streamdq.mover.node_mover._QUIET_S", 600.0)
    worker = space.recording(seen)
    shard = space.queue._store.session.keys.shard("t", 0)
    on_wakeup, look_for_missed = Mover._on_wakeup, NodeMover._look_for_missed
    deleted = asyncio.Event()

    async def later(self: NodeMover, *arguments: Any) -> None:
        await deleted.wait()
        await look_for_missed(self, *arguments)

    monkeypatch.setattr(NodeMover, "_look_for_missed", later)

    async def disturbed(self: Mover, woken: Collection[str]) -> None:
        await on_wakeup(self, woken)
        if shard.wake in woken and not deleted.is_set():
            await eventually(lambda: idle_s(self) > 60, "the look that this wakeup led to is over")
            space.queue.enqueue("t", "x", id="a", delay="50ms")
            with redis_server.client() as client:
                assert client.delete(shard.wake) == 1
            deleted.set()

    monkeypatch.setattr(Mover, "_on_wakeup", disturbed)
    async with space.serving(worker):
        space.queue.enqueue("t", "later", id="b", delay="1h")
        await deleted.wait()
        await seen.count(1)
        await space.becomes("a", "gone")
    assert space.queue.cancel("t", "b")


async def test_a_topic_whose_wakeup_was_lost_is_found(
    space: Space, redis_server: Server, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the worker's own consumer has read of the registry is looked through now and then."""
    monkeypatch.setattr("streamdq.mover.mover._SHARDS_S", 0.2)
    worker = space.recording(seen)
    async with space.serving(worker):
        with redis_server.client() as client:
            # Deleted in the same moment: the read that waits for it sees nothing.
            pipe = client.pipeline(transaction=True)
            space.queue.configure("u", create=True)
            pipe.delete("{test}:wake").execute()
        space.queue.enqueue("u", "x", id="a", delay="50ms")
        claim = await asyncio.to_thread(space.queue.take, "u", timeout=HANG_S)
        assert claim
        claim.finish()
        seen.add("taken")
        await seen.count(1)


async def test_many_streams_are_listened_to_in_parts(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that one of a blocked read's streams changes, Redis goes through all of them."""
    monkeypatch.setattr("streamdq.mover.wakeups._MOST", 3)
    monkeypatch.setattr(NodeMover, "_look_for_missed", _nothing)
    for number in range(7):
        space.queue.configure(f"t{number}", create=True)
    with redis_server.client() as client:

        async def listens(reads: int) -> None:
            await eventually(lambda: client.info("clients")["blocked_clients"] == reads, f"{reads} parts")

        async with mover_at(redis_server.url, "m"):
            await listens(3)  # with the namespace's own two: nine streams
            for number in range(7, 9):
                space.queue.configure(f"t{number}", create=True)
            await listens(4)
            for number in range(4):
                space.queue.delete_topic(f"t{number}")
            await listens(3)
            for number in range(4, 9):
                space.queue.enqueue(f"t{number}", "x", delay="20ms")
            await eventually(lambda: space.queue.stats().ready == 5, "all wakeups were heard")
    for number in range(4, 9):
        space.queue.delete_topic(f"t{number}", force=True)


async def test_a_worker_with_many_topics_reads_them_in_parts(
    space: Space, redis_server: Server, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.worker.quiet_shards.TOGETHER", 3)
    worker = space.worker()
    for number in range(8):
        worker.handler(f"t{number}")(recorder(seen))
    with redis_server.client() as client:
        async with space.serving(worker):
            await eventually(
                lambda: client.info("clients")["blocked_clients"] == 3 + 2, "three reads, and two for wakeups"
            )
            for number in range(8):
                space.queue.enqueue(f"t{number}", number)
            assert sorted(await seen.count(8)) == list(range(8))
            await eventually(lambda: space.queue.stats().ready == 0, "all are claimed")
            await eventually(lambda: client.info("clients")["blocked_clients"] > 2, "it reads on")


@pytest.mark.parametrize("kind", [RuntimeError, asyncio.CancelledError])
async def test_a_listener_that_failed_hears_again(space: Space, kind: type[BaseException]) -> None:
    """A CancelledError comes from what somebody else has cancelled."""
    await _fails_and_hears(space, kind)


@pytest.mark.parametrize("kind", [RuntimeError, asyncio.CancelledError])
async def test_a_listener_that_failed_on_cluster_hears_again(spread: Space, kind: type[BaseException]) -> None:
    await _fails_and_hears(spread, kind)


async def _fails_and_hears(space: Space, kind: type[BaseException]) -> None:
    link, session = open_session(space.url, NAMESPACE, space.settings, None, AsyncLink)
    received, fails = Seen(), [True]

    async def hear(woken: Collection[str]) -> None:
        if woken and fails:
            fails.clear()
            raise kind
        for name in woken:
            received.add(name)

    listener = Listener(link, session, lambda: [session.keys.wake], hear, lambda: None)
    listening = asyncio.create_task(listener.run())
    try:
        await asyncio.to_thread(space.queue.configure, "t", create=True)
        assert {*await received.count(1)} == {session.keys.wake}
    finally:
        await cancel_and_wait([listening])
        await link.close()
