"""Groups that come and go: cut off after every call, and raced by those who do not know yet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from streamdq import AsyncQueue, NewJob
from streamdq.errors import GroupMissing, UnknownGroup
from streamdq.link.session import Op, pause, run
from streamdq.store.commands import one
from tests.redis.harness import Seen, Space, recorder, taken
from tests.redis.topology import all_run, configuring, each_cut
from tests.servers import Server, script_calls
from tests.turns import others_later


@pytest.mark.parametrize("who", others_later(["the caller again", "a mover"], "a mover"))
async def test_a_group_whose_removal_was_cut_anywhere_is_gone_at_last(space: Space, who: str) -> None:
    def remove() -> Iterator[None]:
        space.queue.configure("t", shards=2, groups=["a", "b"])
        worker, ids = space.queue, [f"j{n}" for n in range(12)]
        worker.enqueue_many("t", [NewJob(id, id=id) for id in ids])
        for n in range(8):  # some done, some retried, some dead, some running
            claim = taken(space.queue, "t", "b", timeout=0)
            (claim.finish, lambda claim=claim: claim.fail("x"), lambda claim=claim: claim.bury("x"), int)[n % 4]()
        return configuring(space.queue, groups=["a"])

    for cuts in each_cut(remove):
        if who == "a mover":
            other = space.another_queue()
            run(other._link, other._store.topics.end_changes())
        else:
            space.queue.configure("t", groups=["a"])
        settings = space.queue.configure("t", create=True)
        if "b" in settings.groups:  # killed before it had begun: nothing to end
            assert who == "a mover"
            assert cuts <= 2
            space.queue.configure("t", groups=["a"])
        shards = space.queue._store.topics.shards("t")
        for shard in shards:
            fields = run(space.queue._link, one(space.queue._store.session, shard.progress, "HKEYS", shard.progress))
            assert [field for field in fields if field.startswith(b"b\x1f")] == []
        # The same ids, for a group of the same name: nothing of the old one swallows them.
        await all_run(space, {f"j{n}" for n in range(12)}, "a")
        space.queue.configure("t", groups=["a", "b"])
        space.queue.enqueue_many("t", [NewJob(f"j{n}", id=f"j{n}") for n in range(12)])
        a, b = Seen(), Seen()
        workers = [space.worker("a"), space.worker("b")]
        for worker, seen in zip(workers, (a, b), strict=True):
            worker.handler("t")(recorder(seen))
        await space.burst(*workers)
        assert (len(a), len(b)) == (12, 12)
        assert space.audit().left == 0


def test_an_audit_by_a_process_that_does_not_know_a_new_group(space: Space) -> None:
    space.queue.configure("t", groups=["a"])
    space.queue.stats("t")
    other = space.another_queue()
    other.configure("t", groups=["a", "b"])
    other.enqueue("t", "x", id="x")
    taken(other, "t", "b", timeout=0).fail("x", delay="1h")
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
                before = script_calls(client)
                space.another_queue().enqueue_many("t", [NewJob(f"j{n}") for n in range(20)])
                await all_run(space, {f"j{n}" for n in range(20)})
                assert script_calls(client) - before < 1000, "nobody asks without end"
            space.queue.configure("t", rate=0.01)
    assert cuts > shards


def test_many_groups_of_many_shards_change_in_few_calls(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each call takes a millisecond, a hundred groups of 256 shards took a minute to go."""
    groups = [f"g{number}" for number in range(20)]
    space.queue.configure("t", groups=["a"], shards=32)
    calls, send = [0], space.queue._link.send

    def counted(*args: Any) -> list[Any]:
        calls[0] += 1
        return send(*args)

    monkeypatch.setattr(space.queue._link, "send", counted)
    space.queue.configure("t", groups=groups)
    space.queue.enqueue("t", 1)
    assert space.queue.configure("t", groups=["a"]).group_names == ("a",)
    assert calls[0] < 60
    assert space.audit().balanced


async def test_takes_at_the_same_time_of_a_group_that_is_not_there_yet(space: Space) -> None:
    """They share one cache of the registry."""
    space.queue.configure("t", groups=["a"])
    async with AsyncQueue(space.url, "test", settings=space.settings) as queue:
        await queue.stats("t")

        async def take() -> str:
            try:
                return "job" if await queue.take("t", "b", timeout=0) else "none"
            except UnknownGroup:
                return "unknown"

        assert await asyncio.gather(*(take() for _ in range(40))) == ["unknown"] * 40
        space.queue.configure("t", groups=["a", "b"])
        assert await asyncio.gather(*(take() for _ in range(40))) == ["none"] * 40


def test_a_take_ends_when_its_group_is_never_there(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Op[None]:
        yield from pause(0)
        raise GroupMissing("gone again")

    space.queue.configure("t", groups=["a"])
    monkeypatch.setattr("streamdq.operations.attempts.take._claim_any", missing)
    assert not space.queue.take("t", "a", timeout="100ms")
