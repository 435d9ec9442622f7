"""A receiver of callbacks that costs next to nothing, and a minimal client to call it; each is its own process."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import aiohttp

from .timers import run

_REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class _Receiver(asyncio.Protocol):
    """Reads a request only to find its end, and answers; or never answers."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self._read) < end + 4 + size:
                return
            self._read = self._read[end + 4 + size :]
            if not self._silent:
                self._transport.write(_REPLY)


def receive(url: str, silent: bool) -> None:
    """Runs the receiver until SIGTERM. ``silent``: it accepts requests and never answers."""
    run(_receive(urlsplit(url).port, silent))


async def _receive(port: int | None, silent: bool) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await loop.create_server(lambda: _Receiver(silent), "127.0.0.1", port, backlog=1000)
    await stop.wait()


def post(url: str, log: Path, count: int, connections: int, body: str) -> None:
    """Posts as fast as it can, and logs how many seconds it took."""
    log.write_text(f"{json.dumps(run(_post(url, count, connections, body.encode())))}\n", encoding="utf-8")


async def _post(url: str, count: int, connections: int, body: bytes) -> float:
    left = iter(range(count))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:

        async def one_after_another() -> None:
            for _ in left:
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                    await response.read()

        started = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(connections)))
        return time.perf_counter() - started
