"""A shard on each real server and on fakeredis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from uuid import uuid4

import pytest

from streamdq.link.connection import forget_memory
from tests.conftest import BINARIES, EACH_BINARY
from tests.leaks import leaked_keys
from tests.lua.shard import Shard
from tests.servers import Binary, Cluster, Pool

FAKE = pytest.mark.thorough
"""It runs the scripts many times as slowly as Redis does."""


ENDS = sorted({*BINARIES[:1], *BINARIES[-1:]}, key=BINARIES.index)
"""The oldest server and the newest: of two matrices that take long."""

MOVING = [pytest.param(("moving", binary), id=f"moving-{binary.name}", marks=pytest.mark.thorough) for binary in ENDS]
"""Every script test once more on a Cluster's slot that is MIGRATING (tests/lua/moving.py)."""

CUT = [pytest.param(("cut", binary), id=f"cut-{binary.name}", marks=pytest.mark.thorough) for binary in ENDS]
"""And with each script ended after each of its writes (tests/lua/cut_short.py)."""


@pytest.fixture(scope="session")
def clusters() -> Iterator[Callable[[Binary], Cluster]]:
    """A Cluster of each binary, started when first asked for."""
    with ExitStack() as running:
        yield cache(lambda binary: running.enter_context(Cluster(binary)))


@pytest.fixture(params=[*EACH_BINARY, pytest.param("memory", id="fakeredis", marks=FAKE), *MOVING, *CUT])
def url(request: pytest.FixtureRequest, servers: Pool, clusters: Callable[[Binary], Cluster]) -> Iterator[str]:
    """An empty server of each kind in turn."""
    if request.param == "memory":
        url = f"memory://{uuid4().hex}"
        yield url
        forget_memory(url)
    elif isinstance(request.param, tuple) and request.param[0] == "cut":
        server = servers[request.param[1]]
        server.flush()
        yield f"{server.url}#cut"
    elif isinstance(request.param, tuple):
        cluster = clusters(request.param[1])
        cluster.flush()
        yield cluster.url
        for node in cluster.nodes:
            with node.client() as client:
                assert leaked_keys(client) == []
    else:
        server = servers[request.param]
        server.flush()
        yield server.url
        with server.own_client() as client:
            assert leaked_keys(client) == []


@pytest.fixture
def shard(url: str) -> Iterator[Shard]:
    """A topic with the group `default`, on each server in turn."""
    opened = Shard(url)
    yield opened
    opened.close()


@pytest.fixture
def timed(url: str) -> Iterator[Shard]:
    """The same with Redis's own clock."""
    opened = Shard(url, real_time=True)
    yield opened
    opened.close()


@pytest.fixture
def two(shard: Shard) -> Shard:
    """A topic with two groups, `a` and `b`; calls without a group mean `a`."""
    shard.topic(groups=["a", "b"])
    shard.group = "a"
    return shard
