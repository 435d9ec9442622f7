"""Databases that parts of streamdq keep rows in, SQLite or PostgreSQL: opening them, transactions, and what their
errors mean. Needs SQLAlchemy, so it is imported only where a database is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, func, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from ..errors import InvalidInput, StreamdqError

_READ = "streamdq_read"  # the execution option of a transaction that writes nothing
_BUSY_S = 10
_LOCK = 0x73747264  # any number, as long as every streamdq uses the same
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_KNOWN = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg")


@dataclass(frozen=True)
class Purpose:
    """What a database is used for, for its messages and errors."""

    name: str
    """As in "the archive"; also the extra that installs the drivers."""

    safe: str
    """What is not lost if the database fails."""

    error: type[StreamdqError]
    unavailable: type[StreamdqError]
    refuses_writes: type[StreamdqError]


class Database:
    """One database. It connects when it is first used. ``create``: an SQLite file may be created.

    Raises (in the constructor; every transaction may raise the purpose's errors):
        InvalidInput: the URL is invalid, or the driver is missing.
    """

    def __init__(self, url: str, purpose: Purpose, create: bool) -> None:
        self._purpose = purpose
        self._url = parse(url, purpose)
        self.address = describe(self._url)
        self.is_missing_file = _is_missing_file(self._url)
        if create:
            _make_private(self._url)
        self.engine = _open_engine(self._url, purpose)
        self.is_postgresql = self.engine.dialect.name == "postgresql"
        self.dialect: Any = postgresql if self.is_postgresql else sqlite

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.translated(), self.engine.connect().execution_options(**{_READ: True}) as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, committed at the end of the block. In SQLite no other process can write meanwhile."""
        with self.translated(), self.engine.begin() as db:
            yield db

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raises the database's errors as the purpose's."""
        try:
            yield
        except SQLAlchemyError as error:
            raise _translated(error, self._url, self._purpose) from None

    def create(self, db: Connection, tables: Sequence[Table]) -> None:
        """Creates missing tables, with their indexes."""
        if self.is_postgresql:  # IF NOT EXISTS alone fails if two processes create it at once
            db.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        for table in tables:
            db.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                db.execute(CreateIndex(index, if_not_exists=True))


def parse(url: str, purpose: Purpose) -> URL:
    """The URL with its driver.

    Raises:
        InvalidInput: it can't be read, names another kind of database, or one that keeps nothing.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidInput(
            f"{purpose.name}: can't read the database's URL; write sqlite:///FILE or "
            "postgresql://user:password@host/database, user and password percent-encoded"
        ) from None
    parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
    if parsed.drivername not in _KNOWN:
        raise InvalidInput(f"{purpose.name}: {parsed.drivername}:// is neither sqlite:/// nor postgresql://")
    if parsed.get_backend_name() == "sqlite" and (
        parsed.database in (None, "", ":memory:") or "memory" in str(parsed.query.get("mode", parsed.database))[:20]
    ):
        raise InvalidInput(f"{purpose.name}: a database in memory would lose the jobs; write sqlite:///FILE")
    return parsed


def describe(url: URL) -> str:
    """The address without user, password and options."""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def _is_missing_file(url: URL) -> bool:
    """Whether the URL names a missing SQLite file, which opening would create."""
    file = _file_of(url)
    return file is not None and not file.exists()


def _make_private(url: URL) -> None:
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


def _open_engine(url: URL, purpose: Purpose) -> Engine:
    """An engine that connects when it is first used.

    Raises:
        InvalidInput: the driver is not installed, or refuses the URL.
    """
    arguments: dict[str, Any] = {"timeout": _BUSY_S}
    if url.get_backend_name() == "postgresql":
        # So that a dead network is noticed, whatever the system's own limits are, also while an answer is awaited.
        given: dict[str, Any] = {"connect_timeout": 10, "application_name": f"streamdq {purpose.name}"}
        given |= {"tcp_user_timeout": 15_000, "keepalives_idle": 10, "keepalives_interval": 5}
        arguments = {name: value for name, value in given.items() if name not in url.query}
    try:
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True, hide_parameters=True)
    except ImportError as error:
        raise InvalidInput(
            f"{purpose.name}: the database's driver is missing ({error}): pip install 'streamdq[{purpose.name}]'"
        ) from None
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{purpose.name}: the database's URL is not understood: {type(error).__name__}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _begin)
    else:
        event.listen(engine, "connect", _commit_to_disk)
    return engine


def _leave_transactions_to_us(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 would begin its transaction late, and so lock late


def _begin(db: Connection) -> None:
    db.exec_driver_sql("BEGIN" if db.get_execution_options().get(_READ) else "BEGIN IMMEDIATE")


def _commit_to_disk(connection: Any, _record: Any) -> None:
    """Makes commits durable before Redis drops what they stand for, even if the server's default is weaker."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


_REFUSED = ("SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "53", "25006", "42501")
_UNAVAILABLE = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "08", "28", "3D", "57",
    "25P", "40", "55P03",  # a transaction that was idle for too long, was in a deadlock, or waited too long for a lock
)  # fmt: skip


def _translated(error: SQLAlchemyError, url: URL, purpose: Purpose) -> StreamdqError:
    """The database's error as one of streamdq's, without the password and without any job's data."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    where = f"the {purpose.name} at {describe(url)}"
    text = _first_line(cause, url.password)
    if code.startswith(_REFUSED):
        return purpose.refuses_writes(
            f"{where} refuses writes ({text}): check its disk and the user's rights; {purpose.safe}"
        )
    if code.startswith(_UNAVAILABLE) if code else _is_lost(error):
        return purpose.unavailable(
            f"{where} can't be used ({text}): check the URL, the login, and that it runs; {purpose.safe}"
        )
    return purpose.error(f"{where} failed ({text}); {purpose.safe}")


def _first_line(cause: BaseException | None, password: str | None) -> str:
    text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    return text.replace(password, "…") if password else text


def _is_lost(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost; the driver's error for that has no code."""
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or type(error.orig).__name__ == "OperationalError"
