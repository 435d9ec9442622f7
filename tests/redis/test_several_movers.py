"""Several movers at work: which part each has, and who has it when one comes, leaves or is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.config import Settings
from streamdq.keys import NamespaceKeys, ShardKeys, shard_of
from streamdq.mover.mover import Mover
from streamdq.mover.places import place_of
from streamdq.store.members import member_in
from streamdq.store.replies import Moved
from streamdq.worker.direct import DirectClaims
from tests.redis.harness import NAMESPACE, Seen, Space, recorder
from tests.redis.movers import mover_at
from tests.servers import Server
from tests.waiting import eventually

LEASE_MS = Settings(url="memory://unused").lease_ms
SHARDS = 12
KEYS = NamespaceKeys(NAMESPACE)


def part(mover: Mover) -> set[int]:
    return {shard.shard for shard in mover._node_of} if mover.leading else set()


def of_place(place: int, *held: int, topic: str = "t", shards: int = SHARDS) -> set[int]:
    return {n for n in range(shards) if place_of(f"{topic}:{n}", held) == place}


def shared(movers: dict[int, Mover]) -> bool:
    """Whether each has its part, and no more."""
    return all(part(mover) == of_place(place, *movers) for place, mover in movers.items())


class Team:
    """Movers that may be at work at once, each of which can be killed."""

    def __init__(self, url: str, stack: AsyncExitStack, most: int, lease_ms: int) -> None:
        self._url, self._stack, self._most, self._lease_ms = url, stack, most, lease_ms
        self._alive: dict[str, AsyncExitStack] = {}

    async def start(self, name: str, leads: bool = True, most: int | None = None) -> Mover:
        self._alive[name] = await self._stack.enter_async_context(AsyncExitStack())
        one = mover_at(self._url, name, leads, self._lease_ms, movers=most or self._most)
        return await self._alive[name].enter_async_context(one)

    async def kill(self, name: str) -> float:
        await self._alive.pop(name).aclose()
        return time.monotonic()


@asynccontextmanager
async def team(url: str, most: int = 3, lease_ms: int = LEASE_MS) -> AsyncIterator[Team]:
    async with AsyncExitStack() as stack:
        yield Team(url, stack, most, lease_ms)


def all_moved(space: Space) -> Callable[[], bool]:
    return lambda: space.queue.stats("t").topics["t"].groups["default"].ready == space.queue.stats("t").topics["t"].jobs


async def test_three_share_the_shards(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        assert set().union(*map(part, at.values())) == set(range(SHARDS))
        with redis_server.client() as client:
            assert [client.get(KEYS.mover_at(place)) for place in (1, 2, 3)] == [b"m1", b"m2", b"m3"]
        space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="300ms") for n in range(120)])
        await eventually(all_moved(space), "all are ready")
        assert shared(at)
    space.queue.delete_topic("t", force=True)


async def test_with_a_long_lease_a_part_is_given_away_as_soon(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS, create=True)
    async with team(space.url, lease_ms=60_000) as movers:
        a, b, c = [await movers.start(name) for name in ("a", "b", "c")]
        await eventually(lambda: shared({1: a, 2: b, 3: c}), "each has its part, and no more")


@pytest.mark.parametrize("killed", [1, 2, 3])
async def test_a_killed_movers_part_is_moved_within_a_second(space: Space, killed: int) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        lost = part(at.pop(killed))
        assert lost
        since = await movers.kill(f"m{killed}")
        await eventually(lambda: lost <= set().union(*map(part, at.values())), "they have its part")
        assert time.monotonic() - since < 1.2  # a busy neighbour included
        if killed == 1:  # whoever saw it first has its place now
            await eventually(lambda: any(mover._lease.is_first for mover in at.values()), "the first place is held")
        space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}") for n in range(60)])
        await eventually(all_moved(space), "all are ready")
    space.queue.delete_topic("t", force=True)


async def test_a_second_one_killed_meanwhile(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        await movers.kill("m1")
        await movers.kill("m2")
        since = time.monotonic()
        await eventually(lambda: part(at[3]) == set(range(SHARDS)), "it has everything")
        assert time.monotonic() - since < 1.2
        await eventually(lambda: at[3]._lease.is_first, "it has the first place")


async def test_who_stands_in_line_takes_the_place_of_one_that_was_killed(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url, most=2, lease_ms=500) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2)}
        third = await movers.start("m3", leads=False)
        with redis_server.client() as client:
            await eventually(lambda: client.get(KEYS.deputy) == b"m3 listens", "it is the deputy")
            await movers.kill("m2")
            at[2] = third
            await eventually(lambda: third.leading and shared(at), "it has the part", 4)
            assert client.get(KEYS.mover_at(2)) == b"m3"
            assert client.get(KEYS.deputy) is None


async def test_who_leaves_is_replaced_at_once(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url, lease_ms=30_000) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        leaves = at.pop(2)
        leaves._stopping.set()
        await eventually(lambda: shared(at), "the others have its part")  # long before its lease would have run out


async def test_beside_one_that_moves_everything(space: Space) -> None:
    """One of the version before, or with another setting: it knows of no others."""
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url) as movers:
        old = await movers.start("old", most=1)
        new = await movers.start("new")
        await eventually(lambda: part(new) == of_place(2, 1, 2), "it has its part")
        assert part(old) == set(range(SHARDS))
        since = await movers.kill("old")
        await eventually(lambda: part(new) == set(range(SHARDS)), "it has everything")
        assert time.monotonic() - since < 8 * LEASE_MS / 1000 + 1


async def test_beside_those_with_a_lower_setting(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url, lease_ms=500) as movers:
        at = {place: await movers.start(f"m{place}", most=most) for place, most in ((1, 2), (2, 3), (3, 3))}
        await eventually(lambda: part(at[3]) == of_place(3, 1, 2, 3), "it has its part")
        await eventually(lambda: shared(at), "the first knows of it as well")
        del at[3]
        await movers.kill("m3")
        await eventually(lambda: shared(at), "they have its part", 0.5 + 1)


async def test_a_topic_with_a_rate_has_one_mover(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS, rate=1000)
    async with team(space.url, lease_ms=500) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        its = place_of("t", {1, 2, 3})
        await eventually(lambda: [place for place in at if part(at[place])] == [its], "it has all shards")
        space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}") for n in range(60)])
        await eventually(all_moved(space), "all are ready")
        space.queue.configure("t", rate=0)
        await eventually(lambda: shared(at), "each has its part")
        await movers.kill(f"m{its}")
    space.queue.delete_topic("t", force=True)


async def test_jobs_of_every_shard_are_moved_while_movers_come_and_go(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=SHARDS)
    due_ms: dict[str, int] = {}
    over = asyncio.Event()

    async def enqueue() -> None:
        for n in range(10_000):
            if over.is_set():
                return
            job = await asyncio.to_thread(space.queue.enqueue, "t", n, id=f"j{n}", delay="20ms")
            due_ms[job.id] = job.due_ms
            await asyncio.sleep(0.004)

    async with team(space.url) as movers:
        for name in ("a", "b", "c"):
            await movers.start(name)
        enqueuing = asyncio.create_task(enqueue())
        for killed, started in (("b", "d"), ("a", "e"), ("c", "f")):
            await movers.kill(killed)
            await asyncio.sleep(1.5)
            await movers.start(started)
            await asyncio.sleep(0.3)
        over.set()
        await enqueuing
        await eventually(all_moved(space), "all are ready")
    with redis_server.client() as client:  # it tells when each was moved
        moved_ms = {
            member_in(fields[b"j"]).id: int(entry.partition(b"-")[0])
            for shard in space.queue._store.topics.shards("t")
            for entry, fields in client.xrange(shard.ready)
        }
    assert max(moved_ms[id] - due_ms[id] for id in due_ms) < 1400
    assert {shard_of(id, SHARDS) for id in due_ms} == set(range(SHARDS))


async def test_each_worker_claims_at_once_from_the_shards_that_it_moves(
    space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: dict[str, set[int]] = {}
    claim_too = DirectClaims._claim_too

    async def noting(self: DirectClaims, shard: ShardKeys, *arguments: Any) -> Moved:
        claimed.setdefault(self._consumer.name, set()).add(shard.shard)
        return await claim_too(self, shard, *arguments)

    monkeypatch.setattr(DirectClaims, "_claim_too", noting)
    space.queue.configure("t", shards=SHARDS)
    workers = [space.worker(movers=3) for _ in range(3)]
    for worker in workers:
        worker.handler("t")(recorder(seen))
    async with space.serving(*workers):
        parts: dict[str, set[int]] = {}

        def apart() -> bool:
            running = [worker._serving for worker in workers if worker._serving is not None]
            parts.update((serving.name, part(serving._mover)) for serving in running)
            return len(parts) == 3 and all(parts.values()) and sum(map(len, parts.values())) == SHARDS

        await eventually(apart, "each has its part")
        claimed.clear()
        for n in range(120):
            await asyncio.to_thread(space.queue.enqueue, "t", n, delay="10ms")
        await seen.count(120)
    assert sorted(seen.all) == list(range(120))
    assert claimed.keys() == parts.keys()
    assert all(claimed[name] <= parts[name] for name in claimed)


async def test_who_may_be_alone_asks_for_no_others(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    async with mover_at(space.url, "a"):
        with redis_server.client() as client:
            before = client.info("commandstats")
            await asyncio.sleep(3)  # several renewals of its lease
            after = client.info("commandstats")
            assert not client.keys(f"{KEYS.mover}:*")
    assert {name for name in after if after[name] != before.get(name)}.isdisjoint({"cmdstat_pttl", "cmdstat_xadd"})


# -- on a Cluster


async def test_on_a_cluster_they_share_the_shards_of_all_nodes(spread: Space) -> None:
    spread.queue.configure("t", shards=SHARDS)
    async with team(spread.url) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        spread.queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="300ms") for n in range(120)])
        await eventually(all_moved(spread), "all are ready")
        lost = part(at.pop(1))
        since = await movers.kill("m1")
        await eventually(lambda: lost <= set().union(*map(part, at.values())), "they have its part")
        assert time.monotonic() - since < 1.2
        new = await movers.start("m4")
        at = {mover._lease.places.mine: mover for mover in (*at.values(), new)}
        assert at.keys() == {1, 2, 3}
        await eventually(lambda: shared(at), "each has its part")
    spread.queue.delete_topic("t", force=True)


async def test_how_many_there_are_by_default(space: Space, spread: Space) -> None:
    """On a Cluster one for each primary, where there are enough shards that they may send so many commands at rest."""
    for url, shards, most in ((space.url, 200, 1), (spread.url, 63, 1), (spread.url, 64, 2), (spread.url, 256, 3)):
        with Queue(url, NAMESPACE) as queue:
            queue.configure("t", shards=shards)
            async with mover_at(url, "m", movers=None) as mover:
                assert mover._most() == most
            queue.delete_topic("t")
