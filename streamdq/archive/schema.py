"""The archive's database: its tables, how it is opened, and what its errors mean. Needs the extra ``archive``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from ..errors import ArchiveError, ArchiveRefusesWrites, ArchiveUnavailable, InvalidInput

SCHEMA_VERSION = 1
KEY = ("namespace", "topic", "group_name", "id", "buried_ms", "sequence")
"""One row per burial: a job that is kicked and buried again gets another row."""

READ = "streamdq_read"
"""The execution option of a transaction that writes nothing."""

_BUSY_S = 10
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_KNOWN = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg")

_metadata = MetaData()

VERSIONS = Table(
    "streamdq_archive_schema",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
)

LETTERS = Table(
    "streamdq_dead_letters",
    _metadata,
    # 64 bits in both databases: SQLite numbers rows itself only if the type is INTEGER.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("namespace", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("url", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("buried_ms", BigInteger, nullable=False),
    Column("archived_ms", BigInteger, nullable=False),
    Column("kicked_ms", BigInteger),
    Column("ttr_ms", BigInteger),
    Column("retry", Text),
    Column("expire_ms", BigInteger),
    Column("nonce", Text, nullable=False),
    Column("sequence", Text, nullable=False),
    UniqueConstraint(*KEY, name="streamdq_dead_letters_key"),
    Index("streamdq_dead_letters_by_state", "namespace", "state", "number"),
)


def parse(url: str) -> URL:
    """The URL with its driver.

    Raises:
        InvalidInput: it can't be read, names another kind of database, or one that keeps nothing.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidInput(
            "archive: can't read the database's URL; write sqlite:///FILE or postgresql://user:password@host/database, "
            "user and password percent-encoded"
        ) from None
    parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
    if parsed.drivername not in _KNOWN:
        raise InvalidInput(f"archive: {parsed.drivername}:// is neither sqlite:/// nor postgresql://")
    if parsed.get_backend_name() == "sqlite" and (
        parsed.database in (None, "", ":memory:") or "memory" in str(parsed.query.get("mode", parsed.database))[:20]
    ):
        raise InvalidInput("archive: a database in memory would lose the jobs; write sqlite:///FILE")
    return parsed


def describe(url: URL) -> str:
    """The address without user, password and options."""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def is_missing_file(url: URL) -> bool:
    """Whether the URL names a missing SQLite file, which opening would create."""
    file = _file_of(url)
    return file is not None and not file.exists()


def make_private(url: URL) -> None:
    """Creates the file for SQLite so that only its owner can read it, as it will contain jobs' bodies. The files that
    SQLite puts beside it get the same rights. An existing file keeps its rights.
    """
    file = _file_of(url)
    if file is not None and url.query.get("mode", "rwc") == "rwc":
        with suppress(OSError):  # SQLite will report it
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _file_of(url: URL) -> Path | None:
    """The file of a SQLite database."""
    if url.get_backend_name() != "sqlite":
        return None
    file = url.database or ""
    return Path(unquote(urlsplit(file).path) if file.startswith("file:") else file)


def open_engine(url: URL) -> Engine:
    """An engine that connects when it is first used.

    Raises:
        InvalidInput: the driver is not installed, or refuses the URL.
    """
    arguments: dict[str, Any] = {"timeout": _BUSY_S}
    if url.get_backend_name() == "postgresql":
        # So that a dead network is noticed, whatever the system's own limits are.
        given = {"connect_timeout": 10, "tcp_user_timeout": 15_000, "application_name": "streamdq archive"}
        arguments = {name: value for name, value in given.items() if name not in url.query}
    try:
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True, hide_parameters=True)
    except ImportError as error:
        raise InvalidInput(
            f"archive: the database's driver is missing ({error}): pip install 'streamdq[archive]'"
        ) from None
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise InvalidInput(f"archive: the database's URL is not understood: {type(error).__name__}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _begin)
    else:
        event.listen(engine, "connect", _commit_to_disk)
    return engine


def _leave_transactions_to_us(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 would begin its transaction late, and so lock late


def _begin(db: Connection) -> None:
    db.exec_driver_sql("BEGIN" if db.get_execution_options().get(READ) else "BEGIN IMMEDIATE")


def _commit_to_disk(connection: Any, _record: Any) -> None:
    """Makes commits durable before Redis drops the letters, even if the server's default is weaker."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


_REFUSED = ("SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "53", "25006", "42501")
_UNAVAILABLE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "08", "28", "3D", "57")


def translated(error: SQLAlchemyError, url: URL) -> ArchiveError:
    """The database's error as one of streamdq's, without the password and without any job's data."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    text, where = _first_line(cause, url.password), describe(url)
    if code.startswith(_REFUSED):
        return ArchiveRefusesWrites(
            f"the archive at {where} refuses writes ({text}): check its disk and the user's rights; "
            "what it has not taken yet is still in Redis"
        )
    if code.startswith(_UNAVAILABLE) if code else _is_lost(error):
        return ArchiveUnavailable(
            f"the archive at {where} can't be used ({text}): check the URL, the login, and that it runs; "
            "what it has not taken yet is still in Redis"
        )
    return ArchiveError(f"the archive at {where} failed ({text}); what it has not taken yet is still in Redis")


def _first_line(cause: BaseException | None, password: str | None) -> str:
    text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    return text.replace(password, "…") if password else text


def _is_lost(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost; the driver's error for that has no code."""
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or type(error.orig).__name__ == "OperationalError"
