"""Waiting for commits to the outbox: PostgreSQL tells about them; SQLite's counter of changes is looked at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy.exc import DBAPIError

from ..archive.database import Database
from .tables import CHANNEL

_LOOK_S = 0.01


class Wakeups(Protocol):
    """Waits for the next commit."""

    def wait(self, timeout_s: float) -> None:
        """Returns when rows may have been committed since the last call, or after the time. A commit may be missed:
        look at the rows now and then.
        """


@contextmanager
def wakeups(database: Database) -> Iterator[Wakeups]:
    """Hears of every commit from the moment it is entered."""
    with _as_sqlalchemy(database, None):
        connection = database.engine.raw_connection()
    driver: Any = connection.driver_connection
    connection.detach()  # nobody else gets it
    try:
        yield _Notified(database, driver) if database.is_postgresql else _Looking(database, driver)
    finally:
        driver.close()  # SQLAlchemy's close would roll back, and log a traceback if the connection is lost


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

    def __init__(self, database: Database, driver: Any) -> None:
        self._database = database
        self._driver = driver
        self._version = self._look()

    def wait(self, timeout_s: float) -> None:
        until, version = time.monotonic() + timeout_s, self._version
        while (version := self._look()) == self._version and time.monotonic() < until:
            time.sleep(_LOOK_S)
        self._version = version

    def _look(self) -> int:
        with _as_sqlalchemy(self._database, self._driver):
            return int(self._driver.execute("PRAGMA data_version").fetchone()[0])
