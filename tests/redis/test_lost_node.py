"""A Cluster of which one primary is lost, without a replica: what is on the others goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streamdq import NewJob, Queue, Worker
from streamdq.dump import Dumper
from streamdq.dump.local import LocalFolder
from streamdq.errors import ServerUnavailable
from streamdq.keys import ShardKeys, shard_of
from streamdq.link.session import run
from tests.dumps import dumped
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, taken
from tests.redis.movers import mover_at
from tests.servers import Binary, Cluster, Server
from tests.waiting import HANG_S, eventually

SHARDS = 12

pytestmark = pytest.mark.thorough


@pytest.fixture
def breakable(binary: Binary) -> Iterator[Cluster]:
    """A cluster that a test may break. A node that is killed loses its data."""
    with Cluster(binary, partial=True) as cluster:
        yield cluster


@pytest.fixture
def durable(binary: Binary) -> Iterator[Cluster]:
    """The same, but a node that was killed has its data when it is back."""
    with Cluster(binary, partial=True, appendonly=True) as cluster:
        yield cluster


def port_of(cluster: Cluster, key: str) -> int:
    with cluster.client() as client:
        return int(client.get_node_from_key(key).port)


def where(cluster: Cluster, queue: Queue) -> dict[int, list[ShardKeys]]:
    """The topic's shards by the port of the node that has them."""
    found: dict[int, list[ShardKeys]] = {}
    for shard in queue._store.topics.shards("t"):
        found.setdefault(port_of(cluster, shard.bucket), []).append(shard)
    return found


def node_at(cluster: Cluster, port: int) -> Server:
    return next(node for node in cluster.nodes if node.port == port)


def lose(node: Server, how: str) -> None:
    if how == "killed":
        node.kill()
    else:
        os.kill(node.pid, signal.SIGSTOP)


def has_ready(cluster: Cluster, port: int, shards: list[ShardKeys], count: int) -> bool:
    return ready_in(cluster, port, shards) == count


def ready_in(cluster: Cluster, port: int, shards: list[ShardKeys]) -> int:
    with node_at(cluster, port).client() as client:
        return sum(client.xlen(shard.ready) for shard in shards)


@pytest.mark.parametrize("lost", ["another", "namespace's"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_due_jobs_of_the_other_nodes_are_moved(breakable: Cluster, lost: str, how: str) -> None:
    with Queue(breakable.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", shards=SHARDS)
        shards = where(breakable, queue)
        names = port_of(breakable, f"{{{NAMESPACE}}}:mover")
        gone = names if lost == "namespace's" else next(port for port in shards if port != names)
        async with mover_at(breakable.url, "m"):
            queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="3s") for n in range(120)])
            lose(node_at(breakable, gone), how)
            numbers = [shard_of(f"j{n}", SHARDS) for n in range(120)]
            for port in shards.keys() - {gone}:
                here = {shard.shard for shard in shards[port]}
                count = sum(number in here for number in numbers)
                assert count > 0
                await eventually(partial(has_ready, breakable, port, shards[port], count), "moved")
            # Still so when something new arrives: its wakeup is received, or it is missed and found.
            healthy = next(port for port in shards if port != gone)
            id = next(f"n{n}" for n in range(1000) if shard_of(f"n{n}", SHARDS) == shards[healthy][0].shard)
            before = ready_in(breakable, healthy, shards[healthy])
            queue.enqueue("t", "new", id=id, delay="50ms")
            await eventually(lambda: ready_in(breakable, healthy, shards[healthy]) == before + 1, "moved")


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_of_a_pipeline_what_is_for_other_nodes_is_enqueued(breakable: Cluster, how: str) -> None:
    """Each job of the lost node has its own error."""
    with Queue(breakable.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", shards=SHARDS)
        shards = where(breakable, queue)
        names = port_of(breakable, f"{{{NAMESPACE}}}:topics")
        gone = next(port for port in shards if port != names)
        pipe = queue.pipeline()
        made = [pipe.enqueue("t", n, id=f"j{n}", delay="1h") for n in range(120)]
        lose(node_at(breakable, gone), how)
        with pytest.raises(ExceptionGroup) as raised:
            pipe.__exit__(None, None, None)
        lost = {shard.shard for shard in shards[gone]}
        assert len(lost) > 2
        for one in made:
            if shard_of(one.id, SHARDS) in lost:
                assert isinstance(one.error, ServerUnavailable)
            else:
                assert one.job.id == one.id
        assert len(raised.value.exceptions) == sum(one.error is not None for one in made)


async def test_a_batch_waits_for_a_lost_node_and_runs_nothing_of_the_others_twice(
    breakable: Cluster, seen: Seen
) -> None:
    """What is enqueued again after it was done would be done again."""
    worker = Worker(breakable.url, NAMESPACE, settings=SETTINGS)

    @worker.handler("t")
    async def handle(body: int) -> None:
        seen.add(body)

    patient = SETTINGS.model_copy(update={"call_timeout_s": 20.0})
    with Queue(breakable.url, NAMESPACE, settings=patient) as queue:
        queue.configure("t", shards=SHARDS)
        shards = where(breakable, queue)
        names = port_of(breakable, f"{{{NAMESPACE}}}:topics")
        node = node_at(breakable, next(port for port in shards if port != names))
        gone = {shard.shard for shard in shards[node.port]}
        jobs = sorted((NewJob(n, id=f"j{n}") for n in range(60)), key=lambda job: shard_of(str(job.id), SHARDS) in gone)
        healthy = sum(shard_of(str(job.id), SHARDS) not in gone for job in jobs)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(worker.serve())
            queue.enqueue_many("t", [NewJob(n) for n in range(60, 120)])  # the nodes know the script then
            await seen.count(60)
            node.kill()
            batch = group.create_task(asyncio.to_thread(queue.enqueue_many, "t", jobs))
            await seen.count(60 + healthy)
            done = len(seen)
            node.start()
            result = await batch
            await seen.count(120)
            worker.stop()
            await serving
        assert done == 60 + healthy
        assert (result.created, result.existing) == (60, [])
        assert sorted(seen.all) == [*range(120)]


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_without_the_lease_all_movers_work_until_it_is_back(durable: Cluster, how: str) -> None:
    """The registry is on the same node: if it were lost, movers that serve no topic would take it for deleted as soon
    as they look.
    """
    with Queue(durable.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", shards=SHARDS)
    node = node_at(durable, port_of(durable, f"{{{NAMESPACE}}}:mover"))
    brief = partial(mover_at, durable.url, call_timeout_s=1.0)  # who asks for the lease waits for so long
    async with brief("a") as one, brief("b", leads=False) as other:
        lose(node, how)
        await eventually(lambda: one.leading and other.leading, "each works")
        assert len(one._node_of) == len(other._node_of) == SHARDS
        if how == "killed":
            node.start()
        else:
            os.kill(node.pid, signal.SIGCONT)
        await eventually(lambda: one.leading != other.leading, "one of them works")
        with node.client() as client:
            assert client.get(f"{{{NAMESPACE}}}:mover") == (b"a" if one.leading else b"b")


@pytest.mark.parametrize("lost", ["another", "namespace's"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_worker_goes_on_with_the_other_nodes(breakable: Cluster, seen: Seen, lost: str, how: str) -> None:
    """Also while it holds a job of the lost one, whose end it can't tell."""
    go_on = asyncio.Event()
    tries = SETTINGS.model_copy(update={"call_timeout_s": 5.0})  # so long it waits for the lost one when it stops
    worker = Worker(breakable.url, NAMESPACE, concurrency=5, settings=tries)

    @worker.handler("t")
    async def handle(body: str | int) -> None:
        seen.add(body)
        if body == "held":
            await go_on.wait()

    with Queue(breakable.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", shards=SHARDS)
        shards = where(breakable, queue)
        names = port_of(breakable, f"{{{NAMESPACE}}}:mover")
        gone = names if lost == "namespace's" else next(port for port in shards if port != names)
        healthy = {shard.shard for port, some in shards.items() if port != gone for shard in some}
        numbers = [n for n in range(300) if shard_of(f"j{n}", SHARDS) in healthy][:165]
        queue.enqueue("t", "held", id=next(f"h{n}" for n in range(99) if shard_of(f"h{n}", SHARDS) not in healthy))
        serving = asyncio.create_task(worker.serve())
        await seen.count(1)
        queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="1s") for n in numbers])
        lose(node_at(breakable, gone), how)
        go_on.set()
        await seen.count(1 + len(numbers))

        def done() -> int:
            found = 0
            for port in shards.keys() - {gone}:
                with node_at(breakable, port).client() as client:
                    found += sum(int(client.hget(one.counts, "done:default") or 0) for one in shards[port])
            return found

        await eventually(lambda: done() == len(numbers), "their ends have been told")
        worker.stop()
        await asyncio.wait_for(serving, HANG_S)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_who_knows_a_topic_needs_no_registry(breakable: Cluster, how: str) -> None:
    """Jobs for shards on other nodes are put in, taken and kicked. A call that waited for the registry would hang."""
    patient = SETTINGS.model_copy(update={"call_timeout_s": 2 * HANG_S})
    with Queue(breakable.url, NAMESPACE, settings=patient) as queue:
        registry = port_of(breakable, f"{{{NAMESPACE}}}:topics")
        topic = next(
            name
            for name in map("t{}".format, range(99))
            if port_of(breakable, f"{NAMESPACE}:{{{name}:0}}:jobs") != registry
        )
        queue.enqueue(topic, 0, id="dead")
        taken(queue, topic).bury("to be kicked")
        lose(node_at(breakable, registry), how)
        for n in range(5):
            assert queue.enqueue_many(topic, [NewJob(n), NewJob(n)]).created == 2
        assert queue.enqueue_many(topic, [NewJob(n, id="same") for n in range(2)]).existing == ["same"]
        assert queue.kick(topic, "dead") == 1
        for _ in range(12):
            taken(queue, topic, timeout=HANG_S).finish()
        assert not queue.take(topic, timeout=0.5)
        assert queue.stats(topic).topics[topic].groups["default"].done == 12
    with Queue(breakable.url, NAMESPACE, settings=Space.quick()) as queue, pytest.raises(ServerUnavailable):
        queue.enqueue(topic, 1)


def test_what_the_other_nodes_have_is_counted_though_all_have_just_failed(breakable: Cluster) -> None:
    """As they do that answer CLUSTERDOWN, until they agree on which of them is lost."""
    with Queue(breakable.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", shards=SHARDS)
        shards = where(breakable, queue)
        gone = next(port for port in shards if port != port_of(breakable, f"{{{NAMESPACE}}}:topics"))
        node_at(breakable, gone).kill()
        for name in queue._link._slots.names:
            queue._link._slots.suspect(name)
        every = [(shard, ["default"]) for some in shards.values() for shard in some]
        counted: list[ShardKeys] = []
        lost = run(queue._link, queue._store.scripts.stats_reached(every, lambda shard, _: counted.append(shard)))
        assert lost == set(shards[gone])
        assert len(counted) == SHARDS - len(lost)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_dump_has_what_the_other_nodes_have(
    breakable: Cluster, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "1")
    with Queue(breakable.url) as queue:
        queue.configure("t", shards=SHARDS)
        for number in range(60):
            queue.enqueue("t", 1, id=str(number), delay="1h")
            assert queue.cancel("t", str(number))
        shards = where(breakable, queue)
        registry = port_of(breakable, queue._store.session.keys.topics)
    port = next(port for port in shards if port != registry)
    node = node_at(breakable, port)
    lose(node, how)
    try:
        with Dumper(LocalFolder(tmp_path), breakable.url).opened() as dumper, pytest.raises(ServerUnavailable):
            dumper.dump()
    finally:
        if how == "frozen":
            os.kill(node.pid, signal.SIGCONT)
    lost = {shard.shard for shard in shards[port]}
    rest = {str(number) for number in range(60) if shard_of(str(number), SHARDS) not in lost}
    assert {row["id"] for row in dumped(tmp_path)} == rest
    if how == "frozen":
        with Dumper(LocalFolder(tmp_path), breakable.url).opened() as dumper:
            assert dumper.dump().rows == 60 - len(rest)


async def test_a_worker_that_starts_when_the_registry_is_lost_says_so(breakable: Cluster) -> None:
    worker = Worker(breakable.url, NAMESPACE, settings=SETTINGS.model_copy(update={"call_timeout_s": 1.0}))

    @worker.handler("t")
    async def handle(_body: str) -> None: ...

    node_at(breakable, port_of(breakable, f"{{{NAMESPACE}}}:topics")).kill()
    with pytest.raises(ServerUnavailable):
        await worker.serve()
