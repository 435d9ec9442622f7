"""The history: a row for each ended attempt and each rare event, capped."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from streamdq import Bury, Job, NewJob
from streamdq.store.history import FIELDS, SEPARATOR
from tests.redis.harness import Seen, Space, recorder
from tests.servers import Server
from tests.waiting import HANG_S, eventually


def rows(server: Server, topic: str = "t") -> list[dict[str, str]]:
    with server.client() as client:
        entries = client.xrange(f"test:{{{topic}:0}}:history")
    found = []
    for _, fields in entries:
        values = fields[b"e"].decode().split(SEPARATOR)
        found.append(dict(zip(FIELDS, values, strict=True)))
    return found


async def test_a_life_in_rows(space: Space, redis_server: Server) -> None:
    worker = space.worker()

    @worker.handler("t", retry="20ms")
    async def handler(_body: dict[str, int], job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("some secret of the body")
        if job.attempt == 2:
            raise Bury("enough")

    made = space.queue.enqueue("t", {"n": 1}, id="a", delay="20ms")
    await space.burst(worker)
    space.queue.kick("t", "a")
    await space.burst(worker)
    life = rows(redis_server)
    assert [row["event"] for row in life] == ["retry", "dead", "kicked", "done"]
    assert [row["attempt"] for row in life] == ["1", "2", "2", "3"]
    assert {row["id"] for row in life} == {"a"}
    assert {row["group"] for row in life} == {"default"}
    assert {row["created_ms"] for row in life} == {str(made.created_ms)}
    assert [row["step"] for row in life] == ["0", "1", "0", "0"]
    assert [(row["error"], row["reason"]) for row in life] == [
        ("ValueError", ""),
        ("Bury", "buried"),
        ("", ""),
        ("", ""),
    ]
    for row in (life[0], life[1], life[3]):
        due, moved, started, finished = (int(row[f"{name}_ms"]) for name in ("due", "moved", "started", "finished"))
        assert due <= moved <= finished
        assert due <= started <= finished
        assert row["consumer"]
    assert {row["body_bytes"] for row in life} == {str(len('{"n":1}'))}
    assert life[2]["due_ms"] == life[2]["finished_ms"]
    assert int(life[1]["due_ms"]) >= int(life[0]["finished_ms"]) + 20


async def test_cancelled_expired_reclaimed_released(space: Space, redis_server: Server, seen: Seen) -> None:
    space.queue.enqueue("t", "x", id="cancelled", delay="1h")
    space.queue.cancel("t", "cancelled")
    space.queue.enqueue("t", "x", id="expired", at=1_700_000_000_000, expire=1)
    space.queue.enqueue("t", "x", id="reclaimed")
    claim = space.queue.take("t")
    assert claim
    assert claim.job.id == "reclaimed"
    claim.touch("150ms")
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await seen.count(1)
        await eventually(lambda: space.audit().left == 0, "all done")
    found = {(row["event"], row["id"]): row for row in rows(redis_server)}
    assert found.keys() == {
        ("cancelled", "cancelled"), ("expired", "expired"), ("reclaimed", "reclaimed"), ("done", "reclaimed"),
    }  # fmt: skip
    cancelled, expired = found["cancelled", "cancelled"], found["expired", "expired"]
    lost, again = found["reclaimed", "reclaimed"], found["done", "reclaimed"]
    assert {row["body_bytes"] for row in found.values()} == {"3"}
    assert {row["step"] for row in found.values()} == {"0"}
    assert [row["attempt"] for row in (cancelled, expired, lost, again)] == ["0", "0", "1", "2"]
    assert int(cancelled["due_ms"]) == int(cancelled["created_ms"]) + 3_600_000
    assert (cancelled["consumer"], cancelled["moved_ms"], cancelled["started_ms"]) == ("", "", "")
    assert (expired["due_ms"], expired["started_ms"]) == ("1700000000000", "")
    assert int(expired["created_ms"]) <= int(expired["moved_ms"]) <= int(expired["finished_ms"])
    assert (lost["consumer"], lost["created_ms"]) == (space.queue._store.session.consumer, again["created_ms"])
    assert int(lost["due_ms"]) <= int(lost["moved_ms"]) <= int(lost["started_ms"])
    assert int(lost["started_ms"]) + 150 <= int(lost["finished_ms"]) <= int(again["started_ms"])


class Order(BaseModel):
    n: int


async def test_why_a_job_is_dead(space: Space, redis_server: Server) -> None:
    space.queue.configure("crashed", ttr="100ms", max_deliveries=1)
    space.queue.enqueue("crashed", "x")
    assert space.queue.take("crashed")
    await eventually(lambda: len(rows(redis_server, "crashed")) == 1, "taken over")
    assert not space.queue.take("crashed", timeout=0)
    worker = space.worker()

    @worker.handler("exhausted", retry="none")
    async def fail(_body: str) -> None:
        raise KeyError("a secret")

    @worker.handler("invalid")
    async def never(_order: Order) -> None:
        raise AssertionError

    space.queue.enqueue("exhausted", "x")
    space.queue.enqueue("invalid", {"n": "a secret"})
    await space.burst(worker)
    dead = {topic: rows(redis_server, topic)[-1] for topic in ("crashed", "exhausted", "invalid")}
    assert {row["event"] for row in dead.values()} == {"dead"}
    assert {topic: row["reason"] for topic, row in dead.items()} == {topic: topic for topic in dead}
    errors = {topic: row["error"] for topic, row in dead.items()}
    assert errors == {"crashed": "", "exhausted": "KeyError", "invalid": "ValidationError"}


async def test_an_attempt_that_is_taken_over_stays_due_when_it_was(
    space: Space, redis_server: Server, seen: Seen
) -> None:
    space.queue.enqueue("t", "x", id="a")
    for _ in range(2):
        (space.queue.take("t", timeout=HANG_S) or pytest.fail("nothing came")).touch("1ms")
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    async with space.serving(worker):
        await seen.count(1)
        await eventually(lambda: space.audit().left == 0, "done")
    first, second, done = rows(redis_server)
    assert [row["event"] for row in (first, second, done)] == ["reclaimed", "reclaimed", "done"]
    assert first["due_ms"] == second["due_ms"] == done["due_ms"] == first["created_ms"]
    assert second["moved_ms"] >= first["finished_ms"]
    assert second["attempt"] == "2"


async def test_a_cancelled_retry_was_due_at_its_next_attempt(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", retry="1h")
    space.queue.enqueue("t", "x", id="a")
    claim = space.queue.take("t")
    assert claim
    claim.fail(ValueError())
    assert space.queue.cancel("t", "a")
    retry, cancelled = rows(redis_server)
    assert int(cancelled["due_ms"]) == int(retry["finished_ms"]) + 3_600_000
    assert (cancelled["event"], cancelled["attempt"], cancelled["step"]) == ("cancelled", "1", "1")


async def test_an_attempt_handed_back_has_its_row(space: Space, redis_server: Server, seen: Seen) -> None:
    worker, never = space.worker(grace_s=0.05), asyncio.Event()

    @worker.handler("t")
    async def handler(_body: str, job: Job) -> None:
        seen.add(job)
        await never.wait()

    space.queue.enqueue("t", "x", id="a")
    async with space.serving(worker):
        await seen.count(1)
    (row,) = rows(redis_server)
    assert (row["event"], row["attempt"], row["error"], row["reason"]) == ("released", "1", "", "")
    assert int(row["due_ms"]) <= int(row["started_ms"]) <= int(row["finished_ms"])


async def test_it_is_capped_and_can_be_turned_off(space: Space, redis_server: Server, seen: Seen) -> None:
    worker, silent = space.worker(history_length=100), space.worker(history_length=0)
    worker.handler("t")(recorder(seen))
    silent.handler("u")(recorder(seen))
    for topic in ("t", "u"):
        space.queue.enqueue_many(topic, (NewJob(n) for n in range(1000)))
    await space.burst(worker, silent)
    # Whole nodes of the stream go, of 100 entries each.
    assert 100 <= len(rows(redis_server, "t")) <= 300
    assert rows(redis_server, "u") == []


async def test_ids_of_any_text(space: Space, redis_server: Server, seen: Seen) -> None:
    worker = space.worker()
    worker.handler("t")(recorder(seen))
    ids = ["ä|b", "a b,c", "日本", "{x}", "default", "1-0", "*", "a" * 255, "|", "r|1|0|0"]
    for id in ids:
        space.queue.enqueue("t", id, id=id, delay="10ms")
        assert space.job(id).id == id
    await space.burst(worker)
    assert sorted(seen.all) == sorted(ids)
    assert sorted(row["id"] for row in rows(redis_server)) == sorted(ids)
