"""Who is at work when the mover that was is killed, and what standing by costs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import redis

from streamdq import NewJob
from streamdq.config import Settings
from streamdq.errors import ServerUnavailable
from streamdq.link.connection import AsyncLink
from streamdq.link.session import open_session
from streamdq.mover.lease import Lease, _Hold
from streamdq.mover.mover import Mover
from streamdq.process.loop import cancel_and_wait
from streamdq.store.scripts import Scripts
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.redis.movers import mover_at
from tests.servers import Cluster, Server
from tests.waiting import eventually

LEASE_MS = Settings(url="memory://unused").lease_ms


async def _nothing() -> None: ...


def deputy(client: Any) -> bytes | None:
    name = client.get(f"{{{NAMESPACE}}}:deputy")
    assert name is None or isinstance(name, bytes)
    return name


async def test_a_killed_mover_is_replaced_within_a_second(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a", lease_ms=LEASE_MS))
            async with mover_at(space.url, "b", leads=False, lease_ms=LEASE_MS) as second:
                await eventually(lambda: deputy(client) == b"b listens", "it is the deputy")
                space.queue.enqueue("t", "x", id="a")  # there is something to do
                await eventually(lambda: left_ms(client) <= LEASE_MS, "they have heard of it")
                assert not second.leading
                await killed.aclose()
                started = time.monotonic()
                await eventually(lambda: second.leading, "it is at work")
                assert time.monotonic() - started < 2 * LEASE_MS / 1000  # it takes one, and a busy machine's pauses
                assert deputy(client) is None
    assert space.queue.cancel("t", "a")


async def test_when_the_deputy_is_killed_as_well_the_next_one_is_at_work(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a"))
            await killed.enter_async_context(mover_at(space.url, "b", leads=False))
            await eventually(lambda: deputy(client) == b"b listens", "it is the deputy")
            async with mover_at(space.url, "c", leads=False) as third:
                await killed.aclose()
                await eventually(lambda: third.leading, "it is at work", 4 * 0.5 + 0.5 + 1)


async def test_after_all_were_killed_who_starts_does_not_wait_for_the_deputy(
    space: Space, redis_server: Server
) -> None:
    """Both leases are those of the dead."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        client.set(f"{{{NAMESPACE}}}:mover", "dead", px=LEASE_MS)
        client.set(f"{{{NAMESPACE}}}:deputy", "dead", px=600_000)
        async with mover_at(space.url, "a"):
            assert deputy(client) == b"dead"


async def test_who_works_without_the_lease_goes_on_when_its_waits_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine. To begin anew takes two calls to the node that does not answer; nothing moves meanwhile."""
    asked = asyncio.Event()

    async def renew(*_: object) -> bool:
        asked.set()
        raise ServerUnavailable("lost")

    monkeypatch.setattr("streamdq.mover.lease._Hold.renew", renew)
    settings = SETTINGS.model_copy(update={"lease_ms": 100})
    link, session = open_session("redis+cluster://127.0.0.1:1", NAMESPACE, settings, None, AsyncLink)
    lease = Lease(link, session, Scripts(session), "m", asyncio.Event(), lambda: 0.0, _nothing)
    keeping = asyncio.create_task(lease.keep())
    for _ in range(2):
        await asyncio.wait_for(asked.wait(), 5)
        asked.clear()
        time.sleep(0.15)  # noqa: ASYNC251  (the loop is to be late)
    await asyncio.wait({keeping}, timeout=0.2)
    assert not keeping.done()
    await cancel_and_wait([keeping])
    await link.close()


def left_ms(client: Any) -> int:
    left: int = client.pttl(f"{{{NAMESPACE}}}:mover")
    return left


async def until_idle(client: Any, lease_ms: int = 500) -> None:
    await eventually(lambda: left_ms(client) > 5 * lease_ms, "the lease of the idle mover is long")


async def test_an_idle_movers_lease_ends_a_second_after_the_next_job_is_due(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with mover_at(space.url, "m", lease_ms=LEASE_MS):
            await until_idle(client, LEASE_MS)
            space.queue.enqueue("t", "x", id="a", delay="4s")
            due = time.monotonic() + 4
            await eventually(lambda: left_ms(client) < LEASE_MS, "it has heard of the job")
            await eventually(lambda: left_ms(client) > LEASE_MS + 500, "it is idle again")
            while (now := time.monotonic()) < due:
                assert left_ms(client) / 1000 <= due - now + LEASE_MS / 1000 + 0.1
                await asyncio.sleep(0.05)
            await space.becomes("a", "ready")
            assert left_ms(client) <= LEASE_MS
    assert space.queue.cancel("t", "a")


async def test_an_idle_mover_that_was_killed_is_replaced_within_a_second_of_a_ring(
    space: Space, redis_server: Server
) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a", lease_ms=LEASE_MS))
            async with mover_at(space.url, "b", leads=False, lease_ms=LEASE_MS) as second:
                await eventually(lambda: deputy(client) == b"b listens", "it is the deputy")
                await until_idle(client, LEASE_MS)
                await killed.aclose()
                assert left_ms(client) > 3 * LEASE_MS
                space.queue.enqueue("t", "x", id="a", delay="1ms")
                started = time.monotonic()
                await space.becomes("a", "ready")
                assert time.monotonic() - started < 2 * LEASE_MS / 1000  # it takes one, and a busy machine's pauses
                assert second.leading
    assert space.queue.cancel("t", "a")


async def test_who_starts_after_an_idle_mover_was_killed_is_at_work_within_a_second(
    space: Space, redis_server: Server
) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with mover_at(space.url, "a", lease_ms=LEASE_MS):
            await until_idle(client, LEASE_MS)
        assert left_ms(client) > 3 * LEASE_MS
        started = time.monotonic()
        async with mover_at(space.url, "b", lease_ms=LEASE_MS):
            assert time.monotonic() - started < 2 * LEASE_MS / 1000


async def test_an_idle_mover_answers_whoever_asks(space: Space, redis_server: Server) -> None:
    """Those who start ask, and so does the deputy after each ring. It stays at work."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with mover_at(space.url, "a") as first, AsyncExitStack() as others:
            await until_idle(client)
            for name in "bcde":
                await others.enter_async_context(mover_at(space.url, name, leads=False))
            for number in range(5):
                await until_idle(client)
                space.queue.enqueue("t", "x", id=str(number), delay=f"{60 - number}m")
                await eventually(lambda: left_ms(client) <= 500, "it is asked")
            await until_idle(client)
            assert first.leading
            assert client.get(f"{{{NAMESPACE}}}:mover") == b"a"
    for number in range(5):
        assert space.queue.cancel("t", str(number))


async def test_beside_a_deputy_that_hears_no_rings_the_lease_stays_short(space: Space, redis_server: Server) -> None:
    """One of the version before."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        client.set(f"{{{NAMESPACE}}}:deputy", "old", px=60_000)
        async with mover_at(space.url, "m"):
            for _ in range(40):
                assert left_ms(client) <= 500
                await asyncio.sleep(0.05)
            client.delete(f"{{{NAMESPACE}}}:deputy")
            await until_idle(client)


async def test_the_lease_stays_short_while_something_runs(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with mover_at(space.url, "m"):
            await until_idle(client)
            space.queue.enqueue("t", "x", id="a")
            claim = await asyncio.to_thread(space.queue.take, "t", timeout=5)
            assert claim
            await eventually(lambda: left_ms(client) <= 500, "the mover has heard of it")
            for _ in range(40):
                assert left_ms(client) <= 500
                await asyncio.sleep(0.05)
            claim.finish()
            await space.becomes("a", "gone")


async def test_a_dead_movers_lease_that_the_clock_made_longer_is_cut(space: Space, redis_server: Server) -> None:
    """When Redis's clock is set back by an hour, a lease lasts an hour longer."""
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a"))
            async with mover_at(space.url, "b", leads=False) as second:
                await eventually(lambda: deputy(client) == b"b listens", "it is the deputy")
                await killed.aclose()
                client.pexpire(f"{{{NAMESPACE}}}:mover", 3_600_000)
                await eventually(lambda: second.leading, "it is at work", 8 * 0.5 + 2)


async def test_who_comes_late_does_not_prolong_the_lease_of_another(space: Space, redis_server: Server) -> None:
    """A process that was stopped had a long lease; whoever has it now wants a short one."""
    settings = SETTINGS.model_copy(update={"lease_ms": 500})
    link, session = open_session(space.url, NAMESPACE, settings, None, AsyncLink)
    stopped, other = (
        _Hold(link, session, Scripts(session), session.keys.mover, name, 500, 4_000) for name in ("stopped", "other")
    )
    assert (await stopped.take())[0]
    assert await stopped.renew(600)
    await asyncio.sleep(0.7)
    assert (await other.take())[0]
    assert await stopped.renew(4_000) is False
    with redis_server.client() as client:
        assert left_ms(client) <= 500
    await link.close()


async def test_a_deputy_hears_a_ring_now_and_then_at_most(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    async with mover_at(space.url, "a"), mover_at(space.url, "b", leads=False):
        with redis_server.client() as client:
            await eventually(lambda: deputy(client) == b"b listens", "it is the deputy")
            before = client.info("commandstats")
            for number in range(200):
                space.queue.enqueue("t", "x", id=str(number), delay=f"{600 - number}s")
                await asyncio.sleep(0.01)
            after = client.info("commandstats")
    calls = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    assert calls["cmdstat_xread"] < 200 + 30, "the mover hears each of them"
    assert calls["cmdstat_pttl"] + calls["cmdstat_getex"] < 40
    for number in range(200):
        assert space.queue.cancel("t", str(number))


async def test_however_many_stand_by_one_watches_the_lease(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    async with AsyncExitStack() as movers:
        every: list[Mover] = [
            await movers.enter_async_context(mover_at(space.url, f"m{n}", leads=n == 0, lease_ms=LEASE_MS))
            for n in range(8)
        ]
        with redis_server.client() as client:
            await eventually(lambda: deputy(client), "there is a deputy")
            await asyncio.sleep(5)  # all have come to rest
            before = client.info("commandstats")
            await asyncio.sleep(4)  # what is measured
            after = client.info("commandstats")
        asked = sum(after[name]["calls"] - before[name]["calls"] for name in ("cmdstat_pttl", "cmdstat_getex"))
        assert asked / 4 < 2
        # Mostly the first, but for as long as its lease lasts a busy machine may keep it from saying so.
        await eventually(lambda: sum(mover.leading for mover in every) == 1, "one is at work")


async def test_who_gives_up_too_late_leaves_its_successors_lease_alone(space: Space, redis_server: Server) -> None:
    """It was stopped for a while, and its lease has run out: between a look at who holds it and its removal, another
    one may have taken it.
    """
    link, session = open_session(space.url, NAMESPACE, SETTINGS, None, AsyncLink)
    holds = {
        name: _Hold(link, session, Scripts(session), f"{{{NAMESPACE}}}:mover", name, LEASE_MS) for name in ("a", "b")
    }
    with redis_server.client() as client:
        await holds["a"].take()
        send = link.send

        async def taken_behind(*arguments: Any) -> list[Any]:
            """Whatever it asks first, the successor has the lease before its next call."""
            link.send = send
            replies = await send(*arguments)
            client.set(f"{{{NAMESPACE}}}:mover", "b", px=LEASE_MS)
            return replies

        link.send = taken_behind
        await holds["a"].give_up()
        assert client.get(f"{{{NAMESPACE}}}:mover") == b"b"
    await holds["b"].give_up()
    await link.close()


async def test_who_moves_up_to_the_first_place_keeps_it_while_it_gives_up_its_own(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease that it gives up is renewed no more meanwhile: its loss would end the mover."""
    space.queue.configure("t", create=True)
    lost: list[bool] = []
    give_up = _Hold.give_up

    async def noted(self: _Hold) -> None:
        lost.append(lease._own is self)
        await give_up(self)

    async with mover_at(space.url, "a", movers=2) as first, AsyncExitStack() as killed:
        second = await killed.enter_async_context(mover_at(space.url, "b", movers=2))
        lease = second._lease
        await eventually(lambda: lease.places.held == {1, 2}, "it knows of the first")
        monkeypatch.setattr(_Hold, "give_up", noted)
        first._stopping.set()
        await eventually(lambda: lease.is_first and len(lost) >= 2, "it is the first")
        monkeypatch.setattr(_Hold, "give_up", give_up)
        assert lost[-1] is False
        assert lease.places.mine == 1
        assert second.leading


async def test_when_the_three_first_are_killed_the_fourth_is_at_work(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    with redis_server.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a"))
            for name in ("b", "c"):
                await killed.enter_async_context(mover_at(space.url, name, leads=False))
                await eventually(partial(is_standing, client, name), "it stands in line")
            async with mover_at(space.url, "d", leads=False) as fourth:
                await eventually(partial(is_standing, client, "d"), "it is the fourth in line")
                await killed.aclose()
                await eventually(lambda: fourth.leading, "it is at work", 8 * 0.5 + 2 * 0.5 + 1)


async def test_those_in_line_hear_who_leaves(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks by itself any more: only in ten minutes."""
    space.queue.configure("t", create=True)
    look, looked = _Hold.left_ms, set[str]()

    async def noted(self: _Hold) -> int:
        left = await look(self)
        looked.add(self._name.removesuffix(" listens"))
        return left

    async with AsyncExitStack() as stack:
        a, b, c, d = [mover_at(space.url, name, leads=name == "a") for name in "abcd"]
        first = await stack.enter_async_context(a)
        with redis_server.client() as client:
            line: list[Mover] = []
            for name, one in (("b", b), ("c", c), ("d", d)):
                line.append(await stack.enter_async_context(one))
                await eventually(partial(is_standing, client, name), "it stands in line")
            monkeypatch.setattr("streamdq.mover.lease._STANDBY_MARGIN_S", 600)
            monkeypatch.setattr(_Hold, "left_ms", noted)
            await eventually(lambda: looked >= {"b", "c", "d"}, "they have looked once more")
            deputy, reserve, fourth = line
            deputy._stopping.set()
            key = f"{{{NAMESPACE}}}:reserve"
            await eventually(lambda: client.get(key) == b"d", "those behind it have moved up")
            assert is_standing(client, "c")
            first._stopping.set()
            await eventually(lambda: reserve.leading, "it is at work")
            reserve._stopping.set()
            await eventually(lambda: fourth.leading, "it is at work")


async def test_who_waits_to_join_hears_who_leaves(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.configure("t", create=True)
    take, tried = _Hold.take, set[str]()

    async def noted(self: _Hold) -> tuple[bool, int]:
        found = await take(self)
        tried.add(self._name)
        return found

    async with mover_at(space.url, "a", lease_ms=60_000) as first:
        monkeypatch.setattr(_Hold, "take", noted)
        async with mover_at(space.url, "b", leads=False, lease_ms=60_000) as second:
            await eventually(lambda: "b" in tried, "it waits until the lease runs out")
            first._stopping.set()
            await eventually(lambda: second.leading, "it is at work")


def is_standing(client: redis.Redis, name: str) -> bool:
    """Whether it is in line."""
    names = (client.get(f"{{{NAMESPACE}}}:{place}") for place in ("deputy", "reserve", "fourth"))
    return any(isinstance(one, bytes) and one.removesuffix(b" listens") == name.encode() for one in names)


async def test_on_a_cluster_an_idle_mover_that_was_killed_is_replaced_within_a_second_of_a_ring(
    spread: Space, redis_cluster: Cluster
) -> None:
    spread.queue.configure("t", shards=12)
    with redis_cluster.client() as client:
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(spread.url, "a", lease_ms=LEASE_MS))
            async with mover_at(spread.url, "b", leads=False, lease_ms=LEASE_MS) as second:
                await eventually(lambda: deputy(client) == b"b listens", "it is the deputy")
                await until_idle(client, LEASE_MS)
                await killed.aclose()
                assert left_ms(client) > 3 * LEASE_MS
                spread.queue.enqueue("t", "x", id="a", delay="1ms")
                started = time.monotonic()
                await spread.becomes("a", "ready")
                assert time.monotonic() - started < 1.5  # a busy neighbour included
                assert second.leading
    assert spread.queue.cancel("t", "a")


async def test_of_several_movers_all_but_one_rest_while_there_is_nothing_to_do(
    spread: Space, redis_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And come back when there is."""
    for name, seconds in (("_REST_AFTER_S", 0.5), ("_REST_S", 1.0), ("_BUSY_S", 1.0)):
        monkeypatch.setattr(f"streamdq.mover.lease.{name}", seconds)
    spread.queue.configure("t", shards=64)
    with redis_cluster.client() as client:
        async with mover_at(spread.url, "a", movers=None) as first, mover_at(spread.url, "b", movers=None) as second:
            await eventually(lambda: not second.leading, "it rests")
            await until_idle(client)
            assert first.leading
            assert len(first._node_of) == 64
            over = asyncio.Event()

            async def trickle() -> None:
                while not over.is_set():
                    await asyncio.to_thread(spread.queue.enqueue_many, "t", [NewJob(n, delay="50ms") for n in range(9)])
                    await asyncio.sleep(0.05)

            load = asyncio.create_task(trickle())
            await eventually(lambda: second.leading and 0 < len(first._node_of) < 64, "it comes to the other's aid", 20)
            over.set()
            await load
            assert first.leading
    spread.queue.delete_topic("t", force=True)
