"""Jobs that handlers add to the flow of their own job, with a worker and its mover."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
import redis

from streamdq import AsyncQueue, Claim, FlowState, InvalidInput, JobExists, NewJob, RunningJob, StaleClaim, Worker
from streamdq.archive import Archive
from streamdq.errors import JobAborted, ServerUnavailable
from streamdq.job.flow import FLOWS
from streamdq.keys import ShardKeys
from streamdq.link.connection import AsyncLink
from streamdq.link.session import Op, arun
from streamdq.mover import endings
from streamdq.mover.endings import Endings
from streamdq.mover.flows import Flows
from streamdq.operations.attempts import added, take
from streamdq.queue import carry_out, store_of
from streamdq.store.flows.children import children_text
from streamdq.store.jobs.links import Received
from streamdq.store.replies import Enqueued
from streamdq.store.scripts.links import LinkScripts
from streamdq.testing import drain, memory
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space
from tests.redis.test_flows import Mover, state
from tests.turns import others_later
from tests.waiting import HANG_S, eventually

JOIN = ("join", "join")


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


def jobs_of(space: Space) -> int | None:
    status = space.queue.flow_status("f")
    return status.jobs if status else None


async def test_the_join_of_a_part_waits_for_what_the_part_adds(space: Space, seen: Seen) -> None:
    await the_join_waits(space, seen)


async def test_on_a_cluster(spread: Space, seen: Seen) -> None:
    await the_join_waits(spread, seen)


async def the_join_waits(space: Space, seen: Seen) -> None:
    for topic in ("part", "extra", "join"):
        space.queue.configure(topic, shards=4)
    worker = space.worker()

    @worker.handler("part", retry="none")
    async def part(n: int, job: RunningJob) -> None:
        await job.async_flow.enqueue_many("extra", [NewJob((n, i)) for i in range(n)], before=JOIN)

    @worker.handler("extra", retry="none")
    async def extra(body: list[int], job: RunningJob) -> None:
        n, i = body
        if n == 7 and i == 0:
            await job.async_flow.enqueue("extra", (8, 0), before=JOIN, delay="30ms")
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
    assert [(one.topic, one.jobs) for one in status.stages] == [("part", 4), ("join", 1), ("extra", 15)]
    assert space.audit().balanced


async def test_in_def_handlers_with_results(space: Space, seen: Seen) -> None:
    loop, worker = asyncio.get_running_loop(), space.worker()

    @worker.handler("part", result="1h")
    def part(n: int, job: RunningJob) -> int:
        job.flow.enqueue("extra", n * 10, id=f"e-{n}", before=[JOIN])
        return n

    @worker.handler("extra", result="1h")
    def extra(n: int) -> int:
        return n

    @worker.handler("join")
    def join(_body: Any, job: RunningJob) -> None:
        loop.call_soon_threadsafe(seen.add, [(one.id, one.result) for one in job.results()])

    async with space.serving(worker):
        join_of(space, 1, 2)
        await seen.count(1)
    (found,) = seen.all
    assert found[:2] == [("p-1", 1), ("p-2", 2)]
    assert sorted(found[2:]) == [("e-1", 10), ("e-2", 20)]


async def test_an_attempt_that_fails_leaves_nothing_and_the_next_makes_each_once(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("part", retry=["10ms"])
    async def part(_body: Any, job: RunningJob) -> None:
        await job.async_flow.enqueue("extra", job.attempt, id="e", before=JOIN)
        if job.attempt == 1:
            raise ValueError("as told")

    note(worker, seen, "extra", "join")
    async with space.serving(worker):
        join_of(space, 1)
        await seen.count(2)
    assert seen.all == [2, "join"]
    assert space.audit().balanced


async def test_without_before_nothing_waits_for_it_but_the_flow(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("part")
    async def part(_body: Any, job: RunningJob) -> None:
        await job.async_flow.enqueue("extra", "extra", delay="1h")

    note(worker, seen, "join")
    async with space.serving(worker):
        join_of(space, 1)
        await seen.count(1)
        await eventually(lambda: jobs_of(space) == 3, "it is known to the flow")
    assert state(space) is FlowState.RUNNING
    assert space.queue.cancel_flow("f")
    assert space.stats("extra").delayed == 0


async def test_in_memory() -> None:
    place, seen = memory(), list[Any]()
    worker = place.worker()

    @worker.handler("part")
    async def part(_body: Any, job: RunningJob) -> None:
        await job.async_flow.enqueue("extra", "extra", before=JOIN, delay="1h")

    @worker.handler("extra")
    @worker.handler("join")
    async def other(body: Any) -> None:
        seen.append(body)

    with place.queue() as queue:
        with queue.flow("f") as flow:
            flow.enqueue("join", "join", id="join", after=flow.enqueue("part", 1))
        await drain(worker, place.clock, "2h")
    assert seen == ["extra", "join"]
    place.close()


# -- without a worker, by a clock that the test moves


class Killed(BaseException):
    """The mover's process was killed."""


@pytest.fixture
async def mover(stepped: Space) -> AsyncIterator[Mover]:
    mover = Mover(stepped)
    yield mover
    await mover.close()


def claimed(space: Space, topic: str, group: str = "default") -> Claim:
    """As ``take``, which would start a mover."""
    held = carry_out(space.queue, take.take(store_of(space.queue), topic, group, 0))
    assert held
    return Claim(space.queue, held)


async def begun(space: Space, mover: Mover) -> Claim:
    join_of(space, 1)
    await mover.look()
    return claimed(space, "part")


def gone(space: Space, *ids: str) -> bool:
    return all(space.state(id, "extra") == "gone" for id in ids)


async def test_a_claim_adds_jobs_when_it_is_finished(stepped: Space, mover: Mover) -> None:
    claim = await begun(stepped, mover)
    made = claim.flow.enqueue("extra", 1, before=JOIN)
    again = claim.flow.enqueue_many("extra", [NewJob(2), {"body": 3}], before=[JOIN])
    assert gone(stepped, made.id, *(one.id for one in again)), "nothing is written before"
    claim.finish()
    await mover.look()
    for _ in range(3):
        assert stepped.state("join", "join") == "waiting"
        claimed(stepped, "extra").finish()
        await mover.look()
    assert stepped.state("join", "join") == "ready"
    with pytest.raises(StaleClaim, match="has ended"):
        claim.flow.enqueue("extra", 1)
    assert stepped.audit().balanced


async def test_an_awaited_claim(stepped: Space, mover: Mover) -> None:
    join_of(stepped, 1)
    await mover.look()
    async with AsyncQueue(stepped.url, NAMESPACE, settings=SETTINGS, clock=stepped.clock) as queue:
        claim = await queue.take("part")
        assert claim
        async with claim:
            await claim.flow.enqueue("extra", 1, id="a", before=JOIN)
            await claim.flow.enqueue_many("extra", [NewJob(1, id="b")])
    await mover.look()
    assert {stepped.state(id, "extra") for id in "ab"} == {"ready"}


async def test_tasks_of_a_handler_add_jobs_at_the_same_time(stepped: Space, mover: Mover) -> None:
    join_of(stepped, 1)
    await mover.look()
    async with AsyncQueue(stepped.url, NAMESPACE, settings=SETTINGS, clock=stepped.clock) as queue:
        claim = await queue.take("part")
        assert claim
        await asyncio.gather(*(claim.flow.enqueue("extra", n, before=JOIN) for n in range(5)))
        await claim.finish()
    await mover.look()
    assert stepped.stats("extra").ready == 5


async def test_the_attempt_ends_while_a_task_adds_a_job(stepped: Space, mover: Mover) -> None:
    join_of(stepped, 1)
    await mover.look()
    async with AsyncQueue(stepped.url, NAMESPACE, settings=SETTINGS, clock=stepped.clock) as queue:
        claim = await queue.take("part")
        assert claim

        def bodies() -> Iterator[NewJob]:
            claim._held.ended = True
            yield NewJob(1)

        with pytest.raises(StaleClaim, match="has ended"):
            await claim.flow.enqueue_many("extra", bodies())
        claim._held.ended = False
        await claim.finish()


async def test_a_priority_marks_the_topic(stepped: Space, mover: Mover) -> None:
    claim = await begun(stepped, mover)
    claim.flow.enqueue("extra", 1, id="e", priority="high")
    claim.finish()
    await mover.look()
    assert stepped.job("e", "extra").priority == "high"
    settings = carry_out(stepped.queue, store_of(stepped.queue).topics.renew("extra"))
    assert settings
    assert settings.prioritized


@pytest.mark.parametrize("end", ["fail", "bury", "lost", "aborted"])
async def test_nothing_is_left_of_what_was_added(stepped: Space, mover: Mover, end: str) -> None:
    claim = await begun(stepped, mover)
    claim.flow.enqueue("extra", 1, id="e", before=JOIN)
    if end == "fail":
        claim.fail("as told")
    elif end == "bury":
        claim.bury("as told")
    elif end == "lost":
        stepped.queue.abort("part", "p-1")
        stepped.queue.delete_topic("part", force=True)
        with pytest.raises(StaleClaim):
            claim.finish()
    else:
        stepped.queue.abort("part", "p-1")
        with pytest.raises(JobAborted):
            claim.finish()
    await mover.look()
    assert gone(stepped, "e")
    found = stepped.queue.dependencies("join", "join")
    assert found is None or found.total == 1


async def test_what_is_refused(stepped: Space, mover: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = stepped.queue
    queue.enqueue("t", 1)
    with pytest.raises(InvalidInput, match="belongs to no flow"):
        claimed(stepped, "t").flow.enqueue("extra", 1)
    claim = await begun(stepped, mover)
    queue.enqueue("join", 1, id="other", delay="1h")
    with pytest.raises(InvalidInput, match="'other' of topic 'join' does not wait for job 'p-1'"):
        claim.flow.enqueue("extra", 1, before=[JOIN, ("join", "other")])
    with pytest.raises(InvalidInput, match="kept for flows"):
        claim.flow.enqueue(FLOWS, 1)
    with pytest.raises(InvalidInput, match="pass before"):
        claim.flow.enqueue_many("extra", [NewJob(1, after=("part", "p-1"))])
    with pytest.raises(InvalidInput, match="with a flow"):
        claim.flow.enqueue_many("extra", [NewJob(1, at=1)])
    for before in ("join", [1], [("join", 1)], {"topic": "join"}):
        with pytest.raises(InvalidInput, match=r"before: .* is neither a job nor"):
            claim.flow.enqueue("extra", 1, before=before)
    with pytest.raises(JobExists, match="or cancel it"):
        claim.flow.enqueue("join", 1, id="other")
    claim.flow.enqueue("extra", 1, id="e")
    with pytest.raises(JobExists, match="as this attempt has added it: use another id"):
        claim.flow.enqueue("extra", 1, id="e")
    with pytest.raises(JobExists):
        claim.flow.enqueue_many("extra", [NewJob(1, id="f"), NewJob(2, id="f")])
    monkeypatch.setattr(added, "MOST_CHILDREN", 3)
    with pytest.raises(InvalidInput, match="at most 3 jobs"):
        claim.flow.enqueue_many("extra", [NewJob(n) for n in range(3)])
    monkeypatch.setattr(added, "MOST_BYTES", claim._held.children_bytes + 200)
    with pytest.raises(InvalidInput, match="bytes together"):
        claim.flow.enqueue("extra", "x" * 200)
    monkeypatch.setattr(added, "MAX_PARENTS", 3)
    with pytest.raises(InvalidInput, match="the flow has more than 3"):
        claim.flow.enqueue("extra", 1)
    elsewhere = replace(claim._held, shard=cast("Any", None))  # as in a process for handlers
    with pytest.raises(InvalidInput, match="in a process"):
        Claim(queue, elsewhere).flow.enqueue("extra", 1)
    queue.cancel("join", "join")
    with pytest.raises(InvalidInput, match="'join' has started or ended"):
        claim.flow.enqueue("extra", 1, before=JOIN)
    claim.finish()
    await mover.look()
    assert stepped.state("e", "extra") == "ready", "what was refused is not among them"
    assert stepped.stats("extra").ready == 1


async def killed_behind(mover: Mover, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the mover was killed, behind its so manyth call; it may need fewer."""
    send, left = AsyncLink.send, number

    async def cut(link: AsyncLink, *args: Any, **named: Any) -> Any:
        nonlocal left
        replies = await send(link, *args, **named)
        left -= 1
        if left == 0:
            raise Killed
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(AsyncLink, "send", cut)
        try:
            await mover.look()
        except (Killed, BaseExceptionGroup):
            return True
    return False


@pytest.mark.parametrize("each", others_later([1, 4], 4))
async def test_a_mover_is_killed_at_each_step(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, each: int
) -> None:
    """What was added is put in once, and the join waits for it."""
    steps = 0
    for number in itertools.count(1, each):
        claim = await begun(stepped, mover)
        claim.flow.enqueue("extra", 1, id="e", before=JOIN)
        claim.flow.enqueue("other", 1, id="o", before=JOIN)
        claim.finish()
        was_killed = await killed_behind(mover, number, monkeypatch)
        assert stepped.state("join", "join") == "waiting"
        await mover.look()
        for topic in ("extra", "other"):
            claimed(stepped, topic).finish()
            assert stepped.stats(topic).ready == 0
            await mover.look()
        claimed(stepped, "join").finish()
        await mover.look()
        clock.advance("25h")
        await mover.look()
        await mover.look()
        assert stepped.queue.flow_status("f") is None, "all of it has ended"
        if not was_killed:
            steps = number
            break
    assert steps > 8
    assert stepped.audit().balanced


async def test_one_that_was_cancelled_before_it_could_start(stepped: Space, mover: Mover) -> None:
    """Its flow was, between the end of the job that has added it and the delivery of that."""
    claim = await begun(stepped, mover)
    claim.flow.enqueue("extra", 1, id="e", before=JOIN)
    claim.finish()
    assert stepped.queue.cancel_flow("f")
    await mover.look()
    assert gone(stepped, "e")
    assert stepped.state("join", "join") == "gone"
    assert stepped.audit().balanced


async def test_a_flow_whose_deadline_has_passed_meanwhile(stepped: Space, mover: Mover, clock: ManualClock) -> None:
    with stepped.queue.flow("f", deadline="1m") as flow:
        flow.enqueue("join", "join", id="join", after=flow.enqueue("part", 1))
    await mover.look()
    claim = claimed(stepped, "part")
    claim.flow.enqueue("extra", 1, id="e", before=JOIN, delay="1h")
    claim.finish()
    clock.advance("2m")
    await mover.look()
    await mover.look()
    assert gone(stepped, "e")
    assert stepped.state("join", "join") == "gone"


async def test_a_child_that_fails_blocks_the_join_until_it_is_retried(stepped: Space, mover: Mover) -> None:
    claim = await begun(stepped, mover)
    claim.flow.enqueue("extra", 1, id="e", before=JOIN)
    claim.finish()
    await mover.look()
    claimed(stepped, "extra").bury("as told")
    await mover.look()
    assert state(stepped) is FlowState.BLOCKED
    found = stepped.queue.dependencies("join", "join")
    assert found is not None
    assert [(one.id, one.outcome) for one in found.jobs] == [("p-1", "done"), ("e", "dead")]
    stepped.queue.kick("extra", "e")
    await mover.look()
    claimed(stepped, "extra").finish()
    await mover.look()
    assert stepped.state("join", "join") == "ready"


async def test_another_job_has_got_the_id_meanwhile(
    stepped: Space, mover: Mover, caplog: pytest.LogCaptureFixture
) -> None:
    claim = await begun(stepped, mover)
    claim.flow.enqueue("extra", 1, id="e", before=JOIN)
    stepped.queue.enqueue("extra", "other", id="e")
    claim.finish()
    await mover.look()
    assert "another one has its id" in caplog.text
    assert stepped.state("join", "join") == "ready"
    assert stepped.job("e", "extra").body == "other"


async def test_a_retry_finds_what_an_earlier_attempt_has_added(stepped: Space, mover: Mover) -> None:
    """As after a failover that has undone the end of that attempt."""
    claim = await begun(stepped, mover)
    first = claim.flow.enqueue("extra", 1, id="e", before=JOIN)
    claim.finish()
    await mover.look()
    child = claimed(stepped, "extra")
    child.flow.enqueue("extra", 2, id="f", before=JOIN)
    child.finish()
    await mover.look()
    second = claimed(stepped, "extra")
    assert second.job.id == "f"
    with pytest.raises(JobExists):
        second.flow.enqueue("extra", 2, id="f")
    assert first.life


async def test_jobs_of_the_flow_that_no_handler_has_added(stepped: Space, mover: Mover) -> None:
    """If the join had to wait for one of these, it could wait for itself."""
    with stepped.queue.flow("f") as flow:
        join = flow.enqueue("join", "join", id="join", after=flow.enqueue("part", 1, id="p-1"))
        flow.enqueue("join", "last", id="last", after=join)
    await mover.look()
    claim = claimed(stepped, "part")
    for topic, id in (JOIN, ("join", "last"), ("part", "p-1")):
        with pytest.raises(JobExists):
            claim.flow.enqueue(topic, 1, id=id, before=JOIN)
    claim.finish()
    await mover.look()
    assert stepped.state("join", "join") == "ready"


async def two_joins(space: Space, mover: Mover) -> tuple[Claim, Claim]:
    """A flow with two parts, each with a join of its own."""
    with space.queue.flow("f") as flow:
        for n in range(2):
            part = flow.enqueue("part", n, id=f"p-{n}")
            flow.enqueue("join", n, id=f"join-{n}", after=part)
    await mover.look()
    first, second = claimed(space, "part"), claimed(space, "part")
    assert [first.job.id, second.job.id] == ["p-0", "p-1"]
    return first, second


@pytest.mark.parametrize("when", ["before the first has ended", "after that", "after the job has ended"])
async def test_two_jobs_of_a_flow_add_one_with_the_same_id(
    stepped: Space, mover: Mover, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    """It is put in once, and both joins wait for it."""
    first, second = await two_joins(stepped, mover)
    made = [first.flow.enqueue("extra", 1, id="e", before=("join", "join-0"))]
    if when == "before the first has ended":
        made.append(second.flow.enqueue("extra", 1, id="e", before=("join", "join-1")))
    first.finish()
    await mover.look()
    if when != "before the first has ended":
        made.append(second.flow.enqueue("extra", 1, id="e", before=("join", "join-1")))
        assert made[0] == made[1]
    if when == "after the job has ended":
        claimed(stepped, "extra").finish()
    second.finish()
    await mover.look()
    if when != "after the job has ended":
        assert [stepped.state(f"join-{n}", "join") for n in range(2)] == ["waiting"] * 2
        claimed(stepped, "extra").finish()
    await mover.look()
    assert stepped.state("join-0", "join") == "ready"
    assert stepped.state("e", "extra") == "gone", "it has run once"
    if when == "after the job has ended":
        assert isinstance(stepped.clock, ManualClock)
        stepped.clock.advance("31s")
        await mover.look()  # which asks for it
    assert stepped.state("join-1", "join") == "ready"
    assert caplog.text == ""
    assert jobs_of(stepped) == 5
    assert stepped.audit().balanced


async def test_groups_add_a_job_with_the_same_id(stepped: Space, mover: Mover) -> None:
    """It is put in once. Those wait for it that any of the groups has named."""
    stepped.queue.configure("part", groups=["a", "b"], create=True)
    join_of(stepped, 1)
    await mover.look()
    for group in ("a", "b"):
        claim = claimed(stepped, "part", group)
        claim.flow.enqueue("extra", group, id="e", before=JOIN if group == "b" else ())
        claim.finish()
    await mover.look()
    assert stepped.state("join", "join") == "waiting"
    claim = claimed(stepped, "extra")
    assert claim.job.body == "a"
    claim.finish()
    await mover.look()
    assert stepped.state("join", "join") == "ready"


async def test_threads_of_a_handler_add_jobs_at_the_same_time(
    stepped: Space, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, text, other = await begun(stepped, mover), children_text, Event()

    class Lock:
        """Says when another thread waits for it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                other.set()
                self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def add(name: str) -> None:
        claim.flow.enqueue("extra", name, id=name)
        other.set()

    def meanwhile(children: Any) -> bytes:
        monkeypatch.setattr(added, "children_text", text)
        thread.start()
        other.wait(HANG_S)
        return text(children)

    thread = threading.Thread(target=add, args=["second"])
    monkeypatch.setattr(added, "_adding", Lock())
    monkeypatch.setattr(added, "children_text", meanwhile)
    claim.flow.enqueue("extra", "first", id="first")
    thread.join()
    claim.finish()
    await mover.look()
    assert {stepped.state(id, "extra") for id in ("first", "second")} == {"ready"}


async def test_a_flow_that_was_forgotten(stepped: Space, mover: Mover, clock: ManualClock) -> None:
    """Its dead letter is kicked long after."""
    with stepped.queue.flow("f", keep="1s") as flow:
        flow.enqueue("part", 1, id="p-1")
    await mover.look()
    claimed(stepped, "part").bury("as told")
    await mover.look()
    clock.advance("2s")
    await look_at_flows(mover)
    stepped.queue.kick("part", "p-1")
    claim = claimed(stepped, "part")
    with pytest.raises(InvalidInput, match="was forgotten"):
        claim.flow.enqueue("extra", 1)
    claim.finish()


async def look_at_flows(mover: Mover) -> None:
    """As the mover of another node may do first."""
    for _ in range(2):
        for shard in mover._topics.all_shards(FLOWS):
            await arun(mover._link, mover._scripts.move(shard, mover._topics.known[FLOWS].group_names, 500))
            await Flows(mover._link, mover._store, lambda _: None)._look(shard)


async def test_a_flow_is_cancelled_and_forgotten_before_its_children_hear_of_that(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mover is killed at each step in between."""
    for number in itertools.count(1):
        with stepped.queue.flow(f"f-{number}", keep="1s") as flow:
            flow.enqueue("part", 1)
        await mover.look()
        claim = claimed(stepped, "part")
        claim.flow.enqueue("extra", 1, id=f"e-{number}")
        claim.finish()
        assert stepped.queue.cancel_flow(f"f-{number}")
        was_killed = await killed_behind(mover, number, monkeypatch)
        clock.advance("2s")
        await look_at_flows(mover)
        await mover.look()
        assert gone(stepped, f"e-{number}"), number
        if not was_killed:
            break
    assert number > 8


async def test_a_node_is_away_while_the_flow_is_cancelled_and_forgotten(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stepped.queue.flow("f", keep="1s") as flow:
        flow.enqueue("part", 1)
    await mover.look()
    claim = claimed(stepped, "part")
    claim.flow.enqueue("extra", 1, id="e")
    claim.finish()
    assert stepped.queue.cancel_flow("f")
    deliver = LinkScripts.deliver

    def away(scripts: LinkScripts, shard: ShardKeys, news: Any) -> Op[list[Received]]:
        if shard.topic == "extra":
            raise ServerUnavailable("away")
        return (yield from deliver(scripts, shard, news))

    with monkeypatch.context() as patch:
        patch.setattr(LinkScripts, "deliver", away)
        for _ in range(3):
            await mover.look()
            clock.advance("2s")
            await look_at_flows(mover)
    assert stepped.state("e", "extra") == "waiting"
    await mover.look()
    assert gone(stepped, "e")


@pytest.mark.parametrize("each", others_later([1, 4], 4))
async def test_a_failover_undoes_the_end_at_each_step(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, each: int
) -> None:
    """The next attempt adds the same job: the join waits for it, whatever has become of it before."""
    with redis.Redis.from_url(stepped.url) as client:
        for number in itertools.count(1, each):
            claim = await begun(stepped, mover)
            part = {key: client.dump(key) for key in client.scan_iter(f"{NAMESPACE}:{{part:*")}
            claim.flow.enqueue("extra", 1, id="e", before=JOIN)
            claim.finish()
            was_killed = await killed_behind(mover, number, monkeypatch)
            client.delete(*client.scan_iter(f"{NAMESPACE}:{{part:*"))
            for key, value in part.items():
                client.restore(key, 0, value)
            again = Claim(stepped.queue, replace(claim._held, ended=False, children=()))
            again.flow.enqueue("extra", 1, id="e", before=JOIN)
            again.finish()
            await mover.look()
            assert stepped.state("join", "join") == "waiting", number
            claimed(stepped, "extra").finish()
            await mover.look()
            claimed(stepped, "join").finish()
            assert stepped.stats("extra").ready == 0
            await mover.look()
            clock.advance("25h")
            await mover.look()
            await mover.look()
            if not was_killed:
                break
    assert number > 8


async def test_jobs_in_shards_of_before(stepped: Space, mover: Mover) -> None:
    queue = stepped.queue
    queue.configure("extra", shards=4)
    for n in range(20):
        queue.enqueue("extra", n, id=f"old-{n}", delay="1h")
    queue.configure("extra", shards=7)
    claim = await begun(stepped, mover)
    for n in range(20):
        with pytest.raises(JobExists):
            claim.flow.enqueue("extra", n, id=f"old-{n}", before=JOIN)
    claim.finish()
    await mover.look()
    assert stepped.state("join", "join") == "ready"


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_the_topic_is_resharded_while_children_are_put_in(
    stepped: Space, mover: Mover, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """The mover is killed then. The next one finds them in the shards of before."""
    queue = stepped.queue
    queue.configure("extra", shards=4)
    queue.enqueue_many("extra", [NewJob(n, delay="1h") for n in range(50)])  # so that these stay in use
    claim = await begun(stepped, mover)
    claim.flow.enqueue_many("extra", [NewJob(n, id=f"new-{n}") for n in range(20)], before=JOIN)
    claim.finish()

    def killed(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LinkScripts, "link_children", killed)
        with pytest.raises(Killed):
            await mover.look()
    if is_cancelled:
        assert queue.cancel("extra", "new-3")
    queue.configure("extra", shards=7)
    await mover.look()
    for n in range(20 - is_cancelled):
        assert stepped.state("join", "join") == "waiting", n
        claimed(stepped, "extra").finish()
        await mover.look()
    assert stepped.stats("extra").ready == 0
    assert gone(stepped, *(f"new-{n}" for n in range(20))), "each was put in once"
    assert stepped.state("join", "join") == ("waiting" if is_cancelled else "ready")


async def test_while_the_topic_is_resharded(stepped: Space, mover: Mover) -> None:
    queue = stepped.queue
    queue.configure("extra", shards=4)
    for n in range(20):
        queue.enqueue("extra", n, id=f"old-{n}", delay="1h")
    queue.configure("extra", shards=5)
    claim = await begun(stepped, mover)
    claim.flow.enqueue_many("extra", [NewJob(n, id=f"new-{n}") for n in range(20)], before=JOIN)
    queue.configure("extra", shards=7)
    claim.finish()
    await mover.look()
    for _ in range(20):
        assert stepped.state("join", "join") == "waiting"
        claimed(stepped, "extra").finish()
        await mover.look()
    assert stepped.state("join", "join") == "ready"


async def test_of_a_job_that_is_in_the_archive_of_another_group(stepped: Space, mover: Mover, tmp_path: Path) -> None:
    """They start once it has come back and is done there, too."""
    stepped.queue.configure("part", groups=["a", "b"], create=True)
    join_of(stepped, 1)
    await mover.look()
    adding, failing = (claimed(stepped, "part", group) for group in "ab")
    adding.flow.enqueue("extra", 1, id="e", before=JOIN)
    adding.finish()
    failing.bury("no")
    with Archive(f"sqlite:///{tmp_path}/dead.db", NAMESPACE) as archive:
        archive.store(stepped.queue)
        await mover.look()
        assert gone(stepped, "e")
        archive.kick(stepped.queue, "part")
    await mover.look()
    claimed(stepped, "part", "b").finish()
    await mover.look()
    assert stepped.state("join", "join") == "waiting"
    claimed(stepped, "extra").finish()
    await mover.look()
    assert stepped.state("join", "join") == "ready"
    assert stepped.audit().balanced


async def test_the_node_of_some_is_away(
    stepped: Space, mover: Mover, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds up no others of the shard, nor does it take the time of one call after the other."""
    monkeypatch.setattr(endings, "_AT_ONCE", 4)
    monkeypatch.setattr(endings, "_PUT_IN_AT_ONCE", 2)
    tried: list[str] = []
    put = LinkScripts.enqueue_after_many

    def away(scripts: LinkScripts, shard: ShardKeys, *args: Any) -> Op[Enqueued]:
        tried.append(shard.topic)
        if shard.topic == "away":
            raise ServerUnavailable("away")
        return (yield from put(scripts, shard, *args))

    join_of(stepped, *range(7))
    await mover.look()
    monkeypatch.setattr(LinkScripts, "enqueue_after_many", away)
    claims = [claimed(stepped, "part") for _ in range(7)]
    for n, claim in enumerate(claims):
        if n < 5:
            claim.flow.enqueue("away", 1)
        elif n == 5:
            claim.flow.enqueue("extra", 1, id="e")
        claim.finish()
        clock.advance("1ms")
    shard = next(iter(mover._topics.all_shards("part")))
    looking = Endings(mover._link, mover._store, lambda _: None, lambda _: None)
    await looking._look(shard)
    assert tried == ["away"] * 2
    for _ in range(4):
        await looking._look(shard)
    assert stepped.state("e", "extra") != "gone"
    found = stepped.queue.dependencies("join", "join")
    assert found
    assert found.done == 2, "the one without children, and the one whose child is put in"
