"""Durable calls: what they return is confirmed, also by a call that finds its work done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.config import Settings
from streamdq.errors import (
    DurabilityUnsupported,
    InvalidInput,
    JobExists,
    NotDurable,
    ServerRefusesWrites,
    ServerUnavailable,
)
from streamdq.testing import memory
from tests.conftest import EACH_AND_RECENT, EACH_BINARY, RECENT
from tests.metrics import sample
from tests.redis.harness import NAMESPACE
from tests.redis.proxies import Losing
from tests.redis.replicated import Replicated, replicated
from tests.servers import Binary, Server
from tests.waiting import HANG_S

PATIENT = Settings(call_timeout_s=2 * HANG_S, url="memory://unused")


@pytest.fixture(scope="module", params=EACH_BINARY)
def servers_of_binary(request: pytest.FixtureRequest) -> Iterator[Replicated]:
    with replicated(request.param) as running:
        yield running


@pytest.fixture
def pair(servers_of_binary: Replicated) -> Replicated:
    """A primary and its replica, empty."""
    servers_of_binary.primary.flush()
    return servers_of_binary


@contextmanager
def queue_of(url: str, settings: Settings = PATIENT) -> Iterator[Queue]:
    with Queue(url, NAMESPACE, settings=settings) as queue:
        yield queue


def is_on(server: Server, id: str) -> bool:
    with server.client() as client:
        return any(client.hexists(key, id) for key in client.scan_iter(f"{NAMESPACE}:*:jobs"))


def refusals() -> float:
    return sample(
        "streamdq_redis_errors_total", {"namespace": NAMESPACE, "kind": "not_durable"}
    ) or 0  # fmt: skip


# -- replicas


def test_the_replica_has_what_was_enqueued(pair: Replicated) -> None:
    with queue_of(pair.url) as queue:
        for n in range(50):
            queue.enqueue("t", n, id=f"j{n}", delay="1h", durable="replicas:1")
            assert is_on(pair.replicas[0], f"j{n}")


def test_too_few_replicas_and_the_job_is_there(pair: Replicated, soon: Settings) -> None:
    before = refusals()
    with queue_of(pair.url, soon) as queue:
        with pytest.raises(NotDurable, match=r"[01] of 2 replicas .* in time; .*with id='.*keep'") as raised:
            queue.enqueue("t", 1, delay="1h", durable="replicas:2")
        assert raised.value.level == "replicas:2"
        assert refusals() == before + 1
        kept = queue.enqueue("t", 2, id=raised.value.id, on_conflict="keep", durable="replicas:1")
        assert kept.body == 1
        assert queue.stats("t").topics["t"].enqueued == 1


WORK_DONE: dict[str, Callable[[Queue], Any]] = {
    "keep": lambda queue: queue.enqueue("t", 2, id="j", on_conflict="keep", durable="replicas:1"),
    "reject": lambda queue: queue.enqueue("t", 2, id="j", durable="replicas:1"),
    "replace": lambda queue: queue.enqueue("t", 2, id="j", delay="1h", on_conflict="replace", durable="replicas:1"),
    "many": lambda queue: queue.enqueue_many("t", [NewJob(2, id="j")], durable="replicas:1"),
    "cancel": lambda queue: queue.cancel("t", "gone", durable="replicas:1"),
    "reschedule": lambda queue: queue.reschedule("t", "gone", delay="1h", durable="replicas:1"),
}


@pytest.mark.parametrize("again", WORK_DONE.values(), ids=WORK_DONE)
def test_a_call_that_finds_its_work_done_covers_it(
    pair: Replicated, again: Callable[[Queue], Any], soon: Settings
) -> None:
    """The replica has received neither the job nor the cancellation, which another connection has written."""
    with queue_of(pair.url) as first:
        first.enqueue("t", 0, id="gone", delay="1h", durable="replicas:1")
        with pair.silent():
            first.enqueue("t", 1, id="j", delay="1h")
            assert first.cancel("t", "gone")
            with queue_of(pair.url, soon) as second, pytest.raises(NotDurable):
                again(second)
        with queue_of(pair.url) as third:
            try:
                again(third)
            except JobExists:
                assert again is WORK_DONE["reject"]
            assert is_on(pair.replicas[0], "j")
            assert not is_on(pair.replicas[0], "gone")


def test_a_call_repeated_after_a_lost_reply_covers_the_first(pair: Replicated, soon: Settings) -> None:
    with queue_of(pair.url, soon) as queue:
        queue.configure("t", create=True)
        queue.enqueue("t", "warm", delay="1h")
        losing = Losing(b"payload")
        with pair.silent(), pair.filtered(losing), pytest.raises(NotDurable):
            queue.enqueue("t", "payload", id="j", delay="1h", durable="replicas:1")
        assert losing.dropped == 1
    losing = Losing(b"load two")
    with queue_of(pair.url) as queue, pair.filtered(losing):
        queue.enqueue("t", "load two", id="k", delay="1h", durable="replicas:1")
        assert is_on(pair.replicas[0], "k")
        assert losing.dropped == 1
        assert queue.stats("t").topics["t"].enqueued == 3


def test_one_round_trip_and_nothing_when_it_is_not_asked_for(pair: Replicated) -> None:
    requests: list[bytes] = []

    def note(data: bytes, to_redis: bool) -> bytes:
        if to_redis:
            requests.append(data)
        return data

    with queue_of(pair.url) as queue:
        queue.enqueue("t", 1, id="warm", delay="1h")
        queue.cancel("t", "warm")
        with pair.filtered(note):
            queue.enqueue("t", 1, id="a", delay="1h", durable="replicas:1")
            queue.enqueue("t", 1, id="b", delay="1h")
            queue.cancel("t", "b")
    durable, plain, cancelled = requests
    assert (durable.count(b"\r\nFCALL\r\n") + durable.count(b"\r\nEVAL\r\n"), durable.count(b"\r\nWAIT\r\n")) == (1, 1)
    assert b"WAIT" not in plain + cancelled
    assert b"cover" not in cancelled


def test_a_cancellation_that_is_durable_outlives_the_primary() -> None:
    with replicated(RECENT or EACH_AND_RECENT[0].values[0]) as servers, queue_of(servers.url) as queue:  # type: ignore[arg-type]
        queue.enqueue("t", 1, id="j", delay="1h", durable="replicas:1")
        assert queue.cancel("t", "j", durable="replicas:1")
        servers.promote()
        assert _until_it_answers(lambda: queue.get("t", "j")) is None
        assert queue.audit().balanced


def _until_it_answers(call: Callable[[], Any]) -> Any:
    while True:
        try:
            return call()
        except (ServerUnavailable, ServerRefusesWrites):
            continue


async def test_an_async_call_fails_as_well(pair: Replicated, soon: Settings) -> None:
    async with AsyncQueue(pair.url, NAMESPACE, settings=soon) as queue:
        await queue.configure("t", durable="replicas:2")
        for call in (
            queue.enqueue("t", 1, id="j", delay="1h"),
            queue.reschedule("t", "j", delay=0),
            queue.cancel("t", "j"),
        ):
            with pytest.raises(NotDurable):
                await call


@pytest.mark.parametrize("asks", ["topic", "process"])
def test_the_doctor_tells_whether_it_can_be_had(pair: Replicated, asks: str) -> None:
    found = {}
    for level in ("memory", "replicas:1", "replicas:2", "disk"):
        settings = PATIENT.model_copy(update={"durable": level if asks == "process" else "memory"})
        with queue_of(pair.url, settings) as queue:
            queue.configure("t", durable=level if asks == "topic" else "default")
            found[level] = [finding for finding in queue.doctor() if "durable=" in finding.what]
    who = "topic t" if asks == "topic" else "this process"
    assert found.pop("memory") == []
    assert [finding.verdict for (finding,) in found.values()] == ["ok", "problem", "problem"]
    (one,), (two,), (disk,) = found.values()
    assert one.what == "durable='replicas:1' can be had"
    assert (two.what, two.advice) == (
        f"{who} asks for durable='replicas:2', which can't be had", "its server has 1 of 2 replicas"
    )  # fmt: skip
    assert "CONFIG SET appendonly yes" in disk.advice


def test_a_script_that_the_server_does_not_know_is_waited_for_once(pair: Replicated, soon: Settings) -> None:
    with queue_of(pair.url, soon) as queue, pair.primary.client() as client:
        queue.configure("t", create=True)
        client.script_flush()
        client.config_resetstat()
        with pytest.raises(NotDurable):
            queue.cancel("t", "j", durable="replicas:2")
        assert client.info("commandstats")["cmdstat_wait"]["calls"] == 1


# -- disk


def waits_for_disk(binary: Binary) -> bool:
    """Whether its WAITAOF can be relied on."""
    return binary.path.name == "redis-server" and (binary.version[:2] == (7, 2) or binary.version >= (8,))


@pytest.fixture(params=EACH_AND_RECENT)
def other_binary(request: pytest.FixtureRequest) -> Binary:
    found: Binary = request.param
    return found


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_what_is_on_disk_is_there_after_a_crash(other_binary: Binary, fsync: str) -> None:
    if not waits_for_disk(other_binary) and fsync != "always":
        pytest.skip("only `appendfsync always` can tell")
    options = {"appendfsync": fsync}
    with Server(other_binary, appendonly=True, options=options) as server, queue_of(server.url) as queue:
        for n in range(3):
            queue.enqueue("t", n, id=f"j{n}", delay="1h", durable="disk")
        server.kill()
        server.start()
        assert [queue.get("t", f"j{n}") is not None for n in range(3)] == [True] * 3


def test_a_server_that_changes_its_mind(other_binary: Binary, soon: Settings) -> None:
    options = {"appendfsync": "always"}
    with (
        Server(other_binary, appendonly=True, options=options) as server,
        queue_of(server.url, soon) as queue,
        server.client() as client,
    ):
        queue.enqueue("t", 1, id="a", durable="disk")
        client.config_set("appendonly", "no")
        with pytest.raises(NotDurable):
            queue.enqueue("t", 1, id="b", durable="disk")
        with pytest.raises(DurabilityUnsupported):
            queue.enqueue("t", 1, id="c", durable="disk")
        assert [queue.get("t", id) is not None for id in "abc"] == [True, True, False]


# -- anywhere


def test_a_level_that_there_is_not() -> None:
    level: Any = "replicas:0"
    with memory().queue() as queue:
        calls: list[Callable[[], Any]] = [
            lambda: queue.enqueue("t", 1, durable=level),
            lambda: queue.enqueue_many("t", [NewJob(1)], durable=level),
            lambda: queue.cancel("t", "j", durable=level),
            lambda: queue.reschedule("t", "j", delay=1, durable=level),
            lambda: queue.configure("t", durable=level),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match=r"durable: .*'memory', 'disk' and 'replicas:N'"):
                call()
        assert queue.stats().topics == {}
