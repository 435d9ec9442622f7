"""What is sent again, until when, and what an error reply means."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from redis.exceptions import (
    ReadOnlyError,
    ResponseError,
)

from streamdq.config import Settings
from streamdq.errors import (
    AuthenticationFailed,
    GroupMissing,
    InvalidInput,
    ServerError,
    ServerRefusesWrites,
    ServerUnavailable,
    UnsupportedServer,
)
from streamdq.link.address import Target
from streamdq.link.command import Command
from streamdq.link.connection import Link, LinkError
from streamdq.link.consumers import begun_ms, consumer_name
from streamdq.link.failures import LoginRefused
from streamdq.link.opening import open_session
from streamdq.link.session import Op, Session, arun, checked, run
from streamdq.times.clock import RedisClock, wall_s
from tests.unit.virtual_time import in_this_thread

COMMANDS = [Command("k", ("GET", "k"))]
UNSENT, SENT = LinkError(ConnectionError("refused"), sent=False), LinkError(TimeoutError("no reply"), sent=True)


class Wire:
    """A link with a script of what happens, and a clock that moves only when somebody waits or a call takes time."""

    def __init__(self, outcomes: Iterable[Any], takes_s: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.takes_s = takes_s
        self.now_s = 100.0
        self.timeouts_s: list[float] = []
        self.pauses_s: list[float] = []

    def send(self, _: Any, timeout_s: float, *__: Any) -> Any:
        self.timeouts_s.append(timeout_s)
        self.now_s += self.takes_s
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds


class AsyncWire(Wire):
    async def send(self, _: Any, timeout_s: float, *__: Any) -> Any:
        return super().send(_, timeout_s)

    async def sleep(self, seconds: float) -> None:  # type: ignore[override]
        super().sleep(seconds)  # real time: none passes


Carry = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def carry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Carry:
    """Carries an operation out over a wire, blocking and awaiting: (operation, outcomes...) -> (result, wire)."""
    kind = Wire if request.param == "sync" else AsyncWire

    def carried(op: Callable[[], Op[Any]], *outcomes: Any, takes_s: float = 0.0) -> tuple[Any, Wire]:
        wire: Any = kind(outcomes, takes_s)
        monkeypatch.setattr(time, "monotonic", in_this_thread(lambda: wire.now_s, time.monotonic))
        if kind is Wire:
            monkeypatch.setattr(time, "sleep", in_this_thread(wire.sleep, time.sleep))
            return run(wire, op()), wire
        loop = asyncio.new_event_loop()
        monkeypatch.setattr("streamdq.link.session.asyncio.sleep", wire.sleep)
        try:
            coroutine = arun(wire, op())
            try:
                coroutine.send(None)
            except StopIteration as stop:
                return stop.value, wire
            raise AssertionError("a wire never really waits")
        finally:
            loop.close()

    return carried


@pytest.fixture
def session() -> Session:
    target = Target("node", "redis://user:secret@host:1234/0")
    return Session(Settings(call_timeout_s=5, url="memory://x"), "ns", RedisClock(), target)


def test_a_reply_is_a_reply(session: Session, carry: Carry) -> None:
    assert carry(lambda: session.call(COMMANDS), [b"v"])[0] == [b"v"]


@pytest.mark.parametrize("error", [UNSENT, SENT])
def test_what_may_be_repeated_is_repeated(session: Session, carry: Carry, error: LinkError) -> None:
    reply, wire = carry(lambda: session.call(COMMANDS), error, error, error, [b"v"])
    assert reply == [b"v"]
    assert len(wire.timeouts_s) == 4
    assert len(wire.pauses_s) == 3


def test_where_nobody_listens_at_first_a_call_that_does_not_wait_fails_at_once(session: Session, carry: Carry) -> None:
    refused = LinkError(ConnectionRefusedError("refused"), sent=False)
    session.waits_for_redis = False
    with pytest.raises(ServerUnavailable, match="refused; check that it is running"):
        carry(lambda: session.call(COMMANDS), refused, [b"v"])
    assert carry(lambda: session.call(COMMANDS), UNSENT, [b"v"])[0] == [b"v"], "another failure is tried again"
    reply, wire = carry(lambda: session.call(COMMANDS), refused, [b"v"])
    assert reply == [b"v"], "it was there, and is expected back"
    assert len(wire.timeouts_s) == 2


def test_the_error_says_why_logins_failed_though_the_last_one_timed_out(session: Session, carry: Carry) -> None:
    refused = LoginRefused(ResponseError("WRONGPASS"))
    with pytest.raises(AuthenticationFailed, match="with what the credential provider gave"):
        carry(lambda: session.call(COMMANDS), refused, LinkError(TimeoutError("no time left"), sent=False))
    with pytest.raises(ServerUnavailable, match="refused; check that it is running"):
        carry(lambda: session.call(COMMANDS), refused, UNSENT)


def test_what_was_answered_is_not_sent_again(session: Session, carry: Carry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some nodes of a Cluster answer, and others don't."""
    sent: list[list[str]] = []
    send = Wire.send

    def noted(wire: Wire, commands: Any, timeout_s: float, *more: Any) -> Any:
        sent.append([command.key for command in commands])
        return send(wire, commands, timeout_s, *more)

    monkeypatch.setattr(Wire, "send", noted)
    first, second = (LinkError(ConnectionError("refused"), sent=True) for _ in range(2))
    first.answered, second.answered = {1: b"B", 3: b"D"}, {1: b"C"}
    reply, _ = carry(lambda: session.call([Command(key, ("GET", key)) for key in "abcd"]), first, second, [b"A"])
    assert reply == [b"A", b"B", b"C", b"D"]
    assert sent == [[*"abcd"], [*"ac"], ["a"]]


def test_what_must_not_run_twice_is_sent_again_only_if_it_was_not_sent(session: Session, carry: Carry) -> None:
    reply, wire = carry(lambda: session.call(COMMANDS, repeatable=False), UNSENT, UNSENT, [b"v"])
    assert reply == [b"v"]
    with pytest.raises(ServerUnavailable):
        carry(lambda: session.call(COMMANDS, repeatable=False), UNSENT, SENT, [b"v"])
    assert len(wire.timeouts_s) == 3


def test_no_reply_in_time_is_an_error_that_says_where(session: Session, carry: Carry) -> None:
    with pytest.raises(ServerUnavailable, match="redis://host:1234/0 did not answer: no reply") as raised:
        carry(lambda: session.call(COMMANDS), SENT, takes_s=1.0)
    assert "secret" not in str(raised.value)
    assert isinstance(raised.value, ConnectionError)


def test_all_tries_together_keep_one_deadline(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    wire: Any = Wire([SENT], takes_s=1.0)
    monkeypatch.setattr(time, "monotonic", in_this_thread(lambda: wire.now_s, time.monotonic))
    monkeypatch.setattr(time, "sleep", in_this_thread(wire.sleep, time.sleep))
    with pytest.raises(ServerUnavailable):
        run(wire, session.call(COMMANDS))
    assert wire.timeouts_s[0] == 5.0
    assert all(left_s <= 5.0 - tries for tries, left_s in enumerate(wire.timeouts_s))
    assert min(wire.timeouts_s) > 0
    assert wire.now_s <= 106.0


def test_pauses_grow_to_half_a_second(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    wire: Any = Wire([UNSENT])
    monkeypatch.setattr(time, "monotonic", in_this_thread(lambda: wire.now_s, time.monotonic))
    monkeypatch.setattr(time, "sleep", in_this_thread(wire.sleep, time.sleep))
    with pytest.raises(ServerUnavailable):
        run(wire, session.call(COMMANDS))
    longest = [0.02, 0.04, 0.08, 0.16, 0.32, *[0.5] * (len(wire.pauses_s) - 5)]
    assert all(most / 2 <= pause <= most for pause, most in zip(wire.pauses_s, longest, strict=True))
    assert len(wire.pauses_s) > 5
    assert sum(wire.pauses_s) <= 5.0
    assert wire.pauses_s[:5] != longest[:5], "clients that lost Redis together don't come back together"


def test_a_blocking_call_is_sent_once(session: Session, carry: Carry) -> None:
    with pytest.raises(ServerUnavailable):
        carry(lambda: session.call(COMMANDS, timeout_s=13.0), UNSENT, [b"v"])
    assert carry(lambda: session.call(COMMANDS, timeout_s=13.0), [b"v"])[1].timeouts_s == [13.0]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ResponseError("NOGROUP No such key 'x'"), GroupMissing),
        (ReadOnlyError("You can't write against a read only replica."), ServerRefusesWrites),
        (ResponseError("OOM command not allowed when used memory > 'maxmemory'."), ServerRefusesWrites),
        (ResponseError("NOAUTH Authentication required."), AuthenticationFailed),
        (ResponseError("unknown command 'XAUTOCLAIM'"), UnsupportedServer),
        (ResponseError("WRONGTYPE Operation against a key"), ServerError),
    ],
)
def test_what_an_error_reply_means(reply: ResponseError, kind: type[ServerError]) -> None:
    """One of each meaning; which words have which: test_error_replies.py."""
    with pytest.raises(kind) as raised:
        checked(reply)
    assert raised.value.__cause__ is reply


@pytest.mark.parametrize("reply", [None, 0, b"", [], [b"NOGROUP"], b"OOM "])
def test_what_is_no_error_passes(reply: Any) -> None:
    assert checked(reply) == reply


def test_consumers_are_never_named_the_same_twice() -> None:
    names = {consumer_name() for _ in range(100)}
    assert len(names) == 100
    assert not any(set(" |,\n\x1f{}") & set(name) for name in names)


@pytest.mark.parametrize("namespace", ["", "a b", "a{b}", "é", "x" * 65, "a\n"])
def test_namespaces_that_are_refused(namespace: str) -> None:
    with pytest.raises(InvalidInput, match=r"^namespace: "):
        open_session("memory://x", namespace, None, None, Link)


def test_a_bad_namespace_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_NAMESPACE", "a b")
    with pytest.raises(InvalidInput, match=r"^namespace: 'a b'"):
        open_session("memory://x", None, None, None, Link)


def test_a_consumer_s_name_tells_its_host_process_and_start() -> None:
    before_ms = int(wall_s()) * 1000
    host, pid, since_ms = begun_ms(consumer_name())
    assert host
    assert pid == os.getpid()
    assert since_ms is not None
    assert before_ms <= since_ms <= wall_s() * 1000
    for other in ("c7", "", "a-b-c", "-1-abcdefghij", "my-host-12-abc123"):
        assert begun_ms(other) == (other, None, None)
