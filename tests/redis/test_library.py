"""The library of functions: loaded where it is missing; where there can be none, scripts are called by EVALSHA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from streamdq import Queue
from streamdq.errors import ServerRefusesWrites
from streamdq.queue import carry_out
from streamdq.store.assembly import Library, function_of, library
from tests.servers import Cluster, Server

NAME = library().name


def has_functions(server: Server) -> bool:
    return server.binary.version >= (7,)


def libraries(client: redis.Redis) -> list[str]:
    return [row[1].decode() for row in client.function_list()]


@pytest.fixture
def client(redis_server: Server) -> Any:
    with redis_server.client() as opened:
        if has_functions(redis_server):
            opened.function_flush()
        opened.config_resetstat()
        yield opened
        opened.config_set("maxmemory", 0)


def calls(client: redis.Redis, name: str) -> int:
    return int(client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"])


def a_job_passes(queue: Queue, id: str = "j") -> None:
    queue.enqueue("t", 1, id=id)
    claim = queue.take("t", timeout="5s")
    assert claim
    claim.finish()
    assert queue.get("t", id) is None


def test_the_first_call_finds_out_how_scripts_are_called(redis_server: Server, client: redis.Redis) -> None:
    with Queue(redis_server.url) as queue:
        a_job_passes(queue)
    if has_functions(redis_server):
        assert libraries(client) == [NAME]
        assert (calls(client, "evalsha"), calls(client, "function|load")) == (1, 1), "the topic is made by EVALSHA"
    else:
        assert (calls(client, "fcall"), calls(client, "function")) == (0, 0)
        assert calls(client, "evalsha") > 0


LOST: dict[str, Callable[[redis.Redis], object]] = {
    "functions": lambda client: client.function_flush(),
    "data": lambda client: (client.flushall(), client.function_flush()),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_library_that_is_lost_is_loaded_again(
    redis_server: Server, client: redis.Redis, lose: Callable[[redis.Redis], object]
) -> None:
    if not has_functions(redis_server):
        pytest.skip("it has no functions")
    with Queue(redis_server.url) as queue:
        a_job_passes(queue)
        lose(client)
        a_job_passes(queue, "again")
        assert queue.audit().balanced
        assert libraries(client) == [NAME]
        assert calls(client, "function|load") >= 2, "the mover may load it at the same time"


def test_the_library_of_another_version_stays(redis_server: Server, client: redis.Redis) -> None:
    if not has_functions(redis_server):
        pytest.skip("it has no functions")
    other = "streamdq_0123456789abcdef"
    client.function_load(library().source.replace(NAME, other))
    with Queue(redis_server.url) as queue:
        a_job_passes(queue)
    assert sorted(libraries(client)) == sorted([NAME, other])
    client.function_delete(other)


def test_a_call_of_several_scripts_is_repeated_for_those_that_were_not_known(
    redis_server: Server, client: redis.Redis
) -> None:
    if not has_functions(redis_server):
        pytest.skip("it has no functions")
    with Queue(redis_server.url) as queue:
        for id in "ab":
            queue.enqueue("t", 1, id=id, delay="1h")
        client.function_flush()
        found = carry_out(queue, queue._store.scripts.get_each(queue._store.session.keys.shard("t", 0), ["a", "b"]))
        assert all(job.record for job in found)


@pytest.mark.parametrize("lacks", ["-fcall", "-function|load"])
def test_a_user_who_may_not_call_or_load_functions(redis_server: Server, client: redis.Redis, lacks: str) -> None:
    if not has_functions(redis_server):
        pytest.skip("it has no functions")
    client.acl_setuser("plain", enabled=True, passwords=["+pw"], commands=["+@all", lacks], keys=["*"], reset=True)
    try:
        with Queue(redis_server.url.replace("://", "://plain:pw@")) as queue:
            a_job_passes(queue)
            assert queue.audit().balanced
        assert libraries(client) == []
        assert calls(client, "evalsha") > 0
    finally:
        client.acl_deluser("plain")


def test_it_is_said_once_that_a_library_is_not_loaded(
    redis_server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again and again, here with each call."""
    if not has_functions(redis_server):
        pytest.skip("it has no functions")
    client.function_flush()
    monkeypatch.setattr("streamdq.store.calling._REFUSED_S", 0.0)
    monkeypatch.setattr("streamdq.store.calling.library", lambda: Library(NAME, f"#!lua name={NAME}\nno Lua"))
    with Queue(redis_server.url) as queue:
        for n in range(3):
            queue.enqueue("t", n)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("refused the function library" in line for line in lines) == 1, lines


def test_a_full_server_that_does_not_have_the_library(redis_server: Server, client: redis.Redis) -> None:
    """What frees memory works all the same."""
    with Queue(redis_server.url) as queue:
        queue.enqueue("t", 1, id="j")
        if has_functions(redis_server):
            client.function_flush()
        client.config_set("maxmemory", 1)
        with pytest.raises(ServerRefusesWrites):
            queue.enqueue("t", 2, id="refused")
        claim = queue.take("t", timeout="5s")
        assert claim
        claim.finish()
        client.config_set("maxmemory", 0)
        assert queue.audit().balanced
        assert queue.get("t", "refused") is None


def test_a_function_that_changes_nothing_says_so(redis_server: Server, client: redis.Redis) -> None:
    if not has_functions(redis_server):
        pytest.skip("it has no functions")
    client.function_load(library().source)
    (found,) = client.function_list(library=NAME)
    flags = {row[1].decode(): row[5] for row in found[5]}
    assert flags[function_of("get")] == [b"no-writes"]
    assert flags[function_of("finish")] == [b"allow-oom"]
    assert flags[function_of("enqueue")] == []


def test_each_primary_of_a_cluster_gets_it(redis_cluster: Cluster) -> None:
    with Queue(redis_cluster.url) as queue:
        queue.configure("t", shards=12, create=True)
        for number in range(40):
            queue.enqueue("t", number, id=str(number), delay="1h")
        assert queue.audit().balanced
        for node in redis_cluster.nodes:
            with node.client() as client:
                if has_functions(node):
                    assert NAME in libraries(client)
                    client.function_flush()
        for number in range(40, 80):
            queue.enqueue("t", number, id=str(number), delay="1h")
        assert queue.stats("t").topics["t"].enqueued == 80
        queue.delete_topic("t", force=True)
