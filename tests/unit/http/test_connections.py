"""What one connection may cost the server, and how long it waits for the caller."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from streamdq.http.limits import ConnectionLimiter
from streamdq.http.server import TimeoutProtocol
from tests.unit.virtual_time import in_virtual_time

ALIVE = b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\n\r\n"
KEEP_ALIVE_S = 1000


def connected(app: Any) -> tuple[TimeoutProtocol, Mock]:
    """A new connection and its transport, for a caller who reads at once."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
    config.load()
    protocol = TimeoutProtocol(config, ServerState(), {})
    protocol.limiter = ConnectionLimiter(10)
    transport = Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    transport.can_write_eof.return_value = False
    transport.get_write_buffer_size.return_value = 0
    protocol.connection_made(transport)
    return protocol, transport


async def empty(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@in_virtual_time
async def test_it_waits_ten_seconds_for_a_head() -> None:
    protocol, transport = connected(empty)
    await asyncio.sleep(9.9)
    protocol.data_received(b"GET ")  # which is no head yet
    transport.close.assert_not_called()
    await asyncio.sleep(0.2)
    transport.close.assert_called_once()
    protocol.connection_lost(None)


@in_virtual_time
async def test_it_waits_as_long_for_the_next_head_from_its_beginning_on() -> None:
    protocol, transport = connected(empty)
    protocol.data_received(ALIVE)
    await asyncio.sleep(500)
    protocol.data_received(b"GET ")
    await asyncio.sleep(9.9)
    transport.close.assert_not_called()
    await asyncio.sleep(0.2)
    transport.close.assert_called_once()
    protocol.connection_lost(None)


@in_virtual_time
async def test_who_waits_for_an_answer_is_not_slow() -> None:
    async def after_a_minute(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(60)
        await empty(scope, receive, send)

    protocol, transport = connected(after_a_minute)
    protocol.data_received(ALIVE)
    await asyncio.sleep(61)
    assert transport.write.called
    transport.close.assert_not_called()
    protocol.connection_lost(None)


@in_virtual_time
async def test_who_reads_nothing_of_an_answer_is_given_up() -> None:
    protocol, transport = connected(empty)
    for unread in (300, 200):  # as long as something is read, it goes on
        transport.get_write_buffer_size.return_value = unread
        await asyncio.sleep(10)
        transport.abort.assert_not_called()
    await asyncio.sleep(10)
    transport.abort.assert_called_once()
    protocol.connection_lost(None)


async def test_a_body_in_tiny_chunks_leaves_others_their_turn() -> None:
    """In each turn of the event loop a few are looked at, and no more is read before all have been."""
    seen = bytearray()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            seen.extend(message["body"])
            if not message["more_body"]:
                break
        await empty(_, receive, send)

    protocol, transport = connected(app)
    asked = b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    protocol.data_received(asked + b"1\r\na\r\n" * 5_000 + b"0\r\n\r\n" + ALIVE)
    most, turns = len(protocol.cycle.body), 0
    while transport.write.call_count < 4:  # both are answered
        before = len(seen)
        await asyncio.sleep(0)
        most, turns = max(most, len(seen) - before), turns + 1
        if len(seen) < 4_000:
            transport.resume_reading.assert_not_called()
    assert len(seen) == 5_000
    assert most <= 200
    assert turns >= 50
    transport.resume_reading.assert_called()
    protocol.connection_lost(None)
