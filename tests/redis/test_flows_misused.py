"""Flows that are interrupted, or not used as they are meant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamdq import AsyncQueue, FlowState, Job, NewJob, forks
from streamdq.errors import InvalidInput, ServerUnavailable
from streamdq.job.flow import FLOWS
from streamdq.keys import shard_of
from streamdq.link import session as session_module
from streamdq.link.session import Op
from streamdq.mover import flows as mover_flows
from streamdq.operations.flows import builder
from streamdq.operations.jobs import after
from streamdq.store.flows import decisions
from streamdq.store.scripts import links
from streamdq.store.scripts.flows import Run, Swept
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, Space
from tests.redis.test_flows import Mover, state
from tests.waiting import eventually


@pytest.fixture
async def mover(stepped: Space) -> AsyncIterator[Mover]:
    mover = Mover(stepped)
    yield mover
    await mover.close()


@pytest.fixture
async def queue(space: Space) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        yield queue


# -- jobs that nobody would send, or run


def test_jobs_are_added_in_the_block_alone(space: Space) -> None:
    flow = space.queue.flow("f")
    with pytest.raises(InvalidInput, match="inside its block"):
        flow.enqueue("a", 1)
    with flow:
        flow.enqueue("a", 2, delay="1h")
    with pytest.raises(InvalidInput, match="inside its block"):
        flow.enqueue_many("a", [NewJob(3)])
    with pytest.raises(ValueError, match="mine"), space.queue.flow("g") as other:
        raise ValueError("mine")
    with pytest.raises(InvalidInput, match="inside its block"):
        other.enqueue("a", 4)


def test_no_job_of_a_flow_is_put_into_the_topic_of_the_flows(space: Space) -> None:
    with space.queue.flow("f") as flow, pytest.raises(InvalidInput, match="is kept for flows"):
        flow.enqueue(FLOWS, 1)


def test_no_job_waits_for_a_flow(space: Space) -> None:
    with space.queue.flow("f") as flow:
        flow.enqueue("a", 1, delay="1h")
    with pytest.raises(InvalidInput, match="last job"):
        space.queue.enqueue("b", 2, after=(FLOWS, "f"))
    with pytest.raises(InvalidInput, match="last job"), space.queue.flow("g") as flow:
        flow.enqueue("b", 2, after=(FLOWS, "f"))


# -- blocks that are interrupted at their end


async def test_a_task_adds_jobs_when_the_block_ends(
    space: Space, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that were added are there, and the next one is refused."""
    monkeypatch.setattr(builder, "MAX_BATCH", 5)
    added: list[str] = []
    has_begun = asyncio.Event()

    async def add() -> None:
        for n in range(1000):
            added.append((await flow.enqueue("a", n, delay="1h")).id)
            if n == 20:
                has_begun.set()

    async with queue.flow("f") as flow:
        task = asyncio.create_task(add())
        await has_begun.wait()
    with pytest.raises(InvalidInput, match="inside its block"):
        await task
    assert all(space.state(id, "a") == "waiting" for id in added)
    assert space.queue.flow_status("f").jobs == len(added)  # type: ignore[union-attr]


async def test_a_task_is_cancelled_at_the_end_of_the_block(
    space: Space, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its steps; nothing is left then."""
    original, left, number = session_module._await, [-1], 0

    async def cut(link: Any, step: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise asyncio.CancelledError
        return await original(link, step)

    monkeypatch.setattr(session_module, "_await", cut)

    async def build(name: str) -> None:
        async with queue.flow(name) as flow:
            await flow.enqueue("a", 1, id=name, delay="1h")
            left[0] = number

    while left[0] < 1:
        number += 1
        try:
            await build(f"f{number}")
        except asyncio.CancelledError:
            left[0] = -1
            assert state(space, f"f{number}") is FlowState.CANCELLED
            assert space.state(f"f{number}", "a") == "gone"
    assert number > 4


def test_a_program_is_told_to_exit_at_the_end_of_the_block(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    original = session_module._carry_out

    def cut(_link: Any, _step: Any) -> Any:
        monkeypatch.setattr(session_module, "_carry_out", original)
        raise SystemExit

    def build() -> None:
        with space.queue.flow("f") as flow:
            flow.enqueue("a", 1, id="one", delay="1h")
            monkeypatch.setattr(session_module, "_carry_out", cut)

    with pytest.raises(SystemExit):
        build()
    assert state(space) is FlowState.CANCELLED


def test_a_child_process_leaves_the_block(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was forked there; the flow is its parent's."""

    def build() -> None:
        with space.queue.flow("f") as flow:
            flow.enqueue("a", 1, id="one", delay="1h")
            monkeypatch.setattr(forks, "depth", forks.depth + 1)
            with pytest.raises(InvalidInput, match="inside its block"):
                flow.enqueue("a", 2)
            raise SystemExit

    with pytest.raises(SystemExit):
        build()
    monkeypatch.undo()
    assert state(space) is FlowState.BUILDING
    assert space.queue.cancel_flow("f")


def test_jobs_that_were_not_sent_are_sent_later(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a call fails, and the program goes on, each further job tries it again."""
    monkeypatch.setattr(builder, "MAX_BATCH", 2)
    failing = [True]
    original = after.put_in_flow

    def put(*args: Any) -> Op[Any]:
        if failing.pop():
            raise ServerUnavailable("as told")
        return (yield from original(*args))

    monkeypatch.setattr(builder, "put_in_flow", put)
    with space.queue.flow("f") as flow:
        flow.enqueue("a", 1, id="one", delay="1h")
        with pytest.raises(ServerUnavailable):
            flow.enqueue("a", 2, id="two", delay="1h")
        failing.append(False)
        flow.enqueue("a", 3, id="three", delay="1h")
        assert space.state("three", "a") == "waiting"
        failing.append(False)
    assert space.queue.flow_status("f").jobs == 3  # type: ignore[union-attr]


def test_many_calls_to_parents_have_deadlines_of_their_own(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_AT_ONCE", 2)
    space.queue.configure("a", shards=8)
    sizes: list[int] = []
    original = session_module._carry_out

    def count(link: Any, step: Any) -> Any:
        sizes.append(len(step.commands))
        return original(link, step)

    parts = [space.queue.enqueue("a", n, delay="1h") for n in range(100)]
    space.queue.enqueue("b", 1, after=parts[0])  # from now on both topics are known to have such jobs
    monkeypatch.setattr(session_module, "_carry_out", count)
    space.queue.enqueue("b", 2, after=parts)
    assert max(sizes) <= 2
    assert len(sizes) >= 4


# -- states, cancels and deadlines


async def test_a_dead_job_is_kicked_when_all_others_have_ended(space: Space) -> None:
    worker, going = space.worker(), asyncio.Event()

    @worker.handler("a", retry="none")
    async def handle(_body: Any, job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("as told")
        await going.wait()

    with space.queue.flow("f") as flow:
        first = flow.enqueue("a", 1)
    async with space.serving(worker):
        await eventually(lambda: state(space) is FlowState.FAILED, "it has failed")
        assert space.queue.kick("a", first.id) == 1
        await eventually(lambda: state(space) is FlowState.RUNNING, "it runs again")
        going.set()
        await eventually(lambda: state(space) is FlowState.DONE, "it is done")


async def test_a_flow_whose_own_job_was_cancelled_can_not_be(stepped: Space, mover: Mover) -> None:
    """Nobody knows of its jobs any more; so the caller must not believe that they were cancelled."""
    with stepped.queue.flow("f") as flow:
        flow.enqueue("a", 1, id="one", delay="1h")
    assert stepped.queue.cancel(FLOWS, "f")
    await mover.look()
    assert stepped.queue.cancel_flow("f") is False
    assert stepped.state("one", "a") == "delayed"


@pytest.mark.parametrize("topics", [("a", "b"), ("a", "a")])
async def test_nothing_starts_because_another_job_of_the_flow_is_cancelled(
    stepped: Space, mover: Mover, monkeypatch: pytest.MonkeyPatch, topics: tuple[str, str]
) -> None:
    """Even if the mover tells of each one at once."""
    stepped.queue.configure("a", shards=2, create=True)
    first, undo, last = "x0", "x4", "x1"  # of one topic, in two shards: the first and the last are in the same one
    assert shard_of(first, 2) == shard_of(last, 2) != shard_of(undo, 2)
    with stepped.queue.flow("f") as flow:
        begun = flow.enqueue(topics[0], 1, id=first, delay="1h")
        undone = flow.enqueue(topics[1], 2, id=undo, after=begun, on_failure="run")
        flow.enqueue(topics[0], 3, id=last, after=undone)
    await mover.look()
    original, seen = session_module._carry_out, set[str]()

    def look(link: Any, step: Any) -> Any:
        result = original(link, step)
        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as thread:
            patch.setattr(session_module, "_carry_out", original)
            thread.submit(asyncio.run, _looked_once(stepped)).result()
            seen.add(stepped.state(undo, topics[1]))
        return result

    monkeypatch.setattr(session_module, "_carry_out", look)
    assert stepped.queue.cancel_flow("f")
    assert seen == {"waiting", "gone"}


async def _looked_once(space: Space) -> None:
    mover = Mover(space)
    try:
        await mover.look()
    finally:
        await mover.close()


def _late(space: Space, clock: ManualClock, *names: str) -> None:
    for name in names:
        with space.queue.flow(name, deadline="1m", keep="0s") as flow:
            flow.enqueue("a", name, id=name, delay="1h")
    clock.advance("2m")


async def test_a_mover_that_stood_still_leaves_later_flows_alone(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read which flow is late; when it goes on, there is another one of that name."""
    _late(stepped, clock, "f")
    other, original = Mover(stepped), session_module.arun

    async def stand_still(link: Any, op: Any) -> Any:
        found = await original(link, op)
        if isinstance(found, Swept) and found.late:
            monkeypatch.setattr(mover_flows, "arun", original)
            assert stepped.queue.cancel_flow("f")
            clock.advance("1h")
            await other.look()
            await other.look()
            with stepped.queue.flow("f") as flow:
                flow.enqueue("a", "new", id="new", delay="1h")
        return found

    monkeypatch.setattr(mover_flows, "arun", stand_still)
    try:
        await mover.look()
    finally:
        await other.close()
    assert stepped.state("f", "a") == "gone"
    assert stepped.state("new", "a") in ("waiting", "delayed")


async def test_a_flow_that_can_not_be_cancelled_holds_up_no_others(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _late(stepped, clock, "f", "g", "h")
    original = decisions.cancel

    def cancel(session: Any, scripts: Any, topics: Any, run: Run) -> Op[bool]:
        if run.name == "g":
            raise ServerUnavailable("as told")
        return (yield from original(session, scripts, topics, run))

    monkeypatch.setattr(decisions, "cancel", cancel)
    await mover.look()
    assert [stepped.state(name, "a") for name in "fgh"] == ["gone", "delayed", "gone"]
    monkeypatch.setattr(decisions, "cancel", original)
    clock.advance("10s")
    await mover.look()
    assert stepped.state("g", "a") == "gone", "it is tried again"
