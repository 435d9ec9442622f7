"""Sockets of synchronous calls: everything that is read and written counts against one deadline."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis._parsers import _RESP2Parser
from redis.exceptions import InvalidResponse

from streamdq.link import deadline
from streamdq.link.deadline import set_deadline, timed

FAR_S = 60.0


class Opened:
    """A connection class as redis-py's are, for a socket that is open already."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def _connect(self) -> socket.socket:
        return self.sock


@pytest.fixture(params=["poll", "select"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, socket.socket]]:
    """A connection's socket, and the other end. eventlet removes ``poll``."""
    if request.param == "select":
        monkeypatch.delattr(select, "poll")
    here, there = socket.socketpair()
    with here, there:
        yield timed(Opened)(here)._connect(), there
    set_deadline(float("inf"))


def test_what_was_sent_is_read(ends: tuple[Any, socket.socket]) -> None:
    here, there = ends
    set_deadline(time.monotonic() + FAR_S)
    here.sendall(b"ping")
    assert there.recv(100) == b"ping"
    there.sendall(b"pong")
    assert here.recv(100) == b"pong"
    there.sendall(b"again")
    buffer = bytearray(100)
    assert here.recv_into(buffer) == 5
    assert bytes(buffer[:5]) == b"again"


def test_without_a_deadline_it_waits(ends: tuple[Any, socket.socket]) -> None:
    here, there = ends
    set_deadline(float("inf"))
    threading.Thread(target=there.sendall, args=(b"late",)).start()
    assert here.recv(100) == b"late"


def test_more_than_the_system_takes_at_once_is_sent_in_parts(ends: tuple[Any, socket.socket]) -> None:
    here, there = ends
    set_deadline(time.monotonic() + FAR_S)
    data = bytes(range(256)) * 20_000
    sending = threading.Thread(target=_send, args=(here, data))
    sending.start()
    got = bytearray()
    while len(got) < len(data):
        got += there.recv(65_536)
    sending.join()
    assert got == data


def _send(sock: Any, data: bytes) -> None:
    set_deadline(time.monotonic() + FAR_S)  # each thread has its own
    sock.sendall(data)


def test_nothing_is_read_or_written_after_the_deadline(ends: tuple[Any, socket.socket]) -> None:
    here, there = ends
    there.sendall(b"there")
    set_deadline(time.monotonic())
    for call in (lambda: here.sendall(b"x"), lambda: here.recv(100), lambda: here.recv_into(bytearray(100))):
        with pytest.raises(TimeoutError):
            call()


def test_a_silent_server_ends_the_wait_at_the_deadline(ends: tuple[Any, socket.socket]) -> None:
    here, _ = ends
    set_deadline(time.monotonic() + 0.02)
    with pytest.raises(TimeoutError):
        here.recv(100)


def test_a_server_that_reads_nothing_ends_the_wait_at_the_deadline(ends: tuple[Any, socket.socket]) -> None:
    here, _ = ends
    set_deadline(time.monotonic() + 0.02)
    with pytest.raises(TimeoutError):
        here.sendall(bytes(50_000_000))


def test_what_turns_out_not_to_be_there_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()

    class Hasty:
        """Says at first that there is something to read, when there is nothing."""

        def __init__(self) -> None:
            self._look, self._asked = select.poll(), 0

        def register(self, *args: Any) -> None:
            self._look.register(*args)

        def poll(self, wait_ms: int | None) -> Any:
            self._asked += 1
            if self._asked % 2:
                return [(here.fileno(), select.POLLIN)]
            there.sendall(b"now")
            return self._look.poll(wait_ms)

    monkeypatch.setattr(deadline, "new_poll", Hasty)
    with here, there:
        sock = timed(Opened)(here)._connect()
        set_deadline(time.monotonic() + FAR_S)
        assert sock.recv(100) == b"now"
        buffer = bytearray(3)
        assert sock.recv_into(buffer) == 3
        assert buffer == b"now"
    set_deadline(float("inf"))


def test_what_nobody_asked_for_is_not_taken_for_the_next_reply(ends: tuple[Any, socket.socket]) -> None:
    here, there = ends
    here.read_replies(ValueError)
    there.sendall(b"+OK\r\n")
    assert here.reply() == b"OK"
    assert not here.has_something()
    there.sendall(b"+OK\r\n+not asked for")
    assert here.reply() == b"OK"
    assert here.has_something()


@pytest.mark.parametrize("text", ["MOVED", "MOVED here", "MOVED 1 host", "ASK x:y"])
def test_a_redirection_without_a_node_is_none_of_redis(ends: tuple[Any, socket.socket], text: str) -> None:
    here, there = ends
    here.read_replies(_RESP2Parser.parse_error)
    there.sendall(f"-{text}\r\n".encode())
    assert isinstance(here.reply(), InvalidResponse)
