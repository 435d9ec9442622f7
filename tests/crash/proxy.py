"""A failing network between the workers and Redis."""

import contextlib
import random
import socket
import threading
from typing import Self


class Connection:
    """One client's connection, forwarded in both directions until it is cut."""

    def __init__(self, client: socket.socket, port: int) -> None:
        self.loses_replies = False  # Redis's answers get lost
        self.mute = False  # Redis gets nothing
        self.cut_off = False
        self._client = client
        self._server = socket.create_connection(("127.0.0.1", port))
        for side in (client, self._server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._forward, args=(client, self._server), daemon=True).start()
        threading.Thread(target=self._forward, args=(self._server, client), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not (self.loses_replies if source is self._server else self.mute):
                    target.sendall(data)
        self.cut()

    def cut(self) -> None:
        self.cut_off = True
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)  # wakes the threads that read from it
            side.close()


class Proxy:
    """Forwards connections to a port on this machine. It only fails with ``trouble``, ``swallow`` or ``pull``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[Connection] = []
        self._pulled = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                connection = Connection(client, self._port)
                connection.loses_replies = connection.mute = self._pulled
                self._connections.append(connection)

    @property
    def open(self) -> list[Connection]:
        return [connection for connection in self._connections if not connection.cut_off]

    def trouble(self, seed: int, times: int, lost_replies: bool) -> None:
        """Lets a connection fail ``times`` times, a few milliseconds apart: it is cut; with ``lost_replies``, it first
        gets no answer to its commands.
        """
        chance, pause = random.Random(seed), threading.Event()
        while times:
            pause.wait(chance.uniform(0.005, 0.05))
            if candidates := self.open:
                times -= 1
                victim = chance.choice(candidates)
                if lost_replies:
                    victim.loses_replies = True
                    pause.wait(chance.uniform(0.001, 0.03))
                victim.cut()

    def swallow(self) -> None:
        """From now on, open connections get no more data; they are not closed either."""
        for connection in self.open:
            connection.loses_replies = True

    def pull(self) -> None:
        """From now on, nothing arrives in either direction, and no connection is closed."""
        self._pulled = True
        for connection in self.open:
            connection.loses_replies = connection.mute = True

    def plug_in(self) -> None:
        """What was sent meanwhile stays lost, and so do its connections."""
        self._pulled = False
        for connection in self.open:
            connection.cut()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.open:
            connection.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
