"""Several movers at work: which part each has, and who has it when one comes, leaves or is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from streamdq import NewJob, Queue
from streamdq.config import Settings
from streamdq.keys import NamespaceKeys
from streamdq.mover.mover import Mover
from streamdq.mover.places import place_of
from tests.redis.harness import NAMESPACE, Space
from tests.redis.movers import mover_at
from tests.servers import Server
from tests.waiting import eventually

LEASE_MS = Settings(url="memory://unused").lease_ms
LONG_MS = 3_600_000  # no machine is so slow that it loses this lease
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

    async def kill(self, name: str) -> None:
        await self._alive.pop(name).aclose()


@asynccontextmanager
async def team(url: str, most: int = 3, lease_ms: int = LEASE_MS) -> AsyncIterator[Team]:
    async with AsyncExitStack() as stack:
        yield Team(url, stack, most, lease_ms)


def all_moved(space: Space, count: int) -> Callable[[], bool]:
    """Whether at least so many are ready."""
    return lambda: space.stats().ready >= count


async def test_three_share_the_shards(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url, lease_ms=LONG_MS) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        assert set().union(*map(part, at.values())) == set(range(SHARDS))
        with redis_server.client() as client:
            assert [client.get(KEYS.mover_at(place)) for place in (1, 2, 3)] == [b"m1", b"m2", b"m3"]
        space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="300ms") for n in range(120)])
        await eventually(all_moved(space, 120), "all are ready")
        assert shared(at)
    space.queue.delete_topic("t", force=True)


@pytest.mark.parametrize("killed", [1, pytest.param(3, marks=pytest.mark.thorough)])
async def test_a_killed_movers_part_is_moved(space: Space, killed: int) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with team(space.url) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        await eventually(lambda: shared(at), "each has its part")
        lost = part(at.pop(killed))
        assert lost
        await movers.kill(f"m{killed}")
        await eventually(lambda: lost <= set().union(*map(part, at.values())), "they have its part")
        if killed == 1:  # whoever saw it first has its place now
            await eventually(lambda: any(mover._lease.is_first for mover in at.values()), "the first place is held")
        space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}") for n in range(60)])
        await eventually(all_moved(space, 60), "all are ready")
    space.queue.delete_topic("t", force=True)


async def test_a_topic_with_a_rate_has_one_mover(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS, rate=1000)
    async with team(space.url, lease_ms=LONG_MS) as movers:
        at = {place: await movers.start(f"m{place}") for place in (1, 2, 3)}
        its = place_of("t", {1, 2, 3})
        await eventually(lambda: [place for place in at if part(at[place])] == [its], "it has all shards")
        space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}") for n in range(60)])
        await eventually(all_moved(space, 60), "all are ready")
        space.queue.configure("t", rate=0)
        await eventually(lambda: shared(at), "each has its part")
    space.queue.delete_topic("t", force=True)


# -- on a Cluster


async def test_how_many_there_are_by_default(space: Space, spread: Space) -> None:
    """On a Cluster one for each primary, where there are enough shards that they may send so many commands at rest."""
    for url, shards, most in ((space.url, 200, 1), (spread.url, 63, 1), (spread.url, 64, 2), (spread.url, 256, 3)):
        with Queue(url, NAMESPACE) as queue:
            queue.configure("t", shards=shards)
            async with mover_at(url, "m", movers=None) as mover:
                assert mover._most() == most
            queue.delete_topic("t")
