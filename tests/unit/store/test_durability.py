"""What is sent behind a script, and what its answer means."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from streamdq.config import Settings, TopicSettings
from streamdq.errors import DurabilityUnsupported, InvalidInput, NotDurable
from streamdq.link.address import Target
from streamdq.link.command import Command
from streamdq.link.session import Op, Request, Session
from streamdq.store.durability import Durable
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import RedisClock

WRITE = Command("{ns:t:0}:jobs", ("EVALSHA", "abc"))
RIGHT = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no", "appendfilename": "a"}


def session(kind: str = "node", **settings: Any) -> Session:
    return Session(Settings(**settings), "ns", RedisClock(), Target(kind, "redis://localhost"))


def info(version: str, aof: int = 1, valkey: bool = False) -> list[bytes]:
    name = b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version" if valkey else b"redis_version"
    return [
        b"# Server\r\n%b:%b\r\n" % (name, version.encode()),
        b"# Persistence\r\naof_enabled:%d\r\n" % aof,
    ]


def flat(settings: dict[str, str]) -> list[bytes]:
    return [text.encode() for item in settings.items() for text in item]


def carry_out(op: Op[Any], *answers: list[Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """What was sent, call by call, and the outcome: what it returns or raises."""
    sent: list[tuple[Any, ...]] = []
    left = list(answers)
    try:
        step = next(op)
        while True:
            assert isinstance(step, Request)
            assert {command.key for command in step.commands} == {WRITE.key}
            sent.append(tuple(command.args[0] for command in step.commands))
            step = op.send(left.pop(0))
    except StopIteration as stop:
        assert not left
        return sent, stop.value
    except (NotDurable, DurabilityUnsupported) as error:
        assert not left
        return sent, error


def test_replicas_are_waited_for_behind_the_write() -> None:
    durable = Durable(session(call_timeout_s=4), "replicas:2")
    op = durable.call([WRITE])
    request = next(op)
    assert isinstance(request, Request)
    write, wait = request.commands
    assert write is WRITE
    assert wait.args[:2] == ("WAIT", 2)
    assert 3000 < wait.args[2] <= 3700
    with pytest.raises(StopIteration) as returned:
        op.send([[1], 2])
    assert returned.value.value == [[1]]


def test_the_wait_gets_what_is_left_when_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    request = next(Durable(session(call_timeout_s=4), "replicas:2").call([WRITE]))
    assert isinstance(request, Request)
    now = time.monotonic()
    monkeypatch.setattr("streamdq.link.command.time.monotonic", lambda: now + 3)
    assert 0 < request.commands[1].args[2] <= 700
    monkeypatch.setattr("streamdq.link.command.time.monotonic", lambda: now + 9)
    assert request.commands[1].args[2] == 1  # 0 would be without end


@pytest.mark.parametrize(
    ("level", "answer", "why"),
    [
        ("replicas:2", 1, "1 of 2 replicas"),
        ("replicas:1", ResponseError("WAIT cannot be used with replica instances."), "replica instances"),
    ],
)
def test_what_is_not_confirmed(level: str, answer: Any, why: str) -> None:
    sent, error = carry_out(Durable(session(), level).call([WRITE]), [[1], answer])
    assert sent == [("EVALSHA", "WAIT")]
    assert isinstance(error, NotDurable)
    assert why in str(error)


@pytest.mark.parametrize("reply", [NoScriptError("NOSCRIPT"), ResponseError("OOM"), ResponseError("NOREPLICAS")])
def test_what_did_not_run_is_not_judged(reply: ResponseError) -> None:
    _, replies = carry_out(Durable(session(), "replicas:2").call([WRITE]), [reply, 0])
    assert replies == [reply]


@pytest.mark.parametrize("version", ["7.2.4", "8.0.0", "8.2.3", "10.1"])
def test_the_disk_of_a_server_with_waitaof(version: str) -> None:
    durable = Durable(session(), "disk")
    assert carry_out(durable.call([WRITE]), info(version), [[1], [1, 0]]) == (
        [("INFO", "INFO"), ("EVALSHA", "WAITAOF")], [[1]],
    )  # fmt: skip
    assert carry_out(durable.call([WRITE]), [[1], [1, 0]])[0] == [("EVALSHA", "WAITAOF")]

    _, error = carry_out(durable.call([WRITE]), [[1], [0, 3]])
    assert isinstance(error, NotDurable)
    # It looks again: this may be another server by now.
    sent, error = carry_out(durable.call([WRITE]), info("8.0.0", aof=0))
    assert isinstance(error, DurabilityUnsupported)
    assert sent == [("INFO", "INFO")]


@pytest.mark.parametrize("replies", [info("7.0.15"), info("7.4.2"), info("9.1.2", valkey=True)])
def test_the_disk_of_another_server_that_writes_at_once(replies: list[bytes]) -> None:
    """The WAITAOF of Redis 7.4 and of Valkey confirms too early."""
    durable = Durable(session(), "disk")
    sent, _ = carry_out(durable.call([WRITE]), replies, [flat(RIGHT)], [[1], flat(RIGHT)])
    assert sent == [("INFO", "INFO"), ("CONFIG",), ("EVALSHA", "CONFIG")]
    _, error = carry_out(durable.call([WRITE]), [[1], flat(RIGHT | {"appendfsync": "everysec"})])
    assert isinstance(error, NotDurable)
    assert "`appendfsync everysec`" in str(error)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([info("7.0.15", aof=0)], "no append-only file"),
        ([info("7.2.0", aof=0)], "no append-only file"),
        ([info("6.2.14"), [flat(RIGHT | {"appendfsync": "everysec"})]], "no WAITAOF.*`appendfsync everysec`"),
        (
            [info("9.1.2", valkey=True), [flat(RIGHT | {"appendfsync": "everysec"})]],
            "valkey 9.1.2, has no WAITAOF.*`appendfsync everysec`",
        ),
        ([info("6.2.14"), [flat(RIGHT | {"no-appendfsync-on-rewrite": "yes"})]], "`no-appendfsync-on-rewrite yes`"),
        (
            [info("7.0.1"), [NoPermissionError("this user has no permissions")]],
            "CONFIG GET.*not allowed.*no permissions",
        ),
        ([info("7.0.1"), [ResponseError("unknown command 'CONFIG'")]], "CONFIG GET.*not allowed"),
    ],
)
def test_nothing_is_sent_where_disk_can_not_be_had(answers: list[list[Any]], why: str) -> None:
    sent, error = carry_out(Durable(session(), "disk").call([WRITE]), *answers)
    assert isinstance(error, DurabilityUnsupported)
    with pytest.raises(DurabilityUnsupported, match=why):
        raise error
    assert not any("EVALSHA" in names for names in sent)


def test_which_level_counts() -> None:
    store = RedisStore(session(durable="replicas:3"))
    plain, own = TopicSettings(), TopicSettings(durable="disk")
    assert store.at("memory", own) is store.scripts
    assert store.at(None, own) is store.at("disk", plain)
    assert store.at(None, plain) is store.at("replicas:3", own)
    assert store.at(None, plain) is not store.scripts
    with pytest.raises(InvalidInput):
        store.at("ram", plain)


def test_a_server_in_memory_reaches_every_level() -> None:
    store = RedisStore(session("memory"))
    assert store.at("replicas:2", TopicSettings()) is store.scripts
