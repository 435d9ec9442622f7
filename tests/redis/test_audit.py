"""The audit is itself tried: it finds whatever is taken away, added or moved, and nothing under a healthy load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.operations.checks import audit
from tests.redis.harness import NAMESPACE, SETTINGS, Space, taken
from tests.servers import Server

T = f"{NAMESPACE}:{{t:0}}"
WITH_KEYS = f"{NAMESPACE}:{{keyed:0}}"


def build(queue: Queue) -> None:
    """Jobs in each state, for two groups; and a topic whose keys have limits."""
    queue.configure("t", groups=["a", "b"])
    queue.enqueue("t", 0, id="retried")
    taken(queue, "t", "a").fail("no", delay="1h")
    for id in ("dead", "running", "done", "ready"):
        queue.enqueue("t", 0, id=id)
    for id in ("dead", "running", "done"):
        claim = taken(queue, "t", "a")
        assert claim.job.id == id
        if id == "dead":
            claim.bury("no")
        elif id == "done":
            claim.finish()
    queue.enqueue("t", 0, id="delayed", delay="1h")
    queue.enqueue("t", 0, id="cancelled", delay="1h")
    queue.cancel("t", "cancelled")
    queue.configure("keyed", key_concurrency=1)
    queue.enqueue_many("keyed", [NewJob(0, id=f"k{n}", key="x") for n in range(3)])
    claim = taken(queue, "keyed")
    assert claim.job.id == "k0"
    queue.configure("wide", shards=2)
    queue.enqueue_many("wide", [NewJob(0, id=f"w{n}", delay="1h") for n in range(4)])


def entry_of(client: Any, stream: str, id: str) -> bytes:
    return next(entry for entry, fields in client.xrange(stream) if next(iter(fields.values())).endswith(id.encode()))


def member_of(client: Any, zset: str, id: str) -> bytes:
    return next(member for member, _ in client.zscan_iter(zset) if member.endswith(id.encode()))


def leave_bucket(client: Any, bucket: str, id: str) -> None:
    client.zrem(bucket, member_of(client, bucket, id))


def leave_stream(client: Any, stream: str, id: str) -> None:
    client.xdel(stream, entry_of(client, stream, id))


def move_to_another_shard(client: Any) -> None:
    """With all that it has: only no call looks for it there."""
    number, other = (0, 1) if client.hexists(f"{NAMESPACE}:{{wide:0}}:jobs", "w0") else (1, 0)
    was, now = f"{NAMESPACE}:{{wide:{number}}}", f"{NAMESPACE}:{{wide:{other}}}"
    member = member_of(client, f"{was}:bucket", "w0")
    client.zadd(f"{now}:bucket", {member: client.zscore(f"{was}:bucket", member) or 0})
    client.zrem(f"{was}:bucket", member)
    client.hset(f"{now}:jobs", "w0", client.hget(f"{was}:jobs", "w0") or b"")
    client.hdel(f"{was}:jobs", "w0")
    client.hincrby(f"{was}:counts", "enqueued", -1)
    client.hincrby(f"{now}:counts", "enqueued", 1)


def count_once_more(client: Any, counter: str) -> None:
    client.hincrby(f"{T}:counts", counter, 1)


COUNTERS = ("enqueued", "done:a", "dead:a", "cancelled:b", "waiting:a", "ready:b", "running:a", "waiting_for_key:a")
CHANGES: dict[str, Callable[[Any], object]] = {
    "a delayed job's record": lambda client: client.hdel(f"{T}:jobs", "delayed"),
    "a dead job's record": lambda client: client.hdel(f"{T}:jobs", "dead"),
    "a delayed job's due time": lambda client: leave_bucket(client, f"{T}:bucket", "delayed"),
    "a retried job's due time": lambda client: leave_bucket(client, f"{T}:bucket", "retried"),
    "a ready job's entry": lambda client: leave_stream(client, f"{T}:ready", "ready"),
    "a running job's entry": lambda client: leave_stream(client, f"{T}:ready", "running"),
    "the places of a key": lambda client: client.delete(f"{WITH_KEYS}:key_admitted"),
    "whose place it is": lambda client: client.hdel(f"{WITH_KEYS}:key_tickets", "default\x1fk0"),
    "a job that waits for its key": lambda client: leave_bucket(client, f"{WITH_KEYS}:key_waiting", "k1"),
    "the shard of a job": move_to_another_shard,
    **{f"{counter} counted twice": partial(count_once_more, counter=counter) for counter in COUNTERS},
}


@pytest.fixture
def built(redis_server: Server) -> Iterator[tuple[Queue, Any]]:
    with Queue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue, redis_server.client() as client:
        build(queue)
        found = queue.audit()
        assert found.balanced, found
        yield queue, client


@pytest.mark.parametrize("change", CHANGES)
def test_it_finds_what_was_changed(built: tuple[Queue, Any], change: str) -> None:
    queue, client = built
    CHANGES[change](client)
    assert not queue.audit().balanced


def test_a_job_that_came_after_the_number_of_shards_changed_is_no_orphan(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has asked how many there are before."""
    jobs = [NewJob(0, id=f"{n}", delay="1h") for n in range(40)]
    space.queue.configure("wide", shards=4)
    space.queue.enqueue_many("wide", jobs[:20])
    walk, walks = audit._suspects, list[str]()

    def late(store: Any, shard: Any) -> Any:
        if not walks:
            with Queue(space.url, NAMESPACE, settings=SETTINGS) as queue:
                queue.configure("wide", shards=3)
                queue.enqueue_many("wide", jobs[20:])
        walks.append(str(shard))
        return walk(store, shard)

    monkeypatch.setattr(audit, "_suspects", late)
    assert space.queue.audit().balanced
    assert len(walks) > len({*walks}), "there were suspects"


def test_it_finds_nothing_while_jobs_are_put_off_and_done(space: Space) -> None:
    """Those that are seen in one place, and have gone to another by the time that is looked at."""
    queue, stop = space.queue, threading.Event()
    queue.configure("keyed", key_concurrency=1)
    queue.enqueue_many("t", [NewJob(0, id=f"j{n}", delay="1h") for n in range(1000)])

    def put_off() -> None:
        while not stop.is_set():
            for n in range(50):
                queue.enqueue("t", 1, id=f"j{n}", delay="2h", on_conflict="postpone")
                queue.reschedule("t", f"j{n}", delay="1h")
                queue.enqueue("t", 2, id=f"j{n}", on_conflict="replace")
                queue.enqueue("t", 3, id=f"j{n}", delay="1h", on_conflict="replace")

    def work() -> None:
        while not stop.is_set():
            queue.enqueue_many("keyed", [NewJob(0, key=f"k{n % 2}") for n in range(10)])
            for _ in range(10):
                with queue.take("keyed", timeout=0) as claim:
                    if claim and claim.job.attempt == 1:
                        claim.fail("again", delay=0)

    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(put_off), threads.submit(work)]
        try:
            found = [queue.audit() for _ in range(10)]
        finally:
            stop.set()
        for one in busy:
            one.result()
    assert [orphan for one in found for orphan in one.orphans] == []
