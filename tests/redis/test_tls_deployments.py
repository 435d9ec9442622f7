"""TLS on a Cluster and behind Sentinel, and the sentinels' own password."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import redis

from streamdq import AsyncQueue, Queue, UnsupportedServer
from streamdq.errors import ServerUnavailable
from tests.certificates import certificate
from tests.redis.harness import NAMESPACE, SETTINGS
from tests.servers import Binary, Server, binaries, free_port
from tests.waiting import until

SPEAKING_TLS = [pytest.param(binary, id=binary.name) for binary in binaries() if binary.speaks_tls]
SERVICE = "shop"


@pytest.fixture(params=SPEAKING_TLS)
def tls_binary(request: pytest.FixtureRequest) -> Binary:
    found: Binary = request.param
    return found


@pytest.fixture
def secured(tmp_path: Path) -> dict[str, str]:
    """Options of a server that speaks TLS on a port of its own."""
    cert, key = certificate(tmp_path, "redis")
    return {
        "tls-port": str(free_port(10_000)), "tls-auth-clients": "no", "tls-replication": "yes",
        "tls-cert-file": str(cert), "tls-key-file": str(key), "tls-ca-cert-file": str(cert),
    }  # fmt: skip


def ports_used(server: Server) -> set[str]:
    """Those at which others than this are connected."""
    with server.client() as client:
        own = client.client_id()
        return {one["laddr"].rpartition(":")[2] for one in client.client_list() if int(one["id"]) != own}


async def works(url: str) -> None:
    """A job's way, both ways of calling."""
    with Queue(url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", {"n": 1}, id="a")
        with queue.take("t") as claim:
            assert claim
            assert claim.job.id == "a"
        async with AsyncQueue(url, NAMESPACE, settings=SETTINGS) as other:
            await other.enqueue("t", {"n": 2}, id="b", delay="1h")
            assert (await other.stats()).delayed == 1
        assert queue.audit().balanced


@pytest.fixture
def tls_cluster(tls_binary: Binary, secured: dict[str, str]) -> Iterator[Server]:
    """One primary that serves every slot."""
    options = {**secured, "cluster-enabled": "yes", "tls-cluster": "yes"}
    with Server(tls_binary, options=options) as server:
        with server.client() as client:
            for first in range(0, 16_384, 1024):
                client.execute_command("CLUSTER ADDSLOTS", *range(first, first + 1024))
            until(lambda: client.cluster("INFO")["cluster_state"] == "ok", "the slots are served")
        yield server


async def test_a_cluster(tls_cluster: Server) -> None:
    port, authority = tls_cluster.options["tls-port"], tls_cluster.options["tls-ca-cert-file"]
    url = f"rediss+cluster://127.0.0.1:{port}?ssl_ca_certs={authority}"
    with Queue(url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", {"n": 0}, id="first")
        assert ports_used(tls_cluster) == {port}
        assert queue.cancel("t", "first")
    await works(url)


@contextlib.contextmanager
def sentinel(binary: Binary, folder: Path, primary: Mapping[str, str], own_password: str) -> Iterator[int]:
    """The port of one sentinel that watches the primary by TLS, and asks for a password of its own."""
    port = free_port()
    lines = [
        "port 0", f"tls-port {port}", "bind 127.0.0.1", f"dir {folder}", "tls-auth-clients no", "tls-replication yes",
        *(f"{name} {primary[name]}" for name in ("tls-cert-file", "tls-key-file", "tls-ca-cert-file")),
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary['tls-port']} 1",
        f"sentinel auth-pass {SERVICE} {primary['requirepass']}", f"requirepass {own_password}",
    ]  # fmt: skip
    (folder / "sentinel.conf").write_text("\n".join(lines), encoding="utf-8")
    process = subprocess.Popen(
        [binary.path, folder / "sentinel.conf", "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.thorough
async def test_sentinel_with_a_password_of_its_own(tls_binary: Binary, secured: dict[str, str], tmp_path: Path) -> None:
    options = {**secured, "requirepass": "ofnodes"}
    authority = secured["tls-ca-cert-file"]
    with (
        Server(tls_binary, options=options) as server,
        sentinel(tls_binary, tmp_path, options, "ofsentinels") as port,
    ):
        own = {"ssl": True, "ssl_ca_certs": authority, "password": "ofsentinels"}
        until(lambda: _names_a_primary(port, own), "the sentinel names the primary")
        base = f"rediss+sentinel://:ofnodes@127.0.0.1:{port}/{SERVICE}?ssl_ca_certs={authority}"
        await works(f"{base}&db=3&sentinel_password=ofsentinels")
        with server.client() as client:
            assert set(client.info("keyspace")) == {"db3"}
        with Queue(base, NAMESPACE, settings=SETTINGS) as queue, pytest.raises(ServerUnavailable) as error:
            queue.stats()
        assert "sentinel" in str(error.value)


def _names_a_primary(port: int, options: dict[str, object]) -> bool:
    with contextlib.suppress(redis.RedisError), redis.Redis("127.0.0.1", port, **options) as client:  # type: ignore[arg-type]
        return bool(client.sentinel_get_master_addr_by_name(SERVICE))
    return False


def test_a_database_that_redis_does_not_have(redis_server: Server) -> None:
    url = redis_server.url.removesuffix("/0") + "/99"
    with Queue(url, NAMESPACE, settings=SETTINGS) as queue, pytest.raises(UnsupportedServer) as error:
        queue.stats()
    assert "no database" in str(error.value)
