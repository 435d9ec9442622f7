"""Each flow that has ended has a row in the history, with its critical path."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamdq import InvalidInput
from streamdq.dump.arrow import table_in
from streamdq.job.flow import FLOWS, FlowStep
from streamdq.job.job import check_topic
from streamdq.link.session import arun
from streamdq.mover import flows
from streamdq.mover.flows import Flows
from streamdq.mover.shard_timers import NEVER
from streamdq.store.flows import ended
from streamdq.store.flows.ended import MOST_TOPICS, OTHERS, by_topic
from streamdq.store.history.rows import Event, HistoryRow, row_in
from streamdq.times.clock import ManualClock
from tests.redis.harness import Space, opened, taken
from tests.redis.test_flow_times import BEGUN, build, runs
from tests.redis.test_flows import Mover
from tests.servers import Server
from tests.waiting import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGUN)


@pytest.fixture
def space(redis_server: Server, clock: ManualClock) -> Iterator[Space]:
    with opened(redis_server.url, clock) as space:
        yield space


def rows(space: Space) -> list[HistoryRow]:
    return [row for row in space.queue.history(FLOWS).rows if row.event is Event.FLOW]


async def row(space: Space) -> HistoryRow:
    """The row of the only flow."""
    await eventually(lambda: bool(rows(space)), "a row about the flow")
    (found,) = rows(space)
    return found


async def test_it_says_how_the_flow_has_ended_and_where_its_time_went(space: Space, clock: ManualClock) -> None:
    build(space)
    clock.advance("1s")
    runs(space, clock, "part", 2)
    runs(space, clock, "part", 3)
    runs(space, clock, "join", 1)
    await eventually(lambda: space.state("mail", "mail") == "delayed", "the mail is delayed")
    clock.advance("10s")
    runs(space, clock, "mail", 0.5)
    found = await row(space)
    assert (found.id, found.created_ms, found.finished_ms) == ("f", BEGUN, BEGUN + 17_500)
    assert found.reason == "done 4 part=3000,3000 join=0,1000 mail=10000,500"
    status = space.queue.flow_status("f", times=True)
    assert status is not None
    assert status.times is not None
    assert [(one.waited_ms, one.ran_ms) for one in status.times.path] == [(3_000, 3_000), (0, 1_000), (10_000, 500)]


async def test_jobs_of_one_topic_are_added_up_and_a_failure_counts(space: Space, clock: ManualClock) -> None:
    with space.queue.flow("f") as flow:
        first = flow.enqueue("part", 1)
        flow.enqueue("part", 2, after=first, on_failure="run")
    runs(space, clock, "part", 1)
    claim = taken(space.queue, "part")
    clock.advance("2s")
    claim.bury("as told")
    assert (await row(space)).reason == "failed 2 part=0,3000"


# -- without a worker: movers look when the test says so


@pytest.fixture
async def mover(space: Space) -> AsyncIterator[Mover]:
    mover = Mover(space)
    yield mover
    await mover.close()


def ended_flows(space: Space, clock: ManualClock, *names: str) -> None:
    """Flows of one job each, which are about to end."""
    for name in names:
        with space.queue.flow(name) as flow:
            flow.enqueue("part", 1, id=name)
    clock.advance("1s")
    for name in names:
        space.queue.cancel("part", name)


async def test_a_flow_that_was_cancelled(space: Space, clock: ManualClock, mover: Mover) -> None:
    build(space)
    clock.advance("5s")
    space.queue.cancel_flow("f")
    await mover.look()
    assert (await row(space)).reason == "cancelled 4 part=5000,0"
    await mover.look()
    assert len(rows(space)) == 1


async def test_of_a_flow_whose_own_job_is_gone_it_is_known_that_it_has_ended(
    space: Space, clock: ManualClock, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    with space.queue.flow("f", keep="0s") as flow:
        flow.enqueue("part", 1, id="f")
    space.queue.cancel("part", "f")
    monkeypatch.setattr(Flows, "_record", never)
    await mover.look()
    clock.advance("1s")
    await mover.look()
    assert space.queue.get(FLOWS, "f") is None
    monkeypatch.undo()
    await mover.look()
    found = await row(space)
    assert (found.id, found.created_ms, found.finished_ms, found.reason) == ("f", BEGUN, BEGUN, "")


async def never(*_: object) -> float:
    return NEVER


async def test_a_mover_that_is_killed_at_any_step_leaves_no_flow_out_and_records_none_twice(
    space: Space, clock: ManualClock, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_flows(space, clock, "f", "g", "h")
    monkeypatch.setattr(Flows, "_record", never)
    await mover.look()
    monkeypatch.undo()
    send, left = mover._link.send, 0

    async def killed_behind(*args: Any, **options: Any) -> Any:
        nonlocal left
        reply = await send(*args, **options)
        left -= 1
        if left < 0:
            raise asyncio.CancelledError
        return reply

    monkeypatch.setattr(mover._link, "send", killed_behind)
    for calls in range(100):
        left = calls
        with contextlib.suppress(asyncio.CancelledError):
            await Flows(mover._link, mover._store, lambda _: None)._look(mover._session.keys.shard(FLOWS, 0))
            break
    assert calls > 5, "it was killed so often"
    assert sorted(one.id for one in rows(space)) == ["f", "g", "h"]
    assert {one.reason for one in rows(space)} == {"cancelled 1 part=1000,0"}


async def test_another_mover_s_rows_are_not_repeated(space: Space, clock: ManualClock, mover: Mover) -> None:
    ended_flows(space, clock, "f")
    shard = mover._session.keys.shard(FLOWS, 0)
    await arun(mover._link, mover._topics.refresh())
    await mover.look()
    (found,) = rows(space)
    assert await arun(mover._link, mover._scripts.record_flows(shard, ("", found.entry), ["x"])) is False
    assert len(rows(space)) == 1


async def test_those_for_which_there_is_no_time_get_no_path(
    space: Space, clock: ManualClock, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_flows(space, clock, "f", "g", "h")
    monkeypatch.setattr(Flows, "_record", never)
    await mover.look()
    monkeypatch.undo()
    monkeypatch.setattr(ended, "AT_ONCE", 2)
    await mover.look()
    assert [(one.id, one.reason) for one in rows(space)] == [(name, "cancelled 1") for name in ("f", "g", "h")]


async def test_no_path_is_looked_for_in_a_flow_of_many_jobs(
    space: Space, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended, "MOST_JOBS", 3)
    build(space)
    space.queue.cancel_flow("f")
    await mover.look()
    assert (await row(space)).reason == "failed 4"


async def test_it_does_other_things_nine_times_as_long(
    space: Space, clock: ManualClock, mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "_PATHS_S", 0.0)
    ended_flows(space, clock, "f", "g")
    monkeypatch.setattr(Flows, "_record", never)
    await mover.look()
    monkeypatch.undo()
    monkeypatch.setattr(flows, "_PATHS_S", 0.0)
    one, shard = Flows(mover._link, mover._store, lambda _: None), mover._session.keys.shard(FLOWS, 0)
    assert await one._look(shard) == one._paths_from
    assert len(rows(space)) == 1
    one._paths_from = time.monotonic() + 1_000
    assert await one._look(shard) == one._paths_from
    assert len(rows(space)) == 1
    one._paths_from = 0.0
    await one._look(shard)
    assert len(rows(space)) == 2


# -- the row


def test_a_dump_has_it() -> None:
    end = HistoryRow(FLOWS, 0, "1-1", Event.UNBLOCKED, "f", "default", 0, 0, "", 5, None, None, None, 9, "", "", 34)
    text = ended.row_of(end, "done 1 part=1,3")
    assert row_in(FLOWS, 0, "2-1", text) == replace(end, entry="2-1", event=Event.FLOW, reason="done 1 part=1,3")
    (row,) = table_in(FLOWS, 0, [(b"2-1", [b"e", text.encode()])]).to_pylist()
    assert (row["event"], row["id"], row["reason"], row["started"]) == ("flow", "f", "done 1 part=1,3", None)


def step(topic: str, waited_ms: int, ran_ms: int) -> FlowStep:
    return FlowStep(topic, "id", 0, "done", 0, waited_ms, ran_ms, 0)


def test_of_many_topics_those_are_named_that_took_longest() -> None:
    path = [step(f"t{n}", n, 0) for n in range(MOST_TOPICS + 3)]
    found = by_topic(path)
    assert len(found) == MOST_TOPICS + 1
    assert found[0] == "t3=3,0"
    assert found[-1] == f"{OTHERS}=3,0"
    with pytest.raises(InvalidInput):
        check_topic(OTHERS)
