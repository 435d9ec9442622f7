"""The one way in: what became of jobs that were put in together, and that duplicates are counted there, once."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import Settings, TopicSettings
from streamdq.errors import JobExists
from streamdq.job.job import NewJob
from streamdq.link.address import Target
from streamdq.link.session import Op, Session
from streamdq.operations.jobs import enqueue, enqueue_many
from streamdq.operations.jobs.enqueue import EnqueueReply
from streamdq.operations.jobs.enqueue_many import EnqueueResult
from streamdq.store.jobs.records import Encoded, encode
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import RedisClock
from tests.metrics import sample

NOW_MS = 1_800_000_000_000
NAMESPACE = "put-in"


@pytest.fixture
def store() -> RedisStore:
    opened = RedisStore(Session(Settings(), NAMESPACE, RedisClock(), Target("node", "redis://localhost")))
    opened.session.permitted.add("")  # the user has all rights
    opened.topics.known["t"] = TopicSettings()
    return opened


def kept(job: Encoded, body: str = "") -> bytes:
    return b"000000000001%d\n%d\n%b%b" % (NOW_MS + 5, NOW_MS, job.rest, body.encode())


def other(id: str) -> bytes:
    return kept(encode(NewJob("another's", id=id), 100))


def answered(op: Op[Any], taken: dict[int, bytes], jobs: int = 1) -> Any:
    """What the operation returns when its one script call finds these ids taken."""
    flat = [value for i, record in taken.items() for value in (i + 1, record)]
    next(op)
    with pytest.raises(StopIteration) as returned:
        op.send([[1, NOW_MS, jobs, *flat]])
    return returned.value.value


def duplicates() -> float:
    return sample("streamdq_jobs_duplicate_total", {"namespace": NAMESPACE, "topic": "t"}) or 0


def test_what_became_of_each(store: RedisStore) -> None:
    encoded = [encode(NewJob(number, id=f"j{number}"), 100) for number in range(3)]
    before = duplicates()
    put = answered(enqueue.put(store, "t", encoded), {1: other("j1"), 2: kept(encoded[2])}, 3)
    assert isinstance(put, EnqueueReply)
    assert (put.now_ms, put.existing) == (NOW_MS, [1])
    assert [put.job("t", job, i).body for i, job in enumerate(encoded)] == [0, "another's", 2]
    assert [put.job("t", job, i).due_ms - NOW_MS for i, job in enumerate(encoded)] == [0, 5, 5]
    assert duplicates() - before == 1


@pytest.mark.parametrize("on_conflict", ["reject", "replace"])
def test_a_single_one_is_counted_once(store: RedisStore, on_conflict: Any) -> None:
    before, op = duplicates(), enqueue.enqueue(store, "t", 1, id="j", on_conflict=on_conflict)
    with pytest.raises(JobExists):
        answered(op, {0: other("j")})
    assert duplicates() - before == 1


def test_many_are_counted_once(store: RedisStore) -> None:
    before = duplicates()
    given = [NewJob(number, id=f"j{number}") for number in range(3)]
    result = answered(enqueue_many.enqueue_many(store, "t", given), {0: other("j0"), 2: other("j2")}, 3)
    assert result == EnqueueResult(1, ["j0", "j2"])
    assert duplicates() - before == 2


def test_a_call_that_is_repeated_is_no_duplicate(store: RedisStore) -> None:
    job, before = encode(NewJob(1, id="j"), 100), duplicates()
    assert answered(enqueue.put(store, "t", [job]), {0: kept(job)}).existing == []
    assert duplicates() == before
