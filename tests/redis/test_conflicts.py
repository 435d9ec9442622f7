"""One id, one job: refused, kept or replaced, and free again once the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from streamdq import Bury, Job, JobExists, JobState, NewJob
from streamdq.errors import InvalidInput, ServerUnavailable
from streamdq.keys import ShardKeys
from streamdq.link.session import Op, pause
from streamdq.operations.jobs.pipeline import Pipelined
from streamdq.store.scripts import Scripts
from tests.redis.harness import Seen, Space
from tests.waiting import eventually


def test_a_taken_id_is_refused(space: Space) -> None:
    first = space.queue.enqueue("t", "first", id="a", delay="1h")
    with pytest.raises(JobExists, match=r"'a' is already in topic 't'.*on_conflict") as refused:
        space.queue.enqueue("t", "second", id="a")
    assert (refused.value.topic, refused.value.id) == ("t", "a")
    job = space.job("a")
    assert (job.body, job.due_ms) == ("first", first.due_ms)
    assert space.queue.stats("t").topics["t"].enqueued == 1


async def test_keep_tells_the_state_that_the_job_has(space: Space, seen: Seen) -> None:
    worker = space.worker()
    go_on = asyncio.Event()

    @worker.handler("t", retry="none")
    async def wait(body: int) -> None:
        seen.add(body)
        await go_on.wait()
        raise Bury("no")

    space.queue.configure("t", shards=4)
    for id in ("running", "waiting"):
        space.queue.enqueue("t", 1, id=id, delay=0 if id == "running" else "1h")

    def kept(id: str) -> Job:
        return space.queue.enqueue("t", 2, id=id, on_conflict="keep")

    assert (kept("waiting").state, kept("running").state) == (JobState.DELAYED, JobState.READY)
    async with space.serving(worker):
        await seen.count(1)
        found = await asyncio.to_thread(kept, "running")
        assert (found.state, found.attempt, found.body) == (JobState.RUNNING, 1, 1)
        go_on.set()
        await eventually(lambda: space.queue.dead("t"), "it is dead")
    with space.queue.pipeline() as pipe:
        dead = pipe.enqueue("t", 3, id="running", on_conflict="keep")
        delayed = pipe.enqueue("t", 3, id="waiting", on_conflict="keep")
        new = pipe.enqueue("t", 3, id="new", delay="1h", on_conflict="keep")
    assert [one.job.state for one in (dead, delayed, new)] == [JobState.DEAD, JobState.DELAYED, JobState.DELAYED]
    assert dead.job.groups["default"].reason == "buried"


def test_a_kept_job_that_ends_meanwhile_has_ended(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.enqueue("t", "first", id="a", delay="1h")
    get_each = Scripts.get_each

    def cancelled_before(scripts: Scripts, *args: Any) -> Any:
        space.another_queue().cancel("t", "a")
        return get_each(scripts, *args)

    monkeypatch.setattr(Scripts, "get_each", cancelled_before)
    found = space.queue.enqueue("t", "second", id="a", on_conflict="keep")

    assert (found.body, found.state) == ("first", JobState.ENDED)


def test_a_kept_job_that_cannot_be_looked_up_fails_no_other(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their jobs are there: a caller that repeated such a call would enqueue another one."""
    space.queue.enqueue("t", "first", id="a", delay="1h")

    def fails(*_: Any) -> Op[Any]:
        yield from pause(0)
        raise ServerUnavailable("no reply")

    def both() -> None:
        with space.queue.pipeline() as pipe:
            calls.append(pipe.enqueue("t", "new", delay="1h", on_conflict="keep"))
            calls.append(pipe.enqueue("t", "second", id="a", on_conflict="keep"))

    calls: list[Pipelined] = []
    with monkeypatch.context() as broken:
        broken.setattr(Scripts, "get_each", fails)
        with pytest.raises(ExceptionGroup):
            both()
    new, kept = calls
    assert isinstance(kept.error, ServerUnavailable)
    assert new.error is None
    assert space.job(new.job.id).body == "new"
    assert space.queue.enqueue("t", "second", id="a", on_conflict="keep").body == "first"


def test_large_kept_jobs_are_read_a_few_at_a_time(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.enqueue_many("t", [NewJob("x" * 2000, id=f"j{n}") for n in range(4)])
    get_each, asked = Scripts.get_each, []

    def noted(scripts: Scripts, shard: ShardKeys, ids: Sequence[str]) -> Any:
        asked.append(list(ids))
        return get_each(scripts, shard, ids)

    monkeypatch.setattr(Scripts, "get_each", noted)
    monkeypatch.setattr("streamdq.operations.jobs.enqueue.MAX_BYTES", 5000)
    with space.queue.pipeline() as pipe:
        kept = [pipe.enqueue("t", 2, id=f"j{n}", on_conflict="keep") for n in range(4)]

    assert asked == [["j0", "j1"], ["j2", "j3"]]
    assert {one.job.state for one in kept} == {JobState.READY}


def test_an_unknown_policy_is_refused(space: Space) -> None:
    with pytest.raises(InvalidInput, match="'reject', 'keep', 'replace'"):
        space.queue.enqueue("t", 1, on_conflict="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'reject', 'keep', 'replace'"):
        space.queue.enqueue_many("t", [NewJob(1)], on_conflict="ignore")  # type: ignore[arg-type]
    assert space.queue.stats().topics == {}


def test_dead_letters_are_purged_one_by_one_or_all_on_purpose(space: Space) -> None:
    queue = space.queue
    for id in "abc":
        queue.enqueue("t", id=id)
        with queue.take("t") as claim:
            assert claim is not None
            claim.bury("no")
    with pytest.raises(InvalidInput, match="pass either the id of a dead job, or all=True"):
        queue.purge("t")
    with pytest.raises(InvalidInput, match="pass either the id"):
        queue.purge("t", "a", all=True)
    assert (queue.purge("t", "a"), queue.kick("t", "b"), queue.purge("t", all=True)) == (1, 1, 1)
    with pytest.raises(InvalidInput, match="pass an id or all=True, not both"):
        queue.kick("t", "b", all=True)
