"""Databases that are not there, not willing or not ours: a clear error, and nothing is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from streamdq import Queue
from streamdq.errors import (
    InvalidInput,
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
from tests.servers import Server, until


@pytest.mark.parametrize("url", ["mysql://u:s3cret@host/db", "not a url", "sqlite://", "sqlite:///:memory:"])
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


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_database_goes_away_and_comes_back(shop: Shop, queue: Queue, postgres: Postgres) -> None:
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
        until(lambda: relay.totals.relayed, "it is at work")
        postgres.stop()
        try:
            thread.join(20)
            assert not thread.is_alive()
            with pytest.raises(OutboxUnavailable) as error:
                relay.run(burst=True)
        finally:
            postgres.start()
        assert PASSWORD not in str(error.value) + str(failed)
        assert "not relayed are still in it" in str(error.value)
        shop.close()  # its connections are dead
        shop.order("b")
        relay.run(burst=True)
    assert finish(queue) == ["a", "b"]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_connection_lost_while_waiting_leaves_no_traceback(
    shop: Shop, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    opened = rows.Rows(shop.url, "streamdq")
    try:
        with pytest.raises(OutboxUnavailable):
            _wait_while_it_stops(opened, postgres)
    finally:
        opened.close()
        postgres.start()
    assert [entry for entry in caplog.records if entry.exc_info] == []


def _wait_while_it_stops(opened: rows.Rows, postgres: Postgres) -> None:
    with opened.wakeups() as wakeups:
        postgres.stop()
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


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_relay_that_was_stopped_in_a_transaction_goes_on(shop: Shop, relay: Relay, queue: Queue) -> None:
    engine, stops = relay._rows._db.engine, [True]
    idle = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND application_name LIKE 'streamdq%'"

    def be_impatient(connection: Any, _record: Any) -> None:
        connection.execute("SET idle_in_transaction_session_timeout = '50ms'")
        connection.commit()

    def stop(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE streamdq_outbox ") and stops:
            stops.clear()
            until(lambda: not shop.sql(idle), "PostgreSQL has ended the transaction")

    shop.order("a")
    engine.dispose()
    event.listen(engine, "connect", be_impatient)
    event.listen(engine, "after_cursor_execute", stop)
    with pytest.raises(OutboxUnavailable, match="idle-in-transaction"):
        relay.run(burst=True)
    relay.run(burst=True)
    assert finish(queue) == ["a"]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_in_a_deadlock_with_somebody_the_relay_tries_again(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("a")
    shop.order("b")
    failed: list[Exception] = []

    def run() -> None:
        try:
            relay.run(burst=True)
        except OutboxUnavailable as error:
            failed.append(error)

    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'streamdq%'"
    with shop.sale() as db:
        db.exec_driver_sql("SET LOCAL deadlock_timeout = '60s'")  # so that the other is the one to fail
        db.exec_driver_sql("SELECT 1 FROM streamdq_outbox WHERE id = 'b' FOR UPDATE")
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: shop.sql(waiting) != [], "the relay waits")
        db.exec_driver_sql("SELECT 1 FROM streamdq_outbox WHERE id = 'a' FOR UPDATE")
    thread.join(20)
    assert "deadlock" in str(failed)
    relay.run(burst=True)
    assert finish(queue) == ["a", "b"]
