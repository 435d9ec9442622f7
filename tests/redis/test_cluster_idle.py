"""Idle workers and movers on a Cluster notice what comes. What they cost: ``python -m benchmarks cluster-idle``."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from streamdq import NewJob, Worker
from streamdq.http.pages.overview import consumers, summary
from streamdq.keys import shard_of
from streamdq.link.session import run
from streamdq.mover.node_mover import NodeMover
from streamdq.worker.consumer import Consumer
from streamdq.worker.quiet_shards import ClusterLooks
from tests.conftest import EACH_BINARY
from tests.migration import Migration
from tests.redis.harness import NAMESPACE, Seen, Space, opened, recorder
from tests.redis.movers import idle_s, mover_at
from tests.servers import Binary, Cluster, Server
from tests.waiting import eventually, until

SHARDS = 24


@pytest.fixture(scope="module", params=EACH_BINARY)
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    binary: Binary = request.param
    with Cluster(binary) as cluster:
        yield cluster


@pytest.fixture
def nodes(running: Cluster) -> Cluster:
    running.flush()
    return running


@pytest.fixture
def many(nodes: Cluster) -> Iterator[Space]:
    with opened(nodes.url) as space:
        space.queue.configure("t", shards=SHARDS)
        yield space


def tracking(cluster: Cluster) -> list[tuple[Server, str]]:
    """The connections that wait for changes of keys."""
    found = []
    for node in cluster.nodes:
        with node.client() as client:
            found += [(node, row["id"]) for row in client.client_list() if "t" in row["flags"]]
    return found


def connections(cluster: Cluster) -> int:
    count = 0
    for node in cluster.nodes:
        with node.client() as client:
            count += len(client.client_list()) - 1
    return count


async def watching(*workers: Worker, shards: int = SHARDS) -> list[Consumer]:
    """Their consumers, when each has looked at all shards."""

    def looked(consumer: Consumer) -> int:
        return len(consumer._quiet._watch._looked) if isinstance(consumer._quiet, ClusterLooks) else 0

    def found() -> list[Consumer]:
        consumers = [worker._run.consumer for worker in workers if worker._run is not None]
        return [one for one in consumers if looked(one) == 2 * shards]

    await eventually(lambda: len(found()) == len(workers), "they watch")
    return found()


Break = Callable[[Cluster], None]


def kill_tracking(cluster: Cluster) -> None:
    killed = tracking(cluster)
    assert len(killed) == 3
    for node, id in killed:
        with node.client() as client:
            client.client_kill_filter(_id=id)


def forget_all(cluster: Cluster) -> None:
    """Redis's table of tracked keys is nearly full for a moment."""
    for node in cluster.nodes:
        with node.client() as client:
            client.config_set("tracking-table-max-keys", 1)
            until(lambda: client.info("stats")["tracking_total_keys"] <= 1, "it has forgotten the others")
            client.config_set("tracking-table-max-keys", 1_000_000)


@pytest.mark.parametrize("broken", [kill_tracking, pytest.param(forget_all, marks=pytest.mark.thorough)])
async def test_nothing_is_missed_after_trouble(many: Space, nodes: Cluster, seen: Seen, broken: Break) -> None:
    worker = many.recording(seen)
    async with many.serving(worker):
        await watching(worker)
        await asyncio.to_thread(broken, nodes)
        for n in range(3 * SHARDS):
            await asyncio.to_thread(many.queue.enqueue, "t", n, delay="10ms" if n % 2 else 0)
        await seen.count(3 * SHARDS)


@pytest.mark.thorough
async def test_a_shard_whose_streams_were_lost_is_watched_again(many: Space, nodes: Cluster, seen: Seen) -> None:
    worker = many.recording(seen)
    shards = many.queue._store.topics.shards("t")
    async with many.serving(worker):
        (consumer,) = await watching(worker)
        with nodes.client() as client:
            for shard in shards:
                client.delete(shard.ready, shard.ready_of("default"))
            await eventually(lambda: all(client.exists(shard.ready) for shard in shards), "they are there again")
        await eventually(lambda: not (consumer._active or consumer.reading), "it has claimed whatever there was")
        for n in range(2 * SHARDS):
            await asyncio.to_thread(many.queue.enqueue, "t", n)
        await seen.count(2 * SHARDS)
        await eventually(lambda: many.audit().left == 0, "all done")


@pytest.mark.thorough
async def test_a_mover_alone_receives_a_wakeup_in_a_slot_that_moved_without_one(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker is there to learn of it, and it may be long until it comes to that bucket's head."""
    monkeypatch.setattr("streamdq.mover.mover._SLOTS_S", 0.2)
    monkeypatch.setattr(NodeMover, "_walk", lambda _: asyncio.Event().wait())
    with opened(nodes.url) as space:
        space.queue.configure("t", shards=2)
        async with mover_at(nodes.url, "m") as mover:
            stream = mover._session.keys.shard("t", 0).wake
            with nodes.client() as client:
                client.delete(stream)
            await eventually(lambda: idle_s(mover) > 10 and stream in mover._listener._watch._looked, "it waits")
            move = Migration(nodes, "t:0")
            await asyncio.to_thread(move.begin)
            await asyncio.to_thread(move.move_all)
            await asyncio.to_thread(move.end)
            id = next(str(n) for n in range(100) if shard_of(str(n), 2) == 0)
            await asyncio.to_thread(space.queue.enqueue, "t", "x", id=id, delay="10ms")
            await space.becomes(id, "ready")


def pending_of(cluster: Cluster, pid: int) -> list[int]:
    """How many entries the consumer of this process has, in each shard that knows it."""
    with cluster.client() as client:
        return [
            row["pending"]
            for shard in range(SHARDS)
            for row in client.xinfo_consumers(f"{NAMESPACE}:{{t:{shard}}}:ready", "default")
            if f"-{pid}-" in row["name"].decode()
        ]


ANOTHER = """
import sys
from streamdq import Worker
worker = Worker(sys.argv[1], sys.argv[2])
worker.handler("t")(lambda body: None)
worker.run()
"""


@pytest.mark.thorough
async def test_a_stopped_worker_is_given_nothing(many: Space, nodes: Cluster, seen: Seen) -> None:
    """A blocked read of its would be given jobs, and keep them for seconds."""
    worker = many.recording(seen)
    async with many.serving(worker):
        await eventually(lambda: len(tracking(nodes)) == 3, "it watches, and its mover is active")
        other = subprocess.Popen(  # noqa: ASYNC220 - it takes a moment
            [sys.executable, "-c", ANOTHER, nodes.url, NAMESPACE]
        )
        try:
            await eventually(lambda: len(tracking(nodes)) == 6, "the other one watches as well")
            await eventually(lambda: len(pending_of(nodes, other.pid)) == SHARDS, "each shard knows the other one")
            os.kill(other.pid, signal.SIGSTOP)
            for n in range(SHARDS):
                await asyncio.to_thread(many.queue.enqueue, "t", n)
            await seen.count(SHARDS)
            assert pending_of(nodes, other.pid) == [0] * SHARDS
            os.kill(other.pid, signal.SIGCONT)
            many.queue.enqueue_many("t", (NewJob(n) for n in range(500)))
            await eventually(lambda: many.audit().left == 0, "all done")
        finally:
            other.kill()
            other.wait()


@pytest.mark.thorough
@pytest.mark.parametrize("binary", EACH_BINARY)
async def test_a_replica_takes_over_while_all_are_idle(binary: Binary, seen: Seen) -> None:
    with Cluster(binary, replicas=True) as cluster, opened(cluster.url) as space:
        space.queue.configure("t", shards=12)
        worker = space.recording(seen)
        async with space.serving(worker):
            await watching(worker, shards=12)
            await asyncio.to_thread(cluster.nodes[0].kill)
            with cluster.replicas[0].client() as client:
                await asyncio.to_thread(until, lambda: client.role()[0] == b"master", "the replica takes over")
            for n in range(60):
                await asyncio.to_thread(space.queue.enqueue, "t", n, delay="10ms" if n % 2 else 0)
            await seen.count(60)
            await eventually(lambda: space.audit().left == 0, "all done")


async def test_every_worker_reads_every_shard(many: Space, nodes: Cluster, seen: Seen) -> None:
    """Over connections whose number depends on the nodes alone. So a worker with room gets a job, wherever it is."""
    full, free = asyncio.Event(), asyncio.Event()
    workers = [many.worker(concurrency=1), many.worker(concurrency=1)]
    note = recorder(seen)

    async def handler(body: int) -> None:
        if body < 0:
            full.set()
            await free.wait()
        else:
            await note(body)

    for worker in workers:
        worker.handler("t")(handler)
    async with many.serving(*workers):
        consumers = await watching(*workers)
        assert [len(consumer._shards) for consumer in consumers] == [SHARDS, SHARDS]
        assert len(tracking(nodes)) == len(workers) * len(nodes.nodes)
        many.queue.enqueue("t", -1)
        await full.wait()
        for n in range(SHARDS):
            await asyncio.to_thread(many.queue.enqueue, "t", n)
        await seen.count(SHARDS)
        free.set()
        await eventually(lambda: many.audit().left == 0, "all done")


async def test_a_consumer_counts_in_every_shard_while_its_process_lives(
    many: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read of its tells a shard of it: Redis notifies it of changes."""
    monkeypatch.setattr("streamdq.store.topics.group_consumers._ALIVE_MS", 0)
    worker = many.worker()
    worker.handler("t")(lambda _: None)
    async with many.serving(worker):
        await watching(worker)
        (summarized,) = run(many.queue._link, summary(many.queue._store, ["t"]))
        assert run(many.queue._link, consumers(many.queue._store, summarized, "default")) == 1
