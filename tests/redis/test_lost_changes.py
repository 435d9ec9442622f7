"""A registry and shards that disagree, because Redis has lost a part of what was written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.errors import UnknownTopic
from streamdq.link.session import Op, arun, run
from streamdq.mover.node_mover import NodeMover
from streamdq.operations.topics import configure
from streamdq.store.commands import one
from tests.redis.harness import Space
from tests.redis.movers import mover_at
from tests.redis.topology import all_run, steps
from tests.servers import Server
from tests.waiting import eventually


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
        # One that has no record of it makes it again, at a time that Redis's clock was set back from.
        run(space.queue._link, one(session, topics, "HSET", topics, "t", b'{"version":5,"groups":{"default":{}}}'))
    else:
        run(space.queue._link, one(session, topics, "HSET", topics, "t", old))
    fresh = space.another_queue()
    fresh.enqueue("t", "new", id="new")
    assert fresh.stats("t").topics["t"].shards == 4
    assert set(fresh.configure("t", create=True).groups) == {"default", "late"}
    fresh.configure("t", groups=["default"])
    await all_run(space, {*ids, "new"})


async def test_schedules_go_on_though_the_registry_was_lost(space: Space, redis_server: Server) -> None:
    """A process that makes the topic again finds that it has schedules."""
    space.queue.schedule("t", id="s", every="1s")
    store = space.queue._store
    key = store.session.keys.topics
    run(space.queue._link, one(store.session, key, "DEL", key))
    space.another_queue().enqueue("t", "new", id="new")
    fresh = space.another_queue()
    assert [one.id for one in fresh.schedules()] == ["s"]
    async with mover_at(redis_server.url, "m"):
        await eventually(lambda: fresh.get_schedule("t", "s").fired > 0, "a mover enqueues its jobs")
    fresh.delete_topic("t", force=True)


@pytest.mark.usefixtures("only_wakeups")
async def test_a_resume_that_was_cut_off_does_not_hold_jobs_up(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=2)
    space.queue.pause("t")
    space.queue.enqueue_many("t", [NewJob(n) for n in range(8)])
    async with mover_at(redis_server.url, "m"):
        resuming = steps(space.queue, configure.resume(space.queue._store, "t"))
        for _ in zip(range(3), resuming, strict=False):  # the registry has it, and no shard
            pass
        await eventually(lambda: space.stats("t").ready == 8, "the mover has told the shards")


LATER = pytest.mark.thorough
OTHERS = [None, "pause", "deletion", "more shards"]
"""What else changes at the same time."""

CHANGES: dict[str, Callable[[Queue], Op[Any]]] = {
    "pause": lambda queue: configure.pause(queue._store, "t"),
    "more shards": lambda queue: configure.configure(queue._store, "t", shards=3),
    "fewer shards": lambda queue: configure.configure(queue._store, "t", shards=1),
    "a group comes": lambda queue: configure.configure(queue._store, "t", groups=["a", "b", "c"]),
    "a group goes": lambda queue: configure.configure(queue._store, "t", groups=["a"]),
    "rate": lambda queue: configure.configure(queue._store, "t", rate=5),
    "deletion": lambda queue: configure.delete_topic(queue._store, "t", force=True),
}


def keep(client: Any) -> dict[bytes, bytes]:
    keys = [*client.scan_iter()]
    with client.pipeline(transaction=False) as together:
        for key in keys:
            together.dump(key)
        return dict(zip(keys, together.execute(), strict=True))


def lose_since(client: Any, kept: dict[bytes, bytes]) -> None:
    with client.pipeline(transaction=False) as together:
        together.flushall()
        for key, value in kept.items():
            together.restore(key, 0, value)
        together.execute()


async def disagreement(space: Space, client: Any) -> list[str]:
    """What shards have otherwise than the registry, once the active mover has looked at them."""
    async with AsyncQueue(space.url, "test", settings=space.settings) as queue:
        store, topics = queue._store, queue._store.topics
        await arun(queue._link, topics.end_changes())
        node_mover = NodeMover(queue._link, store, *[lambda *_: None] * 3)
        if shards := topics.shards("t"):
            await node_mover.reconcile(shards)
        known = (await arun(queue._link, topics.refresh())).get("t")
        wrong = []
        for number in range(3):
            shard = store.session.keys.shard("t", number)
            found = {name.decode(): value.decode() for name, value in client.hgetall(shard.settings).items()}
            if known is None or number >= known.layout.in_use:
                wrong += [f"shard {number} is there"] if "groups" in found and known is None else []
                continue
            wanted = {
                "groups": ",".join(known.group_names), "paused": str(int(known.paused)), "shards": known.layout.text,
                "leaving": None,
            }  # fmt: skip
            wrong += [f"{number} {name} {found.get(name)}" for name in wanted if found.get(name) != wanted[name]]
            wrong += [f"{number} rate"] if float(found.get("rate", -1)) != (known.rate or 0) else []
    return wrong


FIRST = [("a group comes", None, True)]
CASES = [(change, other, jobs) for change in CHANGES for other in OTHERS for jobs in (True, False)]


@pytest.mark.parametrize(
    ("change", "other", "holds_jobs"),
    [*FIRST, *(pytest.param(*case, marks=LATER) for case in CASES if case not in FIRST)],
)
async def test_shards_follow_the_registry_though_redis_lost_a_part_of_the_change(
    space: Space,
    redis_server: Server,
    change: str,
    other: str | None,
    holds_jobs: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is restarted before a call of the change, and has lost the calls from any other one on."""
    monkeypatch.setattr("streamdq.store.topics.changes.START_WITHIN_S", 0)
    with redis_server.client() as client:
        for cut in range(2, 40):
            for lost in range(cut):
                client.flushall()
                space.another_queue().configure("t", shards=2, groups=["a", "b"])
                if holds_jobs:
                    space.another_queue().enqueue_many("t", [NewJob(n, id=f"j{n}", delay="1h") for n in range(6)])
                changing = steps(operator := space.another_queue(), CHANGES[change](operator))
                done = -1
                for done, _ in zip(range(cut), changing, strict=False):
                    if done == lost:
                        kept = keep(client)
                if done + 1 < cut:
                    assert cut > 4
                    return
                lose_since(client, kept)
                with contextlib.suppress(UnknownTopic):
                    if other is not None:
                        another = space.another_queue()
                        run(another._link, CHANGES[other](another))
                    for _ in changing:
                        pass
                assert await disagreement(space, client) == [], f"before call {cut}, lost from {lost} on"
                if holds_jobs and change != "deletion" != other:
                    fresh = space.another_queue()
                    assert all(fresh.get("t", f"j{n}") for n in range(6)), f"before call {cut}, lost from {lost} on"
    raise AssertionError("it never ends")


@pytest.mark.parametrize("made_anew", [True, pytest.param(False, marks=LATER)])
async def test_shards_that_are_made_after_redis_was_emptied_are_known_to_the_registry(
    space: Space, redis_server: Server, made_anew: bool
) -> None:
    """Someone brings shards up to date and is overtaken by the loss, perhaps also by a process that makes the topic
    anew and has no record of its three shards.
    """
    with redis_server.client() as client:
        for cut in range(1, 40):
            client.flushall()
            space.another_queue().configure("t", shards=3)
            slow, producer = space.another_queue(), space.another_queue()
            run(producer._link, producer._store.topics.refresh())
            renewing = steps(slow, slow._store.topics.renew("t"))
            done = sum(1 for _, _ in zip(range(cut), renewing, strict=False))
            client.flushall()
            if made_anew:
                space.another_queue().configure("t", create=True)
            for _ in renewing:
                pass
            ids = {f"{cut}-{n}" for n in range(12)}
            producer.enqueue_many("t", [NewJob(id, id=id) for id in ids])
            fresh = space.another_queue()
            known = run(fresh._link, fresh._store.topics.refresh())["t"]
            shards = [space.queue._store.session.keys.shard("t", number) for number in range(5)]
            holding = {number for number in range(5) if client.exists(shards[number].jobs)}
            assert holding <= set(range(known.shards)), f"cut off before call {cut}"
            await all_run(space, ids)
            if done < cut:
                assert cut > 4
                return
    raise AssertionError("it never ends")
