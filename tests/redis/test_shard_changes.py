"""Topics whose number of shards changes: cut off after every call, and raced by producers who do not know yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamdq import Bury, NewJob
from streamdq.operations import jobs
from tests.redis.harness import Seen, Space, recorder
from tests.redis.topology import all_run, configuring, each_cut, steps
from tests.servers import Cluster
from tests.waiting import HANG_S


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (3, 1), (1, 3)])
async def test_a_producer_who_knows_the_old_shards_meets_a_change_that_was_cut_anywhere(
    space: Space, before: int, after: int
) -> None:
    cuts = 0

    def change() -> Iterator[None]:
        space.queue.configure("t", shards=before)
        return configuring(space.queue, shards=after)

    for cuts in each_cut(change):
        stale = space.another_queue()
        stale._store.topics.known["t"] = space.queue._store.topics.known["t"].model_copy(
            update={"shards": before, "resharding": None}
        )
        ids = {f"{cuts}-{n}" for n in range(12)}
        stale.enqueue_many("t", [NewJob(id, id=id) for id in ids])
        assert all(space.queue.get("t", id) is not None for id in ids)
        await all_run(space, ids)
    assert cuts > 4


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
async def test_many_jobs_that_are_put_in_as_the_shards_change(space: Space, before: int, after: int) -> None:
    """The change comes between any two calls of enqueue_many."""
    for moment in range(40):
        space.queue.configure("t", shards=before)
        stale = space.another_queue()
        stale.stats("t")
        ids = {f"{moment}-{n}" for n in range(12)}
        putting = steps(stale, jobs.enqueue_many(stale._store, "t", [NewJob(id, id=id) for id in ids], batch_size=6))
        call = -1
        for call, _ in enumerate(putting):
            if call == moment:
                space.queue.configure("t", shards=after)
        assert all(space.queue.get("t", id) is not None for id in ids)
        await all_run(space, ids)
        space.queue.delete_topic("t", force=True)  # its worker has just left
        if call < moment:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
async def test_a_job_comes_into_a_change(space: Space, before: int, after: int) -> None:
    """The other way round: a job is put in between any two calls of the change. Then the topic is no longer empty."""
    changed = set()
    for moment in range(60):
        space.queue.configure("t", shards=before)
        stale = space.another_queue()
        stale.stats("t")
        changing, calls = configuring(space.queue, shards=after), 0
        for calls, _ in enumerate(changing):
            if calls == moment:
                stale.enqueue("t", "x", id="x")
        settings = space.queue.configure("t")
        assert settings.shards == after
        changed.add(bool(settings.former))
        ran = moment <= calls
        await all_run(space, {"x"} if ran else set())
        space.queue.delete_topic("t", force=True)  # its worker has just left
        if not ran:
            break
    assert changed == {True, False}


async def test_who_knows_the_old_shards_still_finds_cancels_and_moves(space: Space) -> None:
    stale = space.another_queue()
    space.queue.configure("t", shards=1)
    stale.stats("t")
    space.queue.configure("t", shards=4)
    ids = [f"j{n}" for n in range(40)]
    space.queue.enqueue_many("t", [NewJob(id, id=id, delay="1h") for id in ids])
    for id in ids[:20]:
        assert space.another_queue().get("t", id) is not None
    # Each time as one who has not heard yet.
    old = stale._store.topics.known["t"]
    for n, id in enumerate(ids):
        stale._store.topics.known["t"] = old
        if n % 3 == 0:
            assert stale.cancel("t", id)
        elif n % 3 == 1:
            assert stale.reschedule("t", id, delay=0)
        else:
            job = stale.get("t", id)
            assert job is not None
            assert job.id == id
    for n, id in enumerate(ids):
        if n % 3 == 2:
            space.queue.reschedule("t", id, delay=0)
    await all_run(space, {id for n, id in enumerate(ids) if n % 3})


async def test_take_finds_what_is_in_shards_that_it_did_not_know(space: Space) -> None:
    stale = space.another_queue()
    space.queue.configure("t", shards=1)
    assert not stale.take("t", timeout=0)
    space.queue.configure("t", shards=4)
    space.queue.enqueue_many("t", [NewJob(n) for n in range(8)])
    for _ in range(8):
        claim = stale.take("t", timeout=HANG_S)
        assert claim
        claim.finish()


async def test_dead_letters_in_shards_that_one_did_not_know(space: Space) -> None:
    stale = space.another_queue()
    space.queue.configure("t", shards=1)
    stale.stats("t")
    space.queue.configure("t", shards=4)
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: int) -> None:
        raise Bury("x")

    space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}") for n in range(12)])
    await space.burst(worker)
    old = stale._store.topics.known["t"].model_copy(update={"shards": 1})
    for ask, count in ((lambda: len(stale.dead("t")), 12), (lambda: stale.kick("t"), 12)):
        stale._store.topics.known["t"] = old
        assert ask() == count
    await space.burst(worker)
    stale._store.topics.known["t"] = old
    assert stale.kick("t", "j3") + stale.purge("t", id="j4") == 2
    stale._store.topics.known["t"] = old
    assert stale.purge("t", all=True) == 10
    await space.burst(worker)
    assert space.queue.purge("t", all=True) == 1


async def test_shards_that_are_not_used_any_more_keep_their_figures_and_history(space: Space, seen: Seen) -> None:
    space.queue.configure("t", shards=4)
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    space.queue.enqueue_many("t", [NewJob(n) for n in range(20)])
    await space.burst(worker)
    space.queue.configure("t", shards=1)
    stats = space.queue.stats("t").topics["t"]
    assert (stats.enqueued, stats.groups["default"].done, stats.shards) == (20, 20, 1)
    assert len(space.queue.history("t").rows) == 20


@pytest.mark.thorough
async def test_shards_change_on_a_cluster(spread: Space, redis_cluster: Cluster) -> None:
    assert redis_cluster.nodes
    for before, after in ((4, 2), (2, 4)):
        for cuts in each_cut(lambda before=before, after=after: _reset(spread, before, after)):  # type: ignore[misc]
            ids = {f"{before}-{cuts}-{n}" for n in range(6)}
            spread.another_queue().enqueue_many("t", [NewJob(id, id=id) for id in ids])
            await all_run(spread, ids)


def _reset(space: Space, before: int, after: int) -> Iterator[None]:
    space.queue.configure("t", shards=before)
    return configuring(space.queue, shards=after)
