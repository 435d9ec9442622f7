"""Jobs that handlers add to the flow of their own job, with a worker and its mover."""

from __future__ import annotations

from typing import Any

from streamdq import FlowState, NewJob, RunningJob, Worker
from tests.redis.harness import Seen, Space
from tests.waiting import eventually


def join_of(space: Space, *parts: Any, name: str = "f") -> None:
    """A flow: parts, and a join that waits for them."""
    with space.queue.flow(name) as flow:
        made = flow.enqueue_many("part", (NewJob(one, id=f"p-{one}") for one in parts))
        flow.enqueue("join", "join", id="join", after=made)


def note(worker: Worker, seen: Seen, *topics: str) -> None:
    for topic in topics:

        @worker.handler(topic, retry="none")
        async def handler(body: Any) -> None:
            seen.add(body)


def state(space: Space, name: str = "f") -> FlowState | None:
    status = space.queue.flow_status(name)
    return status.state if status else None


async def test_the_join_of_a_part_waits_for_what_the_part_adds(space: Space, seen: Seen) -> None:
    for topic in ("part", "extra", "join"):
        space.queue.configure(topic, shards=4)
    worker = space.worker()

    @worker.handler("part", retry="none")
    async def part(n: int, job: RunningJob) -> None:
        await job.async_flow.enqueue_many("extra", [NewJob((n, i)) for i in range(n)], before=("join", "join"))

    @worker.handler("extra", retry="none")
    async def extra(body: list[int], job: RunningJob) -> None:
        n, i = body
        if n == 7 and i == 0:
            await job.async_flow.enqueue("extra", (8, 0), before=("join", "join"), delay="30ms")
        seen.add(n)

    note(worker, seen, "join")
    async with space.serving(worker):
        join_of(space, 2, 5, 7, 0)
        await seen.count(16)
        await eventually(lambda: state(space) is FlowState.DONE, "the flow is done")
    assert seen.all[-1] == "join"
    assert sorted(map(str, seen.all)) == sorted([*"22", *"55555", *"7777777", "8", "join"])
    status = space.queue.flow_status("f")
    assert status is not None
    assert (status.jobs, status.count("done")) == (20, 20)
    assert space.audit().balanced
