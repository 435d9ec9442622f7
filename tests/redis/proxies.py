"""A TCP proxy that misbehaves as told, and servers that are no Redis."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Given the bytes of one read and whether they go to Redis: pass on what is returned; None: end the connection.
Filter = Callable[[bytes, bool], bytes | None]


def pass_on(data: bytes, _to_redis: bool) -> bytes:
    return data


class Proxy:
    """Stands between a client and Redis. ``filter`` may be changed at any time."""

    def __init__(self, port: int, filter: Filter = pass_on) -> None:
        self.filter = filter
        self.connections = 0
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for source, sink, to_redis in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, to_redis), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, to_redis: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                passed = self.filter(data, to_redis)
                if passed is None:
                    break
                sink.sendall(passed)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def lead_to(self, port: int) -> None:
        """New connections reach another server; those that are open go on."""
        self._target = ("127.0.0.1", port)

    def close(self) -> None:
        """Ends the listener and every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            end.close()


@contextmanager
def proxy(port: int, filter: Filter = pass_on) -> Iterator[Proxy]:
    running = Proxy(port, filter)
    try:
        yield running
    finally:
        running.close()


class Losing:
    """Drops the connection instead of passing on the first ``count`` replies to requests that contain ``word``."""

    def __init__(self, word: bytes, count: int = 1) -> None:
        self.word = word
        self.left = count
        self.dropped = 0
        self._armed = False

    def __call__(self, data: bytes, to_redis: bool) -> bytes | None:
        if to_redis:
            self._armed = self.left > 0 and self.word in data
            return data
        if self._armed:
            self._armed = False
            self.left -= 1
            self.dropped += 1
            return None
        return data


@contextmanager
def speaking(answer: bytes) -> Iterator[str]:
    """A server of another kind: answers ``answer`` to whatever it is sent. Yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
