"""Many calls at once that find their topic unknown, or lost: one of them asks and makes it, for all."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streamdq import AsyncQueue
from streamdq.config import TopicSettings
from streamdq.link.session import Op, pause, run
from streamdq.queue import store_of
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.servers import Server
from tests.waiting import HANG_S

CALLS = 300
SHARDS = 8
PROBED = 2  # the same commands, once, to see whether the user has the right to them


@pytest.fixture(autouse=True)
def _others_wait_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first caller needs longer than the others would wait."""
    monkeypatch.setattr("streamdq.store.topics.topics._LONGEST_TURN_S", HANG_S)


def asked(server: Server) -> int:
    """How often a registry or a shard's settings were read, or written, since the statistics were reset."""
    with server.client() as client:
        stats = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("hget", "hgetall"))


def forget_statistics(server: Server) -> None:
    with server.client() as client:
        client.config_resetstat()


async def test_the_first_burst_of_a_process_asks_once(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=SHARDS)
    forget_statistics(redis_server)
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await asyncio.gather(*(queue.enqueue("t", n) for n in range(CALLS)))
    assert asked(redis_server) <= 1 + PROBED
    assert space.stats().ready == CALLS


async def test_the_first_burst_makes_its_topic_once(space: Space, redis_server: Server) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await asyncio.gather(*(queue.enqueue("t", n) for n in range(CALLS)))
    assert asked(redis_server) < 20
    assert space.stats().ready == CALLS


async def test_a_burst_after_a_flush_makes_its_topic_once(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=SHARDS)
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await queue.enqueue("t", 0)
        redis_server.flush()
        await asyncio.gather(*(queue.enqueue("t", n) for n in range(CALLS)))
    assert asked(redis_server) < 10 * SHARDS
    assert space.stats().ready == CALLS


def test_so_do_threads(space: Space, redis_server: Server) -> None:
    def call(n: int) -> None:
        space.queue.enqueue("t", n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked(redis_server) < 20
    assert space.stats().ready == 100


def test_a_replica_that_never_answered_is_waited_for_no_longer(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was cancelled may lie in an exception's traceback, unended."""
    monkeypatch.setattr("streamdq.store.topics.topics._LONGEST_TURN_S", 0.05)
    topics = space.queue._store.topics

    def never(_topic: str) -> Op[TopicSettings]:
        yield from pause(0.0)
        raise AssertionError

    abandoned = topics.shared("t", never)
    next(abandoned)
    space.queue.enqueue("t", 1)
    abandoned.close()
    assert run(space.queue._link, topics.shared("t", topics.ensure)).shards == 1


def test_who_asks_for_rights_and_is_gone_holds_up_nobody(space: Space) -> None:
    """A child that was forked while another thread asked."""
    queue = space.another_queue()
    store_of(queue).session.asking.add("")
    assert queue.enqueue("t", 1, id="j", delay="1h").id == "j"
