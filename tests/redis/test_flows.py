"""Flows by the interfaces of the library, with a worker and its mover."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamdq import AsyncQueue, FlowState, Job, NewJob, Topic, Worker
from streamdq.errors import FlowExists, FlowWithdrawn, InvalidInput, JobExists, ParentUnknown
from streamdq.job.flow import FLOWS
from streamdq.link import session as session_module
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import arun
from streamdq.mover.endings import Endings
from streamdq.mover.flows import Flows
from streamdq.operations.flows import builder
from streamdq.operations.flows.builder import Building
from streamdq.queue import carry_out, store_of
from streamdq.store.commands import one
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space
from tests.waiting import eventually

SHARDS = 4


def worker_for(space: Space, seen: Seen, *topics: str) -> Worker:
    """Its handlers note the bodies; one that is to fail is dead at once, unless it was kicked."""
    worker = space.worker()
    failed: set[str] = set()

    async def handler(body: Any, job: Job) -> None:
        if body == "fails" and job.id not in failed:
            failed.add(job.id)
            raise ValueError("as told")
        seen.add(body)

    for topic in topics:
        worker.handler(topic, retry="none")(handler)
    return worker


def state(space: Space, name: str = "f") -> FlowState | None:
    status = space.queue.flow_status(name)
    return status.state if status else None


def counts(space: Space) -> dict[str, int]:
    """Of the first stage."""
    status = space.queue.flow_status("f")
    assert status is not None
    return dict(status.stages[0].counts)


async def test_nothing_starts_before_the_block_has_ended(space: Space, seen: Seen) -> None:
    for topic in ("a", "b"):
        space.queue.configure(topic, shards=SHARDS)
    async with space.serving(worker_for(space, seen, "a", "b")):
        with space.queue.flow("f") as flow:
            parts = flow.enqueue_many("a", (NewJob(n) for n in range(1200)))
            join = flow.enqueue("b", "join", after=parts)
            flow.enqueue("b", "last", after=join, delay="50ms")
            assert state(space) is FlowState.BUILDING
            assert {space.state(one.id, "a") for one in parts[:3]} == {"waiting"}
            assert not seen.all
        await seen.count(1202)
        assert sorted(seen.all[:1200]) == [*range(1200)]
        assert seen.all[1200:] == ["join", "last"]
        await eventually(lambda: state(space) is FlowState.DONE, "the flow is done")
    status = space.queue.flow_status("f")
    assert status is not None
    assert status.jobs == 1202
    assert [(one.topic, one.jobs, one.after, dict(one.counts)) for one in status.stages] == [
        ("a", 1200, (), {"done": 1200}),
        ("b", 1, (0,), {"done": 1}),
        ("b", 1, (1,), {"done": 1}),
    ]
    assert space.audit().balanced


def test_their_topic_is_theirs_alone(space: Space) -> None:
    queue, worker = space.queue, space.worker()
    with pytest.raises(InvalidInput, match="kept for flows"):
        queue.enqueue(FLOWS, 1)
    with queue.flow("f") as flow:
        flow.enqueue("a", 1)
    for refused in (
        lambda: queue.enqueue(FLOWS, 1),
        lambda: queue.enqueue_many(FLOWS, [NewJob(1)]),
        lambda: queue.schedule(FLOWS, 1, every="1h"),
        lambda: queue.take(FLOWS),
        lambda: worker.handler(FLOWS),
        lambda: worker.schedule(FLOWS, every="1h"),
        lambda: Topic(FLOWS, int),
    ):
        with pytest.raises(InvalidInput, match="kept for flows"):
            refused()
    with pytest.raises(InvalidInput, match="kept for flows"), queue.flow("g") as flow:
        flow.enqueue(FLOWS, 1)


def test_jobs_whose_nonces_are_the_same(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ids that are made up are short."""
    made = itertools.count(1)
    alike = "streamdq.store.jobs.records.os.urandom"
    monkeypatch.setattr(alike, lambda size: next(made).to_bytes(4, "big") + bytes(size - 4))
    with space.queue.flow("f") as flow:
        parents = [flow.enqueue("a", n, id=f"p-{n}") for n in range(2)]
        joins = [flow.enqueue("b", n, after=one) for n, one in enumerate(parents)]
    for parent, join in zip(parents, joins, strict=True):
        found = space.queue.dependencies("b", join.id)
        assert found is not None
        assert [one.id for one in found.jobs] == [parent.id]


async def test_a_worker_for_every_topic_leaves_the_flows_own_jobs_alone(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.every_topic
    async def handler(_body: Any, job: Job) -> None:
        seen.add(job.topic)

    with space.queue.flow("f", keep="0s") as flow:
        flow.enqueue("b", 1, after=flow.enqueue("a", 1))
    async with space.serving(worker):
        assert await seen.count(2) == ["a", "b"]
        assert FLOWS in space.queue.stats().topics
        assert worker._run is not None
        assert worker._run._served == {"a", "b"}


async def test_async_queues(space: Space, seen: Seen) -> None:
    async def bodies() -> AsyncIterator[NewJob]:
        for n in range(3):
            yield NewJob(n)

    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        async with queue.flow("f") as flow:
            parts = await flow.enqueue_many("a", bodies())
            (more,) = await asyncio.gather(flow.enqueue_many("a", [NewJob(3)]))
            await flow.enqueue("b", "join", after=[*parts, *more])
        async with space.serving(worker_for(space, seen, "a", "b")):
            assert (await seen.count(5))[-1] == "join"

        async def fail() -> None:
            async with queue.flow("g") as flow:
                await flow.enqueue("a", "never", id="x")
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await fail()
        assert await queue.cancel_flow("g")
        assert not await queue.cancel_flow("other")
        status = await queue.flow_status("g")
        assert status is not None
        assert (status.state, status.jobs) == (FlowState.CANCELLED, 0)


def test_an_exception_leaves_nothing_behind(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_BATCH", 2)
    space.queue.enqueue("a", "other", id="taken", delay="1h")

    def build_1() -> None:
        with space.queue.flow("f") as flow:
            first = flow.enqueue("a", 1, id="one")
            flow.enqueue("b", 2, id="two", after=first, on_failure="run")
            assert space.state("two", "b") == "waiting", "it was sent"
            flow.enqueue("a", 3, id="taken")

    with pytest.raises(JobExists, match="or cancel it"):
        build_1()
    assert [space.state(id, topic) for id, topic in (("one", "a"), ("two", "b"))] == ["gone"] * 2
    assert space.state("taken", "a") == "delayed"

    def build_2() -> None:
        with space.queue.flow("f") as flow:
            flow.enqueue("a", 1, id="one")
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        build_2()
    with space.queue.flow("f") as flow:
        flow.enqueue("a", 1, id="one", delay="1h")
    assert state(space) is FlowState.RUNNING


def test_a_flow_without_jobs_is_none(space: Space) -> None:
    with space.queue.flow("f"):
        pass
    assert space.queue.get(FLOWS, "f") is None
    assert space.queue.flow_status("never") is None


def test_a_job_of_a_flow_has_a_priority(space: Space) -> None:
    with space.queue.flow("f") as flow:
        flow.enqueue("a", 1, id="x", priority="high")
    job = space.queue.get("a", "x")
    assert job is not None
    assert job.priority == "high"


def test_a_flow_is_built_once(space: Space) -> None:
    with space.queue.flow("f") as flow:
        flow.enqueue("a", 1, delay="1h")
    with pytest.raises(FlowExists, match="'f' was enqueued before"), space.queue.flow("f"):
        raise AssertionError("not reached")


def test_the_later_of_two_builders_counts(space: Space) -> None:

    def build_3() -> None:
        with space.queue.flow("f") as flow:
            flow.enqueue("a", "first", id="one")
            with space.another_queue().flow("f") as other:
                other.enqueue("a", "second", id="one", delay="1h")

    with pytest.raises(FlowWithdrawn):
        build_3()
    assert space.job("one", "a").body == "second"
    status = space.queue.flow_status("f")
    assert status is not None
    assert (status.jobs, status.state) == (1, FlowState.RUNNING)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": ""}, "topic"),
        ({"after": 7}, "after"),
        ({"on_failure": "hope"}, "on_failure"),
        ({"body": object()}, "body"),
    ],
)
def test_what_is_invalid(space: Space, options: dict[str, Any], message: str) -> None:
    options = {**options}
    topic = options.pop("topic", "t")
    with pytest.raises(InvalidInput, match=message), space.queue.flow("f") as flow:
        flow.enqueue(topic, **options)
    with pytest.raises(InvalidInput, match="at: does not go together with"), space.queue.flow("f") as flow:
        flow.enqueue_many("t", [NewJob(1, at=1_900_000_000)])
    with pytest.raises(InvalidInput, match="deadline"):
        space.queue.flow("f", deadline="soon")


def test_a_flow_has_at_most_so_many_stages(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MOST_STAGES", 2)
    monkeypatch.setattr(builder, "MAX_PARENTS", 4)

    def build_4() -> None:
        with space.queue.flow("f") as flow:
            for topic in "abc":
                flow.enqueue(topic)

    with pytest.raises(InvalidInput, match="more than 2 stages"):
        build_4()
    with pytest.raises(InvalidInput, match="more than 4 jobs"), space.queue.flow("f") as flow:
        flow.enqueue_many("a", [NewJob(n) for n in range(5)])


async def test_a_failure_blocks_the_flow(space: Space, seen: Seen) -> None:
    with space.queue.flow("f") as flow:
        first = flow.enqueue("a", "fails")
        flow.enqueue("b", "second", after=first)
    async with space.serving(worker_for(space, seen, "a", "b")):
        await eventually(lambda: state(space) is FlowState.BLOCKED, "it is blocked")
        status = space.queue.flow_status("f")
        assert status is not None
        assert [dict(one.counts) for one in status.stages] == [{"dead": 1}, {"blocked": 1}]
        assert (status.count("dead", "blocked"), status.count("done")) == (2, 0)
        assert space.queue.kick("a", first.id) == 1
        assert await seen.count(2) == ["fails", "second"]
        await eventually(lambda: state(space) is FlowState.DONE, "it is done")


async def test_a_compensation(space: Space, seen: Seen) -> None:
    with space.queue.flow("f") as flow:
        first = flow.enqueue("a", "fails")
        flow.enqueue("b", "undo", after=first, on_failure="run")
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert await seen.count(1) == ["undo"]
        await eventually(lambda: state(space) is FlowState.FAILED, "it has failed")


async def test_a_job_that_was_cancelled_meanwhile_has_failed(space: Space, seen: Seen) -> None:
    with space.queue.flow("f") as flow:
        first = flow.enqueue("a", "first")
        flow.enqueue_many("a", [NewJob(n, delay="1h") for n in range(500)])
        assert space.queue.cancel("a", first.id)
        space.queue.enqueue("a", "stranger", id=first.id, delay="1h")
        flow.enqueue("b", "second", after=first, on_failure="run")
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert await seen.count(1) == ["second"]
        await eventually(lambda: counts(space) == {"cancelled": 1, "delayed": 500}, "all have started")
    assert space.queue.cancel_flow("f")
    assert space.state(first.id, "a") == "delayed", "another job has its id"


async def test_a_flow_waits_for_other_jobs(space: Space, seen: Seen) -> None:
    other = space.queue.enqueue("a", "other", delay="1h")
    with space.queue.flow("f") as flow:
        flow.enqueue("b", "mine", after=other)
    with pytest.raises(ParentUnknown), space.queue.flow("g") as flow:
        flow.enqueue("b", "mine", after=("a", "nobody"))
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert space.queue.reschedule("a", other.id, delay=0)
        assert await seen.count(2) == ["other", "mine"]


async def test_cancel_while_it_runs(space: Space) -> None:
    started, going = Seen(), asyncio.Event()
    worker = space.worker()

    @worker.handler("a", retry="1ms")
    async def handle(body: Any) -> None:
        started.add(body)
        await going.wait()

    with space.queue.flow("f") as flow:
        first = flow.enqueue("a", 1)
        flow.enqueue("a", 2, after=first, on_failure="run")
        flow.enqueue_many("a", [NewJob(n, delay="1h") for n in range(150)])
    async with space.serving(worker):
        await started.count(1)
        assert await asyncio.to_thread(space.queue.cancel_flow, "f")
        await eventually(lambda: state(space) is FlowState.CANCELLED, "it has ended")
    assert started.all == [1]
    status = space.queue.flow_status("f")
    assert status is not None
    assert status.count("cancelled") == 152
    assert space.queue.cancel_flow("f"), "again"


def test_cancel_while_it_is_built(space: Space) -> None:

    def build_5() -> None:
        with space.queue.flow("f") as flow:
            flow.enqueue("a", 1, id="one")
            assert space.another_queue().cancel_flow("f")

    with pytest.raises(FlowWithdrawn):
        build_5()
    assert space.state("one", "a") == "gone"
    assert space.queue.get(FLOWS, "f") is None


def test_jobs_with_keys(space: Space) -> None:
    space.queue.configure("a", shards=SHARDS)
    with space.queue.flow("f") as flow:
        some = flow.enqueue_many("a", [NewJob(n, id=str(n), key=f"k{n}", delay="1h") for n in range(8)])
        flow.enqueue("a", "join", after=some)
    status = space.queue.flow_status("f")
    assert status is not None
    assert [one.jobs for one in status.stages] == [8, 1]
    assert space.queue.cancel_flow("f")
    assert {space.state(str(n), "a") for n in range(8)} == {"gone"}


def test_the_number_of_shards_changes_while_it_is_built(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_BATCH", 8)
    space.queue.configure("a", shards=2)
    with space.queue.flow("f") as flow:
        some = flow.enqueue_many("a", [NewJob(n, delay="1h") for n in range(8)])
        space.another_queue().configure("a", shards=SHARDS)
        flow.enqueue_many("a", [NewJob(n, delay="1h", after=some) for n in range(8)])
    status = space.queue.flow_status("f")
    assert status is not None
    assert [one.jobs for one in status.stages] == [8, 8]


def test_jobs_of_one_call_when_the_number_of_shards_has_changed(space: Space) -> None:
    space.queue.configure("a", shards=2)
    with space.queue.flow("before") as flow:
        flow.enqueue("a", 0, delay="1h")  # from now on this process knows of two shards
    space.another_queue().configure("a", shards=SHARDS)
    with space.queue.flow("f") as flow:
        first = flow.enqueue("a", 1, delay="1h")
        flow.enqueue("b", 2, after=first)
        flow.enqueue("a", 3, after=first, on_failure="run")
    status = space.queue.flow_status("f")
    assert status is not None
    assert [dict(one.counts) for one in status.stages] == [{"waiting": 1}] * 3


def test_its_own_topic_gets_more_shards(space: Space) -> None:
    for n in range(6):
        with space.queue.flow(f"f{n}") as flow:
            flow.enqueue("a", 1, delay="1h")
    space.queue.configure(FLOWS, shards=5)
    for n in range(6):
        assert state(space, f"f{n}") is FlowState.RUNNING
        with pytest.raises(FlowExists), space.queue.flow(f"f{n}"):
            raise AssertionError("not reached")
        assert space.queue.cancel_flow(f"f{n}")


async def test_on_a_cluster(spread: Space, seen: Seen) -> None:
    for topic in ("a", "b"):
        spread.queue.configure(topic, shards=SHARDS)
    with spread.queue.flow("f") as flow:
        parts = flow.enqueue_many("a", (NewJob(n) for n in range(60)))
        flow.enqueue("b", "join", after=parts)
    with spread.queue.flow("g") as flow:
        flow.enqueue_many("a", (NewJob(n, delay="1h") for n in range(60)))
    async with spread.serving(worker_for(spread, seen, "a", "b")):
        assert (await seen.count(61))[-1] == "join"
        await eventually(lambda: state(spread) is FlowState.DONE, "it is done")
    assert spread.queue.cancel_flow("g")
    assert spread.stats("a").delayed == 0


# -- without a worker, by a clock that the test moves


class Mover:
    """What movers do, when the test says so."""

    def __init__(self, space: Space) -> None:
        self._link, self._session = open_session(space.url, NAMESPACE, SETTINGS, space.clock, AsyncLink)
        self._store = RedisStore(self._session)
        self._scripts, self._topics = self._store.scripts, self._store.topics

    async def look(self) -> None:
        """Until there is nothing left to do now."""
        await arun(self._link, self._topics.refresh())
        flows = Flows(self._link, self._store, lambda _: None)
        for _ in range(4):  # what one tells, the next one may pass on
            for topic in list(self._topics.known):
                for shard in self._topics.all_shards(topic):
                    if topic == FLOWS:
                        await flows._look(shard)
                    endings = Endings(self._link, self._store, lambda _: None, flows.look_at)
                    endings.look_for_shards()
                    await endings._look(shard)
                    await arun(self._link, self._scripts.move(shard, self._topics.known[topic].group_names, 500))

    async def close(self) -> None:
        await self._link.close()


@pytest.fixture
async def mover(stepped: Space) -> AsyncIterator[Mover]:
    mover = Mover(stepped)
    yield mover
    await mover.close()


class Killed(BaseException):
    """The builder's process was killed."""


def build(space: Space, name: str) -> None:
    """Jobs with ids of their own, which end at once."""
    with space.another_queue().flow(name) as flow:
        parts = [flow.enqueue("a", n, id=f"{name}-{n}") for n in range(3)]
        join = flow.enqueue("b", "join", id=f"{name}-join", after=parts)
        flow.enqueue("b", "undo", id=f"{name}-undo", after=join, on_failure="run")


def states(space: Space, name: str) -> set[str]:
    parts = [space.state(f"{name}-{n}", "a") for n in range(3)]
    return {*parts, *(space.state(f"{name}-{one}", "b") for one in ("join", "undo"))}


async def test_a_builder_is_killed_at_each_step(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "MAX_BATCH", 4)
    original, left, outcomes = session_module._carry_out, [0], Counter[str]()

    def cut(link: Any, step: Any) -> Any:
        result = original(link, step)
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return result

    build(stepped, "whole")
    for number in itertools.count(1):
        name, left[0] = f"f{number}", number
        was_killed = False
        try:
            with monkeypatch.context() as patch:
                patch.setattr(session_module, "_carry_out", cut)
                patch.setattr(Building, "withdraw", lambda _: iter(()))
                build(stepped, name)
        except Killed:
            was_killed = True
        is_complete = stepped.queue.get(FLOWS, name) is not None
        assert states(stepped, name) <= {"gone", "waiting"}, "nothing starts without a mover"
        if number % 2:  # the build is repeated before the mover looks, or after
            with contextlib.suppress(FlowExists) if is_complete else contextlib.nullcontext():
                build(stepped, name)
            is_complete = True
        clock.advance("61m")
        await mover.look()
        if is_complete:
            outcomes["runs"] += 1
            assert {stepped.state(f"{name}-{n}", "a") for n in range(3)} == {"ready"}
        else:
            outcomes["nothing"] += 1
            assert states(stepped, name) == {"gone"}
            build(stepped, name)
        assert stepped.queue.cancel_flow(name)
        assert states(stepped, name) == {"gone"}
        if not was_killed:
            break
    assert min(outcomes["runs"], outcomes["nothing"]) > 3, outcomes


async def test_what_is_left_of_a_flow(stepped: Space, mover: Mover, clock: ManualClock) -> None:
    build(stepped, "f")
    await mover.look()
    for topic, count in (("a", 3), ("b", 1), ("b", 1)):
        for _ in range(count):
            with stepped.queue.take(topic, timeout=0) as claim:
                assert claim is not None
        await mover.look()
    assert state(stepped) is FlowState.DONE
    clock.advance("11m")
    await mover.look()
    left = [key for key in linked_keys(stepped) if stepped_redis(stepped, key, "EXISTS", key)]
    assert {key for key in left if FLOWS not in key} == set(), "only the flow itself is left"
    assert state(stepped) is FlowState.DONE
    clock.advance("25h")
    await mover.look()
    assert stepped.queue.flow_status("f") is None
    await mover.look()
    clock.advance("11m")  # endings are delivered again, and then forgotten
    await mover.look()
    assert not [key for key in linked_keys(stepped) if stepped_redis(stepped, key, "EXISTS", key)]


async def test_a_job_of_a_flow_is_not_postponed(stepped: Space, mover: Mover) -> None:
    """It would be another job, which cancel_flow did not know."""
    with stepped.queue.flow("f") as flow:
        flow.enqueue("a", 1, id="j", delay="1h")
    await mover.look()
    assert stepped.state("j", "a") == "delayed"
    with pytest.raises(JobExists, match="waits for other jobs or has waited"):
        stepped.queue.enqueue("a", 2, id="j", delay="2h", on_conflict="postpone")
    assert stepped.queue.cancel_flow("f")
    assert stepped.stats("a").delayed == 0


async def test_a_deadline(stepped: Space, mover: Mover, clock: ManualClock) -> None:
    with stepped.queue.flow("f", deadline="2h") as flow:
        slow = flow.enqueue("a", "slow", delay="3h")
        flow.enqueue("b", "next", after=slow, on_failure="run")
    await mover.look()
    clock.advance("119m")
    await mover.look()
    assert state(stepped) is FlowState.RUNNING
    clock.advance("2m")
    await mover.look()
    assert state(stepped) is FlowState.CANCELLED
    assert stepped.stats("a").delayed == 0


def linked_keys(space: Space) -> list[str]:
    session = store_of(space.queue).session
    kinds = ("followers", "endings", "dependencies", "dependents", "blocked", "flows", "flow_times", "jobs", "bucket")
    return [
        getattr(session.keys.shard(topic, number), kind)
        for topic in space.queue.stats().topics
        for number in range(SHARDS)
        for kind in kinds
    ]


def stepped_redis(space: Space, key: str, *command: Any) -> Any:
    return carry_out(space.queue, one(store_of(space.queue).session, key, *command))
