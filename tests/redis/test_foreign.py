"""What another client writes, and streamdq can't read, harms nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamdq.queue import carry_out
from tests.redis.harness import Seen, Space
from tests.servers import Server
from tests.waiting import eventually

WRITTEN: dict[str, tuple[bytes, Callable[[list[bytes]], object]]] = {
    "an id that is no text": (b"\xff\xfe", len),
    "a retry schedule that is no text": (b"foreign", lambda rest: rest.__setitem__(3, b"\xff")),
    "a line break too few": (b"foreign", lambda rest: rest.pop(4)),
}


def written(space: Space, server: Server, id: bytes, when: str, change: Callable[[list[bytes]], object] = len) -> None:
    """Enqueues a job as another client may do it, like one of our own but for the id and the change."""
    space.queue.enqueue("t", "own", id="own", delay="1h")
    store = space.queue._store
    k = store.session.keys.shard("t", 0)
    with server.client() as client:
        _head, _created, *rest = client.hget(k.jobs, "own").split(b"\n", 7)
        change(rest)
        shards = client.hget(k.settings, "shards")
    reply = carry_out(space.queue, store.scripts.enqueue(k, shards, [id, when, b"\n".join(rest)]))
    assert (reply.current, reply.taken) == (True, {})


@pytest.mark.parametrize("name", WRITTEN)
async def test_a_job_that_cannot_be_read_keeps_no_other_back(
    space: Space, redis_server: Server, seen: Seen, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    id, change = WRITTEN[name]
    written(space, redis_server, id, "+0", change)
    for n in range(5):
        space.queue.enqueue("t", n)
    worker = space.recording(seen)
    async with space.serving(worker):
        await seen.count(5)
        await eventually(lambda: space.stats().done == 5, "all others are done")
    assert sorted(seen.all) == list(range(5))
    assert any("claimed job unreadable" in record.getMessage() for record in caplog.records)
    assert not space.queue.take("t", timeout=0), "nor is it handed out"
    with redis_server.client() as client:
        client.flushall()


@pytest.mark.parametrize("when", ["+0", "+3600000"])
def test_a_job_whose_id_is_no_text_is_shown_to_operators(space: Space, redis_server: Server, when: str) -> None:
    written(space, redis_server, b"\xff\xfe", when)
    assert space.audit().balanced
    assert space.audit().orphans == []
    assert sorted(job.id for job in space.queue.find("t")) == ["own", "\ufffd\ufffd"]
    assert space.queue.find("t", where={"body": "own"}, id_prefix="own").cancel().done == 1
    space.queue.configure("t", shards=3)
    space.queue.delete_topic("t", force=True)
    assert not space.queue.stats().topics


async def test_a_worker_does_its_jobs_beside_a_stream_of_hints_that_is_none(
    space: Space, redis_server: Server, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    aborts = space.queue._store.session.keys.aborts
    with redis_server.client() as client:
        client.set(aborts, "foreign")
        async with space.serving(space.recording(seen)):
            space.queue.enqueue("t", 1)
            await seen.count(1)
            await eventually(lambda: any(aborts in record.getMessage() for record in caplog.records), "it says which")
            client.delete(aborts)
            space.queue.enqueue("t", 2, id="a")
            await seen.count(2)
        client.flushall()
