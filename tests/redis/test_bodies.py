"""Encoded bodies on a server: every operation carries them, nothing shows them, and a missing key costs no job."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from pydantic import BaseModel

from streamdq import Bury, Job, JobExists, NewJob, Retry, RunningJob, Worker
from streamdq.codec.encrypt import new_key
from streamdq.errors import BodyDamaged, BodyUnreadable, InvalidInput
from streamdq.operations.json_out import job_json
from streamdq.queue import Queue
from tests.metrics import sample
from tests.redis.harness import NAMESPACE, Seen, Space, taken
from tests.waiting import eventually, until

KEY, NEXT = new_key("2026-05"), new_key("2026-11")
SECRET = "4111-1111-1111-1111"
BODY = {"card": SECRET}


class Card(BaseModel):
    card: str


def encrypting(space: Space, keys: str = KEY) -> Queue:
    return space.another_queue(codec="encrypt", body_keys=keys)


def reading(space: Space, keys: str = KEY, **options: Any) -> Worker:
    return space.worker(body_keys=keys, **options)


def everything_in(space: Space) -> bytes:
    """All that Redis holds of the namespace."""
    if space.url.startswith("memory://"):
        pytest.skip("nobody else can look into this process's memory")
    found = b""
    with redis.Redis.from_url(space.url) as client:
        for key in client.scan_iter(f"*{NAMESPACE}*"):
            found += key + _content(client, key)
    return found


def _content(client: Any, key: bytes) -> bytes:
    kind = client.type(key)
    if kind == b"hash":
        return repr(client.hgetall(key)).encode()
    if kind == b"zset":
        return repr(client.zrange(key, 0, -1)).encode()
    if kind == b"stream":
        return repr(client.xrange(key)).encode()
    return repr(client.get(key)).encode()


async def test_a_handler_gets_what_was_enqueued_and_redis_never_has_it(space: Space, seen: Seen) -> None:
    worker = reading(space)

    @worker.handler("t")
    async def pay(card: Card, job: Job) -> None:
        assert job.body == BODY
        assert SECRET.encode() not in job.raw_body
        if job.attempt == 1:
            raise ValueError(f"no luck with {card.card}")
        seen.add(card.card)

    queue = encrypting(space)
    made = queue.enqueue("t", BODY, id="j", retry="1ms")
    assert (made.body, queue.get("t", "j").body) == (BODY, BODY)  # type: ignore[union-attr]
    queue.enqueue_many("t", [NewJob(BODY, id="k", retry="1ms"), {"body": BODY, "retry": "1ms"}])
    await space.burst(worker)
    assert seen.all == [SECRET] * 3
    assert SECRET.encode() not in everything_in(space)


async def test_binary_bodies_pass_every_operation(space: Space, seen: Seen) -> None:
    queue, worker = encrypting(space), reading(space)
    attempts = 0

    @worker.handler("t", retry="1ms")
    async def handler(body: dict[str, Any], job: Job) -> None:
        nonlocal attempts
        attempts += 1
        if job.id.startswith("dead") and body["n"] < 100:
            raise Bury("no")
        if attempts % 3 == 0:
            raise Retry("1ms")
        seen.add((job.id, body["n"]))

    for n in range(60):  # enough random bytes for each separator and control character to be among them
        queue.enqueue("t", {"n": n}, id=f"j{n}")
        queue.enqueue("t", {"n": -1}, id=f"r{n}", delay="1h")
        queue.enqueue("t", {"n": 100 + n}, id=f"r{n}", on_conflict="replace")
        queue.enqueue("t", {"n": n}, id=f"dead{n}")
    assert queue.enqueue("t", {"n": 5}, id="j5", on_conflict="keep").body == {"n": 5}
    with pytest.raises(JobExists):
        queue.enqueue("t", {"n": 5}, id="j5")
    queue.reschedule("t", "j7", delay=0)
    await space.burst(worker)
    assert sorted(n for id, n in seen.all if id.startswith("j")) == list(range(60))
    assert sorted(n for id, n in seen.all if id.startswith("r")) == list(range(100, 160))
    assert sorted(job.body["n"] for job in queue.dead("t")) == list(range(60))
    assert queue.kick("t") == 60
    claim = taken(queue, "t")
    assert claim.job.body["n"] in range(60)
    claim.finish()


async def test_a_worker_without_the_key_hands_the_job_back(space: Space, seen: Seen) -> None:
    lacking, having = space.worker(), reading(space)
    for worker in (lacking, having):

        @worker.handler("t", retry="none")
        async def handler(body: dict[str, Any]) -> None:
            seen.add(body)

    labels = {"namespace": NAMESPACE, "topic": "t", "group": "default"}
    before = sample("streamdq_bodies_unreadable_total", labels) or 0
    encrypting(space).enqueue("t", BODY, id="j")
    jobs: list[Job] = []

    def went_back() -> bool:
        jobs.append(space.job("j"))
        return (jobs[-1].snoozed >= 1, jobs[-1].state) == (True, "delayed")

    async with space.serving(lacking):
        await eventually(went_back, "it went back")
    job = jobs[-1]
    assert (job.attempt, job.step) == (0, 0)
    assert job.groups["default"].error == (
        "BodyUnreadable: the body of job 'j' in topic 't' can't be read: it is encrypted with the key '2026-05', which "
        "is not configured here; see STREAMDQ_BODY_KEYS"
    )
    assert (sample("streamdq_bodies_unreadable_total", labels) or 0) > before
    with pytest.raises(BodyUnreadable, match="2026-05"):
        _ = job.body
    async with space.serving(having):
        assert await seen.count(1) == [BODY]
        await space.becomes("j", "gone")


def test_take_gives_out_no_job_that_the_caller_can_t_read(space: Space) -> None:
    encrypting(space).enqueue("t", BODY, id="j")
    assert not space.queue.take("t", timeout=0)
    job = space.job("j")
    assert (job.snoozed, job.attempt) == (1, 0)


async def test_a_body_that_was_exchanged_is_buried(space: Space, seen: Seen) -> None:
    queue, worker = encrypting(space), reading(space)

    @worker.handler("t")
    async def handler(body: dict[str, Any]) -> None:
        seen.add(body)

    queue.enqueue("t", {"pay": 1}, id="mine", delay="1h")
    queue.enqueue("t", {"pay": 1_000_000}, id="yours", delay="1h")
    if space.url.startswith("memory://"):
        pytest.skip("nobody else can write into this process's memory")
    with redis.Redis.from_url(space.url) as client:
        (jobs,) = client.keys(f"{NAMESPACE}:*:jobs")
        mine, yours = client.hget(jobs, "mine"), client.hget(jobs, "yours")
        assert mine is not None
        assert yours is not None
        client.hset(jobs, "mine", mine[: mine.index(b"\xff")] + yours[yours.index(b"\xff") :])
    with pytest.raises(BodyDamaged, match="is that of another job"):
        _ = queue.get("t", "mine").body  # type: ignore[union-attr]
    queue.reschedule("t", "mine", delay=0)
    async with space.serving(worker):
        await space.becomes("mine", "dead")
    assert not seen.all
    assert space.job("mine").groups["default"].reason == "invalid"
    queue.purge("t", all=True)
    queue.cancel("t", "yours")


@pytest.mark.parametrize(
    "stored", [b'{"pay": 1', b"\xff2\n{", b"", b'"\xe4"'], ids=["cut", "versioned", "empty", "latin-1"]
)
def test_what_is_no_json_is_damaged_and_in_nobody_s_way(space: Space, stored: bytes) -> None:
    queue = space.queue
    for id in ("bad", "good"):
        queue.enqueue("t", {"pay": 1}, id=id, delay="1h")
    if space.url.startswith("memory://"):
        pytest.skip("nobody else can write into this process's memory")
    with redis.Redis.from_url(space.url) as client:
        (jobs,) = client.keys(f"{NAMESPACE}:*:jobs")
        record = client.hget(jobs, "bad")
        assert record is not None
        client.hset(jobs, "bad", record[: record.index(b"{")] + stored)
    job = space.job("bad")
    with pytest.raises(BodyDamaged, match="the body of job 'bad' in topic 't' can't be read: it is not JSON"):
        _ = job.body
    shown = job_json(job)
    assert (shown["body"], shown["body_unreadable"]) == (None, "it is not JSON")
    found = queue.find("t", where={"body.pay": 1})
    assert [one.id for one in found] == ["good"]
    assert found.unreadable == (b"pay" in stored or stored[:1] == b"\xff"), "no other plain one is looked into"
    queue.reschedule("t", "bad", delay=0)

    def is_dead() -> bool:
        assert not queue.take("t", timeout=0.05)
        return space.state("bad") == "dead"

    until(is_dead, "the mover has moved it, and it is buried")
    assert space.job("bad").groups["default"].reason == "invalid"
    queue.purge("t", all=True)
    queue.cancel("t", "good")


async def test_what_does_not_fit_the_handler_is_buried_without_its_keys_and_values(space: Space) -> None:
    worker = reading(space)

    @worker.handler("t", retry="none")
    async def handler(body: dict[str, int]) -> None: ...

    @worker.handler("fails", retry="none")
    async def fails(body: dict[str, str]) -> None:
        int(body["card"])

    @worker.handler("refused", retry="none")
    async def refused(body: dict[str, str], job: RunningJob) -> None:
        await job.async_queue.enqueue("t", 1, delay=body["card"])

    queue = encrypting(space)
    queue.enqueue("t", {SECRET: "no number"}, id="j")
    queue.enqueue("fails", BODY, id="j")
    queue.enqueue("refused", BODY, id="j")
    await space.burst(worker)
    assert space.job("j").groups["default"].error == "int_parsing"
    for topic, error in (("fails", "ValueError"), ("refused", "InvalidInput")):
        assert space.job("j", topic).groups["default"].error == (
            f"{error}: its message is not kept, as the body is encrypted"
        )
    assert SECRET.encode() not in everything_in(space)
    for topic in ("t", "fails", "refused"):
        queue.purge(topic, all=True)


def test_limits_are_those_of_what_is_stored(space: Space) -> None:
    pytest.importorskip("zstandard")
    queue = space.another_queue(codec="zstd", max_body_bytes=2000, max_decoded_bytes=100_000)
    large = {"text": "again and again " * 1000}
    assert queue.enqueue("t", large, id="j", delay="1h").body == large
    assert len(queue.get("t", "j").raw_body) < 300  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="more than the 100000 allowed"):
        queue.enqueue("t", "x" * 100_000)
    with pytest.raises(InvalidInput, match="bytes to store, more than the 2000"):
        queue.enqueue("t", [str(hash(str(n))) for n in range(1000)])
    assert space.another_queue(max_decoded_bytes=10_000).get("t", "j") is not None
    with pytest.raises(BodyUnreadable, match="STREAMDQ_MAX_DECODED_BYTES"):
        _ = space.another_queue(max_decoded_bytes=10_000).get("t", "j").body  # type: ignore[union-attr]
    queue.cancel("t", "j")


def test_a_schedule_s_body_can_t_be_encrypted(space: Space) -> None:
    queue = encrypting(space)
    with pytest.raises(InvalidInput, match="can't be encrypted"):
        queue.schedule("t", {"a": 1}, every="1h")
    queue.schedule("t", every="1h")
    queue.unschedule("t")
    queue.delete_topic("t")
