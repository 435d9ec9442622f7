"""The public API as it is promised: names, arguments, and what comes back."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from pydantic import BaseModel

import streamdq
from streamdq import Bury, Claim, InvalidInput, JobState, NewJob, Queue, Retry, RetrySchedule, Worker
from streamdq.keys import shard_of
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.servers import Server

# Other software is written against these: names may be added, none may go.
PROMISED: dict[Any, list[str]] = {
    Queue.__init__: ["url", "namespace"],
    Queue.enqueue: ["topic", "body", "delay", "at", "id", "ttr", "retry", "url", "on_conflict"],
    Queue.enqueue_many: ["topic", "jobs", "batch_size"],
    Queue.get: ["topic", "id"],
    Queue.cancel: ["topic", "id"],
    Queue.reschedule: ["topic", "id", "delay", "at"],
    Queue.take: ["topic", "group", "timeout"],
    Queue.dead: ["topic", "group"],
    Queue.kick: ["topic", "id", "group"],
    Queue.purge: ["topic", "id", "group"],
    Queue.pause: ["topic"],
    Queue.resume: ["topic"],
    Queue.configure: ["topic", "ttr", "retry", "shards", "max_deliveries", "groups", "rate"],
    Queue.stats: ["topic"],
    Queue.upcoming: ["topic", "windows"],
    Queue.audit: ["topic"],
    Claim.finish: [],
    Claim.fail: ["error", "delay"],
    Claim.bury: ["reason"],
    Claim.touch: [],
    Worker.__init__: ["url", "namespace", "group", "concurrency"],
    Worker.handler: ["topic", "ttr", "retry", "batch"],
    Worker.run: ["burst"],
    Worker.serve: ["burst"],
    Retry.__init__: ["delay"],
}


def test_promised_arguments() -> None:
    for function, promised in PROMISED.items():
        names = inspect.signature(function).parameters
        assert [name for name in names if name in promised] == promised, function.__qualname__


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


def test_a_moment_as_datetime_and_as_number(space: Space) -> None:
    moment = datetime(2040, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    by_datetime = space.queue.enqueue("t", 1, at=moment)
    by_number = space.queue.enqueue("t", 1, at=round(moment.timestamp() * 1000))
    assert by_datetime.due == by_number.due == moment
    assert space.job(by_number.id).due == moment


BODIES: list[Any] = [
    {"a": 1}, [1, "b", None, True], "text", 42, 1.5, False, 0, {}, [], "ü🎈\u2028", {"深": ["い"]}, "a\nb\x1f|",
    2**60, "x" * 200_000,
]  # fmt: skip


def test_bodies_come_back_as_they_went(space: Space) -> None:
    for body in BODIES:
        assert space.queue.enqueue("t", body, id="a").body == body
        assert space.job("a").body == body
        with space.queue.take("t", timeout=0) or pytest.fail("nothing there") as claim:
            assert claim.job.body == body


class Model(BaseModel):
    when: datetime
    price: Decimal


@dataclass
class Plain:
    n: int


def test_models_and_dataclasses_as_bodies(space: Space) -> None:
    space.queue.enqueue("t", Model(when=datetime(2030, 1, 1, tzinfo=UTC), price=Decimal("1.10")), id="model")
    space.queue.enqueue("t", {"nested": [Plain(1)], "at": datetime(2030, 1, 1, tzinfo=UTC)}, id="nested")
    assert space.job("model").body == {"when": "2030-01-01T00:00:00Z", "price": "1.10"}
    assert space.job("nested").body == {"nested": [{"n": 1}], "at": "2030-01-01T00:00:00Z"}


def test_a_schedule_may_be_handed_in_in_any_form(space: Space) -> None:
    forms: list[Any] = ["1s 2m", ["1s", timedelta(minutes=2)], RetrySchedule.of("1s 2m"), "1s, 2m"]
    for retry in forms:
        assert space.queue.enqueue("t", 1, retry=retry).retry == "1000ms 120000ms"
    assert str(RetrySchedule.of("1s 2m 0")) == "1s 2m 0"


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


def test_large_jobs_for_many_shards_are_sent_in_parts(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.configure("t", shards=4)
    space.queue.enqueue("t", 0)
    exchanges = _exchanges(space, monkeypatch)
    jobs = [NewJob("x" * 60_000, id=f"j{n}") for n in range(40)]
    assert space.queue.enqueue_many("t", jobs).created == 40
    assert max(exchanges) <= 4
    assert len(exchanges) >= 10  # at most 256 KB of records in one
    again = space.queue.enqueue_many("t", [NewJob("y", id=f"j{n}") for n in range(40)])
    assert (again.created, len(again.existing)) == (0, 40)


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


def test_namespaces_share_nothing(space: Space) -> None:
    with Queue(space.url, "another", settings=SETTINGS) as other:
        other.enqueue("t", "theirs", id="a")
        space.queue.enqueue("t", "ours", id="a")
        assert other.cancel("t", "a")
        assert space.job("a").body == "ours"
        assert other.audit().balanced


def test_the_url_comes_from_the_environment(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_URL", redis_server.url)
    with Queue() as queue:
        queue.enqueue("t", 1, id="a")
        assert queue.namespace == "streamdq"
    with Queue(redis_server.url) as queue:
        assert queue.get("t", "a") is not None


def test_a_closed_queue_may_be_used_again(space: Space) -> None:
    queue = Queue(space.url, NAMESPACE, settings=SETTINGS)
    queue.enqueue("t", 1)
    queue.close()
    queue.close()
    assert queue.stats("t").ready == 1
    queue.close()


def test_exceptions_say_what_they_are() -> None:
    assert Retry("5m").delay_ms == 300_000
    assert Retry().delay_ms is None
    assert Bury("why").reason == "why"
    assert issubclass(streamdq.JobExists, streamdq.StreamdqError)
    assert issubclass(streamdq.StaleClaim, streamdq.StreamdqError)
    with pytest.raises(streamdq.StreamdqError, match="delay"):
        Retry(delay=-1)


def test_a_job_needs_no_body(space: Space) -> None:
    assert space.queue.enqueue("t", delay="1h").body == {}
    with pytest.raises(InvalidInput, match="is blank"):
        space.queue.enqueue("t", None)
