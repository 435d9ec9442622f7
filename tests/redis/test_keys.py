"""Jobs with a key: they are in the shard of their key, and are found there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamdq import Job, NewJob, Queue
from streamdq.errors import InvalidInput, JobExists, UnknownGroup
from streamdq.keys import shard_of
from streamdq.operations.checks import doctor
from streamdq.queue import carry_out, store_of
from streamdq.store.commands import one
from streamdq.store.keys import key_reads
from streamdq.store.scripts import Scripts
from tests.redis.harness import Seen, Space

SHARDS, KEY = 8, "merchant-7"
ELSEWHERE = next(id for id in map(str, range(99)) if shard_of(id, SHARDS) != shard_of(KEY, SHARDS))
ANOTHER = next(key for key in map(str, range(99)) if shard_of(key, SHARDS) != shard_of(KEY, SHARDS))


def test_a_job_is_found_by_its_id_with_its_key_and_without(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    other = space.another_queue()
    assert other.get("t", ELSEWHERE) is None  # it knows the topic now, and no keys of it
    space.queue.enqueue("t", 1, id=ELSEWHERE, key=KEY, delay="1h")
    for queue in (space.queue, other):
        for known in (None, KEY):
            job = queue.get("t", ELSEWHERE, key=known)
            assert job is not None
            assert job.key == KEY
        assert queue.get("t", ELSEWHERE, key=ANOTHER) is None
    assert other.reschedule("t", ELSEWHERE, delay="2h") is True
    assert space.queue.reschedule("t", ELSEWHERE, key=KEY, delay="3h") is True
    assert other.cancel("t", ELSEWHERE) is True
    assert space.queue.cancel("t", ELSEWHERE) is False
    assert space.queue.cancel("t", ELSEWHERE, key=KEY) is False
    assert space.queue.get("t", ELSEWHERE) is None


def test_an_id_is_taken_among_the_jobs_of_its_key(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    space.queue.enqueue("t", 1, id="a", key=KEY, delay="1h")
    with pytest.raises(JobExists):
        space.queue.enqueue("t", 2, id="a", key=KEY)
    assert space.queue.enqueue("t", 2, id="a", key=KEY, on_conflict="keep").body == 1
    assert space.queue.enqueue("t", 3, id="a", key=KEY, on_conflict="replace").body == 3


async def test_one_attempt_of_a_key_runs_at_once_in_order(space: Space) -> None:
    space.queue.configure("t", key_order=True)
    worker, running, order = space.worker(), set[str](), dict[str, list[int]]()

    @worker.handler("t", retry="0")
    async def handler(body: int, job: Job) -> None:
        assert job.key is not None
        assert job.key not in running
        running.add(job.key)
        await asyncio.sleep(0)
        running.remove(job.key)
        if job.attempt == 1 and body % 5 == 0:
            raise ValueError("once more")
        order.setdefault(job.key, []).append(body)

    space.queue.enqueue_many("t", [NewJob(n, key=f"k{n % 4}") for n in range(80)])
    await space.burst(worker)
    assert order == {f"k{n}": list(range(n, 80, 4)) for n in range(4)}
    assert space.audit().balanced


async def test_a_key_that_has_much_to_do_delays_no_other(space: Space, seen: Seen) -> None:
    space.queue.configure("t", key_concurrency=1)
    worker, held = space.worker(), asyncio.Event()

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(body)
        if body == "many":
            await held.wait()

    space.queue.enqueue_many("t", [NewJob("many", key="a") for _ in range(2000)])
    space.queue.enqueue("t", "one", key="b")
    space.queue.enqueue("t", "none")
    async with space.serving(worker):
        assert sorted(await seen.count(3)) == ["many", "none", "one"]
        assert space.stats().waiting_for_key == 1999
        held.set()


def test_a_rate_of_keys_is_kept_and_removed_and_what_is_none_is_refused(space: Space) -> None:
    wrong: list[Any] = ["", "5", "5/x", "0/s", "1001/s", "-1/s", 5, True, False, 1.5, "9" * 50 + "/s"]
    for rate in wrong:
        with pytest.raises(InvalidInput, match=r"^key_rate: "):
            space.queue.configure("t", key_rate=rate)
    assert space.queue.configure("t", key_rate=" 100/10m ").key_rate == "100/10m"
    assert space.another_queue().configure("t", create=True).key_rate == "100/10m"
    for none in (0, "0"):
        space.queue.configure("t", key_rate="5/s")
        assert space.queue.configure("t", key_rate=none).key_rate is None


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_which_keys_have_most_to_do(space: Space, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_reads, "_PAGE", 3)
    space.queue.configure("t", shards=shards, groups=["default", "other"])
    space.queue.enqueue("t", "before", key="k3")
    assert space.queue.keys("t") == []
    space.queue.configure("t", key_concurrency=2)
    space.queue.enqueue_many("t", [NewJob(n, key=f"k{n}", delay="1h") for n in range(1, 9) for _ in range(n)])
    if first := space.queue.take("t", "other"):
        first.finish()
    for group in ("default", "other"):
        loads = space.queue.keys("t", group=group, limit=3)
        assert [(load.key, load.waiting, load.running) for load in loads] == [("k8", 6, 0), ("k7", 5, 0), ("k6", 4, 0)]
        assert space.queue.keys("t", by="running", group=group) == []
    space.queue.enqueue_many("t", [NewJob(n, key=key) for n, key in enumerate(["k1", "k1", "k1", "k2", "new"])])
    claims = [space.queue.take("t", "other") for _ in range(4)]
    loads = space.queue.keys("t", by="running", group="other")
    assert [(load.key, load.waiting, load.running) for load in loads] == [("k1", 2, 2), ("k2", 1, 1), ("new", 0, 1)]
    assert space.queue.keys("t", by="running", group="other", limit=1) == loads[:1]
    for claim in claims:
        assert claim
        claim.finish()
    with pytest.raises(UnknownGroup):
        space.queue.keys("t", group="none")
    for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "5"}, {"limit": 1.5}, {"by": "both"}):
        with pytest.raises(InvalidInput):
            space.queue.keys("t", **wrong)


async def test_a_key_is_paused(space: Space, seen: Seen) -> None:
    """Its jobs wait, others run; then they run, in order."""
    space.queue.configure("t", shards=SHARDS)
    with pytest.raises(InvalidInput, match="no limit of keys"):
        space.queue.pause("t", key=KEY)
    space.queue.configure("t", key_order=True)
    space.another_queue().pause("t", key=KEY)
    worker = space.worker()

    @worker.handler("t")
    async def handler(body: int) -> None:
        seen.add(body)

    space.queue.enqueue_many("t", [NewJob(n, key=KEY) for n in range(5)])
    space.queue.enqueue_many("t", [NewJob(n, key=f"k{n}") for n in range(10, 15)])
    async with space.serving(worker):
        assert sorted(await seen.count(5)) == list(range(10, 15))
        (load,) = space.queue.keys("t", by="paused")
        assert (load.key, load.waiting, load.running, load.paused) == (KEY, 5, 0, True)
        assert [load.paused for load in space.queue.keys("t")] == [True]
        space.queue.resume("t", key=KEY)
        assert (await seen.count(10))[5:] == list(range(5))
    assert space.queue.keys("t", by="paused") == []
    assert space.audit().balanced


def test_the_number_of_shards_was_changed_before_a_key_is_paused(space: Space) -> None:
    space.queue.configure("t", shards=1, key_order=True)
    other = space.another_queue()
    other.stats("t")
    space.queue.configure("t", shards=SHARDS)
    other.pause("t", key=KEY)
    assert [load.key for load in space.queue.keys("t", by="paused")] == [KEY]
    space.queue.resume("t", key=KEY)


def test_the_doctor_names_the_key_that_many_wait_for(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_MANY_WAIT", 5)
    space.queue.configure("t", key_concurrency=2)
    for expected in ([], ["6 jobs of topic t wait for key 'k' in group default"]):
        found = space.queue.doctor()
        assert [one.what for one in found if "wait for key" in one.what] == expected
        space.queue.enqueue_many("t", [NewJob(n, key="k") for n in range(8)])
        space.queue.enqueue_many("t", [NewJob(n, key="l") for n in range(7)])


async def test_the_registry_is_lost_while_jobs_wait_for_their_key(space: Space, seen: Seen) -> None:
    """Who makes the topic again knows of no limit. Nobody waits for ever."""
    space.queue.configure("t", key_concurrency=1)
    space.queue.enqueue_many("t", [NewJob(n, key="a") for n in range(100)])
    store = store_of(space.queue)
    topics = store.session.keys.topics
    carry_out(space.queue, one(store.session, topics, "DEL", topics))
    fresh = space.another_queue()
    fresh.enqueue("t", 100, key="a")
    worker = space.worker()

    @worker.handler("t")
    async def handler(body: int) -> None:
        seen.add(body)

    await space.burst(worker)
    assert sorted(seen.all) == list(range(101))
    assert space.audit().balanced


def lose_the_registry(space: Space) -> None:
    session = store_of(space.queue).session
    carry_out(space.queue, one(session, session.keys.topics, "DEL", session.keys.topics))


def is_found(queue: Queue) -> bool:
    job = queue.get("t", ELSEWHERE)
    return job is not None and job.key == KEY


def test_the_registry_is_lost_and_made_again_by_one_who_knows_no_keys(space: Space) -> None:
    space.queue.configure("t", shards=SHARDS)
    space.queue.enqueue("t", 1, id=ELSEWHERE, key=KEY, delay="1h")
    lose_the_registry(space)
    fresh = space.another_queue()
    fresh.enqueue("t", 2, id="x")
    assert is_found(fresh)
    assert is_found(space.another_queue())
    assert space.another_queue().cancel("t", ELSEWHERE)


@pytest.mark.parametrize("by", ["enqueue", "replace", "postpone"])
def test_one_who_knows_of_keys_tells_the_others_after_redis_lost_everything(space: Space, by: Any) -> None:
    space.queue.configure("t", shards=SHARDS)
    space.queue.enqueue("t", 1, id=ELSEWHERE, key=KEY, delay="1h")
    session = store_of(space.queue).session
    carry_out(space.queue, one(session, session.keys.topics, "FLUSHDB"))
    fresh = space.another_queue()
    fresh.configure("t", shards=SHARDS)
    space.queue.enqueue("t", 1, id=ELSEWHERE, key=KEY, delay="1h", on_conflict="reject" if by == "enqueue" else by)
    assert is_found(fresh)
    assert is_found(space.another_queue())


def test_the_registry_is_lost_before_it_has_keys(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shards know first."""
    space.queue.configure("t", shards=SHARDS)
    other, register = space.another_queue(), Scripts.register_topic

    def forgotten(self: Scripts, topic: str, patch: Any, *args: Any) -> Any:
        if '"sharded_by_key": true' in patch[0]:
            raise KeyboardInterrupt
        return register(self, topic, patch, *args)

    monkeypatch.setattr(Scripts, "register_topic", forgotten)
    with pytest.raises(KeyboardInterrupt):
        space.queue.enqueue("t", 1, id=ELSEWHERE, key=KEY, delay="1h")
    monkeypatch.undo()
    lose_the_registry(space)
    other.enqueue("t", 1, id=ELSEWHERE, key=KEY, delay="1h")
    assert is_found(space.another_queue())


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 201])
def test_what_is_no_key_is_refused(space: Space, key: str) -> None:
    for call in (
        lambda: space.queue.enqueue("t", 1, key=key),
        lambda: space.queue.get("t", "a", key=key),
        lambda: space.queue.cancel("t", "a", key=key),
    ):
        space.queue.configure("t", create=True)
        with pytest.raises(InvalidInput, match=r"^key: "):
            call()


def test_a_pause_ends_when_the_number_of_shards_changes(space: Space) -> None:
    """The key may be at home in another shard from then on, where nobody would find what is kept of it in this one."""
    space.queue.configure("t", shards=1, key_order=True)
    space.queue.pause("t", key=KEY)
    for shards in (SHARDS, 1):
        space.queue.configure("t", shards=shards)
        assert space.queue.keys("t", by="paused") == []
