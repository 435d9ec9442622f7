"""Databases that are not there, not willing or not ours: a clear error, and nothing leaves Redis."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from streamdq import Queue
from streamdq.archive import Archive
from streamdq.archive.database import Database, Purpose
from streamdq.archive.schema import SCHEMA_VERSION
from streamdq.errors import (
    ArchiveError,
    ArchiveMissing,
    ArchiveRefusesWrites,
    ArchiveUnavailable,
    ArchiveVersion,
    InvalidInput,
)
from tests.archive.letters import archived, balanced, bury, dead_now, finish, states
from tests.extras import run_without
from tests.postgres import PASSWORD, Postgres
from tests.waiting import HANG_S


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://u:s3cret@host/db", "mysql:// is neither"),
        ("postgresql+asyncpg://u:s3cret@host/db", "is neither"),
        ("not a url", "can't read"),
        ("postgresql://u:s3cret@host:port/db", "can't read"),
        ("sqlite://", "in memory would lose"),
        ("sqlite:///:memory:", "in memory would lose"),
        ("sqlite:///file::memory:?cache=shared&uri=true", "in memory would lose"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory would lose"),
    ],
)
def test_urls_that_can_not_be_used(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        Archive(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.thorough
@pytest.mark.parametrize(("missing", "extra"), [("sqlalchemy", "SQLAlchemy"), ("psycopg", "driver")])
def test_without_the_extra(missing: str, extra: str) -> None:
    target = ("--to", "postgresql://127.0.0.1:1/x")
    code, error = run_without(missing, "--url", "redis://127.0.0.1:1", "archive", *target)
    assert code == 2
    assert re.search(rf"{extra}.*pip install 'streamdq\[database\]'", error), error


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnavailable, match=r"sqlite:///.*unable to open"):
        Archive(f"sqlite:///{tmp_path}/none/dead.db")
    with pytest.raises(ArchiveUnavailable, match=r"postgresql://127\.0\.0\.1:1/x can't be used .*refused") as caught:
        Archive("postgresql://joe:s3cret@127.0.0.1:1/x")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None, "the driver's own error may hold what must not be shown"


def test_reading_makes_no_archive(database: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveMissing):
        Archive(database, create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite:///file:{}?uri=true"])
def test_the_file_is_its_owners_alone_as_bodies_are_in_it(queue: Queue, tmp_path: Path, url: str) -> None:
    file = tmp_path / "dead letters.db"
    bury(queue, "j")
    before = os.umask(0o022)
    try:
        with Archive(url.format(file)) as archive:
            _sql(f"sqlite:///{file}", "PRAGMA journal_mode=WAL")  # which puts two more files beside it
            archive.store(queue)
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert {name.rpartition("-")[2] for name in modes} == {"dead letters.db", "wal", "shm"}
    file.chmod(0o640)
    Archive(url.format(file)).close()
    assert file.stat().st_mode & 0o777 == 0o640, "whoever opened it to others wanted that"


def test_a_lock_of_this_process_holds_when_the_database_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "dead.db"
    url = f"sqlite:///{file}"
    Archive(url).close()
    wants = (
        f"import sqlite3; sqlite3.connect({str(file)!r}, timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    )
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        Database(url, Purpose("archive", "", ArchiveError, ArchiveError, ArchiveError), create=True).close()
        other = subprocess.run([sys.executable, "-c", wants, str(file)], capture_output=True, text=True, timeout=HANG_S)
    assert "database is locked" in other.stderr


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "dead.db"
    file.write_text("no database at all" * 100)
    with pytest.raises(ArchiveError, match="file is not a database"):
        Archive(f"sqlite:///{file}")


def test_login_is_refused_and_the_password_not_shown(postgres: Postgres) -> None:
    with pytest.raises(ArchiveUnavailable, match="password authentication failed") as caught:
        Archive(postgres.url(password="wr0ng"))
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(ArchiveUnavailable, match='database "nowhere" does not exist') as caught:
        Archive(postgres.url(database="nowhere"))
    assert PASSWORD not in str(caught.value)


def test_every_way_to_write_the_url(postgres: Postgres) -> None:
    postgres.empty()
    urls = [postgres.url(), postgres.url().replace("postgresql", "postgres"), postgres.socket_url]
    for url in urls:
        with Archive(url) as archive:
            assert archived(archive) == []


def test_the_schema_is_versioned_and_another_version_is_refused(database: str, queue: Queue) -> None:
    with Archive(database):
        pass
    with Archive(database, create=False):
        pass
    _sql(database, f"UPDATE streamdq_archive_schema SET version = {SCHEMA_VERSION + 1}")
    bury(queue, "j")
    for create in (True, False):
        with pytest.raises(ArchiveVersion, match=f"version {SCHEMA_VERSION + 1}, and this streamdq knows"):
            Archive(database, create=create)
    _sql(database, "DELETE FROM streamdq_archive_schema")
    with pytest.raises(ArchiveVersion, match="version None"):
        Archive(database)
    assert dead_now(queue) == ["j"]


def test_many_make_the_tables_at_once(database: str) -> None:
    failed: list[BaseException] = []
    barrier = threading.Barrier(6)

    def run() -> None:
        barrier.wait()
        try:
            Archive(database).close()
        except ArchiveError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_database_that_takes_no_writes(database: str, queue: Queue, postgres: Postgres) -> None:
    """Postgres: opened as a user who may only read. SQLite: as a file that may only be read."""
    bury(queue, "j")
    with Archive(database) as archive:
        archive.store(queue)
    bury(queue, "k")
    if database.startswith("sqlite"):
        refused = f"sqlite:///file:{database.removeprefix('sqlite:///')}?mode=ro&uri=true"
    else:
        postgres.sql(
            "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN PASSWORD 'r3ad'",
            "GRANT SELECT ON streamdq_archive_schema, streamdq_dead_letters TO reader",
        )  # fmt: skip
        refused = postgres.url("reader", "r3ad")
    with Archive(refused, create=False) as archive:
        assert archived(archive) == ["j"], "reading goes on"
        with pytest.raises(ArchiveRefusesWrites, match="refuses writes"):
            archive.store(queue)
        with pytest.raises(ArchiveRefusesWrites):
            archive.kick(queue)
    assert dead_now(queue) == ["k"]
    assert queue.get("t", "j") is None
    if database.startswith("postgresql"):
        postgres.empty()
        postgres.sql("DROP ROLE reader")


@pytest.fixture
def full() -> Iterator[None]:
    """SQLite files may not grow."""

    def limit(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA max_page_count = 1")  # what it has already is the least

    event.listen(Engine, "connect", limit)
    yield
    event.remove(Engine, "connect", limit)


def test_a_full_sqlite(tmp_path: Path, queue: Queue, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/dead.db"
    Archive(url).close()
    request.getfixturevalue("full")
    queue.enqueue("t", "x" * 100_000, id="j")
    claim = queue.take("t", timeout=HANG_S)
    assert claim
    claim.bury("no")
    with Archive(url) as archive:
        with pytest.raises(ArchiveRefusesWrites, match="full"):
            archive.store(queue)
        assert states(archive) == {}
    assert dead_now(queue) == ["j"]


def test_a_full_postgres(postgres: Postgres, queue: Queue) -> None:
    """As its disk would be: the server answers the insert with disk_full."""
    postgres.empty()
    bury(queue, "j")
    with Archive(postgres.url()) as archive:
        postgres.sql(
            "CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON streamdq_dead_letters FOR EACH ROW EXECUTE FUNCTION full_disk()",
        )
        with pytest.raises(ArchiveRefusesWrites, match="could not extend file"):
            archive.store(queue)
    assert dead_now(queue) == ["j"]


def test_postgres_goes_away_and_comes_back(postgres: Postgres, queue: Queue) -> None:
    postgres.empty()
    bury(queue, "j", "k")
    with Archive(postgres.url()) as archive:
        archive.store(queue)
        bury(queue, "l")
        postgres.stop()
        try:
            for use in (archive.store, archive.kick):
                with pytest.raises(ArchiveUnavailable):
                    use(queue)
            assert dead_now(queue) == ["l"]
            balanced(queue)
        finally:
            postgres.start()
        assert archive.store(queue).archived == 1
        assert archive.kick(queue).kicked == 3
    assert finish(queue) == ["j", "k", "l"]


def test_a_commit_that_need_not_reach_the_disk_is_not_enough(postgres: Postgres) -> None:
    postgres.empty()
    postgres.sql("ALTER DATABASE postgres SET synchronous_commit = off")
    try:
        with Archive(postgres.url()) as archive, archive._store.reading() as db:
            assert db.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    finally:
        postgres.sql("ALTER DATABASE postgres RESET synchronous_commit")


def test_a_server_that_vanished_is_noticed_also_while_its_answer_is_awaited(postgres: Postgres) -> None:
    """Then nothing is sent that could remain unacknowledged: only probes tell."""
    postgres.empty()
    with Archive(postgres.url()) as archive, archive._store.reading() as db:
        driver: Any = db.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as own:
            names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_USER_TIMEOUT")
            found = [own.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
    assert found == [10, 5, 15_000]


def test_another_holds_the_file(tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.archive.database._BUSY_S", 0.05)
    bury(queue, "j")
    with Archive(f"sqlite:///{tmp_path}/dead.db") as archive:
        other = sqlite3.connect(tmp_path / "dead.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveUnavailable, match="locked"):
            archive.store(queue)
        other.close()
        assert dead_now(queue) == ["j"]
        assert archive.store(queue).archived == 1


def _sql(database: str, statement: str) -> None:
    engine = create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as db:
        db.exec_driver_sql(statement)
    engine.dispose()
