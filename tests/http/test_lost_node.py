"""A Cluster of which one primary is lost: what can be read is shown, and what can't is marked as such."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from streamdq import NewJob, Queue
from streamdq.cli import app as cli
from streamdq.config import Settings
from streamdq.http import create_app
from streamdq.keys import NamespaceKeys, shard_of
from tests.conftest import BINARIES
from tests.http.harness import NAMESPACE
from tests.servers import Cluster, Server

SHARDS, JOBS = 12, 60
KEYS = NamespaceKeys(NAMESPACE)


@pytest.fixture
def breakable() -> Iterator[Cluster]:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Cluster(BINARIES[-1], partial=True) as cluster:
        with Queue(cluster.url, NAMESPACE) as queue:
            queue.configure("t", shards=SHARDS)
            queue.enqueue_many("t", (NewJob(n, id=f"j{n}", delay="10m") for n in range(JOBS)))
        yield cluster


@pytest.fixture
async def client(breakable: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(
        breakable.url, NAMESPACE, authentication="mine", settings=Settings(url="memory://unused", call_timeout_s=2)
    )
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost", timeout=60) as opened,
    ):
        yield opened


def node_of(cluster: Cluster, key: str) -> Server:
    with cluster.client() as client:
        port = client.get_node_from_key(key).port
    return next(node for node in cluster.nodes if node.port == port)


@pytest.mark.thorough
@pytest.mark.parametrize("with_the_registry", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_what_can_be_read_is_shown(
    breakable: Cluster, client: httpx.AsyncClient, with_the_registry: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await client.get("/v1/stats")).json()["topics"]["t"]["unreachable"] == 0
    assert "not reachable" not in (await client.get("/")).text
    of_shards = {number: node_of(breakable, KEYS.shard("t", number).jobs) for number in range(SHARDS)}
    registry = node_of(breakable, KEYS.topics)
    down = registry if with_the_registry else next(node for node in breakable.nodes if node is not registry)
    gone = {number for number, node in of_shards.items() if node is down}
    left = [f"j{n}" for n in range(JOBS) if shard_of(f"j{n}", SHARDS) not in gone]
    assert 0 < len(gone) < SHARDS
    down.kill()

    stats = await client.get("/v1/stats")
    assert stats.status_code == 200, stats.text
    assert stats.json()["topics"]["t"]["unreachable"] == len(gone)
    assert stats.json()["delayed"] == len(left)
    assert (await client.get("/v1/topics")).status_code == 200
    for path in ("/", "/topics/t", "/topics/t?state=ready", "/topics/t?state=running", "/topics/t?state=dead"):
        page = await client.get(path)
        assert page.status_code == 200, page.text
        assert f"{len(gone)} of {SHARDS} shards not reachable" in page.text
    listed = re.findall(r'/jobs/(j\d+)"', (await client.get("/topics/t")).text)
    assert set(listed) <= set(left)
    assert len(listed) == min(50, len(left))
    assert (await client.get(f"/topics/t/jobs/{left[0]}")).status_code == 200
    lost = next(f"j{n}" for n in range(JOBS) if shard_of(f"j{n}", SHARDS) in gone)
    assert (await client.get(f"/topics/t/jobs/{lost}")).status_code == 503
    if not with_the_registry:
        assert cli.run(["--url", breakable.url, "stats"]) == 0
        assert f"{len(gone)} of {SHARDS} shards not reachable" in capsys.readouterr().out
