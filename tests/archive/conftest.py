"""One Redis, and each database in turn; after every test the accounts must balance and no receipt may be left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.archive import Archive
from tests.archive.letters import receipts
from tests.databases import first_with_sqlite
from tests.postgres import Postgres
from tests.servers import Server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first_with_sqlite(items, Path(__file__).parent)


@pytest.fixture
def server(newest: Server) -> Server:
    return newest


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    with Queue(server.url) as opened:
        yield opened
        audit = opened.audit()
        assert audit.balanced, audit
        assert receipts(server) == []


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/dead.db"
    server: Postgres = request.getfixturevalue("postgres")
    server.empty()
    return server.url()


@pytest.fixture
def archive(database: str) -> Iterator[Archive]:
    with Archive(database) as opened:
        yield opened
