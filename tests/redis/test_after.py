"""Jobs that wait for others, by the interfaces of the library, with a worker and its mover."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from streamdq import AsyncQueue, Job, JobState, NewJob, Queue, Topic, Worker
from streamdq.errors import InvalidInput, JobExists, ParentUnknown
from streamdq.job.after import MAX_PARENTS, NEVER_MS
from streamdq.keys import shard_of
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import arun
from streamdq.mover.endings import Endings
from streamdq.operations.find.actions import Acted
from streamdq.operations.jobs.enqueue import prepare
from streamdq.queue import carry_out, store_of
from streamdq.store.commands import one
from streamdq.store.redis_store import RedisStore
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, taken
from tests.waiting import eventually

SHARDS = 4


def worker_for(space: Space, seen: Seen, *topics: str, group: str = "default") -> Worker:
    """Its handlers note the bodies; one that fails is dead at once, unless it was kicked."""
    worker = space.worker(group)
    failed: set[str] = set()

    async def handler(body: Any, job: Job) -> None:
        if body == "fails" and job.id not in failed:
            failed.add(job.id)
            raise ValueError("as told")
        seen.add(body)

    for topic in topics:
        worker.handler(topic, retry="none")(handler)
    return worker


def linked_keys(space: Space) -> list[str]:
    """Keys that tell who waits for whom."""
    queue = space.another_queue()
    session = store_of(queue).session
    kinds = ("followers", "endings", "dependencies", "dependents", "blocked")
    found = []
    for topic in queue.stats().topics:
        for number in range(SHARDS):
            keys = session.keys.shard(topic, number)
            found += [getattr(keys, kind) for kind in kinds]
    return found


async def test_one_job_after_another(space: Space, seen: Seen) -> None:
    first = space.queue.enqueue("a", "first", delay="100ms")
    second = space.queue.enqueue("b", "second", after=first)
    third = space.queue.enqueue("b", "third", after=("b", second.id), delay="50ms")
    assert [job.state for job in (second, third)] == [JobState.WAITING] * 2
    assert space.job(second.id, "b").state is JobState.WAITING
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert await seen.count(3) == ["first", "second", "third"]
    assert space.audit().balanced


async def test_one_after_many_in_several_topics_and_shards(space: Space, seen: Seen) -> None:
    for topic in ("a", "b"):
        space.queue.configure(topic, shards=SHARDS)
    parents = [space.queue.enqueue("ab"[n % 2], n, delay=f"{n % 7 * 10}ms") for n in range(60)]
    space.queue.enqueue("b", "join", after=parents)
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert (await seen.count(61))[-1] == "join"
    assert sorted(seen.all[:-1]) == [*range(60)]


async def test_async_queues_and_typed_topics(space: Space, seen: Seen) -> None:
    a, b = Topic("a", str), Topic("b", str)
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        first = await a.enqueue(queue, "first", delay="100ms")
        second = await b.enqueue(queue, "second", after=[first, ("a", first.id)], on_failure="run")
        assert second.state is JobState.WAITING
        async with space.serving(worker_for(space, seen, "a", "b")):
            assert await seen.count(2) == ["first", "second"]


async def test_a_pipeline_and_enqueue_many(space: Space, seen: Seen) -> None:
    first = space.queue.enqueue("a", "first", delay="100ms")
    with space.queue.pipeline() as pipe:
        second = pipe.enqueue("a", "second", after=first)
    result = space.queue.enqueue_many(
        "b", [NewJob("third", after=second.job), {"body": "fourth", "after": second.job, "delay": 0.1}, NewJob("plain")]
    )
    assert result.created == 3
    async with space.serving(worker_for(space, seen, "a", "b")):
        await seen.count(5)
    assert [body for body in seen.all if body != "plain"] == ["first", "second", "third", "fourth"]


def test_jobs_of_the_same_call_may_be_waited_for(space: Space) -> None:
    result = space.queue.enqueue_many("t", [NewJob(2, id="d", after=("t", "p")), NewJob(1, id="p", delay="1h")])
    assert result.created == 2
    assert space.state("d") == "waiting"


@pytest.mark.parametrize(("on_failure", "state"), [("block", "waiting"), ("cancel", "gone")])
async def test_a_failure(space: Space, seen: Seen, on_failure: Any, state: str) -> None:
    first = space.queue.enqueue("a", "fails", delay="100ms")
    space.queue.enqueue("b", "second", id="d", after=first, on_failure=on_failure)
    async with space.serving(worker_for(space, seen, "a", "b")):
        await space.becomes(first.id, "dead", "a")
        if on_failure == "block":
            await eventually(lambda: blocked(space, "b") == 1, "it is blocked")
        await space.becomes("d", state, "b")
        if on_failure == "block":
            assert space.queue.kick("a", first.id) == 1
            assert await seen.count(2) == ["fails", "second"]
    assert space.audit().balanced


def blocked(space: Space, topic: str) -> int:
    key = store_of(space.queue).session.keys.shard(topic, 0).blocked
    return int(space_redis(space, key, "ZCARD", key))


def space_redis(space: Space, key: str, *command: Any) -> Any:
    return carry_out(space.queue, one(store_of(space.queue).session, key, *command))


async def test_it_may_run_all_the_same(space: Space, seen: Seen) -> None:
    first = space.queue.enqueue("a", "fails", delay="100ms")
    space.queue.enqueue("b", "second", after=first, on_failure="run")
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert await seen.count(1) == ["second"]


async def test_cancelling_the_first(space: Space, seen: Seen) -> None:
    first = space.queue.enqueue("a", "first", delay="1h")
    space.queue.enqueue("b", "second", id="d", after=first, on_failure="cancel")
    space.queue.enqueue("b", "third", after=("b", "d"), on_failure="run")
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert space.queue.cancel("a", first.id)
        assert await seen.count(1) == ["third"]
    assert space.state("d", "b") == "gone"


async def test_a_topic_that_is_deleted_with_its_jobs(space: Space, seen: Seen) -> None:
    """It can't tell any more. Who waits asks, after a while."""
    first = space.queue.enqueue("a", "first", delay="1h")
    space.queue.enqueue("b", "second", id="d", after=first)
    space.queue.delete_topic("a", force=True)
    keys = store_of(space.queue).session.keys.shard("b", 0)
    members = space_redis(space, keys.dependents, "ZRANGE", keys.dependents, 0, -1)
    space_redis(space, keys.dependents, "ZADD", keys.dependents, 1, members[0])  # as after 30 s
    async with space.serving(worker_for(space, seen, "b")):
        await eventually(lambda: blocked(space, "b") == 1, "it is blocked")
    assert space.state("d", "b") == "waiting"


def test_a_topic_is_not_deleted_while_its_endings_are_to_be_reported(space: Space) -> None:
    first = space.queue.enqueue("a", "first", delay="1h")
    space.queue.enqueue("b", "second", after=first)
    space.queue.cancel("a", first.id)
    with pytest.raises(Exception, match="wait"):
        space.queue.delete_topic("a")
    space.queue.delete_topic("a", force=True)


def test_of_unknown_jobs_nothing_is_written(space: Space) -> None:
    for topic in ("t", "nowhere"):
        with pytest.raises(ParentUnknown, match="it never existed, or it has ended") as caught:
            space.queue.enqueue("t", 1, id="d", after=(topic, "never was"))
        assert (caught.value.topic, caught.value.id) == (topic, "never was")
    assert space.state("d") == "gone"


def test_a_job_that_has_ended_is_unknown(space: Space) -> None:
    first = space.queue.enqueue("t", 1, delay="1h")
    space.queue.cancel("t", first.id)
    with pytest.raises(ParentUnknown):
        space.queue.enqueue("t", 2, after=first)


async def test_a_job_that_has_ended_is_known_by_its_result(space: Space, seen: Seen) -> None:
    space.queue.configure("t", result="1h", create=True)
    first = space.queue.enqueue("t", "first")
    async with space.serving(worker_for(space, seen, "t")):
        await eventually(lambda: space.state(first.id) == "gone", "it is done")
        second = space.queue.enqueue("t", "second", after=first)
        assert second.state is not JobState.WAITING
        await eventually(lambda: space.state(second.id) == "gone", "the job that waited is done")


@pytest.mark.parametrize("key", [None, "key"])
async def test_results_are_found_after_the_number_of_shards_has_changed(
    space: Space, seen: Seen, key: str | None
) -> None:
    """They stay where the jobs ended."""
    space.queue.configure("t", shards=3, result="1h", create=True)
    first = [space.queue.enqueue("t", n, id=str(n), key=key) for n in range(8)]
    async with space.serving(worker_for(space, seen, "t")):
        await seen.count(8)
        await eventually(lambda: all(space.state(job.id) == "gone" for job in first), "they are done")
    space.queue.configure("t", shards=2)
    await eventually(lambda: not space.queue.configure("t").former, "it is resharded")
    second = space.another_queue().enqueue("t", "second", after=[("t", job.id) for job in first], delay="1h")
    assert second.state is JobState.DELAYED


def test_a_job_that_was_cancelled_is_known_by_its_result(space: Space) -> None:
    space.queue.configure("t", result="1h", create=True)
    first = space.queue.enqueue("t", "first", delay="1h")
    space.queue.cancel("t", first.id)
    second = space.queue.enqueue("t", "second", id="d", after=first)
    assert second.state is JobState.WAITING
    assert blocked(space, "t") == 1
    third = space.queue.enqueue("t", "third", after=first, on_failure="run")
    assert third.state is not JobState.WAITING


def test_an_empty_list_is_no_reason_to_wait(space: Space) -> None:
    assert space.queue.enqueue("t", 1, after=[], delay="1h").state is JobState.DELAYED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": "j"}, "neither a job nor"),
        ({"after": 7}, "neither a job nor"),
        ({"after": ("t", 7)}, "neither a job nor"),
        ({"after": ("t", "d")}, "can't wait for itself"),
        ({"after": ("t", "")}, "not a valid id"),
        ({"after": ("t", "p"), "on_failure": "explode"}, "on_failure"),
        ({"after": ("t", "p"), "at": 1_900_000_000}, "at: does not go together with after"),
        ({"after": ("t", "p"), "unique_for": "1h"}, "unique_for: does not go together with after"),
        ({"after": ("t", "p"), "on_conflict": "postpone"}, "postpone"),
        pytest.param(
            {"after": [("t", str(n)) for n in range(MAX_PARENTS + 1)]}, "more than", marks=pytest.mark.thorough
        ),
    ],
)
def test_what_is_invalid(space: Space, options: dict[str, Any], message: str) -> None:
    space.queue.enqueue("t", 0, id="p", delay="1h")
    with pytest.raises(InvalidInput, match=message):
        space.queue.enqueue("t", 1, id="d", **options)
    assert space.state("d") == "gone"


def test_ids_that_are_taken(space: Space) -> None:
    first = space.queue.enqueue("t", 1, delay="1h")
    space.queue.enqueue("t", 2, id="d", delay="1h")
    with pytest.raises(JobExists):
        space.queue.enqueue("t", 3, id="d", after=first)
    kept = space.queue.enqueue("t", 3, id="d", after=first, on_conflict="keep")
    assert (kept.body, kept.state) == (2, JobState.DELAYED)
    made = space.queue.enqueue("t", 3, id="d", after=first, on_conflict="replace")
    assert (made.body, made.state, made.due_ms) == (3, JobState.WAITING, NEVER_MS)
    kept = space.queue.enqueue("t", 4, id="d", after=first, on_conflict="keep")
    assert (kept.body, kept.state) == (3, JobState.WAITING)


def test_a_call_that_is_repeated_when_the_others_have_ended_finds_its_own_job(space: Space) -> None:
    """A pipeline sends again what it was interrupted in."""
    queue = space.queue
    first = queue.enqueue("t", 1, delay="1h")
    call = carry_out(queue, prepare(store_of(queue), "t", 2, after=first))
    for _ in range(2):
        (reply,) = carry_out(queue, call.put([call]))
        assert call.job(reply).id == call.encoded.id
        queue.cancel("t", first.id)
    with pytest.raises(ParentUnknown):
        queue.enqueue("t", 2, after=first)


@pytest.mark.parametrize("on_conflict", ["reject", "keep"])
def test_a_job_that_keeps_its_id_is_noted_once_however_often_it_is_enqueued(space: Space, on_conflict: Any) -> None:
    first = space.queue.enqueue("t", 1, delay="1h")
    space.queue.enqueue("t", 2, id="d", after=first)
    key = store_of(space.queue).session.keys.shard("t", 0).followers
    before = space_redis(space, key, "HGETALL", key)
    for _ in range(3):
        with nullcontext() if on_conflict == "keep" else pytest.raises(JobExists):
            assert space.queue.enqueue("t", 3, id="d", after=first, on_conflict=on_conflict).body == 2
    assert space_redis(space, key, "HGETALL", key) == before


def test_a_job_that_waits_is_not_postponed(space: Space) -> None:
    first = space.queue.enqueue("t", 1, delay="1h")
    space.queue.enqueue("t", 2, id="d", after=first)
    with pytest.raises(JobExists, match="or waits for other jobs"):
        space.queue.enqueue("t", 3, id="d", delay="1h", on_conflict="postpone")
    assert space.job("d").body == 2


async def test_keys_lead_to_other_shards(space: Space, seen: Seen) -> None:
    space.queue.configure("t", shards=SHARDS)
    id = next(id for id in map(str, range(99)) if shard_of(id, SHARDS) != shard_of("key", SHARDS))
    first = space.queue.enqueue("t", "first", id=id, key="key", delay="100ms")
    space.queue.enqueue("t", "second", after=first, key="another key")
    space.another_queue().enqueue("t", "third", after=("t", id))
    async with space.serving(worker_for(space, seen, "t")):
        assert {*(await seen.count(3))} == {"first", "second", "third"}
    assert seen.all[0] == "first"


async def test_jobs_stay_where_they_are_when_the_number_of_shards_changes(space: Space, seen: Seen) -> None:
    space.queue.configure("t", shards=2)
    parents = [space.queue.enqueue("t", n, id=str(n), delay="1h") for n in range(8)]
    space.queue.enqueue("t", "before", id="before", after=parents)
    space.queue.configure("t", shards=SHARDS)
    space.another_queue().enqueue("t", "after", id="after", after=[("t", str(n)) for n in range(8)])
    with pytest.raises(JobExists):
        space.queue.enqueue("t", "again", id="before", after=parents)
    for n in range(8):
        space.queue.reschedule("t", str(n), delay=0)
    async with space.serving(worker_for(space, seen, "t")):
        await seen.count(10)
    assert {*seen.all[8:]} == {"before", "after"}


@pytest.mark.parametrize("has_result", [True, False])
@pytest.mark.parametrize("is_used_again", [False, True])
def test_a_process_that_stood_still_asks_again(
    space: Space, monkeypatch: pytest.MonkeyPatch, *, has_result: bool, is_used_again: bool
) -> None:
    """What it waits for has ended meanwhile, and has forgotten it."""
    queue = space.queue
    queue.configure("t", create=True, result="1d" if has_result else "0")
    first = queue.enqueue("t", 1, id="first")
    moments = iter([0.0, 61.0])

    def monotonic() -> float:
        if (now := next(moments)) > 0:
            taken(queue, "t").finish()
            shard = store_of(queue).session.keys.shard("t", 0)
            for key in (shard.followers, shard.endings):
                space_redis(space, key, "DEL", key)
            if is_used_again:
                queue.enqueue("t", 3, id="first", delay="1h")
        return now

    monkeypatch.setattr("streamdq.operations.jobs.after.monotonic", monotonic)
    with nullcontext() if has_result and not is_used_again else pytest.raises(ParentUnknown):
        queue.enqueue("t", 2, id="d", after=first)
        assert space.state("d") in ("delayed", "ready")


@pytest.mark.parametrize("is_lost", [False, True])
async def test_jobs_of_a_topic_that_the_mover_has_not_read_are_notified(space: Space, *, is_lost: bool) -> None:
    """The topic was made a moment ago, or a failover has lost it from the registry: it is not taken for a deleted
    one.
    """
    first = space.queue.enqueue("t", 1, delay="1h")
    link, session = open_session(space.url, NAMESPACE, SETTINGS, None, AsyncLink)
    store = RedisStore(session)
    await arun(link, store.topics.refresh())
    space.queue.enqueue("new", 2, id="d", after=first, on_failure="run")
    registry = session.keys.topics
    stored = space_redis(space, registry, "HGET", registry, "new")
    if is_lost:
        space_redis(space, registry, "HDEL", registry, "new")
    space.queue.cancel("t", first.id)
    await Endings(link, store, lambda _: None, lambda _: None)._look(session.keys.shard("t", 0))
    await link.close()
    space_redis(space, registry, "HSET", registry, "new", stored)
    found = space.queue.get("new", "d")
    assert found
    assert found.state != "waiting"


async def test_the_second_waits_for_all_groups_of_the_first(space: Space) -> None:
    seen, others = Seen(), Seen()
    space.queue.configure("a", groups=["default", "other"])
    first = space.queue.enqueue("a", "first")
    space.queue.enqueue("b", "second", after=first)
    async with space.serving(worker_for(space, seen, "a", "b")):
        await space.becomes(first.id, "done", "a", "default")
        assert seen.all == ["first"]
        async with space.serving(worker_for(space, others, "a", group="other")):
            assert await seen.count(2) == ["first", "second"]


async def test_a_topic_with_a_rate(space: Space, seen: Seen) -> None:
    for topic in ("a", "b"):
        space.queue.configure(topic, rate=100)
    first = space.queue.enqueue("a", "first", delay="50ms")
    space.queue.enqueue("b", "second", after=first)
    async with space.serving(worker_for(space, seen, "a", "b")):
        assert await seen.count(2) == ["first", "second"]


async def test_a_handler_lets_a_job_wait_for_its_own(space: Space) -> None:
    seen = Seen()
    worker = space.worker()

    @worker.handler("a")
    async def handler(body: Any, job: Job) -> None:
        if body == "first":
            async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
                await queue.enqueue("a", "second", after=job)
        seen.add(body)

    space.queue.enqueue("a", "first")
    async with space.serving(worker):
        assert await seen.count(2) == ["first", "second"]


async def test_a_burst_ends_though_jobs_wait(space: Space, seen: Seen) -> None:
    first = space.queue.enqueue("a", "fails")
    space.queue.enqueue("b", "second", after=first)
    await space.burst(worker_for(space, seen, "a", "b"))
    assert seen.all == []


def test_waiting_and_blocked_jobs_are_found(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    space.queue.configure("keyed", key_concurrency=1)
    dead = space.queue.enqueue("t", "dead", id="dead")
    taken(space.queue).bury("broken")
    for n in range(6):
        space.queue.enqueue("t", n, id=f"blocked-{n}", after=dead)
    first = space.queue.enqueue("t", "first", id="first", delay="1h")
    space.queue.enqueue("t", "waits", id="waits", after=first)
    for n in range(2):
        space.queue.enqueue("keyed", n, id=f"k{n}", after=first, key="k")
    assert ids(space.queue, "t", "blocked") == [f"blocked-{n}" for n in range(6)]
    assert ids(space.queue, "t", "waiting") == [*(f"blocked-{n}" for n in range(6)), "waits"]
    assert ids(space.queue, "t", "delayed") == ["first"]
    assert ids(space.queue, "keyed", "waiting") == ["k0", "k1"]
    assert [job.id for job in space.queue.find("t", state="waiting").soonest(2)] == ["blocked-0", "blocked-1"]
    with pytest.raises(InvalidInput, match="have no due time yet"):
        space.queue.find("t", state="blocked", due=(None, "1h"))
    stats = space.queue.stats("t").topics["t"]
    assert (stats.waiting, stats.blocked) == (7, 6)
    assert space.queue.find("t", state="blocked").cancel() == Acted(done=6)
    assert ids(space.queue, "t", "blocked") == []


def ids(queue: Queue, topic: str, state: str) -> list[str]:
    return sorted(job.id for job in queue.find(topic, state=state))


async def test_one_of_which_nothing_is_known_concerns_no_other(space: Space) -> None:
    first = space.queue.enqueue("t", "first", delay="1h")

    async def put(queue: AsyncQueue, n: int) -> Any:
        after = ("t", "unknown") if n % 5 == 0 else first if n % 5 == 1 else None
        try:
            return (await queue.enqueue("t", n, id=f"j{n}", after=after, delay="1h")).state
        except ParentUnknown:
            return "unknown"

    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        states = await asyncio.gather(*(put(queue, n) for n in range(50)))
    assert states == ["unknown", JobState.WAITING, *[JobState.DELAYED] * 3] * 10


async def test_a_call_is_repeated_after_the_other_job_has_ended(space: Space) -> None:
    space.queue.enqueue("t", "first", id="first")
    space.queue.enqueue("t", "second", id="second", after=("t", "first"), delay="1h")
    taken(space.queue).finish()
    kept = space.queue.enqueue("t", "second", id="second", after=("t", "first"), on_conflict="keep")
    assert (kept.id, kept.body) == ("second", "second")
    with pytest.raises(JobExists):
        space.queue.enqueue("t", "second", id="second", after=("t", "first"))
    with pytest.raises(ParentUnknown):
        space.queue.enqueue("t", "second", id="second", after=("t", "first"), on_conflict="replace")
    with pytest.raises(ParentUnknown):
        space.queue.enqueue("t", "second", id="third", after=("t", "first"), on_conflict="keep")


async def test_jobs_can_not_wait_for_each_other(space: Space, seen: Seen) -> None:
    """A job waits for those that are there: one that takes the place of one of them is another job."""
    space.queue.enqueue("t", "old", id="b", delay="1h")
    space.queue.enqueue("t", "a", id="a", after=("t", "b"), on_failure="run")
    space.queue.enqueue("t", "new", id="b", after=("t", "a"), on_conflict="replace")
    async with space.serving(worker_for(space, seen, "t")):
        assert await seen.count(2) == ["a", "new"]


def test_as_many_may_wait_for_the_same_job_as_fit(space: Space) -> None:
    first = space.queue.enqueue("t", "first", id="first", delay="1h")
    space.queue.enqueue("t", 1, id="d", after=first)
    keys = store_of(space.queue).session.keys.shard("t", 0)
    text = space_redis(space, keys.followers, "HGET", keys.followers, "first")
    head, _, line = text.partition(b"\n")
    space_redis(space, keys.followers, "HSET", keys.followers, "first", head + b"\n" + line * (2**18 // len(line) + 1))
    with pytest.raises(InvalidInput, match="about 2,500 jobs wait for 'first' of topic 't', and no more can"):
        space.queue.enqueue("t", 2, id="e", after=first)
    assert space.state("e") == "gone"


async def test_topics_without_it_pay_nothing(space: Space, seen: Seen) -> None:
    space.queue.enqueue("t", "plain")
    async with space.serving(worker_for(space, seen, "t")):
        await seen.count(1)
    for key in linked_keys(space):
        assert space_redis(space, key, "EXISTS", key) == 0
    settings = store_of(space.queue).session.keys.shard("t", 0).settings
    assert space_redis(space, settings, "HEXISTS", settings, "linked") == 0
