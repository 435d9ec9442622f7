"""One deadline for everything that a synchronous call does on sockets.

redis-py's time-outs apply to each connect, read and write: a server that answers byte by byte, or a handshake with four
replies, takes a multiple of them. Here everything that a thread connects, reads and writes counts against the one
deadline of its call, on any connection, a sentinel's as well as the node's. Only a host name's lookup is not bounded.

Calls also read their replies here: the way through redis-py's layers takes several times as long as the parsing does.
redis-py reads those of the handshake.
"""

from __future__ import annotations

import math
import select
import socket
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import hiredis
from redis.exceptions import InvalidResponse

POLLIN, POLLOUT = 1, 4  # POSIX leaves their values open; every system has these
_SHORTEST_S = 0.001  # 0 would mean: don't wait at all
_FOREVER = float("inf")
_READ_BYTES = 65_536
_NOTHING = object()


class _Calling(threading.local):
    deadline = _FOREVER


_calling = _Calling()


def set_deadline(deadline: float) -> None:
    """Sets this thread's deadline, by ``time.monotonic``, until it is set again."""
    _calling.deadline = deadline


def _left_s(own_s: float | None) -> float | None:
    left_s = max(_SHORTEST_S, _calling.deadline - time.monotonic())
    if own_s is not None:
        return min(own_s, left_s)
    return left_s if left_s != _FOREVER else None


class _Select:
    """The same with ``select``, for programs in which ``poll`` is missing: eventlet removes it, as it would block all
    others.
    """

    def __init__(self) -> None:
        self._read: list[Any] = []
        self._write: list[Any] = []

    def register(self, of: Any, events: int) -> None:
        if events & POLLIN:
            self._read.append(of)
        if events & POLLOUT:
            self._write.append(of)

    def poll(self, timeout_ms: float | None = None) -> list[Any]:
        found = select.select(self._read, self._write, [], None if timeout_ms is None else timeout_ms / 1000)
        return [*found[0], *found[1]]


def new_poll() -> Any:
    """An object with ``register`` and ``poll``."""
    return select.poll() if hasattr(select, "poll") else _Select()


class _Socket:
    """A socket whose every wait ends at the deadline."""

    def __init__(self, sock: Any, own_s: float | None) -> None:
        self._sock = sock
        self._own_s = own_s
        self._timeout_s = -1.0  # the socket's; not known yet
        self._look = new_poll()
        self._look.register(sock, POLLIN)
        self._reader: Any = None

    def read_replies(self, error_of: Callable[[str], Exception]) -> None:
        """From now on, ``reply`` reads all that comes. ``error_of`` makes the exception of an error reply."""
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=partial(_as_error, error_of), notEnoughData=_NOTHING
        )

    def reply(self) -> Any:
        """The next reply; an error reply is returned as an exception.

        Raises:
            OSError: it did not come by the deadline, or the connection is closed.
            InvalidResponse: this is not Redis's protocol.
        """
        reader = self._reader
        reply = reader.gets()
        while reply is _NOTHING:
            data = self.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            reader.feed(data)
            reply = reader.gets()
        return reply

    def has_something(self) -> bool:
        """Whether there is something to read, or the server has closed the connection, or this side has; or something
        came along with the last reply, which would be taken for the next one.
        """
        return bool(self._look.poll(0)) or self._reader.has_data()

    def _wait(self) -> None:
        left_s = _calling.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no time left")
        if self._own_s is not None:
            left_s = min(left_s, self._own_s)
        if abs(left_s - self._timeout_s) > _SHORTEST_S:  # nearly never: setting it is a system call
            self._sock.settimeout(left_s if left_s != _FOREVER else None)
            self._timeout_s = left_s

    def fileno(self) -> int:
        descriptor: int = self._sock.fileno()
        return descriptor

    def recv(self, *args: Any) -> Any:
        self._wait()
        return self._sock.recv(*args)

    def recv_into(self, *args: Any) -> Any:
        self._wait()
        return self._sock.recv_into(*args)

    def sendall(self, data: Any) -> None:
        self._wait()
        sent = self._sock.send(data)
        if sent == len(data):  # nearly always
            return
        left = memoryview(data)[sent:]
        while left:
            self._wait()
            left = left[self._sock.send(left) :]

    def settimeout(self, _: float | None) -> None:
        """The deadline decides."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _PlainSocket(_Socket):
    """The same without TLS. It never blocks: with a time-out, Python would first wait with another system call until it
    can write, which it nearly always can.
    """

    def __init__(self, sock: Any, own_s: float | None) -> None:
        super().__init__(sock, own_s)
        sock.setblocking(False)

    def _wait_until(self, look: Any) -> None:
        left_s = _calling.deadline - time.monotonic()
        if self._own_s is not None:
            left_s = min(left_s, self._own_s)
        if left_s <= 0 or not look.poll(None if left_s == _FOREVER else math.ceil(left_s * 1000)):
            raise TimeoutError("no time left")

    def recv(self, *args: Any) -> Any:
        while True:
            self._wait_until(self._look)
            try:
                return self._sock.recv(*args)
            except BlockingIOError:  # there was nothing to read
                continue

    def recv_into(self, *args: Any) -> Any:
        while True:
            self._wait_until(self._look)
            try:
                return self._sock.recv_into(*args)
            except BlockingIOError:
                continue

    def sendall(self, data: Any) -> None:
        if _calling.deadline <= time.monotonic():
            raise TimeoutError("no time left")
        sent = self._send(data)
        if sent == len(data):  # nearly always
            return
        left, look = memoryview(data)[sent:], new_poll()
        look.register(self._sock, POLLOUT)
        while left:
            self._wait_until(look)
            left = left[self._send(left) :]

    def _send(self, data: Any) -> int:
        try:
            sent: int = self._sock.send(data)
        except BlockingIOError:
            return 0
        return sent


class _Timed:
    """A mixin for redis-py's connection classes, which read these properties before they connect."""

    _socket_timeout: float | None = None
    _socket_connect_timeout: float | None = None

    @property
    def socket_timeout(self) -> float | None:
        return _left_s(self._socket_timeout)

    @socket_timeout.setter
    def socket_timeout(self, own_s: float | None) -> None:
        self._socket_timeout = own_s

    @property
    def socket_connect_timeout(self) -> float | None:
        return _left_s(self._socket_connect_timeout)

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, own_s: float | None) -> None:
        self._socket_connect_timeout = own_s

    def _connect(self) -> Any:
        sock = super()._connect()  # type: ignore[misc]
        return (_PlainSocket if type(sock) is socket.socket else _Socket)(sock, self._socket_timeout)


def _as_error(error_of: Callable[[str], Exception], text: str) -> Exception:
    """redis-py takes the texts of redirections apart, and raises what they may."""
    try:
        return error_of(text)
    except (ValueError, IndexError):
        return InvalidResponse(f"an error reply that is none of Redis's: {text}")


@cache
def timed(connection_class: type) -> Any:
    """The same class of connections, but each keeps the deadline of the thread that uses it."""
    return type(f"Timed{connection_class.__name__}", (_Timed, connection_class), {})
