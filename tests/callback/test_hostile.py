"""Receivers that do all they can to be costly: each call ends in time, and keeps next to nothing."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from streamdq.callback import CallbackSettings
from streamdq.callback.client import MOST_REPLY_BYTES, CallbackTimeout, CallbackUnreachable, Client
from streamdq.callback.lookup import Lookup
from streamdq.callback.target import Targets
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, Request, answer
from tests.callback.test_refused import to_loopback
from tests.redis.harness import Space
from tests.waiting import HANG_S, forever

REPLY_S = 0.2
MOST_KEPT_BYTES = 2_000_000  # what both sides of the connection keep, in this one process
CHUNK = b"x" * 65_536
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr("streamdq.callback.client._REPLY_S", REPLY_S)
    async with Client(Targets(["127.0.0.1"]), CallbackSettings(), 10) as client:
        yield client


async def endless(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
    await forever()


async def slow_head(_request: Request, writer: asyncio.StreamWriter) -> None:
    for byte in OK + b"Content-Length: 0\r\n":
        writer.write(bytes([byte]))
        await asyncio.sleep(0.005)
    await forever()


async def endless_informational(_request: Request, writer: asyncio.StreamWriter) -> None:
    await endless(writer, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000)


async def huge_header(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"X: ")
    await endless(writer, CHUNK)


async def endless_headers(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    await endless(writer, b"X-A: b\r\n" * 8000)


async def huge_status_line(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 ")
    await endless(writer, CHUNK)


async def no_http(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    await endless(writer, CHUNK)


async def hangs_up(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def hangs_up_half_way(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Content-Le")
    writer.close()


async def broken_chunks(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n")
    await forever()


@pytest.mark.parametrize(
    ("speak", "error"),
    [
        (silent, CallbackTimeout),
        (slow_head, CallbackTimeout),
        (endless_informational, CallbackUnreachable),
        (huge_header, CallbackUnreachable),
        (endless_headers, CallbackUnreachable),
        (huge_status_line, CallbackUnreachable),
        (no_http, CallbackUnreachable),
        (broken_chunks, CallbackUnreachable),
        (hangs_up, CallbackUnreachable),
        (hangs_up_half_way, CallbackUnreachable),
    ],
)
async def test_no_status_in_time_is_a_failure(
    client: Client, receiver: Receiver, speak: object, error: type[Exception]
) -> None:
    receiver.speak = speak  # type: ignore[assignment]
    await bounded(client, receiver, error)


async def endless_body(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"\r\n")
    await endless(writer, CHUNK)


async def endless_chunks(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    await endless(writer, b"10000\r\n" + CHUNK + b"\r\n")


async def one_huge_chunk(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n")
    await endless(writer, CHUNK)


async def one_byte_at_a_time(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Content-Length: 1000\r\n\r\n")
    await endless(writer, b"x")


async def no_body_after_all(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Content-Length: 1000\r\n\r\n")
    await forever()


async def half_a_body(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Content-Length: 1000\r\n\r\nx")
    writer.close()


async def gzip_bomb(_request: Request, writer: asyncio.StreamWriter) -> None:
    packer = zlib.compressobj(wbits=31)  # a part at a time: this process's memory is what the test looks at
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(50)) + packer.flush()
    writer.write(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb))
    writer.write(bomb)
    await forever()


@pytest.mark.parametrize(
    "speak",
    [
        endless_body, endless_chunks, one_huge_chunk, one_byte_at_a_time, no_body_after_all, half_a_body,
        gzip_bomb,
    ],
)  # fmt: skip
async def test_what_comes_after_the_status_changes_nothing(client: Client, receiver: Receiver, speak: object) -> None:
    receiver.speak = speak  # type: ignore[assignment]
    await bounded(client, receiver, None)
    # Such a connection is not used again.
    assert len(client._trusted.connector._conns if client._trusted.connector else [1]) == 0


async def bounded(client: Client, receiver: Receiver, error: type[Exception] | None) -> None:
    """One call that ends so, in little memory. Only who is to be given up is given up soon."""
    timeout_s = 0.2 if error is CallbackTimeout else HANG_S
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async with asyncio.timeout(HANG_S):
            if error is None:
                assert (await client.post(URL(receiver.url), {}, b"1", timeout_s)).status == 200
            else:
                with pytest.raises(error):
                    await client.post(URL(receiver.url), {}, b"1", timeout_s)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < MOST_KEPT_BYTES


async def test_a_short_reply_keeps_its_connection_and_a_long_one_does_not(client: Client, receiver: Receiver) -> None:
    receiver.reply = answer(200, body="x" * (MOST_REPLY_BYTES - 1))
    for _ in range(3):
        await client.post(URL(receiver.url), {}, b"1", HANG_S)
    assert receiver.connections == 1
    receiver.reply = answer(200, body="x" * 4_000_000)
    for _ in range(3):
        await client.post(URL(receiver.url), {}, b"1", HANG_S)
    assert receiver.connections == 3


async def test_cookies_are_not_kept(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookup, "resolve", to_loopback)  # a cookie jar takes none from an address
    receiver.reply = answer(200, "Set-Cookie: session=1; Path=/")
    async with Client(Targets(["shop.example"]), CallbackSettings(), 10) as client:
        for _ in range(2):
            await client.post(URL(f"http://shop.example:{receiver.port}/"), {}, b"1", HANG_S)
    assert "cookie" not in receiver.requests[1].headers


async def test_a_call_ends_before_its_ttr_and_the_job_takes_its_step(
    space: Space, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_s: list[float] = []

    async def late(_client: Client, url: URL, _headers: object, _body: bytes, timeout_s: float, **_: object) -> None:
        given_s.append(timeout_s)
        raise CallbackTimeout(f"no answer from {url.raw_host} in time")

    monkeypatch.setattr(Client, "post", late)
    space.queue.enqueue("t", 1, id="j1", url=receiver.url, ttr="10h", retry="1h")
    async with space.serving(caller(space, "t", timeout_s=100 * 3600)):
        await space.becomes("j1", "delayed")
    progress = space.job("j1").groups["default"]
    assert (progress.attempt, progress.step) == (1, 1)
    assert progress.error == "CallbackTimeout: no answer from 127.0.0.1 in time"
    assert 8 * 3600 < given_s[0] < 9.1 * 3600


async def test_a_worker_that_stops_hands_back_the_jobs_under_way(space: Space, receiver: Receiver) -> None:
    receiver.speak = silent
    space.queue.enqueue("t", 1, id="j1", url=receiver.url)
    async with space.serving(caller(space, "t")):
        await receiver.count(1)
    assert space.job("j1").groups["default"].attempt == 0
    assert space.stats().ready == 1
