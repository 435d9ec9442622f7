"""Jobs go into the caller's own transaction, whatever it is made with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects import oracle
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from streamdq import Queue, outbox
from streamdq.errors import InvalidInput
from streamdq.outbox.relay import Relay
from streamdq.outbox.tables import now_ms
from tests.outbox.orders import TOPIC, Shop, driver_url, finish
from tests.servers import Server


def async_url(url: str) -> str:
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+asyncmy"}
    kind, _, rest = url.partition("://")
    return f"{drivers[kind]}://{rest}"


# -- SQLAlchemy


def test_a_session(shop: Shop, relay: Relay, queue: Queue) -> None:
    with Session(shop.engine) as session:
        with session.begin():
            assert outbox.enqueue(session, TOPIC, {"order_id": 42}, delay="0s", id="order-42") == "order-42"
        outbox.enqueue(session, TOPIC, {"order_id": 43})
        session.rollback()
    relay.run(burst=True)
    assert finish(queue) == ["order-42"]


def test_a_scoped_session(shop: Shop, relay: Relay, queue: Queue) -> None:
    session = scoped_session(sessionmaker(shop.engine))
    outbox.enqueue(session, TOPIC, 1, id="a")
    session.commit()
    session.remove()
    relay.run(burst=True)
    assert finish(queue) == ["a"]


def test_a_savepoint_that_is_rolled_back(shop: Shop, relay: Relay, queue: Queue) -> None:
    with Session(shop.engine) as session, session.begin():
        outbox.enqueue(session, TOPIC, 1, id="before")
        with session.begin_nested() as savepoint:
            outbox.enqueue(session, TOPIC, 1, id="never")
            savepoint.rollback()
        with session.begin_nested():
            outbox.enqueue(session, TOPIC, 1, id="nested")
    relay.run(burst=True)
    assert finish(queue) == ["before", "nested"]


def test_a_random_id_is_returned(shop: Shop, relay: Relay, queue: Queue) -> None:
    with shop.sale() as db:
        id = outbox.enqueue(db, TOPIC, 1)
    relay.run(burst=True)
    assert finish(queue) == [id]


@pytest.mark.parametrize("handle", ["session", "connection"])
async def test_async(shop: Shop, relay: Relay, queue: Queue, handle: str) -> None:
    if shop.engine.dialect.name == "sqlite":
        pytest.importorskip("aiosqlite")
    if shop.engine.dialect.name == "mysql":
        pytest.importorskip("asyncmy")
    engine = create_async_engine(async_url(shop.url))
    opened: Callable[[], AsyncSession | AsyncConnection]
    opened = async_sessionmaker(engine) if handle == "session" else engine.connect
    async with opened() as db:
        assert await outbox.enqueue(db, TOPIC, 1, id="a") == "a"
        await db.commit()
        await outbox.enqueue(db, TOPIC, 1, id="b")
        await db.rollback()
    await engine.dispose()
    relay.run(burst=True)
    assert finish(queue) == ["a"]


@pytest.mark.parametrize("handle", ["session", "connection"])
async def test_async_tables(tmp_path: Path, handle: str) -> None:
    pytest.importorskip("aiosqlite")
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/new.db")
    opened: Callable[[], AsyncSession | AsyncConnection]
    opened = async_sessionmaker(engine) if handle == "session" else engine.connect
    async with opened() as db:
        with pytest.raises(InvalidInput, match=r"await connection\.run_sync\(outbox\.create\)"):
            outbox.create(db)
        await db.run_sync(outbox.create)
        assert await outbox.enqueue(db, TOPIC, 1, id="a") == "a"
    await engine.dispose()


# -- Django


@pytest.fixture
def django_connection(shop: Shop) -> Any:
    """Django's connection to the shop's database."""
    pytest.importorskip("django")
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    url = make_url(driver_url(shop.url))
    kind = {"sqlite": "sqlite3"}.get(url.get_backend_name(), url.get_backend_name())
    if kind == "mysql":
        pytest.importorskip("pymysql").install_as_MySQLdb()
    given = {"ENGINE": f"django.db.backends.{kind}", "NAME": url.database, "USER": url.username, "PORT": url.port}
    given |= {"PASSWORD": url.password, "HOST": url.host}
    connections.settings["shop"] = connections.configure_settings({"default": given, "shop": given})["shop"]
    yield connections["shop"]
    connections["shop"].close()
    del connections["shop"]


def test_django(shop: Shop, relay: Relay, queue: Queue, django_connection: Any) -> None:
    from django.db import transaction

    with transaction.atomic(using="shop"):
        assert outbox.enqueue(django_connection, TOPIC, {"order_id": 42}, id="order-42", delay="0s") == "order-42"
        assert shop.states() == {}, "not before the commit"
    with transaction.atomic(using="shop"):
        outbox.enqueue(django_connection, TOPIC, {"percent": "100%", "quote": "'"}, id="b%s", ttr="5s")
        transaction.set_rollback(True, using="shop")
    with transaction.atomic(using="shop"):
        outbox.enqueue(django_connection, TOPIC, {"percent": "100%", "quote": "'"}, id="c%s")
    relay.run(burst=True)
    job = queue.get(TOPIC, "c%s")
    assert job is not None
    assert job.body == {"percent": "100%", "quote": "'"}
    assert finish(queue) == ["order-42", "c%s"]


def test_django_creates_it(shop: Shop, relay: Relay, queue: Queue, django_connection: Any) -> None:
    for table in ("streamdq_outbox", "streamdq_outbox_relays", "streamdq_outbox_schema"):
        shop.sql(f"DROP TABLE {table}")
    outbox.create(django_connection)
    outbox.create(django_connection)
    outbox.enqueue(django_connection, TOPIC, 1, id="a")
    with Relay(shop.url, queue) as fresh:
        fresh.run(burst=True)
    assert finish(queue) == ["a"]
    del relay


def test_ids_are_told_apart_by_every_character(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    """Case, accents and spaces at the end; also when a later row has nearly the id of one that Redis lost."""
    relay._keep = True
    ids = ["a", "A", "á", "a ", "\uff41", "ß", "ss", "😀", "😁", "x" * 255]
    shop.order(*ids)
    shop.order("o", topic="Case")
    shop.order("o", topic="case")
    relay.run(burst=True)
    server.flush()
    relay.reconcile()
    assert relay.totals.put_back == 12
    assert finish(queue) == ids
    assert [finish(queue, topic) for topic in ("Case", "case")] == [["o"], ["o"]]
    relay.reconcile()
    assert shop.states() == {}


# -- what is refused


@pytest.mark.parametrize(
    "given",
    [
        {"delay": "5 parsecs"}, {"at": "whenever"}, {"delay": 1, "at": 2}, {"id": ""}, {"id": "a\nb"}, {"ttr": 0},
        {"retry": "never mind"}, {"url": "ftp://host"}, {"expire": -1}, {"on_conflict": "panic"}, {"body": None},
        {"body": object()}, {"body": "x" * 2_000_000}, {"topic": "a b"}, {"topic": "{t}"},
    ],
    ids=lambda given: str(given)[:25],
)  # fmt: skip
def test_arguments_are_checked_as_by_the_queue(shop: Shop, queue: Queue, given: dict[str, Any]) -> None:
    arguments = {"topic": TOPIC, "body": 1, **given}
    with pytest.raises(InvalidInput) as by_queue:
        queue.enqueue(**arguments)
    with shop.engine.connect() as db:
        with pytest.raises(InvalidInput) as by_outbox:
            outbox.enqueue(db, **arguments)
        assert str(by_outbox.value) == str(by_queue.value)
        assert not db.in_transaction(), "nothing was sent"


def test_every_option_of_the_queue_is_there() -> None:
    import inspect

    from streamdq.operations.jobs import enqueue

    known = inspect.signature(outbox.enqueue).parameters
    for name, parameter in inspect.signature(enqueue.enqueue).parameters.items():
        # What is durable is the row; the relay does as the topic wants it. The others need what is in Redis.
        without = (
            "store",
            "durable",
            "window",
            "unique_for",
            "unique_after",
            "rate_of_id",
            "at_most",
            "after",
            "on_failure",
        )
        assert name in without or known[name] == parameter


def test_no_job_is_postponed(shop: Shop) -> None:
    with shop.engine.connect() as db, pytest.raises(InvalidInput, match=r"'postpone' is for Queue\.enqueue alone"):
        outbox.enqueue(db, TOPIC, 1, id="a", on_conflict="postpone")


def test_everything_arrives_as_it_was(shop: Shop, relay: Relay, queue: Queue) -> None:
    bodies = [
        "a\nb", "ü€😀", {"x": [1, 2.5, None, True]}, "\x00", "'; DROP TABLE orders; --", ":name %s %(x)s", 0, False,
    ]  # fmt: skip
    with shop.sale() as db:
        for number, body in enumerate(bodies):
            outbox.enqueue(db, "wählen/sie", body, id=f"é{number}:x", delay="1h")
    relay.run(burst=True)
    for number, body in enumerate(bodies):
        job = queue.get("wählen/sie", f"é{number}:x")
        assert job is not None
        assert job.body == body
        queue.enqueue("as.is", body, id="x", on_conflict="replace", delay="1h")
        plain = queue.get("as.is", "x")
        assert plain is not None
        assert plain.raw_body == job.raw_body


@pytest.mark.parametrize("db", [None, "sqlite:///x", object()], ids=["none", "text", "object"])
def test_what_is_no_connection(db: Any) -> None:
    for call in (lambda: outbox.enqueue(db, TOPIC, 1), lambda: outbox.create(db)):
        with pytest.raises(InvalidInput, match="a session or connection of SQLAlchemy or Django's connection"):
            call()


def test_an_engine_is_no_transaction(shop: Shop) -> None:
    for call in (lambda: outbox.enqueue(shop.engine, TOPIC, 1), lambda: outbox.create(shop.engine)):
        with pytest.raises(InvalidInput, match=r"sqlalchemy\.engine\.base\.Engine is none of these"):
            call()


def test_a_namespace_that_no_relay_can_have(shop: Shop) -> None:
    for namespace in ("b:{x}", "", "n" * 65):
        with shop.sale() as db, pytest.raises(InvalidInput, match="namespace: "):
            outbox.enqueue(db, TOPIC, 1, namespace=namespace)
    assert shop.states() == {}


class Vendor:
    vendor = "oracle"

    def cursor(self) -> Any:
        raise AssertionError


def test_another_kind_of_database() -> None:
    with pytest.raises(InvalidInput, match="oracle is none of sqlite, postgresql, mysql and mariadb"):
        outbox.enqueue(Vendor(), TOPIC, 1)
    with pytest.raises(InvalidInput, match="oracle is none of sqlite, postgresql, mysql and mariadb"):
        now_ms().compile(dialect=oracle.dialect())


@pytest.mark.thorough
def test_its_orm_is_not_imported_for_who_does_without(tmp_path: Path) -> None:
    """While one thread imports it, statements of others may fail."""
    code = f"""
import sys, sqlalchemy
from streamdq import outbox
with sqlalchemy.create_engine("sqlite:///{tmp_path}/x.db").begin() as db:
    outbox.create(db)
    outbox.enqueue(db, "order.close", 1)
sys.exit("sqlalchemy.orm" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.thorough
def test_sqlalchemy_is_imported_by_its_users_alone() -> None:
    code = "import sys, streamdq, streamdq.outbox, streamdq.cli; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
