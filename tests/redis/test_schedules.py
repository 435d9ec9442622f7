"""Schedules on real servers: each occurrence once and on time, whatever changes meanwhile."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from streamdq import Job
from streamdq.errors import InvalidInput, ScheduleMissing, TopicNotEmpty, UnknownTopic
from streamdq.keys import ShardKeys
from streamdq.link.session import Op
from streamdq.operations.schedules.read import Schedule
from streamdq.queue import carry_out, store_of
from streamdq.schedules import civil
from streamdq.schedules.definition import shown
from streamdq.schedules.plan import make_plan
from streamdq.store.replies import Fired, Written
from streamdq.store.schedules.schedules import Schedules, StoredSchedule
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space
from tests.redis.movers import mover_at
from tests.servers import Server
from tests.waiting import HANG_S, eventually

DAY_MS = 86_400_000


def stored(space: Space, op: Any) -> Any:
    """A call of Schedules."""
    store = store_of(space.queue)
    found: Op[Any] = op(Schedules(store.session, store.scripts, store.topics))
    return carry_out(space.queue, found)


def set_back(space: Space, id: str, ms: int) -> None:
    """As if nothing had looked at it for so long, after it was planned."""
    known, now = stored(space, lambda schedules: schedules.read("t", id))
    before = replace(known, last_ms=now - ms, state="active", more=True)
    before = before.with_plan(make_plan(known.definition, id, now - ms, now - ms, 1), 1)
    first = store_of(space.queue).session.keys.shard("t", 0)
    call = store_of(space.queue).scripts.schedule(first, 1, id, known.version, before.look_ms(), 0, before.encode())
    assert carry_out(space.queue, call) is Written.YES


def ids(space: Space, topic: str = "t") -> list[str]:
    return [one.id for one in space.queue.schedules(topic)]


# -- what callers do


def test_a_schedule_is_there_until_it_is_removed(space: Space) -> None:
    made = space.queue.schedule("t", {"for": "acme"}, id="acme", cron="0 9 * * 1-5", tz="Europe/Paris", overlap="skip")
    assert isinstance(made, Schedule)
    assert (made.topic, made.id, made.state, made.text) == ("t", "acme", "active", "0 9 * * 1-5")
    assert (made.fired, made.skipped, made.missed, made.previous, made.waiting) == (0, 0, 0, None, False)
    assert made.raw_body == b'{"for":"acme"}'
    local = [civil.local_of(ms, civil.zone("Europe/Paris")) for ms in made.next_ms]
    assert len(local) == 5
    assert all((at.hour, at.minute) == (9, 0) and at.weekday() < 5 for at in local)
    assert all(earlier < later for earlier, later in pairwise(made.next_ms))
    assert space.queue.schedules("t") == space.queue.schedules() == [made]
    assert space.queue.get_schedule("t", "acme") == made
    assert space.queue.unschedule("t", "acme") is True
    assert space.queue.unschedule("t", "acme") is False
    assert space.queue.schedules() == []


def test_a_change_concerns_the_next_occurrence(stepped: Space, clock: ManualClock) -> None:
    made = stepped.queue.schedule("t", {"a": 1}, id="s", every="10m")
    clock.advance("4m")
    changed = stepped.queue.schedule("t", {"a": 2}, id="s", every="10m")
    assert changed.next_ms == made.next_ms, "an interval that stays goes on as it was"
    assert changed.raw_body == b'{"a":2}'
    changed = stepped.queue.schedule("t", {"a": 2}, id="s", every="5m")
    assert changed.next_ms[0] == clock.now_ms + 300_000
    assert stepped.queue.schedule("t", {"a": 2}, id="s", every="5m", until=clock.now_ms).state == "ended"
    assert stepped.queue.schedule("t", {"a": 2}, id="s", every="5m").state == "active"


# -- in the last seconds before an occurrence, when its job is enqueued already


def ahead(space: Space, clock: ManualClock, **given: Any) -> str:
    """Makes a schedule whose next job is enqueued and due in two seconds; returns the job's id."""
    next_ms = space.queue.schedule("t", {"a": 1}, id="s", every="10m", **given).next_ms
    clock.advance("9m58s")
    fired = stored(space, lambda schedules: schedules.fire(store_of(space.queue).session.keys.shard("t", 0), 1))
    (job,) = fired.jobs
    assert (space.state(job), space.job(job).due_ms) == ("delayed", next_ms[0])
    shown = space.queue.get_schedule("t", "s")
    assert (shown.next_ms, shown.previous, shown.fired, shown.state) == (next_ms, None, 0, "active")
    assert space.queue.schedules("t") == [shown]
    return str(job)


async def run_on(space: Space, clock: ManualClock, seen: Seen, for_: str) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handle(body: Any, job: Job) -> None:
        seen.add((job.id, body))

    await drain(worker, clock, for_=for_)


async def test_a_change_concerns_the_job_that_is_enqueued_already(
    stepped: Space, clock: ManualClock, seen: Seen
) -> None:
    job = ahead(stepped, clock)
    next_ms = stepped.queue.schedule("t", {"a": 2}, id="s", every="10m").next_ms
    assert next_ms[0] == clock.now_ms + 2_000
    await run_on(stepped, clock, seen, "3s")
    assert seen.all == [(job, {"a": 2})]


def test_a_mover_that_enqueues_the_next_job_during_the_removal(
    stepped: Space, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped.queue.schedule("t", id="s", every="10m")
    clock.advance("9m58s")
    store = store_of(stepped.queue)
    scripts = store.scripts
    fired: list[Fired] = []

    def beside(first: ShardKeys, id: str, retract: Any = scripts.retract) -> Op[str]:
        found: str = yield from retract(first, id)
        if not fired:
            fired.append((yield from Schedules(store.session, scripts, store.topics).fire(first, 1)))
        return found

    monkeypatch.setattr(scripts, "retract", beside)
    assert stepped.queue.unschedule("t", "s") is True
    assert [stepped.state(job) for job in fired[0].jobs] == ["gone"]


# -- further


def test_what_is_not_there_is_named(space: Space) -> None:
    for call in (space.queue.get_schedule, space.queue.unschedule, space.queue.pause_schedule, space.queue.trigger):
        with pytest.raises(UnknownTopic):
            call("nowhere", "s")
    space.queue.configure("t", create=True)
    for call in (
        space.queue.get_schedule,
        space.queue.pause_schedule,
        space.queue.resume_schedule,
        space.queue.trigger,
    ):
        with pytest.raises(ScheduleMissing, match="topic 't' has no schedule 's'"):
            call("t", "s")
    assert space.queue.schedules("t") == []


def test_a_body_has_its_version(stepped: Space, clock: ManualClock) -> None:
    queue = stepped.queue
    made = queue.schedule("t", {"for": "{due}"}, id="s", every="1m", version=3)
    assert (made.version, made.body, made.raw_body) == (3, {"for": "{due}"}, b'{"for":"{due}"}')
    assert queue.schedule("t", {"for": "{due}"}, id="s", every="1m", version=3) == made
    assert queue.trigger("t", "s").version == 3
    clock.advance("55s")
    fired = stored(stepped, lambda schedules: schedules.fire(store_of(queue).session.keys.shard("t", 0), 1))
    job = queue.get("t", fired.jobs[0])
    assert job is not None
    assert (job.version, set(job.body)) == (3, {"for"})
    assert job.body["for"].endswith("+00:00")
    assert queue.schedule("t", {"for": "{due}"}, id="s", every="1m").version == 1
    with pytest.raises(InvalidInput, match="version: 0"):
        queue.schedule("t", id="s", every="1m", version=0)
    small = stepped.another_queue(max_body_bytes=100)
    small.schedule("t", ["{due}"] * 2, id="small", every="1h", version=2)
    with pytest.raises(InvalidInput, match="up to 106 bytes"):
        small.schedule("t", ["{due}"] * 3, id="small", every="1h", version=2)
    queue.delete_topic("t", force=True)


def test_each_trigger_enqueues_one(stepped: Space, clock: ManualClock) -> None:
    """Two at the same moment, and one in the very moment in which an occurrence is due that no mover has enqueued."""
    queue = stepped.queue
    next_ms = queue.schedule("t", "{due}", id="s", every="10m", url="https://x.example/?at={due}").next_ms[0]
    clock.now_ms = next_ms
    first, second = queue.trigger("t", "s"), queue.trigger("t", "s")
    assert (first.id, second.id) == ("s@2027-01-15T08:10:00.001Z", "s@2027-01-15T08:10:00.002Z")
    assert {first.due_ms, second.due_ms} == {next_ms}
    assert first.url == "https://x.example/?at=2027-01-15T08:10:00.001%2B00:00"
    fired = stored(stepped, lambda schedules: schedules.fire(store_of(queue).session.keys.shard("t", 0), 1))
    assert (fired.jobs, fired.skipped) == (["s@2027-01-15T08:10:00Z"], 0)
    assert stepped.job("s@2027-01-15T08:10:00Z").url == "https://x.example/?at=2027-01-15T08:10:00%2B00:00"
    third = queue.trigger("t", "s")
    assert third.id == "s@2027-01-15T08:10:00.003Z"
    assert queue.stats("t").topics["t"].enqueued == 4


def test_backfill_enqueues_what_would_have_been(stepped: Space, clock: ManualClock) -> None:
    stepped.queue.schedule("t", {"at": "{due}"}, id="s", cron="0 */6 * * *")
    begin, end = datetime(2027, 1, 13, tzinfo=UTC), datetime(2027, 1, 15, tzinfo=UTC)
    assert stepped.queue.backfill("t", "s", begin, end) == 8
    assert stepped.queue.backfill("t", "s", begin, end) == 0, "they are there"
    assert stepped.job("s@2027-01-14T18:00:00Z").body == {"at": "2027-01-14T18:00:00+00:00"}
    assert stepped.queue.backfill("t", "s", begin, begin) == 0
    with pytest.raises(InvalidInput, match="end is before start"):
        stepped.queue.backfill("t", "s", end, begin)
    stepped.queue.schedule("t", id="often", every=1)
    clock.advance("2d")
    with pytest.raises(InvalidInput, match="more than 100,000"):
        stepped.queue.backfill("t", "often", clock.now_ms - 2 * DAY_MS, clock.now_ms)


def test_backfill_leaves_what_is_to_come_to_the_schedule(stepped: Space, clock: ManualClock) -> None:
    begin_ms = clock.now_ms
    stepped.queue.schedule("t", id="s", every="10m")
    clock.advance("20m")
    assert stepped.queue.backfill("t", "s", begin_ms, clock.now_ms + DAY_MS) == 2


def test_a_topic_with_schedules_is_deleted_only_by_force(space: Space) -> None:
    space.queue.schedule("t", id="s", every="1h")
    with pytest.raises(TopicNotEmpty, match="has schedules"):
        space.queue.delete_topic("t")
    assert ids(space) == ["s"]
    space.queue.delete_topic("t", force=True)
    space.queue.configure("t", create=True)
    assert ids(space) == []


# -- by a clock that is set forward


@pytest.mark.parametrize(
    ("begin", "odd"), [("2027-03-24", ["2027-03-28T03:00:00+02:00"]), ("2027-10-27", [])], ids=["spring", "autumn"]
)
async def test_days_in_paris(stepped: Space, clock: ManualClock, begin: str, odd: list[str]) -> None:
    """Each local day has one, also those on which clocks are changed."""
    seen: list[tuple[str, int]] = []
    first = datetime.fromisoformat(f"{begin}T08:00Z")
    clock.now_ms = int(first.timestamp()) * 1000
    stepped.queue.schedule("t", "{due}", id="s", cron="30 2 * * *", tz="Europe/Paris", overlap="skip")
    worker = stepped.worker()

    @worker.handler("t")
    async def handle(body: str, job: Job) -> None:
        seen.append((body, job.due_ms))

    await drain(worker, clock, for_="10d", within_s=HANG_S)
    assert [body[:10] for body, _ in seen] == [(first + timedelta(day)).date().isoformat() for day in range(1, 11)]
    assert [body for body, _ in seen if body[11:16] != "02:30"] == odd
    assert all(datetime.fromisoformat(body).timestamp() * 1000 == due_ms for body, due_ms in seen)


async def test_pausing_makes_up_for_nothing(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    stepped.queue.schedule("t", "{due}", id="s", every="10m")
    worker = stepped.recording(seen)
    await drain(worker, clock, for_="35m")
    assert len(seen) == 3
    assert stepped.queue.pause_schedule("t", "s").next_ms == []
    await drain(worker, clock, for_="1h")
    assert len(seen) == 3
    resumed = stepped.queue.resume_schedule("t", "s")
    assert resumed.next_ms[0] == clock.now_ms + 300_000, "as its interval goes"
    await drain(worker, clock, for_="10m")
    assert len(seen) == 4
    assert stepped.queue.get_schedule("t", "s").missed == 0


async def test_with_several_shards_its_jobs_are_found_by_id(stepped: Space, clock: ManualClock, seen: Seen) -> None:
    stepped.queue.configure("t", shards=5)
    stepped.queue.schedule("t", "{due}", id="s", every="1m")
    async with mover_at(stepped.url, "a", clock=clock):
        for _ in range(5):
            before = stepped.queue.get_schedule("t", "s").previous
            clock.advance("1m")
            await eventually(lambda: stepped.queue.get_schedule("t", "s").previous != before, "it fired")  # noqa: B023
            previous = stepped.queue.get_schedule("t", "s").previous
            assert previous is not None
            await stepped.becomes(previous, "ready")
            assert stepped.queue.cancel("t", previous)
    stepped.queue.configure("t", shards=2)
    worker = stepped.recording(seen)
    await drain(worker, clock, for_="3m")
    assert len(seen) == 3, "also after their number has changed"


# -- by the servers' clocks


async def test_each_occurrence_runs_once_on_time_whatever_happens_to_movers(
    space: Space, redis_server: Server, seen: Seen
) -> None:
    """Two are killed, and three that don't know of one another work at the same time."""
    worker = space.worker()

    @worker.handler("t")
    async def handle(_body: Any, job: Job) -> None:
        seen.add(job.id)

    for i in range(20):
        space.queue.schedule("t", id=f"s{i}", every="1s")
    async with space.serving(worker):
        async with AsyncExitStack() as killed:
            await killed.enter_async_context(mover_at(space.url, "a", leads=False))
            await seen.count(20)
        async with mover_at(space.url, "b", leads=False), mover_at(space.url, "c", leads=False):
            await seen.count(40)
    assert len(set(seen.all)) == len(seen.all)
    with redis_server.client() as client:
        fired = int(client.hget("test:{t:0}:counts", "fired") or 0)
    assert fired == space.stats().done + space.stats().ready + space.stats().delayed


@pytest.mark.parametrize(
    ("catch_up", "run"), [("none", 0), ("last", 1), ("10m", 10)], ids=["none", "the last", "all within ten minutes"]
)
async def test_when_every_process_was_down(space: Space, seen: Seen, catch_up: Any, run: int) -> None:
    """For an hour and a half. The last one was due more than 30 s ago."""
    until = now_ms(space) - 35_000
    space.queue.schedule("t", "{due}", id="s", cron="* * * * *", catch_up=catch_up, until=until)
    set_back(space, "s", 90 * 60_000)
    worker = space.recording(seen)
    async with space.serving(worker):
        await eventually(lambda: space.queue.get_schedule("t", "s").state == "ended", "it was planned")
        ended = space.queue.get_schedule("t", "s")
        await seen.count(ended.fired)
    within = range(run - 2, run + 1) if run > 1 else (run,)
    assert ended.fired in within, "the last ten minutes have one less without the last, and end when they are looked at"
    assert ended.fired + ended.missed in (89, 90)
    assert seen.all == sorted(seen.all)
    for body in seen.all[-1:]:
        assert until - 60_000 < datetime.fromisoformat(body).timestamp() * 1000 <= until


def now_ms(space: Space) -> int:
    found: int = stored(space, lambda schedules: schedules.read("t", "none"))[1]
    return found


@pytest.mark.parametrize("back", ["1d", "30m"])
async def test_after_the_clock_was_wrong_by_more_than_an_hour_it_begins_again(
    stepped: Space, clock: ManualClock, back: str
) -> None:
    queue, right_ms = stepped.queue, clock.now_ms
    queue.schedule("t", id="often", every="10m")
    queue.schedule("t", id="daily", cron="0 12 * * *", overlap="skip")
    before = {one.id: one.next_ms for one in queue.schedules("t")}

    def read(id: str) -> StoredSchedule:
        found: StoredSchedule = stored(stepped, lambda schedules: schedules.read("t", id))[0]
        return found

    clock.advance(back)
    clock.advance("9m58s")
    async with mover_at(stepped.url, "a", clock=clock):
        await eventually(lambda: read("often").is_ahead(clock.now_ms), "its next job is enqueued")
    queue.schedule("t", id="new", every="10m")
    queue.schedule("t", id="asleep", every="10m")
    asleep = queue.pause_schedule("t", "asleep")
    wrong = {one.id: one.next_ms for one in queue.schedules("t")}
    clock.now_ms = right_ms

    def are() -> dict[str, list[int]]:
        return {one.id: one.next_ms for one in queue.schedules("t")}

    begun = {**before, "new": [right_ms + 600_000 * n for n in range(1, 6)], "asleep": asleep.next_ms}
    async with mover_at(stepped.url, "b", clock=clock):
        await eventually(lambda: are() == (begun if back == "1d" else wrong), "as they are to be")
    assert stepped.stats().cancelled == (back == "1d"), "what was enqueued ahead of a time that has not come"
    queue.delete_topic("t", force=True)


# -- what lies in the way


async def test_one_that_can_not_be_planned_holds_up_no_other(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.schedule("t", id="a", cron="0 * * * *", tz="Europe/Paris")
    set_back(space, "a", 5 * 3_600_000)
    for id in ("b", "c"):
        space.queue.schedule("t", id=id, cron="0 * * * *")
        set_back(space, id, 5 * 3_600_000)

    def shown_here(ms: int, tz: str) -> str:
        if tz == "Europe/Paris":
            raise InvalidInput("tz: not on this host")
        return shown(ms, tz)

    monkeypatch.setattr("streamdq.schedules.plan.shown", shown_here)
    async with mover_at(space.url, "x"):
        await eventually(
            lambda: [one.fired > 0 for one in space.queue.schedules("t")] == [False, True, True],
            "the others are planned",
        )


def test_a_change_keeps_what_has_come_and_is_not_due_yet(stepped: Space, clock: ManualClock) -> None:
    space = stepped
    made = space.queue.schedule("t", {"a": 1}, id="s", every="10m", jitter="9m")
    first = made.next_ms[0]
    due = made.definition.due_ms("s", first)
    assert due > first + 1_000
    assert first == clock.now_ms + 600_000
    clock.advance("601s")
    assert space.queue.schedule("t", {"a": 2}, id="s", every="10m", jitter="9m").next_ms[0] == first
    assert space.queue.schedule("t", {"a": 2}, id="s", every="10m", jitter="8m").next_ms[0] == first
    assert space.queue.schedule("t", {"a": 2}, id="s", every="7m").next_ms[0] == clock.now_ms + 420_000


async def test_one_that_waits_is_found_after_a_change_of_shards(stepped: Space, clock: ManualClock) -> None:
    stepped.queue.schedule("t", id="s", every="1m", overlap="queue")
    async with mover_at(stepped.url, "a", clock=clock):
        clock.advance("1m")
        await eventually(lambda: stepped.queue.get_schedule("t", "s").fired == 1, "it fired")
        first = stepped.queue.get_schedule("t", "s").previous
        assert first is not None
        clock.advance("1m")
        await eventually(lambda: stepped.queue.get_schedule("t", "s").waiting, "the next one waits")
        stepped.queue.pause_schedule("t", "s")
        assert stepped.queue.cancel("t", first)
        stepped.queue.configure("t", shards=64)
        stepped.queue.resume_schedule("t", "s")
        clock.advance("1s")
        await eventually(lambda: stepped.queue.get_schedule("t", "s").previous != first, "it was enqueued")
    last = stepped.queue.get_schedule("t", "s").previous
    assert last is not None
    assert stepped.queue.get("t", last) is not None
    assert stepped.queue.audit().balanced
