"""Shards and groups that change: cut off after every call, raced by producers who do not know yet, and repeated."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamdq import AsyncQueue, Bury, NewJob, Queue
from streamdq.errors import GroupMissing, StaleClaim, TopicNotEmpty, UnknownGroup, UnknownTopic
from streamdq.link.session import Op, Pause, arun, run
from streamdq.mover.node_mover import NodeMover
from streamdq.operations import jobs, topics
from streamdq.store.commands import one
from tests.redis.harness import Seen, Space, eventually, recorder
from tests.servers import Cluster, Server


def steps(queue: Queue, op: Op[Any]) -> Iterator[None]:
    """Carries an operation out; yields before each of its calls. Left alone, it is a process that was killed there."""
    step = next(op)
    try:
        while True:
            yield
            assert not isinstance(step, Pause)
            step = op.send(queue._link.send(step.commands, step.timeout_s, step.blocking))
    except StopIteration:
        return
    finally:
        op.close()


def configuring(queue: Queue, **changes: Any) -> Iterator[None]:
    return steps(queue, topics.configure(queue._store, "t", **changes))


def each_cut(make: Callable[[], Iterator[None]]) -> Iterator[int]:
    """Carries it out anew each time, one call further; ends after it was carried out whole."""
    for calls in range(1, 200):
        left = make()
        done = sum(1 for _, _ in zip(range(calls), left, strict=False))
        yield calls
        if done < calls:
            return
        left.close()  # type: ignore[attr-defined]
    raise AssertionError("it never ends")


async def all_run(space: Space, ids: set[str], group: str = "default") -> None:
    """A worker runs exactly these jobs, and nothing is left."""
    worker, seen = space.worker(group), Seen()

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)

    await space.burst(worker)
    assert sorted(seen.all) == sorted(ids)
    audit = space.audit()
    assert (audit.left, audit.balanced) == (0, True)


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
                with contextlib.suppress(TopicNotEmpty):
                    space.queue.configure("t", shards=after)
        assert all(space.queue.get("t", id) is not None for id in ids)
        await all_run(space, ids)
        if call < moment:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
async def test_a_change_that_a_job_comes_into_is_taken_back_or_holds(space: Space, before: int, after: int) -> None:
    """The other way round: a job is put in between any two calls of the change."""
    outcomes = set()
    for moment in range(40):
        space.queue.configure("t", shards=before)
        stale = space.another_queue()
        stale.stats("t")
        changing, calls = configuring(space.queue, shards=after), 0
        try:
            for calls, _ in enumerate(changing):
                if calls == moment:
                    stale.enqueue("t", "x", id="x")
            outcomes.add("changed")
        except TopicNotEmpty:
            outcomes.add("refused")
        ran = moment <= calls
        await all_run(space, {"x"} if ran else set())
        if not ran:
            break
    assert outcomes == {"changed", "refused"}


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
    assert stale.take("t", timeout=0) is None
    space.queue.configure("t", shards=4)
    space.queue.enqueue_many("t", [NewJob(n) for n in range(8)])
    for _ in range(8):
        claim = stale.take("t", timeout="2s")
        assert claim is not None
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
    assert stale.purge("t") == 10
    await space.burst(worker)
    assert space.queue.purge("t") == 1


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


# -- groups


@pytest.mark.parametrize("who", ["the caller again", "a mover"])
async def test_a_group_whose_removal_was_cut_anywhere_is_gone_at_last(space: Space, who: str) -> None:
    def remove() -> Iterator[None]:
        space.queue.configure("t", shards=2, groups=["a", "b"])
        worker, ids = space.queue, [f"j{n}" for n in range(30)]
        worker.enqueue_many("t", [NewJob(id, id=id) for id in ids])
        for n in range(15):  # some done, some retried, some dead, some running
            claim = space.queue.take("t", "b", timeout=0)
            assert claim is not None
            (claim.finish, lambda claim=claim: claim.fail("x"), lambda claim=claim: claim.bury("x"), int)[n % 4]()
        return configuring(space.queue, groups=["a"])

    for cuts in each_cut(remove):
        if who == "a mover":
            other = space.another_queue()
            run(other._link, other._store.topics.end_changes())
        else:
            space.queue.configure("t", groups=["a"])
        settings = space.queue.configure("t")
        if "b" in settings.groups:  # killed before it had begun: nothing to end
            assert who == "a mover"
            assert cuts <= 2
            space.queue.configure("t", groups=["a"])
        shards = space.queue._store.topics.shards("t")
        for shard in shards:
            fields = run(space.queue._link, one(space.queue._store.session, shard.progress, "HKEYS", shard.progress))
            assert [field for field in fields if field.startswith(b"b\x1f")] == []
        # The same ids, for a group of the same name: nothing of the old one swallows them.
        await all_run(space, {f"j{n}" for n in range(30)}, "a")
        space.queue.configure("t", groups=["a", "b"])
        space.queue.enqueue_many("t", [NewJob(f"j{n}", id=f"j{n}") for n in range(30)])
        a, b = Seen(), Seen()
        workers = [space.worker("a"), space.worker("b")]
        for worker, seen in zip(workers, (a, b), strict=True):
            worker.handler("t")(recorder(seen))
        await space.burst(*workers)
        assert (len(a), len(b)) == (30, 30)
        assert space.audit().left == 0


async def test_a_group_that_is_removed_while_it_works_takes_nothing_from_the_others(space: Space) -> None:
    """Claims of the removed group end as another group's jobs are open."""
    space.queue.configure("t", groups=["a", "b"])
    space.queue.enqueue_many("t", [NewJob(f"j{n}", id=f"j{n}") for n in range(40)])
    claims = [space.queue.take("t", "b", timeout=0) for _ in range(20)]
    removing = configuring(space.queue, groups=["a"])
    while True:
        for _ in range(4):
            claim = claims.pop() if claims else None
            if claim is not None:
                try:
                    claim.finish()
                except StaleClaim:
                    continue
        if next(removing, "done") == "done":
            break
    for claim in filter(None, claims):
        with pytest.raises(StaleClaim):
            claim.finish()
    stats = space.queue.stats("t").topics["t"]
    assert list(stats.groups) == ["a"]
    await all_run(space, {f"j{n}" for n in range(40)}, "a")
    counts = run(
        space.queue._link,
        one(space.queue._store.session, "x", "HKEYS", space.queue._store.topics.shards("t")[0].counts),
    )
    assert [name for name in counts if name.endswith(b":b")] == []


async def test_a_claim_of_a_group_that_was_removed_and_made_again_is_refused(space: Space) -> None:
    space.queue.configure("t", groups=["a", "b"])
    space.queue.enqueue("t", "x", id="x")
    old = space.queue.take("t", "b", timeout=0)
    space.queue.configure("t", groups=["a"])
    space.queue.configure("t", groups=["a", "b"])
    new = space.queue.take("t", "b", timeout=0)
    assert old is not None
    assert new is not None
    for end in (old.finish, lambda: old.bury("x"), lambda: old.fail("x"), old.touch):
        with pytest.raises(StaleClaim):
            end()
        old._held.ended = False
    new.finish()
    await all_run(space, {"x"}, "a")


def test_an_audit_by_one_who_does_not_know_a_new_group(space: Space) -> None:
    space.queue.configure("t", groups=["a"])
    space.queue.stats("t")
    other = space.another_queue()
    other.configure("t", groups=["a", "b"])
    other.enqueue("t", "x", id="x")
    claim = other.take("t", "b", timeout=0)
    assert claim is not None
    claim.fail("x", delay="1h")
    audit = space.queue.audit("t")
    assert audit.balanced
    assert {balance.group for balance in audit.balances} == {"a", "b"}
    assert space.queue.cancel("t", "x")


def test_a_group_that_shards_have_and_the_registry_lost_comes_back(space: Space) -> None:
    """The registry was lost, and was made again by one who did not know of the group: jobs wait for it."""
    space.queue.configure("t", groups=["a"])
    stale = space.another_queue()
    stale.stats("t")
    space.queue.configure("t", groups=["a", "b"])
    session = space.queue._store.session
    run(space.queue._link, one(session, session.keys.topics, "DEL", session.keys.topics))
    assert stale.configure("t", ttr="5s").group_names == ("a", "b")


@pytest.mark.parametrize("shards", [1, 4])
async def test_a_rate_whose_removal_was_cut_off_holds_no_job_up(
    space: Space, redis_server: Server, shards: int
) -> None:
    """Once the registry has no rate any more, though some of the shards do."""
    space.queue.configure("t", rate=0.01, shards=shards)
    topics_key = space.queue._store.session.keys.topics
    with redis_server.client() as client:
        cuts = 0
        for _ in each_cut(lambda: configuring(space.queue, rate=0)):
            if not json.loads(client.hget(topics_key, "t")).get("rate"):
                cuts += 1
                before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
                space.another_queue().enqueue_many("t", [NewJob(f"j{n}") for n in range(20)])
                await all_run(space, {f"j{n}" for n in range(20)})
                assert client.info("commandstats")["cmdstat_evalsha"]["calls"] - before < 200, "nobody asks without end"
            space.queue.configure("t", rate=0.01)
    assert cuts > shards


async def test_a_group_that_sorts_first_leaves_an_idle_topic_quiet(
    space: Space, redis_server: Server, seen: Seen
) -> None:
    space.queue.configure("t", shards=4, groups=["m"])
    workers = [space.worker("m"), space.worker("a")]
    for worker in workers:
        worker.handler("t")(recorder(seen))
    with redis_server.client() as client:

        def scripts() -> int:
            return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

        async with space.serving(*workers):
            space.queue.enqueue("t", "x")
            await seen.count(2)
            before, began = scripts(), time.monotonic()
            await asyncio.sleep(1)
            rate = (scripts() - before) / (time.monotonic() - began)
    assert rate < 60, "some looks at pending claims; a loop would call thousands"


async def test_takes_at_the_same_time_of_a_group_that_is_not_there_yet(space: Space) -> None:
    """They share one cache of the registry."""
    space.queue.configure("t", groups=["a"])
    async with AsyncQueue(space.url, "test", settings=space.settings) as queue:
        await queue.stats("t")

        async def take() -> str:
            try:
                return "none" if await queue.take("t", "b", timeout=0) is None else "job"
            except UnknownGroup:
                return "unknown"

        assert await asyncio.gather(*(take() for _ in range(40))) == ["unknown"] * 40
        space.queue.configure("t", groups=["a", "b"])
        assert await asyncio.gather(*(take() for _ in range(40))) == ["none"] * 40


# -- deletion


@pytest.mark.parametrize("force", [False, True])
async def test_a_deletion_that_was_cut_anywhere_is_ended_by_a_mover(
    space: Space, redis_server: Server, force: bool
) -> None:
    def delete() -> Iterator[None]:
        space.queue.configure("t", shards=2, groups=["a", "b"])
        if force:
            space.queue.enqueue_many("t", [NewJob(n, delay=n % 2) for n in range(10)])
        return steps(space.queue, topics.delete_topic(space.queue._store, "t", force=force))

    for cuts in each_cut(delete):
        other = space.another_queue()
        run(other._link, other._store.topics.end_changes())
        if "t" in other.stats().topics:
            assert cuts <= 4, "it had not begun"
            other.delete_topic("t", force=True)
        with redis_server.client() as client:
            left = [key for key in client.scan_iter() if b"{t:" in key and client.pttl(key) < 0]
        assert left == []
        assert other.stats().topics == {}


def test_a_topic_with_jobs_is_deleted_by_force_alone(space: Space) -> None:
    space.queue.configure("t", shards=3)
    space.queue.enqueue("t", "x", id="x")
    with pytest.raises(TopicNotEmpty, match="force=True, --force"):
        space.queue.delete_topic("t")
    assert space.state("x") == "ready"
    claim = space.queue.take("t", timeout=0)
    assert claim is not None
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
            for calls, _ in enumerate(steps(space.queue, topics.delete_topic(space.queue._store, "t"))):
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


async def test_a_mover_asks_once_for_a_shard_that_its_topic_no_longer_has(space: Space) -> None:
    space.queue.configure("t", shards=4)
    async with AsyncQueue(space.url, "test", settings=space.settings) as queue:
        store = queue._store
        await queue.stats("t")
        gone = store.topics.shards("t")[3]
        node_mover = NodeMover(queue._link, store.session, store.scripts, store.topics, lambda _: None, lambda _: None)
        space.queue.delete_topic("t")
        space.queue.configure("t", shards=1)
        async with asyncio.timeout(5):
            assert await node_mover._call_move(gone, 10, permitted=False) is None


@pytest.mark.parametrize("stopped", range(2, 8))
def test_a_mover_that_was_stopped_while_ending_a_deletion_spares_the_topic_that_was_made_since(
    space: Space, stopped: int
) -> None:
    space.queue.configure("t", shards=2)
    space.queue.enqueue("t", "old")
    killed = steps(space.queue, topics.delete_topic(space.queue._store, "t", force=True))
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
    begun = steps(other, topics.configure(other._store, "t", ttr="5s"))
    for _ in zip(range(stopped), begun, strict=False):
        pass
    space.queue.delete_topic("t", force=True)
    for _ in begun:
        pass
    ids = {f"j{n}" for n in range(20)}
    stale.enqueue_many("t", [NewJob(id, id=id) for id in ids])
    space.another_queue().enqueue("t", "more", id="more")
    await all_run(space, {*ids, "more"})


@pytest.mark.parametrize("how", ["lost", "old"])
async def test_a_registry_that_is_behind_its_shards_catches_up(space: Space, how: str) -> None:
    """It was lost, or put back from an old copy."""
    space.queue.configure("t", shards=1)
    store = space.queue._store
    topics, session = store.session.keys.topics, store.session
    old = run(space.queue._link, one(session, topics, "HGET", topics, "t"))
    space.queue.configure("t", shards=4)
    space.queue.configure("t", groups=["default", "late"])
    ids = {f"{how}{n}" for n in range(8)}
    space.queue.enqueue_many("t", [NewJob(id, id=id) for id in ids])
    if how == "lost":
        # One that knows nothing makes it again, at a time that Redis's clock was set back from.
        run(space.queue._link, one(session, topics, "HSET", topics, "t", b'{"version":5,"groups":{"default":{}}}'))
    else:
        run(space.queue._link, one(session, topics, "HSET", topics, "t", old))
    fresh = space.another_queue()
    fresh.enqueue("t", "new", id="new")
    assert fresh.stats("t").topics["t"].shards == 4
    assert set(fresh.configure("t").groups) == {"default", "late"}
    fresh.configure("t", groups=["default"])
    await all_run(space, {*ids, "new"})


# -- Redis loses the end of its append-only file

CHANGES: dict[str, Callable[[Queue], Op[Any]]] = {
    "pause": lambda queue: topics.pause(queue._store, "t"),
    "more shards": lambda queue: topics.configure(queue._store, "t", shards=3),
    "fewer shards": lambda queue: topics.configure(queue._store, "t", shards=1),
    "a group comes": lambda queue: topics.configure(queue._store, "t", groups=["a", "b", "c"]),
    "a group goes": lambda queue: topics.configure(queue._store, "t", groups=["a"]),
    "rate": lambda queue: topics.configure(queue._store, "t", rate=5),
    "deletion": lambda queue: topics.delete_topic(queue._store, "t", force=True),
}


def lose_since(client: Any, kept: dict[bytes, bytes]) -> None:
    client.flushall()
    for key, value in kept.items():
        client.restore(key, 0, value)


async def disagreement(space: Space, client: Any) -> list[str]:
    """What shards have otherwise than the registry, once the mover at work has looked at them."""
    async with AsyncQueue(space.url, "test", settings=space.settings) as queue:
        store, topics = queue._store, queue._store.topics
        await arun(queue._link, topics.end_changes())
        node_mover = NodeMover(queue._link, store.session, store.scripts, topics, lambda _: None, lambda _: None)
        if shards := topics.shards("t"):
            await node_mover.bring_up(shards)
        known = (await arun(queue._link, topics.refresh())).get("t")
        wrong = []
        for number in range(3):
            shard = store.session.keys.shard("t", number)
            found = {name.decode(): value.decode() for name, value in client.hgetall(shard.settings).items()}
            if known is None or number >= known.shards:
                wrong += [f"shard {number} is there"] if "groups" in found and known is None else []
                continue
            wanted = {
                "groups": ",".join(known.group_names), "paused": str(int(known.paused)), "shards": str(known.shards),
                "leaving": None,
            }  # fmt: skip
            wrong += [f"{number} {name} {found.get(name)}" for name in wanted if found.get(name) != wanted[name]]
            wrong += [f"{number} rate"] if float(found.get("rate", -1)) != (known.rate or 0) else []
    return wrong


@pytest.mark.parametrize("other", [None, "pause", "deletion"])
@pytest.mark.parametrize("change", list(CHANGES))
async def test_shards_follow_the_registry_though_redis_lost_a_part_of_the_change(
    space: Space, redis_server: Server, change: str, other: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is restarted before a call of the change, and has lost the calls from any other one on."""
    monkeypatch.setattr("streamdq.store.topics.START_WITHIN_S", 0)
    with redis_server.client() as client:
        for cut in range(2, 40):
            for lost in range(cut):
                client.flushall()
                space.another_queue().configure("t", shards=2, groups=["a", "b"])
                changing = steps(operator := space.another_queue(), CHANGES[change](operator))
                done = -1
                for done, _ in zip(range(cut), changing, strict=False):
                    if done == lost:
                        kept = {key: client.dump(key) for key in client.scan_iter()}
                if done + 1 < cut:
                    assert cut > 4
                    return
                lose_since(client, kept)
                await asyncio.sleep(0.003)  # Redis takes longer to start
                with contextlib.suppress(UnknownTopic):
                    if other is not None:
                        another = space.another_queue()
                        run(another._link, CHANGES[other](another))
                    for _ in changing:
                        pass
                assert await disagreement(space, client) == [], f"before call {cut}, lost from {lost} on"
    raise AssertionError("it never ends")


def test_take_keeps_its_time_when_its_group_is_never_there(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Op[None]:
        yield Pause(0)
        raise GroupMissing("gone again")

    space.queue.configure("t", groups=["a"])
    monkeypatch.setattr("streamdq.operations.take._claim_any", missing)
    began = time.monotonic()
    assert space.queue.take("t", "a", timeout="100ms") is None
    assert time.monotonic() - began < 5
