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

from ..process.logs import log
from ..process.loop import cancel_and_wait
from .limits import Connection, Crowd

_SHUTDOWN_S = 2.0  # how long a caller has for the TLS shutdown
_NO_FILES_PAUSE_S = 0.1


@dataclass(eq=False, slots=True)
class _Shaking:
    """A connection during its handshake, for the crowd."""

    task: asyncio.Task[None] | None = None

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Handshakes:
    """Accepts connections at one listening socket, which its owner closes. A handshake may take ``timeout_s``; then
    ``made`` creates the connection's protocol. Its argument is the object under which the crowd knew the connection.
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
        """Accepts no more connections; those with a complete handshake go on."""
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
            connection.close()  # without a reason, which would need a handshake
            return
        counted.task = self._loop.create_task(self._shake(connection, counted))
        self._shaking.add(counted.task)
        counted.task.add_done_callback(self._shaking.discard)

    async def _shake(self, connection: socket.socket, counted: _Shaking) -> None:
        try:
            with contextlib.suppress(OSError):  # not TLS, not in time, or the caller has left
                await self._loop.connect_accepted_socket(
                    lambda: self._made(counted),
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=self._timeout_s,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
        finally:
            self._crowd.leave(counted)
