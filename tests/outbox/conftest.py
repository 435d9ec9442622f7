"""One Redis, and an outbox in each kind of database; after every test the accounts must balance, and every receipt must
have its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamdq import Queue
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay
from tests.databases import first_with_sqlite
from tests.outbox.orders import Shop, ownerless_receipts
from tests.postgres import Postgres
from tests.servers import Server

if TYPE_CHECKING:
    from tests.mariadb import Mariadb

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first_with_sqlite(items, _HERE)


@pytest.fixture
def server(newest: Server) -> Server:
    return newest


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of each kind in turn, with an empty outbox."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
    else:
        server = _server(request, request.param)
        server.empty()
        url = server.url()
    rows.create(url)
    return url


@pytest.fixture
def running(request: pytest.FixtureRequest, database: str) -> Postgres | Mariadb:
    """The server of the database. A test may stop it, and start it again."""
    return _server(request, database.partition(":")[0])


def _server(request: pytest.FixtureRequest, kind: str) -> Postgres | Mariadb:
    found: Postgres | Mariadb = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
    return found


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    opened = Shop(database)
    yield opened
    opened.close()


@pytest.fixture
def queue(server: Server, shop: Shop) -> Iterator[Queue]:
    with Queue(server.url) as opened:
        yield opened
        audit = opened.audit()
        assert audit.balanced, audit
        assert ownerless_receipts(server, shop) == []


@pytest.fixture
def relay(database: str, queue: Queue) -> Iterator[Relay]:
    with Relay(database, queue) as opened:
        yield opened
