"""What it costs to look at many topics: calls and commands are counted, not time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.config import Settings
from streamdq.exporter.exporter import RedisCollector
from streamdq.keys import NamespaceKeys
from streamdq.link.session import Op, Request, run
from streamdq.metrics.declared import TopicLabels
from streamdq.operations.checks.audit import audit
from streamdq.operations.checks.doctor import doctor
from streamdq.operations.topics.stats import stats, upcoming
from streamdq.queue import store_of
from streamdq.store.redis_store import RedisStore
from tests.conftest import EACH_BINARY
from tests.redis.harness import NAMESPACE
from tests.redis.topology import sent, whole
from tests.servers import Cluster, Pool, Server
from tests.turns import others_later

KEYS = NamespaceKeys(NAMESPACE)
MANY = 400
CALLS = 25
"""Calls for so many topics: 50 scripts, or 500 commands, in each; and those that don't depend on the topics."""
TEXT = '{"groups":{"default":{}},"version":1}'


def register(client: Any, first: int, last: int) -> None:
    """Registers topics that have nothing yet, as after their first call."""
    client.hset(KEYS.topics, mapping={f"t{number}": TEXT for number in range(first, last)})


@pytest.fixture(params=[*EACH_BINARY, "cluster"])
def url(request: pytest.FixtureRequest, servers: Pool) -> str:
    """Of each kind of server in turn, and of a Cluster, with many topics."""
    if request.param == "cluster":
        server: Server | Cluster = request.getfixturevalue("redis_cluster")
    else:
        server = servers[request.param]
        server.flush()
    with server.client() as client:
        register(client, 0, MANY)
    return server.url


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url, NAMESPACE) as opened_queue:
        yield opened_queue


def calls_of(queue: Queue, op: Op[Any]) -> list[int]:
    """How many commands each of an operation's calls has."""
    sizes = []

    def counted() -> Op[Any]:
        calls = whole(queue, op)
        step = next(calls)
        while True:
            if isinstance(step, Request):
                sizes.append(len(step.commands))
                reply = yield from sent(queue, step)
            else:
                reply = yield step
            try:
                step = calls.send(reply)
            except StopIteration:
                return

    run(queue._link, counted())
    return sizes


@pytest.mark.parametrize("look", others_later([stats, upcoming, audit, doctor], stats, audit))
def test_a_look_at_many_topics_takes_few_calls(queue: Queue, look: Callable[[RedisStore], Op[Any]]) -> None:
    queue.enqueue_many("t1", [NewJob(1), NewJob(2)])
    run(queue._link, look(store_of(queue)))  # the scripts are loaded
    sizes = calls_of(queue, look(store_of(queue)))
    assert len(sizes) <= (2.4 * CALLS if look is doctor else CALLS)
    assert max(sizes) <= 500


def test_figures_of_many_topics_are_those_of_each(queue: Queue) -> None:
    for number in range(3):
        queue.enqueue_many(f"t{number}", [NewJob(1)] * (number + 1))
    queue.configure("wide", shards=60)
    queue.enqueue_many("wide", [NewJob(n) for n in range(200)])
    found = queue.stats()
    assert len(found.topics) == MANY + 1
    assert found.ready == 1 + 2 + 3 + 200
    assert [found.topics[name] for name in ("t0", "t2", "wide", "t9")] == [
        queue.stats(name).topics[name] for name in ("t0", "t2", "wide", "t9")
    ]
    assert queue.audit().balanced


def commands_of_a_scrape(server: Server) -> Counter[str]:
    with closing(RedisCollector(server.url, NAMESPACE, TopicLabels(Settings().metrics_topics))) as collector:
        list(collector.collect())
        with server.client() as client:
            client.config_resetstat()
            list(collector.collect())
            found = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_").partition("|")[0]: row["calls"] for name, row in found.items()})


def test_a_scrape_asks_of_idle_topics_what_their_stats_leave_open(redis_server: Server) -> None:
    with redis_server.client() as client:
        register(client, 0, 60)
    idle = commands_of_a_scrape(redis_server)
    assert (idle["evalsha"] + idle["fcall"], idle["xinfo"]) == (60, 60)
    assert idle["xpending"] == idle["zcount"] == 0
    with Queue(redis_server.url, NAMESPACE) as queue:
        queue.enqueue("t1", 1, delay="2h")  # due within a day, and not before
        queue.enqueue("t2", 1)
        busy = commands_of_a_scrape(redis_server)
    assert (busy["zcount"], busy["xpending"]) == (1, 2)


def test_topics_beyond_the_labels_make_no_samples(redis_server: Server) -> None:
    with redis_server.client() as client:
        register(client, 0, 60)
    with closing(RedisCollector(redis_server.url, NAMESPACE, TopicLabels(5))) as collector:
        few = sum(len(family.samples) for family in collector.collect())
        with redis_server.client() as client:
            register(client, 60, 120)
        assert sum(len(family.samples) for family in collector.collect()) == few
