"""Through Sentinel: the primary dies, its replica takes its place, producers and workers go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socketserver
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

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


@pytest.mark.thorough  # test_demoted.py has it without sentinels
async def test_nobody_stays_with_the_old_primary_after_a_failover_on_command(seen: Seen) -> None:
    """The sentinels would make it a replica ten seconds later, and all that was written to it meanwhile would be lost.
    Here they can't, so it goes on for ever.
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
            with (
                sentinels.replica.client() as client,
                contextlib.suppress(redis.ConnectionError),
            ):  # it closes all, once
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
            # A job may run twice: that it has ended can be lost with the primary, and a slow machine exceeds its TTR.
            await eventually(lambda: space.stats().done == 150, "all of it has ended")
            assert set(seen.all) == set(range(150))
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


class OneThatIsCutOff(socketserver.ThreadingTCPServer):
    """A sentinel that hears of no failover: it names this primary for ever."""

    daemon_threads = True

    def __init__(self, primary: Server) -> None:
        state = {
            "name": SERVICE, "ip": "127.0.0.1", "port": str(primary.port), "flags": "master", "config-epoch": "0",
            "num-other-sentinels": "2",
        }  # fmt: skip
        words = [word for pair in state.items() for word in pair]
        self.services = f"*1\r\n*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        super().__init__(("127.0.0.1", 0), _Answer)

    def url(self, sentinels: Sentinels) -> str:
        """Of all, this one first."""
        return sentinels.url.replace("://", f"://127.0.0.1:{self.server_address[1]},")


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2) for _ in range(int(line[1:]))]
            cut_off = cast("OneThatIsCutOff", self.server)
            is_asked = words[0].upper().startswith(b"SENTINEL")
            self.wfile.write(cut_off.services.encode() if is_asked else b"+OK\r\n")


@contextlib.contextmanager
def cut_off(primary: Server) -> Iterator[OneThatIsCutOff]:
    with OneThatIsCutOff(primary) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


@pytest.mark.thorough
async def test_a_sentinel_that_is_cut_off_is_not_believed_after_a_failover() -> None:
    """The old primary goes on: with a sentinel that names it, writes there would be lost when the others get at it."""
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Sentinels() as sentinels, cut_off(sentinels.primary) as stale, opened(stale.url(sentinels)) as space:
        space.queue.enqueue("t", 1, id="before", delay="1h")
        await eventually(sentinels.replicated, "the replica knows all")
        with sentinels.primary.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
        with redis.Redis(port=sentinels.ports[0]) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
        async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as producer:
            await _put_until(sentinels, "by Queue", lambda name: asyncio.to_thread(_late, space.queue, name))
            await _put_until(sentinels, "by AsyncQueue", lambda name: producer.enqueue("t", 1, id=name, delay="1h"))


@pytest.mark.thorough
async def test_a_sentinel_that_names_a_replica_costs_no_job() -> None:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Sentinels() as sentinels, cut_off(sentinels.replica) as wrong, opened(wrong.url(sentinels)) as space:
        for n in range(20):
            await asyncio.to_thread(_late, space.queue, str(n))
        assert space.stats().delayed == 20
