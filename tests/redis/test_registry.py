"""A process's copy of the registry: what a look costs, and that it always sees what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from streamdq import Queue
from streamdq.config import TopicSettings
from streamdq.keys import NamespaceKeys
from streamdq.queue import carry_out, store_of
from streamdq.store.topics.registry import WAKEUPS
from streamdq.store.topics.topics import Topics
from tests.redis.harness import NAMESPACE, Seen, Space
from tests.redis.movers import mover_at
from tests.servers import Server
from tests.waiting import eventually

KEYS = NamespaceKeys(NAMESPACE)


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url, NAMESPACE) as opened_queue:
        yield opened_queue


@pytest.fixture
def other(redis_server: Server) -> Iterator[Queue]:
    """Another process's."""
    with Queue(redis_server.url, NAMESPACE) as opened_queue:
        yield opened_queue


def known(queue: Queue) -> dict[str, TopicSettings]:
    return dict(carry_out(queue, store_of(queue).topics.registry()))


def anew(url: str) -> dict[str, TopicSettings]:
    """What a process that has just begun finds."""
    with Queue(url, NAMESPACE) as begun:
        return known(begun)


def sent(server: Server, queue: Queue) -> Counter[str]:
    """The commands of a look."""
    with server.client() as client:
        client.config_resetstat()
        known(queue)
        stats = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items() if "info" not in name})


def test_a_look_costs_two_commands_and_then_what_has_changed(redis_server: Server, queue: Queue, other: Queue) -> None:
    for number in range(20):
        other.configure(f"t{number}", create=True)
    known(queue)
    assert sent(redis_server, queue) - Counter({"config|resetstat": 1, "config": 1}) == {"xrange": 1, "hlen": 1}
    other.configure("t3", ttr="5m")
    other.configure("new", shards=3)
    other.delete_topic("t7")
    assert sent(redis_server, queue) - Counter({"config|resetstat": 1, "config": 1}) == {
        "xrange": 1, "hlen": 2, "hmget": 1,
    }  # fmt: skip
    found = known(queue)
    assert (found["t3"].ttr_ms, found["new"].shards, "t7" in found) == (300_000, 3, False)
    assert found == anew(redis_server.url)


@pytest.mark.thorough
def test_more_changes_than_are_remembered(redis_server: Server, queue: Queue, other: Queue) -> None:
    other.configure("first", create=True)
    known(queue)
    for number in range(WAKEUPS // 2 + 1):  # each is made, and configured
        other.configure(f"t{number}", ttr="5m")
        other.configure(f"t{number}", ttr="6m")
    assert known(queue) == anew(redis_server.url)
    assert {one.ttr_ms for name, one in known(queue).items() if name != "first"} == {360_000}


@pytest.mark.parametrize("trouble", ["junk", "no wakeups", "lost changes", "no registry"])
def test_whatever_becomes_of_the_wakeups(redis_server: Server, queue: Queue, other: Queue, trouble: str) -> None:
    other.configure("t1", create=True)
    other.configure("t2", create=True)
    known(queue)
    with redis_server.client() as client:
        if trouble == "lost changes":  # a failover to a replica that was behind
            client.hdel(KEYS.topics, "t2")
            client.xdel(KEYS.wake, client.xrevrange(KEYS.wake, count=1)[0][0])
        elif trouble == "no registry":
            client.delete(KEYS.topics)
        else:
            other.configure("t1", ttr="5m")
            if trouble == "junk":
                client.xadd(KEYS.wake, {"what": "ever"})
            else:
                client.delete(KEYS.wake)
    assert known(queue) == anew(redis_server.url)


def test_a_change_by_hand_is_seen_after_a_while(
    redis_server: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a wakeup, and with as many topics as before."""
    queue.configure("t", create=True)
    monkeypatch.setattr("streamdq.store.topics.registry._TRUST_S", 0.0)
    known(queue)
    with redis_server.client() as client:
        client.hset(KEYS.topics, "t", '{"groups":{"default":{}},"version":7,"shards":5}')
    assert known(queue)["t"].shards == 5


async def test_the_active_mover_sends_a_wakeup_for_what_was_changed_by_hand(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers wait for a wakeup; they look by themselves much more seldom."""
    space.queue.configure("t", create=True)
    monkeypatch.setattr("streamdq.store.topics.registry._TRUST_S", 0.0)
    monkeypatch.setattr("streamdq.mover.mover._SHARDS_S", 0.05)
    looked, notify_missed = Seen(), Topics.notify_missed

    def noted(self: Topics) -> Any:
        yield from notify_missed(self)
        looked.add("looked")

    monkeypatch.setattr(Topics, "notify_missed", noted)
    with redis_server.client() as client:
        async with mover_at(redis_server.url, "m"):
            (last,) = client.xrevrange(KEYS.wake, count=1)
            changed = TopicSettings.model_validate_json(client.hget(KEYS.topics, "t") or b"")
            text = changed.model_copy(update={"ttr_ms": 5_000}).model_dump_json(exclude_none=True)
            client.hset(KEYS.topics, "t", text)
            await eventually(lambda: client.xrevrange(KEYS.wake, count=1) != [last], "it sends a wakeup")
            ((_, wakeup),) = client.xrevrange(KEYS.wake, count=1)
            assert wakeup == {b"topic": b"t"}
            wakeups, looks = client.xlen(KEYS.wake), len(looked)
            await looked.count(looks + 3)  # none of which finds anything new
            assert client.xlen(KEYS.wake) == wakeups
