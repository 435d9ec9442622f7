"""Databases that are not there, not willing or not ours: a clear error, and nothing is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from streamdq import Queue
from streamdq.archive.database import Database
from streamdq.errors import (
    InvalidInput,
    OutboxError,
    OutboxMissing,
    OutboxRefusesWrites,
    OutboxUnavailable,
    OutboxVersion,
    ServerUnavailable,
)
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay
from streamdq.outbox.tables import SCHEMA_VERSION
from tests.outbox.orders import Shop, finish
from tests.postgres import PASSWORD, Postgres
from tests.servers import Server
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from tests.mariadb import Mariadb


@pytest.mark.parametrize("url", ["oracle://u:s3cret@host/db", "not a url", "sqlite://", "sqlite:///:memory:"])
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^outbox: ") as refused:
        rows.create(url)
    assert "s3cret" not in str(refused.value)


def test_no_outbox(tmp_path: Path, queue: Queue, shop: Shop) -> None:
    with pytest.raises(OutboxMissing, match="no such file"):
        Relay(f"sqlite:///{tmp_path}/none.db", queue)
    assert not (tmp_path / "none.db").exists()
    shop.sql("DROP TABLE streamdq_outbox_schema")
    with pytest.raises(OutboxMissing, match="streamdq outbox create"):
        Relay(shop.url, queue)


def test_created_twice_it_is_the_same(shop: Shop, queue: Queue) -> None:
    shop.order("a")
    before = shop.sql("SELECT outbox FROM streamdq_outbox_schema")
    rows.create(shop.url)
    assert shop.sql("SELECT outbox FROM streamdq_outbox_schema") == before
    with Relay(shop.url, queue) as relay:
        relay.run(burst=True)
    assert finish(queue) == ["a"]


def test_created_by_several_at_once(shop: Shop) -> None:
    for table in ("streamdq_outbox", "streamdq_outbox_relays", "streamdq_outbox_schema"):
        shop.sql(f"DROP TABLE {table}")
    threads = [threading.Thread(target=rows.create, args=(shop.url,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shop.sql("SELECT * FROM streamdq_outbox_schema")) == 1


def test_another_version(shop: Shop, queue: Queue) -> None:
    shop.sql(f"UPDATE streamdq_outbox_schema SET version = {SCHEMA_VERSION + 1}")
    with pytest.raises(OutboxVersion, match=f"schema version {SCHEMA_VERSION + 1}"):
        Relay(shop.url, queue)


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_the_database_goes_away_and_comes_back(shop: Shop, queue: Queue, running: Postgres | Mariadb) -> None:
    """While the relay waits for a commit, and when it has something to relay."""
    with Relay(shop.url, queue) as relay:
        failed: list[BaseException] = []

        def run() -> None:
            try:
                relay.run()
            except OutboxUnavailable as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        shop.order("a")
        until(lambda: relay.totals.relayed, "it is active")
        running.stop()
        try:
            thread.join(HANG_S)
            assert not thread.is_alive()
            with pytest.raises(OutboxUnavailable) as error:
                relay.run(burst=True)
        finally:
            running.start()
        assert PASSWORD not in str(error.value) + str(failed)
        assert "not relayed are still in it" in str(error.value)
        shop.close()  # its connections are dead
        shop.order("b")
        relay.run(burst=True)
    assert finish(queue) == ["a", "b"]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_connection_lost_while_waiting_leaves_no_traceback(
    shop: Shop, running: Postgres | Mariadb, caplog: pytest.LogCaptureFixture
) -> None:
    opened = rows.Rows(shop.url, "streamdq")
    try:
        with pytest.raises(OutboxUnavailable):
            _wait_while_it_stops(opened, running)
    finally:
        opened.close()
        running.start()
    assert [entry for entry in caplog.records if entry.exc_info] == []


def _wait_while_it_stops(opened: rows.Rows, running: Postgres | Mariadb) -> None:
    with opened.wakeups() as wakeups:
        running.stop()
        while True:
            wakeups.wait(1)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_one_that_may_not_write(shop: Shop, queue: Queue, postgres: Postgres) -> None:
    shop.order("a")
    postgres.sql(
        "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN PASSWORD 'r'",
        "GRANT SELECT ON streamdq_outbox, streamdq_outbox_relays, streamdq_outbox_schema TO reader",
    )  # fmt: skip
    try:
        with Relay(postgres.url("reader", "r"), queue) as relay, pytest.raises(OutboxRefusesWrites):
            relay.run(burst=True)
    finally:
        postgres.sql("DROP OWNED BY reader", "DROP ROLE reader")


def test_redis_goes_away_and_comes_back(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    shop.order("a")
    server.stop()
    try:
        with pytest.raises(ServerUnavailable):
            relay.run(burst=True)
        assert shop.states() == {"waiting": 1}
    finally:
        server.start()
    relay.run(burst=True)
    assert finish(queue) == ["a"]


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_one_that_may_not_write_to_mariadb(shop: Shop, queue: Queue, mariadb: Mariadb) -> None:
    shop.order("a")
    mariadb.sql("CREATE OR REPLACE USER reader IDENTIFIED BY 'r'", "GRANT SELECT ON shop.* TO reader")
    with Relay(mariadb.url("reader", "r"), queue) as relay, pytest.raises(OutboxRefusesWrites, match="denied"):
        relay.run(burst=True)
    with pytest.raises(OutboxUnavailable, match="Access denied") as error:
        Relay(mariadb.url("reader", "s3cret"), queue)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_relay_that_was_stopped_in_a_transaction_goes_on(shop: Shop, relay: Relay, queue: Queue) -> None:
    engine, stops = relay._rows._db.engine, [True]
    idle = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND application_name LIKE 'streamdq%'"

    def stop(_db: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE streamdq_outbox ") and stops:
            stops.clear()
            # Of this transaction alone: on a busy machine, any other may be idle for as long.
            cursor.connection.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            until(lambda: not shop.sql(idle), "PostgreSQL has ended the transaction")

    shop.order("a")
    event.listen(engine, "after_cursor_execute", stop)
    with pytest.raises(OutboxUnavailable, match=r"idle-in-transaction|server closed the connection"):
        relay.run(burst=True)
    relay.run(burst=True)
    assert finish(queue) == ["a"]


# How to have the relay, and not the other, fail in a deadlock: it looks for one first, or has changed less.
_LET_THE_RELAY_FAIL = {
    "postgresql": ["SET LOCAL deadlock_timeout = '60s'"],
    "mysql": ["CREATE TEMPORARY TABLE much (n INT)", "INSERT INTO much SELECT seq FROM seq_1_to_1000"],
}
_RELAY_WAITS = {
    "postgresql": (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'streamdq%'"
    ),
    "mysql": (
        "SELECT 1 FROM information_schema.global_status "
        "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS' AND variable_value > 0"
    ),
}


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_in_a_deadlock_with_somebody_the_relay_tries_again(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("a")
    shop.order("b")
    failed: list[Exception] = []

    def run() -> None:
        try:
            relay.run(burst=True)
        except OutboxUnavailable as error:
            failed.append(error)

    kind = shop.engine.dialect.name
    with shop.sale() as db:
        for statement in _LET_THE_RELAY_FAIL[kind]:
            db.exec_driver_sql(statement)
        db.exec_driver_sql("SELECT 1 FROM streamdq_outbox WHERE number = 2 FOR UPDATE")
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: shop.sql(_RELAY_WAITS[kind]) != [], "the relay waits")
        db.exec_driver_sql("SELECT 1 FROM streamdq_outbox WHERE number = 1 FOR UPDATE")
    thread.join(HANG_S)
    assert "deadlock" in str(failed).lower()
    relay.run(burst=True)
    assert finish(queue) == ["a", "b"]


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_idle_connections_that_the_server_closes_cost_nothing(shop: Shop, queue: Queue, mariadb: Mariadb) -> None:
    """As after wait_timeout."""
    with Relay(shop.url, queue) as relay:
        for id in ("a", "b"):
            mariadb.sql(*[f"KILL {number}" for (number,) in mariadb.sql(_OTHERS)])
            shop.close()
            shop.order(id)
            relay.run(burst=True)
    assert finish(queue) == ["a", "b"]


_OTHERS = "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'streamdq'"


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_creation_that_was_interrupted_is_completed(shop: Shop, queue: Queue) -> None:
    """MySQL commits each statement by itself."""
    shop.sql("DELETE FROM streamdq_outbox_schema")
    with pytest.raises(OutboxMissing, match="streamdq outbox create"):
        Relay(shop.url, queue)
    rows.create(shop.url)
    Relay(shop.url, queue).close()


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (1114, OutboxRefusesWrites), (1021, OutboxRefusesWrites), (1290, OutboxRefusesWrites),
        (1205, OutboxUnavailable), (1213, OutboxUnavailable), (1040, OutboxUnavailable), (2013, OutboxUnavailable),
        (1064, OutboxError),
    ],
)  # fmt: skip
def test_what_errors_of_mysql_mean(number: int, raised: type[OutboxError]) -> None:
    errors = pytest.importorskip("pymysql").err
    database = Database("mysql://joe:s3cret@host/shop", rows._PURPOSE, create=False)
    with pytest.raises(raised, match=r"mysql://host/shop .*\(told …\)") as error, database.translated():
        raise DBAPIError("x", None, errors.OperationalError(number, "told s3cret"))
    assert type(error.value) is raised
