"""A consumer that gave a sign of life and no more loses its claims, on a server and on a Cluster."""

from __future__ import annotations

from streamdq.link.session import run
from streamdq.queue import store_of
from tests.redis.harness import Seen, Space, recorder

JOBS = 12


def claim_all(space: Space, consumer: str) -> int:
    """What a worker does that dies then; returns how many jobs it holds."""
    store, link = store_of(space.queue), space.queue._link
    held = 0
    for shard in store.topics.shards("t"):
        held += len(run(link, store.scripts.claim(shard, "default", consumer, 100, 3_600_000)).rows)
    return held


async def take_over_all(space: Space, seen: Seen) -> None:
    space.queue.configure("t", shards=3, ttr="1h")
    for number in range(JOBS):
        space.queue.enqueue("t", number)
    run(space.queue._link, store_of(space.queue).scripts.sign("dead", 5.0))
    assert claim_all(space, "dead") == JOBS
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await seen.count(JOBS)
    assert sorted(seen.all) == list(range(JOBS))
    assert space.stats().reclaimed == JOBS


async def test_whatever_shards_they_are_in(space: Space, seen: Seen) -> None:
    await take_over_all(space, seen)


async def test_whatever_nodes_they_are_on(spread: Space, seen: Seen) -> None:
    await take_over_all(spread, seen)


async def test_who_never_gave_one_is_left_to_its_ttr(space: Space, seen: Seen) -> None:
    """A program that takes jobs itself, or a worker of an earlier version."""
    space.queue.configure("t", ttr="1h")
    space.queue.enqueue("t", "theirs")
    assert claim_all(space, "stranger") == 1
    space.queue.enqueue("t", "dead")
    run(space.queue._link, store_of(space.queue).scripts.sign("dead", 5.0))
    assert claim_all(space, "dead") == 1
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await seen.count(1)
    assert seen.all == ["dead"]
    assert space.stats().running == 1
