"""How long the jobs of a flow took, and its critical path, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamdq import FlowState, FlowTimes, NewJob
from streamdq.store.flows import parents, times
from streamdq.times.clock import ManualClock
from tests.redis.harness import Space, opened, taken
from tests.servers import Server
from tests.waiting import eventually

BEGUN = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGUN)


@pytest.fixture
def space(redis_server: Server, clock: ManualClock) -> Iterator[Space]:
    with opened(redis_server.url, clock) as space:
        yield space


def build(space: Space) -> None:
    with space.queue.flow("f") as flow:
        parts = flow.enqueue_many("part", (NewJob(n, id=f"p{n}") for n in range(2)))
        join = flow.enqueue("join", 1, id="join", after=parts)
        flow.enqueue("mail", 1, id="mail", after=join, delay="10s")


def runs(space: Space, clock: ManualClock, topic: str, seconds: float) -> None:
    claim = taken(space.queue, topic)
    clock.advance(seconds)
    claim.finish()


def found(space: Space) -> FlowTimes:
    status = space.queue.flow_status("f", times=True)
    assert status is not None
    assert status.times is not None
    return status.times


def path(space: Space) -> list[tuple[str, str, int | None, int | None]]:
    assert not found(space).why_no_path
    return [(one.id, one.state, one.waited_ms, one.ran_ms) for one in found(space).path]


async def knows(space: Space, count: int, state: str = "done") -> None:
    """The flow knows of so many ends."""

    def is_known() -> bool:
        status = space.queue.flow_status("f")
        return status is not None and status.count(state) == count

    await eventually(is_known, f"{count} are {state}")


async def test_a_path_adds_up_to_what_the_flow_took(space: Space, clock: ManualClock) -> None:
    build(space)
    clock.advance("1s")
    runs(space, clock, "part", 2)
    await knows(space, 1)
    assert path(space) == [
        ("p1", "ready", None, None),
        ("join", "waiting", None, None),
        ("mail", "waiting", None, None),
    ]
    assert [one.begun_ms for one in found(space).path] == [BEGUN, None, None]

    runs(space, clock, "part", 3)
    runs(space, clock, "join", 1)
    await eventually(lambda: space.state("mail", "mail") == "delayed", "the mail is delayed")
    clock.advance("10s")
    runs(space, clock, "mail", 0.5)
    await knows(space, 4)
    assert path(space) == [("p1", "done", 3_000, 3_000), ("join", "done", 0, 1_000), ("mail", "done", 10_000, 500)]
    times = found(space)
    assert (times.begun_ms, times.ended_ms) == (BEGUN, BEGUN + 17_500)
    assert sum((one.waited_ms or 0) + (one.ran_ms or 0) for one in times.path) == 17_500
    assert [one.stage for one in times.path] == [0, 1, 2]
    first = times.stages[0]
    assert (first.known, first.waited_ms, first.ran_ms, first.longest_waited_ms, first.longest_ran_ms) == (
        2, 1_000, 2_000, 3_000, 3_000,
    )  # fmt: skip
    plain = space.queue.flow_status("f")
    assert plain is not None
    assert plain.times is None


async def test_every_attempt_of_the_group_that_ended_last_counts(space: Space, clock: ManualClock) -> None:
    space.queue.configure("part", groups=["default", "slow"])
    with space.queue.flow("f") as flow:
        flow.enqueue("part", 1, id="p", retry="4s,4s")
    first = taken(space.queue, "part", "slow")
    runs(space, clock, "part", 1)
    first.fail("not yet")
    clock.advance("4s")
    second = taken(space.queue, "part", "slow")
    clock.advance("2s")
    second.finish()
    await knows(space, 1)
    assert path(space) == [("p", "done", 4_000, 3_000)]


async def test_with_jobs_that_were_added_at_run_time(space: Space, clock: ManualClock) -> None:
    """They seem to have waited since the flow began, and the join for what is left of their time."""
    with space.queue.flow("f") as flow:
        flow.enqueue("join", 1, id="join", after=flow.enqueue("part", 1, id="p"))
    claim = taken(space.queue, "part")
    clock.advance("20s")
    claim.flow.enqueue("extra", 1, id="e", before=("join", "join"))
    claim.finish()
    runs(space, clock, "extra", 5)
    await eventually(lambda: space.state("join", "join") == "ready", "the join is ready")
    runs(space, clock, "join", 2)
    await knows(space, 3)
    assert path(space) == [("p", "done", 0, 20_000), ("join", "done", 5_000, 2_000)]
    assert [(one.known, one.waited_ms, one.ran_ms) for one in found(space).stages] == [
        (1, 0, 20_000), (1, 5_000, 2_000), (1, 20_000, 5_000),
    ]  # fmt: skip


async def test_a_blocked_flow_s_path_begins_where_it_failed(space: Space, clock: ManualClock) -> None:
    build(space)
    claim = taken(space.queue, "part")
    clock.advance("1s")
    claim.bury("as told")
    runs(space, clock, "part", 5)
    await knows(space, 1, "blocked")
    assert path(space) == [("p0", "dead", 0, 1_000), ("join", "blocked", None, None), ("mail", "waiting", None, None)]


async def test_what_was_blocked_waits_for_a_job_that_is_kicked(space: Space, clock: ManualClock) -> None:
    with space.queue.flow("f") as flow:
        flow.enqueue("mail", 1, id="mail", after=flow.enqueue("part", 1, id="p", retry="none"))
    claim = taken(space.queue, "part")
    clock.advance("1s")
    claim.bury("as told")
    await knows(space, 1, "blocked")
    clock.advance("60s")
    kicks(space, clock, 2)
    await eventually(lambda: space.state("mail", "mail") == "ready", "the mail is ready")
    runs(space, clock, "mail", 1)
    await knows(space, 2)
    assert path(space) == [("p", "done", 60_000, 3_000), ("mail", "done", 0, 1_000)]


def kicks(space: Space, clock: ManualClock, seconds: float) -> None:
    space.queue.kick("part", "p")
    runs(space, clock, "part", seconds)


@pytest.fixture
async def begun_all_the_same(space: Space, clock: ManualClock) -> None:
    """The first job has failed after 1 s, and the next one, which starts then, has taken 2 s."""
    with space.queue.flow("f") as flow:
        first = flow.enqueue("part", 1, id="p", retry="none")
        second = flow.enqueue("join", 1, id="join", after=first, on_failure="run")
        flow.enqueue("mail", 1, id="mail", after=second)
    claim = taken(space.queue, "part")
    clock.advance("1s")
    claim.bury("as told")
    await eventually(lambda: space.state("join", "join") == "ready", "the join is ready")
    runs(space, clock, "join", 2)
    await eventually(lambda: space.state("mail", "mail") == "ready", "the mail is ready")


@pytest.mark.usefixtures("begun_all_the_same")
async def test_a_job_that_is_kicked_later_decided_nothing_for_those_that_had_begun(
    space: Space, clock: ManualClock
) -> None:
    kicks(space, clock, 30)
    runs(space, clock, "mail", 1)
    await knows(space, 3)
    assert path(space) == [("p", "done", 0, 1_000), ("join", "done", 0, 2_000), ("mail", "done", 30_000, 1_000)]
    assert found(space).ended_ms == BEGUN + 34_000


@pytest.mark.usefixtures("begun_all_the_same")
async def test_a_job_that_is_kicked_later_may_be_what_the_flow_waits_for(space: Space, clock: ManualClock) -> None:
    space.queue.kick("part", "p")
    claim = taken(space.queue, "part")
    await knows(space, 1, "running")
    runs(space, clock, "mail", 1)
    await knows(space, 2)
    clock.advance("30s")
    claim.finish()
    await knows(space, 3)
    assert path(space) == [("p", "done", 2_000, 32_000)]
    assert found(space).ended_ms == BEGUN + 34_000


@pytest.mark.usefixtures("begun_all_the_same")
async def test_what_is_kicked_when_the_flow_has_ended_does_not_make_its_path_longer(
    space: Space, clock: ManualClock
) -> None:
    runs(space, clock, "mail", 1)
    await knows(space, 2)
    clock.advance("60s")
    kicks(space, clock, 30)
    await knows(space, 3)
    assert path(space) == [("p", "done", 0, 1_000), ("join", "done", 0, 2_000), ("mail", "done", 0, 1_000)]
    assert found(space).ended_ms == BEGUN + 4_000


async def test_there_is_no_path_if_the_clock_was_set_back_meanwhile(space: Space, clock: ManualClock) -> None:
    with space.queue.flow("f") as flow:
        flow.enqueue("join", 1, id="join", after=flow.enqueue("part", 1, id="p"))
    runs(space, clock, "part", 50)
    await eventually(lambda: space.state("join", "join") == "ready", "the join is ready")
    claim = taken(space.queue, "join")
    clock.now_ms -= 40_000
    claim.finish()
    await knows(space, 2)
    times = found(space)
    assert (times.path, times.why_no_path) == ((), "the clock was set back meanwhile")


async def test_a_job_that_waits_for_one_of_a_stage_alone(space: Space, clock: ManualClock) -> None:
    """All parts end in the same millisecond: only what the flow keeps tells whose check came last."""
    with space.queue.flow("f") as flow:
        parts = flow.enqueue_many("part", (NewJob(n, id=f"p{n}") for n in range(5)))
        checks = [flow.enqueue("check", n, id=f"c{n}", after=one) for n, one in enumerate(parts)]
        flow.enqueue("last", 1, id="last", after=[parts[1], *checks[2:4]])
    claims = [taken(space.queue, "part") for _ in parts]
    clock.advance("1s")
    for claim in claims:
        claim.finish()
    claims = [taken(space.queue, "check") for _ in checks]
    for claim in sorted(claims, key=lambda one: one.job.id != "c2"):
        clock.advance("1s")
        claim.finish()
        if claim.job.id == "c2":
            await knows(space, 6)
    await eventually(lambda: space.state("last", "last") == "ready", "the last is ready")
    runs(space, clock, "last", 1)
    await knows(space, 11)
    assert [one.id for one in found(space).path] == ["p3", "c3", "last"]


def test_it_says_why_there_is_no_path(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parents, "MOST_NUMBERS", 1)
    with space.queue.flow("f") as flow:
        made = flow.enqueue_many("part", (NewJob(n) for n in range(3)))
        flow.enqueue("join", 1, after=made[:2])
    assert found(space).path == ()
    assert found(space).why_no_path == "too many of its jobs wait for different ones"


def test_a_flow_whose_body_may_hold_no_more_has_none_either(space: Space) -> None:
    queue = space.another_queue(max_body_bytes=80)
    with queue.flow("f") as flow:
        made = flow.enqueue_many("part", (NewJob(n) for n in range(3)))
        flow.enqueue("join", 1, after=made[:2])
    assert found(space).why_no_path == "too many of its jobs wait for different ones"


async def test_a_history_that_does_not_have_the_ends(redis_server: Server, clock: ManualClock) -> None:
    with opened(redis_server.url, clock, history_length=0) as space:
        build(space)
        runs(space, clock, "part", 1)
        await knows(space, 1)
        assert found(space).why_no_path == "the history no longer has the ends of all of its jobs"


async def test_a_history_with_too_many_others(
    space: Space, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "LOOKBACK_ROWS", 0)
    monkeypatch.setattr(times, "ROWS_PER_JOB", 1)
    monkeypatch.setattr(times, "MAX_BATCH", 2)
    build(space)
    for n in range(12):
        space.queue.enqueue("part", n, delay="1h", id=f"other{n}")
        space.queue.cancel("part", f"other{n}")
    runs(space, clock, "part", 1)
    await knows(space, 1)
    assert found(space).why_no_path == "too many other jobs of its topics have ended meanwhile"


def test_one_that_is_being_built_has_none(space: Space) -> None:
    with space.queue.flow("f") as flow:
        flow.enqueue("part", 1)
        status = space.queue.flow_status("f", times=True)
        assert status is not None
        assert (status.state, status.times) == (FlowState.BUILDING, None)
