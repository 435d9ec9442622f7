"""A receiver on loopback with hand-written HTTP, so that it can also break the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.waiting import HANG_S


@dataclass(frozen=True)
class Request:
    """A received request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Speak = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, *lines: str, body: str = "") -> bytes:
    """A complete reply; ``lines``: more headers."""
    return "\r\n".join([f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *lines, "", body]).encode()


class Receiver:
    """Answers every request with ``reply``, or has ``speak`` do it; counts connections and keeps requests."""

    def __init__(self, reply: bytes = answer(200)) -> None:
        self.reply = reply
        self.speak: Speak | None = None
        self.requests: list[Request] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.port = 0
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.requests]

    async def count(self, count: int, within_s: float = HANG_S) -> list[Request]:
        """Waits until this many requests have arrived."""
        async with asyncio.timeout(within_s):
            while len(self.requests) < count:
                self._news.clear()
                await self._news.wait()
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._exchange(reader, writer)
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, body)
        self.requests.append(request)
        self._news.set()
        if self.speak is not None:
            await self.speak(request, writer)
        else:
            writer.write(self.reply)
            await writer.drain()


@asynccontextmanager
async def receiving(
    receiver: Receiver | None = None, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """A listening receiver; connections that are still open at the end are cut."""
    receiver = receiver or Receiver()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await receiver.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio's own stream callback would complain of it
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(accept, host, receiver.port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
