"""Versions side by side: a process that meets data of a newer version ends, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from streamdq import JobState, NewJob, Queue, Worker
from streamdq.errors import FORMAT, NewerFormat
from streamdq.exporter.exporter import RedisCollector
from streamdq.keys import NamespaceKeys
from tests.redis.harness import NAMESPACE, SETTINGS, taken
from tests.servers import Server
from tests.waiting import HANG_S, eventually

NEWER = FORMAT + 1
KEYS = NamespaceKeys(NAMESPACE)


CALLS: dict[str, Callable[[Queue], Any]] = {
    "enqueue": lambda queue: queue.enqueue("t", 1),
    "replace": lambda queue: queue.enqueue("t", 1, id="ready", on_conflict="replace"),
    "enqueue_many": lambda queue: queue.enqueue_many("t", [NewJob(1), NewJob(2)]),
    "cancel": lambda queue: queue.cancel("t", "ready"),
    "reschedule": lambda queue: queue.reschedule("t", "ready", delay="1h"),
    "get": lambda queue: queue.get("t", "ready"),
    "take": lambda queue: queue.take("t"),
    "kick": lambda queue: queue.kick("t"),
    "purge": lambda queue: queue.purge("t", all=True),
    "dead": lambda queue: list(queue.dead("t")),
    "stats": lambda queue: queue.stats("t"),
    "stats of all": lambda queue: queue.stats(),
    "audit": lambda queue: queue.audit(),
    "configure": lambda queue: queue.configure("t", ttr="5s"),
    "pause": lambda queue: queue.pause("t"),
    "delete": lambda queue: queue.delete_topic("t", force=True),
}


def opened(url: str) -> Queue:
    return Queue(url, NAMESPACE, settings=SETTINGS)


def upgrade(client: Any, topic: str = "t", registry: bool = True) -> None:
    """What a newer version does: first the registry, with a wakeup, then each shard."""
    if registry:
        settings = json.loads(client.hget(KEYS.topics, topic)) | {"format": NEWER}
        client.hset(KEYS.topics, topic, json.dumps(settings))
        client.xadd(KEYS.wake, {"topic": topic}, maxlen=1, approximate=False)
    client.hset(KEYS.shard(topic, 0).settings, "format", NEWER)


def everything(client: Any) -> dict[bytes, bytes]:
    """But for what expires, and the stream in which a mover that stops notifies the standbys: that of a ``take`` also
    stops because of the format.
    """
    keys = set(client.scan_iter()) - {KEYS.mover_stopped.encode()}
    return {key: client.dump(key) for key in keys if client.pttl(key) == -1}


def test_every_call_raises_and_writes_nothing(redis_server: Server) -> None:
    """Of a process that knows the topic, and of a new one."""
    with opened(redis_server.url) as queue, redis_server.client() as client:
        queue.enqueue("t", 1, id="ready")
        upgrade(client)
        with opened(redis_server.url) as other:
            before = everything(client)
            for name, call in CALLS.items():
                for process in (queue, other):
                    with pytest.raises(NewerFormat, match="Upgrade streamdq here"):
                        call(process)
                    assert everything(client) == before, name


def test_a_shard_alone_refuses_what_holds_a_claim(redis_server: Server) -> None:
    """Also if the registry was lost and made again since: the shards know better."""
    with opened(redis_server.url) as queue, redis_server.client() as client:
        queue.enqueue("t", 1)
        claim = taken(queue, "t")
        upgrade(client, registry=False)
        before = everything(client)
        for call in (claim.finish, claim.touch, lambda: claim.fail("Oops"), lambda: claim.bury("Oops")):
            with pytest.raises(NewerFormat):
                call()
        client.hdel(KEYS.topics, "t")
        with opened(redis_server.url) as other, pytest.raises(NewerFormat):
            other.enqueue("t", 2)
        client.hdel(KEYS.topics, "t")
        before.pop(KEYS.topics.encode(), None), before.pop(KEYS.wake.encode(), None)
        assert {key: value for key, value in everything(client).items() if key in before} == before


def test_the_exporter_says_that_it_reads_nothing(redis_server: Server) -> None:
    with opened(redis_server.url) as queue, redis_server.client() as client:
        queue.enqueue("t", 1)
        upgrade(client)
        collector = RedisCollector(redis_server.url, NAMESPACE)
        try:
            families = {family.name: family for family in collector.collect()}
        finally:
            collector.close()
    assert [sample.value for sample in families["streamdq_up"].samples] == [0]


async def ended_by(serving: asyncio.Task[None]) -> None:
    async with asyncio.timeout(HANG_S):
        with pytest.raises(NewerFormat):
            await serving


@pytest.mark.parametrize("registry", [True, False], ids=["the registry wakes", "a shard refuses"])
async def test_a_worker_ends_and_what_it_held_is_there(redis_server: Server, registry: bool) -> None:
    """A job that ran stays claimed, for the newer version to take over; the lease is free at once."""
    worker, begun, hold = Worker(redis_server.url, NAMESPACE, settings=SETTINGS), asyncio.Event(), asyncio.Event()

    @worker.handler("t")
    async def handler(_body: int) -> None:
        begun.set()
        await hold.wait()

    with opened(redis_server.url) as queue, redis_server.client() as client:
        queue.enqueue("t", 1, id="a")
        serving = asyncio.create_task(worker.serve())
        async with asyncio.timeout(HANG_S):
            await begun.wait()
        await eventually(lambda: client.exists(KEYS.mover), "an active mover")
        upgrade(client, registry=registry)
        if not registry:
            hold.set()  # its outcome is what is refused
        await ended_by(serving)
        assert not client.exists(KEYS.mover)
        as_it_was(client)
        job = queue.get("t", "a")
        assert job is not None
        assert job.state == JobState.RUNNING


def as_it_was(client: Any) -> None:
    """The format that this version knows."""
    settings = json.loads(client.hget(KEYS.topics, "t"))
    settings.pop("format", None)
    client.hset(KEYS.topics, "t", json.dumps(settings))
    client.hdel(KEYS.shard("t", 0).settings, "format")


async def test_an_idle_worker_ends_as_soon_as_another_topic_is_newer(redis_server: Server) -> None:
    """Its mover may be the active one, and can't move what is newer."""
    worker = Worker(redis_server.url, NAMESPACE, settings=SETTINGS)

    @worker.handler("mine")
    async def handler(_body: int) -> None: ...

    with opened(redis_server.url) as queue, redis_server.client() as client:
        queue.enqueue("t", 1)
        serving = asyncio.create_task(worker.serve())
        await eventually(lambda: client.exists(KEYS.mover), "an active mover")
        upgrade(client)
        await ended_by(serving)
        with pytest.raises(NewerFormat):
            await worker.serve()
