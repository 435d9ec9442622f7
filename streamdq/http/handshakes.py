"""Accepts TLS connections. Each counts among the server's connections from the start. asyncio's own servers report a
connection only after its handshake, and wait a minute for that, so strangers who send nothing would use up every open
file.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from ..logs import log
from ..loop import cancel_and_wait
from .limits import Connection, Crowd

_SHUTDOWN_S = 2.0  # so long a caller has to say goodbye
_NO_FILES_PAUSE_S = 0.1


@dataclass(eq=False, slots=True)
class _Shaking:
    """A connection that has not shaken hands yet, as the crowd knows it."""

    task: asyncio.Task[None] | None = None

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Handshakes:
    """Accepts at one listening socket, which stays its owner's to close. ``made``: what speaks with a connection, once
    it has shaken hands, for which it has ``timeout_s``; it is passed as what the crowd knows the connection until then.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        crowd: Crowd,
        timeout_s: float,
        made: Callable[[Connection], asyncio.Protocol],
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._context = context
        self._crowd = crowd
        self._timeout_s = timeout_s
        self._made = made
        self._loop = asyncio.get_running_loop()
        self._shaking: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept())

    async def close(self) -> None:
        """No more connections; those that have shaken hands go on."""
        await cancel_and_wait([self._accepting])
        await cancel_and_wait(self._shaking)

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listening)
            except OSError as error:
                log.warning("connection not accepted", error=error.strerror)
                await asyncio.sleep(_NO_FILES_PAUSE_S)
                continue
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        counted = _Shaking()
        if not self._crowd.enter(counted, self._loop.time()):
            self._crowd.leave(counted)
            connection.close()  # it can't be told why: that would take a handshake, too
            return
        counted.task = self._loop.create_task(self._shake(connection, counted))
        self._shaking.add(counted.task)
        counted.task.add_done_callback(self._shaking.discard)

    async def _shake(self, connection: socket.socket, counted: _Shaking) -> None:
        try:
            with contextlib.suppress(OSError):  # no TLS, not in time, or the caller has left
                await self._loop.connect_accepted_socket(
                    lambda: self._made(counted),
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=self._timeout_s,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
        finally:
            self._crowd.leave(counted)
