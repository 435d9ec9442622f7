"""AsyncQueue is Queue, awaited: the same methods, the same arguments, the same results."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from streamdq import AsyncQueue, Claim, JobExists, NewJob, Queue, StaleClaim
from streamdq.queue import AsyncClaim
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.servers import Server, script_calls
from tests.waiting import HANG_S, eventually

LAZY = {"after_fork", "events", "find", "flow", "pipeline"}
"""Sends nothing: what the other two give is awaited."""


def public(cls: type) -> dict[str, inspect.Signature]:
    functions = inspect.getmembers(cls, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in functions if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "awaited"), [(Queue, AsyncQueue), (Claim, AsyncClaim)], ids=["queue", "claim"])
def test_the_same_methods_and_arguments(blocking: type, awaited: type) -> None:
    ours, theirs = public(blocking), public(awaited)
    assert set(ours) == set(theirs)
    assert len(ours) >= 4
    for name, signature in ours.items():
        assert list(signature.parameters.values())[1:] == list(theirs[name].parameters.values())[1:], name
        method = inspect.unwrap(getattr(awaited, name), stop=inspect.iscoroutinefunction)
        assert inspect.iscoroutinefunction(method) or name in LAZY, name
        assert inspect.getdoc(getattr(awaited, name))
    assert list(inspect.signature(blocking).parameters) == list(inspect.signature(awaited).parameters)


async def test_a_round_trip(space: Space) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        made = await queue.enqueue("t", {"n": 1}, id="a", delay="1h")
        with pytest.raises(JobExists):
            await queue.enqueue("t", 2, id="a")
        job = await queue.get("t", "a")
        assert job is not None
        assert (job.body, job.due_ms) == ({"n": 1}, made.due_ms)
        assert await queue.reschedule("t", "a", delay="30ms") is True
        claim = await queue.take("t", timeout=HANG_S)
        assert claim
        assert claim.job.id == "a"
        await claim.touch()
        await claim.bury("x")
        with pytest.raises(StaleClaim):
            await claim.finish()
        assert [job.id for job in await queue.dead("t")] == ["a"]
        assert await queue.kick("t", "a") == 1
        assert await queue.cancel("t", "a") is True
        assert not await queue.take("t", timeout=0)
        result = await queue.enqueue_many("t", (NewJob(n, delay="1h") for n in range(1200)))
        assert result.created == 1200
        await queue.configure("t", rate=5)
        await queue.pause("t")
        await queue.resume("t")
        assert (await queue.stats("t")).delayed == 1200
        assert (await queue.upcoming("t", windows=("2h",))) == {"2h": 1200}
        assert (await queue.audit()).balanced
        assert await queue.purge("t", all=True) == 0
    assert space.stats().delayed == 1200  # what one wrote, the other reads


async def test_jobs_that_are_enqueued_at_the_same_time_go_together(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=2)
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await queue.enqueue("t", "first", delay="1h")  # from now on it knows the topic
        with redis_server.client() as client:
            client.config_resetstat()
            made = await asyncio.gather(*(queue.enqueue("t", n, id=f"j{n}", delay=60 + n) for n in range(300)))
            calls = script_calls(client)
    assert calls <= 20
    assert [(job.id, job.body) for job in made] == [(f"j{n}", n) for n in range(300)]
    for job in made[::30]:
        found = space.queue.get("t", job.id)
        assert found is not None
        assert (found.body, found.due_ms, found.created_ms) == (job.body, job.due_ms, job.created_ms)


async def test_a_take_that_is_cancelled_loses_nothing(space: Space, redis_server: Server) -> None:
    def waiting() -> bool:
        blocked = [row["cmd"] for row in client.client_list() if "b" in row["flags"]]
        return "xreadgroup" in blocked

    client = redis_server.client()
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await queue.configure("t", create=True)
        for _ in range(3):
            taking = asyncio.create_task(queue.take("t", timeout=HANG_S))
            await eventually(waiting, "it waits")
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
        await queue.enqueue("t", 1, id="a")
        claim = await queue.take("t", timeout=HANG_S)
        assert claim
        assert claim.job.attempt == 1
        await claim.finish()
    client.close()
