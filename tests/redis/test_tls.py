"""``rediss://``: a node that speaks TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.errors import ServerUnavailable
from tests.certificates import certificate
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, taken
from tests.redis.proxies import Losing, proxy
from tests.servers import Binary, Server, binaries, free_port
from tests.waiting import HANG_S, eventually

SPEAKING_TLS = [pytest.param(binary, id=binary.name) for binary in binaries() if binary.speaks_tls]


class Secured(NamedTuple):
    server: Server
    port: int
    authority: Path

    def url(self, port: int | None = None) -> str:
        return f"rediss://127.0.0.1:{port or self.port}/0?ssl_ca_certs={self.authority}"

    def connections(self) -> int:
        """Made by others than this, ever."""
        with self.server.client() as client:
            return int(client.info("stats")["total_connections_received"]) - 1

    async def has_closed(self, but: int = 0) -> None:
        """Closing takes TLS a round trip, which an event loop must be there for."""
        with self.server.client() as client:
            await eventually(lambda: len(client.client_list()) - 1 <= but, "connections are closed")

    def count_anew(self) -> None:
        with self.server.client() as client:
            client.config_resetstat()


@pytest.fixture(scope="module", params=SPEAKING_TLS)
def listening(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    binary: Binary = request.param
    cert, key = certificate(tmp_path_factory.mktemp("tls"), "redis")
    options = {"tls-cert-file": str(cert), "tls-key-file": str(key), "tls-ca-cert-file": str(cert)}
    port = free_port()
    with Server(binary, options={"tls-port": str(port), "tls-auth-clients": "no", **options}) as server:
        yield Secured(server, port, cert)


@pytest.fixture
def secured(listening: Secured) -> Secured:
    listening.server.flush()
    listening.count_anew()
    return listening


LARGE = "x" * 200_000


async def test_certificates_are_read_beside_the_event_loop(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    original, read_in = ssl.create_default_context, set[threading.Thread]()

    def reading() -> ssl.SSLContext:
        read_in.add(threading.current_thread())
        return original()

    monkeypatch.setattr(ssl, "create_default_context", reading)
    async with AsyncQueue(secured.url(), NAMESPACE, settings=SETTINGS) as queue:
        await queue.enqueue("t", 1, delay="1h")
    assert read_in
    assert threading.current_thread() not in read_in


@pytest.mark.parametrize("content", [b"", None])
async def test_certificates_are_read_anew_for_each_connection(
    secured: Secured, tmp_path: Path, content: bytes | None
) -> None:
    """They are replaced while a program runs."""
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(secured.authority.read_bytes())
    url = f"rediss://127.0.0.1:{secured.port}/0?ssl_ca_certs={trusted}"
    async with AsyncQueue(url, NAMESPACE, settings=Space.quick()) as queue:

        async def answers() -> bool:
            with contextlib.suppress(ServerUnavailable):
                await queue.stats()
                return True
            return False

        async with asyncio.timeout(HANG_S):
            while not await answers():
                pass
            trusted.unlink() if content is None else trusted.write_bytes(content)
            with secured.server.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(ServerUnavailable, match="its certificates"):
                await queue.stats()
            trusted.write_bytes(secured.authority.read_bytes())
            while not await answers():
                pass


def test_a_queue_keeps_its_connection(secured: Secured) -> None:
    """What TLS sends on its own account does not make it look closed, and what is large is written in parts."""
    with Queue(secured.url(), NAMESPACE, settings=SETTINGS) as queue:
        for n in range(20):
            queue.enqueue("t", n, id=f"j{n}")
        queue.enqueue_many("large", [NewJob([n, LARGE]) for n in range(30)])
        assert queue.get("t", "j7") is not None
        assert secured.connections() == 1
        with secured.server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert queue.cancel("t", "j7") is True  # it can't be sent twice: that the connection was closed is seen before


def test_jobs_are_taken(secured: Secured) -> None:
    with Queue(secured.url(), NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("large", LARGE, delay="50ms")
        claim = taken(queue, "large")
        assert claim.job.body == LARGE
        claim.finish()
        assert queue.audit().balanced


async def test_an_async_queue_keeps_its_connection(secured: Secured) -> None:
    async with AsyncQueue(secured.url(), NAMESPACE, settings=SETTINGS) as queue:
        for n in range(20):
            await queue.enqueue("t", [n, LARGE])
        assert secured.connections() == 1
        await asyncio.gather(*(queue.enqueue("t", n) for n in range(200)))
    await secured.has_closed()


async def test_a_worker_runs_jobs(secured: Secured, seen: Seen) -> None:
    with contextlib.closing(Space(secured.url())) as space:
        worker = space.recording(seen)
        async with space.serving(worker):
            space.queue.enqueue("t", LARGE)
            space.queue.enqueue("t", "later", delay="100ms")
            assert await seen.count(2) == [LARGE, "later"]
        await secured.has_closed(but=1)


def test_a_reply_that_is_lost(secured: Secured) -> None:
    with proxy(secured.port) as between, Queue(secured.url(between.port), NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", 1)
        between.filter = losing = Losing(b"")
        queue.enqueue("t", 2)
        assert losing.dropped == 1
        assert queue.stats().ready == 2


def test_a_certificate_of_another_authority_is_refused(secured: Secured, tmp_path: Path) -> None:
    other, _ = certificate(tmp_path, "other")
    url = secured._replace(authority=other).url()
    soon = SETTINGS.model_copy(update={"call_timeout_s": 1.0})
    with Queue(url, NAMESPACE, settings=soon) as queue, pytest.raises(ServerUnavailable, match="CERTIFICATE"):
        queue.enqueue("t", 1)
