"""Calls that are cancelled while they open a connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from streamdq.link.command import Command
from streamdq.link.failures import LinkError
from streamdq.link.node import AsyncConnections, ConnectionLimits
from tests.waiting import HANG_S


class _Swallows:
    """Opens all the same if it is cancelled meanwhile, as redis-py's connections through Sentinel may."""

    _reader = None

    def __init__(self) -> None:
        self.opening = asyncio.Event()
        self.sent: list[Any] = []
        self.closed = False

    async def connect(self) -> None:
        self.opening.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def send_command(self, *args: Any) -> None:
        self.sent.append(args)

    async def read_response(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def disconnect(self, *, nowait: bool) -> None:  # noqa: ARG002
        self.closed = True


async def test_a_call_that_is_cancelled_while_its_connection_opens_ends() -> None:
    connection = _Swallows()
    connections = AsyncConnections(lambda: connection, ConnectionLimits(1, 1), packed=False)
    read = asyncio.create_task(connections.send([Command("k", ("GET", "k"))], 60, blocking=True))
    await connection.opening.wait()
    read.cancel()
    done, _ = await asyncio.wait([read], timeout=HANG_S)
    assert done
    assert read.cancelled()
    assert connection.sent == []
    assert connection.closed


async def test_its_time_ends_as_well() -> None:
    connection = _Swallows()
    connections = AsyncConnections(lambda: connection, ConnectionLimits(1, 1), packed=False)
    with pytest.raises(LinkError, match="TimeoutError"):
        await asyncio.wait_for(connections.send([Command("k", ("GET", "k"))], 0.01), HANG_S)
    assert connection.closed
