"""Through Sentinel: the primary dies, its replica takes its place, producers and workers go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import Awaitable, Callable, Iterator

import pytest
import redis

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.codec.encrypt import new_key
from streamdq.errors import AuthenticationFailed, IdTaken, ServerUnavailable
from streamdq.keys import NamespaceKeys
from tests.conftest import BINARIES
from tests.redis.harness import NAMESPACE, Seen, Space, opened, recorder
from tests.sentinels import SERVICE, Sentinels
from tests.servers import Server
from tests.waiting import HANG_S, eventually


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Sentinels(password="s3cret") as running:
        yield running


def test_a_service_that_no_sentinel_knows(sentinels: Sentinels) -> None:
    with (
        Queue(sentinels.url.replace(SERVICE, "nobody"), settings=Space.quick()) as queue,
        pytest.raises(ServerUnavailable, match="no sentinel names a primary") as caught,
    ):
        queue.enqueue("t", 1)
    assert "s3cret" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_wrong_password(sentinels: Sentinels) -> None:
    url = sentinels.url.replace("s3cret", "wr0ng")
    with Queue(url) as queue, pytest.raises(AuthenticationFailed) as caught:
        queue.enqueue("t", 1)
    assert "wr0ng" not in str(caught.value)


async def test_schedules_keys_unique_ids_searches_and_codecs(sentinels: Sentinels, seen: Seen) -> None:
    with opened(sentinels.url, codec="encrypt", body_keys=new_key("k")) as space:
        queue, worker = space.queue, space.worker()
        queue.configure("t", shards=4, key_concurrency=1)
        queue.schedule("t", id="s", every="1s")
        queue.enqueue_many("t", [NewJob(f"late {n}", id=f"late-{n}", delay="1h") for n in range(20)])
        worker.handler("t")(recorder(seen))
        async with space.serving(worker):
            queue.enqueue("t", "hidden", id="u", key="k", unique_for="1h")
            await eventually(lambda: "hidden" in seen.all and {} in seen.all, "the job and an occurrence have run")
            await eventually(lambda: queue.get("t", "u") is None, "it has ended")
            with pytest.raises(IdTaken):
                queue.enqueue("t", "again", id="u", key="k", unique_for="1h")
        assert queue.find("t", where={"body": "late 7"}).cancel().done == 1
        assert queue.find("t", id_prefix="late-").count() == 19
        queue.delete_topic("t", force=True)


async def test_nobody_stays_with_the_old_primary_after_a_failover_on_command(seen: Seen) -> None:
    """The sentinels would make it a replica ten seconds later, and all that it was told meanwhile would be lost. Here
    they can't, so it goes on for ever.
    """
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Sentinels() as sentinels, opened(sentinels.url) as space:
        worker = space.worker()
        worker.handler("t")(recorder(seen))
        async with space.serving(worker), AsyncQueue(sentinels.url, NAMESPACE, settings=space.settings) as producer:
            await producer.enqueue("t", "before")
            await seen.count(1)
            await eventually(sentinels.replicated, "the replica knows all")
            with sentinels.primary.client() as client:
                client.execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
            with redis.Redis(port=sentinels.ports[0]) as sentinel:
                sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)

            await _put_until(sentinels, "by Queue", lambda name: asyncio.to_thread(_late, space.queue, name))
            await _put_until(sentinels, "by AsyncQueue", lambda name: producer.enqueue("t", 1, id=name, delay="1h"))
            await producer.enqueue("t", "after")
            await seen.count(2)


def _late(queue: Queue, id: str) -> object:
    return queue.enqueue("t", 1, id=id, delay="1h")


async def _put_until(sentinels: Sentinels, by: str, put: Callable[[str], Awaitable[object]]) -> None:
    """Puts jobs in until one gets to the new primary; others get to the old one, whose replica this is no more."""
    jobs = NamespaceKeys(NAMESPACE).shard("t", 0).jobs
    async with asyncio.timeout(HANG_S):
        for number in itertools.count():
            leads = _leads(sentinels.replica)
            with contextlib.suppress(ServerUnavailable):
                await put(f"{by} {number}")
            with sentinels.replica.client() as client:
                if leads and client.hexists(jobs, f"{by} {number}"):
                    return


def _leads(server: Server) -> bool:
    with server.client(retry=None) as client, contextlib.suppress(redis.ConnectionError):  # it closes all, once
        return bool(client.role()[0] == b"master")
    return False


async def test_the_primary_dies_and_the_work_goes_on(sentinels: Sentinels, seen: Seen) -> None:
    """And a sentinel hangs. The nodes ask for a password, the sentinels don't. Replication is asynchronous: what the
    primary had not passed on would be lost with it, so the test waits for that before it kills.
    """
    with opened(sentinels.url) as space:
        worker = space.worker(lease_ms=500)
        worker.handler("t", ttr="1s")(recorder(seen))
        async with space.serving(worker), AsyncQueue(sentinels.url, NAMESPACE, settings=space.settings) as producer:
            space.queue.enqueue_many("t", (NewJob(n, id=f"before-{n}") for n in range(50)))
            space.queue.enqueue_many("t", (NewJob(50 + n, id=f"waits-{n}", delay="1s") for n in range(50)))
            await seen.count(50)
            await eventually(lambda: space.stats().done == 50, "what ran has ended")
            await eventually(sentinels.replicated, "the replica knows of it")

            sentinels.hang(0)
            sentinels.primary.kill()

            await asyncio.wait_for(_put(producer, space), HANG_S)
            await seen.count(150)
            await eventually(lambda: space.stats().done == 150, "all of it has ended")
            assert sorted(seen.all) == list(range(150))
        with sentinels.replica.client() as client:
            assert client.role()[0] == b"master"
    gc.collect()  # a connection that was left open would be warned of


async def _put(producer: AsyncQueue, space: Space) -> None:
    """As producers do that repeat what failed."""
    for n in range(100, 150):
        while True:
            try:
                if n % 2:
                    await producer.enqueue("t", n, id=f"after-{n}", on_conflict="keep")
                else:
                    await asyncio.to_thread(space.queue.enqueue, "t", n, id=f"after-{n}", on_conflict="keep")
                break
            except ServerUnavailable:
                continue
