"""The public API as it is promised: names, arguments, and what comes back."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import Any

import pytest
import redis

import streamdq
from streamdq import JobState, NewJob, Queue
from streamdq.keys import shard_of
from tests.redis.harness import Space
from tests.servers import Server


def test_promised_names() -> None:
    promised = "Queue, AsyncQueue, Worker, Job, NewJob, RetrySchedule, Retry, Bury, StreamdqError, JobExists"
    assert set(promised.split(", ")) <= set(streamdq.__all__)
    found = vars(streamdq.errors).items()
    errors = {name for name, value in found if isinstance(value, type) and issubclass(value, Exception)} - {"Portable"}
    assert errors | {"Settings", "Claim", "NoClaim"} <= set(streamdq.__all__)
    assert all(hasattr(streamdq, name) for name in streamdq.__all__)
    defaults = {name: p.default for name, p in inspect.signature(Queue.enqueue).parameters.items()}
    assert defaults["on_conflict"] == "reject"
    assert inspect.signature(Queue.upcoming).parameters["windows"].default == ("1m", "10m", "1h", "1d")


def test_a_job_as_enqueued_and_as_kept(space: Space) -> None:
    made = space.queue.enqueue(
        "order.close", {"order_id": 42}, delay="30m", id="order-42", ttr="60s", retry="15s 3m 10m",
        url="https://shop.example/hook", on_conflict="reject",
    )  # fmt: skip
    kept = space.job("order-42", "order.close")
    for job in (made, kept):
        assert (job.topic, job.id, job.body) == ("order.close", "order-42", {"order_id": 42})
        assert (job.state, job.attempt, job.step) == (JobState.DELAYED, 0, 0)
        assert job.due_ms - job.created_ms == 30 * 60_000
        assert job.due - job.created == timedelta(minutes=30)
        assert job.created.tzinfo == UTC
        assert (job.ttr_ms, job.retry, job.url) == (60_000, "15000ms 180000ms 600000ms", "https://shop.example/hook")
    assert {group: progress.state for group, progress in kept.groups.items()} == {"default": "delayed"}


def test_many_of_any_length_in_bounded_memory(space: Space) -> None:
    """Never more than a batch is drawn ahead of what Redis has."""
    most_ahead = drawn = 0

    def source() -> Iterator[NewJob]:
        nonlocal most_ahead, drawn
        for n in range(3_000):
            if n % 100 == 0:
                stats = space.queue.stats().topics.get("t")
                most_ahead = max(most_ahead, n - (stats.enqueued if stats else 0))
            drawn += 1
            yield NewJob({"n": n}, delay="1h", id=f"j{n}")

    result = space.queue.enqueue_many("t", source(), batch_size=250)
    assert (result.created, result.existing, drawn) == (3_000, [], 3_000)
    assert most_ahead <= 250
    assert space.queue.enqueue_many("t", []).created == 0


def _exchanges(space: Space, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commands were sent together, in each exchange from now on."""
    found: list[int] = []
    send = space.queue._link.send

    def counted(commands: Sequence[Any], timeout_s: float, blocking: bool = False) -> list[Any]:
        found.append(len(commands))
        return send(commands, timeout_s, blocking)

    monkeypatch.setattr(space.queue._link, "send", counted)
    return found


def test_a_batch_for_many_shards_is_sent_together(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.queue.configure("t", shards=16)
    space.queue.enqueue_many("t", [NewJob(n, id=f"old{n}", key="k" if n == 7 else None) for n in range(8)])
    exchanges = _exchanges(space, monkeypatch)
    jobs = [NewJob(n, id=f"new{n}", key=f"k{n}" if n % 2 else None) for n in range(8, 300)]
    result = space.queue.enqueue_many("t", [*[NewJob(n, id=f"old{n}") for n in range(7)], *jobs])
    assert (result.created, result.existing) == (292, [f"old{n}" for n in range(7)])
    assert exchanges == [16]
    with redis.Redis.from_url(redis_server.url) as client:
        client.script_flush()
    exchanges.clear()
    assert space.queue.enqueue_many("t", [NewJob(n) for n in range(300)]).created == 300
    assert space.audit().balanced
    assert space.queue.stats("t").topics["t"].enqueued == 600


def test_of_jobs_with_one_id_in_a_batch_for_many_shards_the_first_gets_it(space: Space) -> None:
    space.queue.configure("t", shards=4)
    large = "x" * 150_000
    jobs: list[NewJob[str]] = [
        NewJob(large, id="a"),
        *[NewJob(large, id=f"j{n}") for n in range(12)],
        NewJob("second", id="a"),
    ]
    assert space.queue.enqueue_many("t", jobs).existing == ["a"]
    assert space.job("a").body == large
    others = [NewJob(str(n)) for n in range(20)]
    rules = [NewJob("first", id="b", unique_for="1h"), *others, NewJob("second", id="b")]
    assert space.queue.enqueue_many("t", rules).existing == ["b"]
    assert space.job("b").body == "first"


def test_of_jobs_with_one_id_the_first_gets_it_also_if_its_call_is_left_for_later(space: Space) -> None:
    """A call that finds large jobs under its ids leaves the rest for another one."""
    space.queue.configure("t", shards=4)
    large, beside_a = "x" * 150_000, [id for id in map(str, range(40)) if shard_of(id, 4) == shard_of("a", 4)]
    space.queue.enqueue_many("t", [NewJob(large, id=id) for id in beside_a[:4]])
    found = [NewJob("new", id=id) for id in beside_a[:4]]
    jobs = [*found, NewJob("first", id="a"), NewJob(large, id=beside_a[4]), NewJob(large, id=beside_a[5])]
    jobs.append(NewJob("second", id="a"))
    assert space.queue.enqueue_many("t", jobs).existing == [*beside_a[:4], "a"]
    assert space.job("a").body == "first"


def test_stats_and_upcoming(stepped: Space) -> None:
    space = stepped
    space.queue.configure("empty", create=True)
    for n, delay in enumerate(["30s", "5m", "30m", "5h", "2d"]):
        space.queue.enqueue("t", n, delay=delay)
    space.queue.enqueue("t", 1)
    space.queue.enqueue("u", 1, delay="30s")
    stats = space.queue.stats()
    assert (stats.delayed, stats.ready, stats.running, stats.dead) == (6, 1, 0, 0)
    assert set(stats.topics) == {"empty", "t", "u"}
    one = stats.topics["t"]
    assert (one.enqueued, one.jobs, one.shards, one.paused) == (6, 6, 1, False)
    assert one.next_due_ms is not None
    assert space.queue.stats("u").delayed == 1
    assert space.queue.upcoming("t") == {"1m": 1, "10m": 2, "1h": 3, "1d": 4}
    assert space.queue.upcoming() == {"1m": 2, "10m": 3, "1h": 4, "1d": 5}
    assert space.queue.upcoming(windows=("7d",)) == {"7d": 6}


def test_audit_says_where_every_job_is(space: Space) -> None:
    space.queue.configure("t", groups=["a", "b"])
    space.queue.enqueue("t", 1, delay="1h")
    for _ in range(3):
        space.queue.enqueue("t", 1)
    claim = space.queue.take("t", "a", timeout=0)
    finished, buried = space.queue.take("t", "a", timeout=0), space.queue.take("t", "a", timeout=0)
    assert claim
    assert finished
    assert buried
    finished.finish()
    buried.bury("x")
    audit = space.audit()
    assert audit.balanced
    a, b = sorted(audit.balances, key=lambda balance: balance.group)
    assert (a.enqueued, a.done, a.dead, a.delayed, a.ready, a.running, a.live) == (4, 1, 1, 1, 0, 1, 2)
    assert (b.enqueued, b.done, b.dead, b.delayed, b.ready, b.running, b.live) == (4, 0, 0, 1, 3, 0, 4)
    assert audit.left == 6
    assert space.queue.audit("t") == audit
    claim.finish()
