"""Databases that parts of streamdq keep rows in, SQLite, PostgreSQL or MySQL: opening them, transactions, and what
their errors mean. Needs SQLAlchemy, so it is imported only where a database is used.
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
from ..private_files import private

_READ = "streamdq_read"  # the execution option of a transaction that writes nothing
_BUSY_S = 10
_LOCK = 0x73747264  # any number, as long as every streamdq uses the same
_DRIVERS = {
    "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql",
}  # fmt: skip
_KNOWN = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg")
_MYSQL_NAMES = ("mysql", "mariadb")
_MYSQL = ("mysql+pymysql", "mariadb+pymysql")


@dataclass(frozen=True)
class Purpose:
    """What a database is used for, for its messages and errors."""

    name: str
    """As in "the archive"."""

    safe: str
    """What is not lost if the database fails."""

    error: type[StreamdqError]
    unavailable: type[StreamdqError]
    refuses_writes: type[StreamdqError]
    mysql: bool = False
    """Whether it may be MySQL or MariaDB."""

    @property
    def drivers(self) -> tuple[str, ...]:
        return (*_KNOWN, *_MYSQL) if self.mysql else _KNOWN

    @property
    def kinds(self) -> str:
        """As in "neither …"."""
        return "sqlite:///, postgresql:// nor mysql://" if self.mysql else "sqlite:/// nor postgresql://"


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
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.is_mysql = self._url.get_backend_name() in _MYSQL_NAMES
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
    if parsed.drivername not in purpose.drivers:
        raise InvalidInput(f"{purpose.name}: {parsed.drivername}:// is neither {purpose.kinds}")
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
    SQLite puts beside it get the same rights. An existing file keeps its rights, and is not opened here: to close it
    would end all locks that this process has on it, and the next two writers would destroy the database.
    """
    file = _file_of(url)
    if file is not None and url.query.get("mode", "rwc") == "rwc":
        with suppress(OSError):  # it is there, or SQLite will report why it can't be made
            os.close(private(str(file), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))


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
    kind, options = url.get_backend_name(), _engine_options(url, purpose)
    try:
        engine = create_engine(url, pool_pre_ping=True, hide_parameters=True, **options)
    except ImportError as error:
        extra = "mysql" if kind in _MYSQL_NAMES else "database"
        raise InvalidInput(
            f"{purpose.name}: the database's driver is missing ({error}): pip install 'streamdq[{extra}]'"
        ) from None
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{purpose.name}: the database's URL is not understood: {type(error).__name__}") from None
    if kind == "sqlite":
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _begin)
    elif kind == "postgresql":
        event.listen(engine, "connect", _commit_to_disk)
    else:
        event.listen(engine, "connect", _wait_for_locks)
    return engine


def _engine_options(url: URL, purpose: Purpose) -> dict[str, Any]:
    """So that a dead network is noticed, whatever the system's own limits are, also while an answer is awaited."""
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"connect_args": {"timeout": _BUSY_S}}
    given: dict[str, Any] = {"connect_timeout": 10}
    if kind == "postgresql":
        given |= {"application_name": f"streamdq {purpose.name}", "tcp_user_timeout": 15_000}
        given |= {"keepalives_idle": 10, "keepalives_interval": 5}
    else:
        given |= {"program_name": f"streamdq {purpose.name}", "write_timeout": 15, "read_timeout": 30}
    options: dict[str, Any] = {"connect_args": {name: value for name, value in given.items() if name not in url.query}}
    if kind in _MYSQL_NAMES:  # its default also locks what lies between rows, so that nobody else can insert there
        options["isolation_level"] = "READ COMMITTED"
    return options


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


def _wait_for_locks(connection: Any, _record: Any) -> None:
    """Not for a minute, or for a day where a table is being altered, which are MySQL's defaults."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {_BUSY_S}, SESSION lock_wait_timeout = {_BUSY_S}")


_REFUSED = ("SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "53", "25006", "42501")
_UNAVAILABLE = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "08", "28", "3D", "57",
    "25P", "40", "55P03",  # a transaction that was idle for too long, was in a deadlock, or waited too long for a lock
)  # fmt: skip
_MYSQL_REFUSED = {
    3, 1021, 1026, 1030, 1114, 1878,  # no space, or an error of the disk
    1142, 1143, 1227, 1370,  # no right
    1290, 1792, 1836,  # read-only
}  # fmt: skip
_MYSQL_UNAVAILABLE = {
    1040, 1129, 1130, 1203, 1226,  # too many connections, or none from this host
    1044, 1045, 1049, 1698,  # the login, or the database's name
    1047, 1053, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 4031,  # shut down, killed, lost, a cluster without quorum
    1205, 1213, 1969, 3024,  # waited for a lock for too long, in a deadlock, took too long
}  # fmt: skip


def _translated(error: SQLAlchemyError, url: URL, purpose: Purpose) -> StreamdqError:
    """The database's error as one of streamdq's, without the password and without any job's data."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    where = f"the {purpose.name} at {describe(url)}"
    text = _first_line(cause, url.password)
    refused, unavailable = _meaning(error, cause, url)
    if refused:
        return purpose.refuses_writes(
            f"{where} refuses writes ({text}): check its disk and the user's rights; {purpose.safe}"
        )
    if unavailable:
        return purpose.unavailable(
            f"{where} can't be used ({text}): check the URL, the login, and that it runs; {purpose.safe}"
        )
    return purpose.error(f"{where} failed ({text}); {purpose.safe}")


def _meaning(error: SQLAlchemyError, cause: BaseException | None, url: URL) -> tuple[bool, bool]:
    """Whether it refuses writes, and whether it can't be used."""
    if url.get_backend_name() in _MYSQL_NAMES:
        number = _mysql_number(cause)
        # Numbers from 2000 to 2999 are the client's own: it can't connect, or has lost the connection.
        return number in _MYSQL_REFUSED, number in _MYSQL_UNAVAILABLE or 2000 <= number < 3000 or _is_cut(error)
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    return code.startswith(_REFUSED), code.startswith(_UNAVAILABLE) if code else _is_lost(error)


def _mysql_number(cause: BaseException | None) -> int:
    found = cause.args[0] if cause is not None and cause.args else 0
    return found if isinstance(found, int) else 0


def _first_line(cause: BaseException | None, password: str | None) -> str:
    cause_text: Any = cause.args[1] if cause is not None and len(cause.args) > 1 and _mysql_number(cause) else cause
    text = (str(cause_text).strip() or type(cause).__name__).splitlines()[0]
    return text.replace(password, "…") if password else text


def _is_lost(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost; the driver's error for that has no code."""
    return _is_cut(error) or (isinstance(error, DBAPIError) and type(error.orig).__name__ == "OperationalError")


def _is_cut(error: SQLAlchemyError) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated
