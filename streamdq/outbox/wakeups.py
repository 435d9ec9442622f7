"""Waiting for commits to the outbox: PostgreSQL tells about them; in SQLite its counter of changes is looked at, in
MySQL the table itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy.exc import DBAPIError

from ..archive.database import Database
from .tables import CHANNEL

_SQLITE_S, _MYSQL_S = 0.01, 0.05
"""How often to look, unless told otherwise: into shared memory, or over the network."""

_LAST_WAITING = """
SELECT number FROM streamdq_outbox WHERE namespace = %s AND state = 'waiting' ORDER BY number DESC LIMIT 100
"""


_LAST_DUE = """
SELECT number FROM streamdq_outbox WHERE namespace = %s AND state = 'waiting'
AND due_at_ms <= timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(3)) DIV 1000 + %s
ORDER BY due_at_ms DESC, number DESC LIMIT 100
"""

Horizon = Callable[[], int | None]
"""What it is now, in milliseconds."""


class Wakeups(Protocol):
    """Waits for the next commit."""

    def wait(self, timeout_s: float) -> None:
        """Returns when rows may have been committed since the last call, or after the time. A commit may be missed:
        look at the rows now and then.
        """


@contextmanager
def wakeups(database: Database, namespace: str, look_s: float | None, horizon: Horizon) -> Iterator[Wakeups]:
    """Hears of every commit from the moment it is entered. ``look_s``: how often to look for one, where it has to;
    None: as often as suits the database. ``horizon``: rows that are due later don't count.
    """
    with _as_sqlalchemy(database, None):
        connection = database.engine.raw_connection()
    driver: Any = connection.driver_connection
    connection.detach()  # nobody else gets it
    try:
        yield _opened(database, driver, namespace, look_s, horizon)
    finally:
        driver.close()  # SQLAlchemy's close would roll back, and log a traceback if the connection is lost


def _opened(database: Database, driver: Any, namespace: str, look_s: float | None, horizon: Horizon) -> Wakeups:
    if database.is_postgresql:
        return _Notified(database, driver)
    if database.is_mysql:
        return _LookingAtRows(database, driver, look_s or _MYSQL_S, namespace, horizon)
    return _Looking(database, driver, look_s or _SQLITE_S)


@contextmanager
def _as_sqlalchemy(database: Database, driver: Any) -> Iterator[None]:
    """Raises the driver's errors as SQLAlchemy would, so that they are translated."""
    with database.translated():
        try:
            yield
        except database.engine.dialect.loaded_dbapi.Error as error:
            lost = bool(getattr(driver, "closed", False))
            raise DBAPIError("wait", None, error, connection_invalidated=lost) from error


class _Notified:
    """PostgreSQL: LISTEN. Needs a connection of its own to the server, not through a pooler of transactions."""

    def __init__(self, database: Database, driver: Any) -> None:
        self._database = database
        self._driver = driver
        with _as_sqlalchemy(database, driver):
            driver.autocommit = True
            driver.execute(f"LISTEN {CHANNEL}")

    def wait(self, timeout_s: float) -> None:
        with _as_sqlalchemy(self._database, self._driver):
            for _ in self._driver.notifies(timeout=timeout_s, stop_after=1):
                pass


class _Looking:
    """SQLite: its data_version changes with each commit of another connection."""

    def __init__(self, database: Database, driver: Any, look_s: float) -> None:
        self._database = database
        self._driver = driver
        self._look_s = look_s
        self._version = self._look()

    def wait(self, timeout_s: float) -> None:
        until, version = time.monotonic() + timeout_s, self._version
        while (version := self._look()) == self._version and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(self._look_s, left_s))
        self._version = version

    def _look(self) -> int:
        with _as_sqlalchemy(self._database, self._driver):
            return int(self._driver.execute("PRAGMA data_version").fetchone()[0])


class _LookingAtRows:
    """MySQL: which rows wait, the last hundred of them. One that was not there before was committed since."""

    def __init__(self, database: Database, driver: Any, look_s: float, namespace: str, horizon: Horizon) -> None:
        self._database = database
        self._driver = driver
        self._look_s = look_s
        self._namespace = namespace
        self._horizon = horizon
        with _as_sqlalchemy(database, driver):
            driver.autocommit(True)  # else each look would see what the first one saw
        self._waiting = self._look()

    def wait(self, timeout_s: float) -> None:
        until, before = time.monotonic() + timeout_s, self._waiting
        while (waiting := self._look()) <= before and (left_s := until - time.monotonic()) > 0:
            before = waiting
            time.sleep(min(self._look_s, left_s))
        self._waiting = waiting

    def _look(self) -> set[int]:
        horizon_ms = self._horizon()
        with _as_sqlalchemy(self._database, self._driver), self._driver.cursor() as cursor:
            if horizon_ms is None:
                cursor.execute(_LAST_WAITING, (self._namespace,))
            else:
                cursor.execute(_LAST_DUE, (self._namespace, horizon_ms))
            return {number for (number,) in cursor.fetchall()}
