"""One Redis with a queue, and what an erasure reaches beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamdq import Queue
from tests.postgres import Postgres
from tests.servers import Server


@pytest.fixture
def queue(newest: Server) -> Iterator[Queue]:
    with Queue(newest.url) as opened:
        yield opened
        assert opened.audit().balanced


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('database')}/jobs.db"
    server: Postgres = request.getfixturevalue("postgres")
    server.empty()
    return server.url()
