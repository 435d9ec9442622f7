"""A Cluster's slot moves to another node key by key, while jobs are enqueued, run and retried in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from streamdq import AsyncQueue, Job, NewJob
from streamdq.errors import ServerUnavailable
from streamdq.keys import shard_of
from streamdq.link.session import run
from streamdq.store.topics import resharding
from streamdq.store.topics.resharding import Walk
from tests.conftest import EACH_BINARY
from tests.leaks import leaked_keys
from tests.metrics import sample
from tests.migration import Migration
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, opened
from tests.servers import Binary, Cluster
from tests.waiting import eventually


@pytest.fixture(scope="module", params=EACH_BINARY)
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    binary: Binary = request.param
    with Cluster(binary) as cluster:
        yield cluster


@pytest.fixture
def nodes(running: Cluster) -> Cluster:
    running.flush()
    return running


def redirected() -> float:
    labels = {"namespace": NAMESPACE, "kind": "cluster"}
    return sample("streamdq_redis_errors_total", labels) or 0


class Producers:
    """A thread and a task that enqueue until they are stopped. What Redis has confirmed to them is in."""

    def __init__(self, space: Space, queue: AsyncQueue) -> None:
        self._space = space
        self._queue = queue
        self._enough = threading.Event()
        self.accepted: list[str] = []
        self._tasks = [asyncio.create_task(asyncio.to_thread(self._block)), asyncio.create_task(self._await())]

    def _block(self) -> None:
        n = 0
        while not self._enough.wait(0.002):
            self.accepted.append(self._space.queue.enqueue("t", n, id=f"s{n}", delay="20ms" if n % 2 else 0).id)
            n += 1

    async def _await(self) -> None:
        n = 0
        while not self._enough.is_set():
            job = await self._queue.enqueue("t", n, id=f"a{n}", delay="50ms" if n % 2 else 0)
            self.accepted.append(job.id)
            n += 1
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self._enough.set()
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.thorough), 4])
async def test_a_slot_moves_under_load(nodes: Cluster, seen: Seen, shards: int) -> None:
    """Producers wait for the migration, within their deadline; nothing is lost, and the accounts balance."""
    with opened(nodes.url, call_timeout_s=30.0) as space:
        space.queue.configure("t", shards=shards)
        worker = space.worker()

        @worker.handler("t", retry="30ms 30ms")
        async def handler(_: int, job: Job) -> None:
            if job.id.endswith("7") and job.attempt == 1:
                raise RuntimeError
            seen.add(job.id)

        move, before = Migration(nodes, "t:0"), redirected()
        settings = SETTINGS.model_copy(update={"call_timeout_s": 30.0})
        async with (
            space.serving(worker),
            AsyncQueue(nodes.url, NAMESPACE, settings=settings) as queue,
        ):
            producers = Producers(space, queue)
            await seen.count(50)
            move.begin()
            await asyncio.to_thread(move.move_all, 0.02)
            move.end()
            await seen.count(len(seen) + 100)
            await producers.stop()
            await eventually(lambda: space.audit().left == 0, "all done")
        assert sorted(set(seen.all)) == sorted(producers.accepted)
        assert len(seen) == len(producers.accepted), "each of them once"
        assert redirected() > before, "the migration was not noticed"
    for node in nodes.nodes:
        with node.client() as client:
            assert leaked_keys(client) == []


async def test_a_migration_that_does_not_end_holds_up_its_shard_alone(nodes: Cluster, seen: Seen) -> None:
    with opened(nodes.url) as space:
        space.queue.configure("other", create=True)
        space.queue.configure("t", create=True)
        worker = space.worker()

        @worker.handler("other")
        async def handler(n: int) -> None:
            seen.add(n)

        move = Migration(nodes, "t:0")
        async with space.serving(worker):
            space.queue.enqueue("t", 1, id="held", delay="1h")
            move.begin()
            move.move_one()
            for n in range(20):
                space.queue.enqueue("other", n, delay="10ms" if n % 2 else 0)
            await seen.count(20)
            hurried = space.another_queue(call_timeout_s=0.5)
            with pytest.raises(ServerUnavailable):
                hurried.enqueue("t", 2, id="late")
            move.move_all()
            move.end()
            assert space.queue.cancel("t", "held") is True
            await eventually(lambda: space.audit().left == 0, "all done")


def test_a_slot_that_migrates_while_a_topic_is_resharded(nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash is in another order on the node that the slot goes to, and what is left may be before the cursor there."""
    monkeypatch.setattr(resharding, "_PAGE", 10)
    with opened(nodes.url) as space:
        queue, store, link = space.queue, space.queue._store, space.queue._link
        queue.configure("t", shards=2)
        ids = [f"id {number}" for number in range(1000)]
        queue.enqueue_many("t", [NewJob("x" * 99, id=id, delay="1h") for id in ids if shard_of(id, 2) == 0])
        taken = next(id for id in map(str, range(99)) if shard_of(id, 2) == 0)  # the script finds all of its keys
        queue.enqueue("t", "x", id=taken, unique_for="1h", delay="1h")
        queue.configure("t", shards=1)
        walk = Walk(store.session, store.scripts, "t", store.topics.known["t"])
        first, other = (store.session.keys.shard("t", number) for number in (0, 1))
        assert run(link, walk.go_on(5)) is False
        (place,) = (place for place in walk._places if place.shard == first)
        assert place.cursor != b"0"
        move = Migration(nodes, "t:0")
        move.begin()
        move.move_all()
        for _ in range(2):
            assert run(link, walk.go_on(5)) is False, "it has all that it was to see, but not in one order"
            assert move.asked() >= 1
            (place,) = (place for place in walk._places if place.shard == first)
            assert place.cursor == b"0", "it begins anew"
            assert other not in {place.shard for place in walk._places}, "another shard is not held up"
        move.end()
        assert queue.get("t", taken) is not None  # it learns where the slot is
        assert run(link, walk.go_on(1000)) is True
        queue.delete_topic("t", force=True)
