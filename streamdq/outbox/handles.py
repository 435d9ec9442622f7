"""What a caller's transaction runs on: SQLAlchemy or Django, in sync or async code."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from sqlalchemy import Delete, Insert, Select, Update
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    Statement = Select[Any] | Insert | Update | Delete
    AsyncHandle = AsyncSession | AsyncConnection | async_scoped_session[Any]

T = TypeVar("T")


class Answer(NamedTuple):
    """What a statement has found, or how many rows it has changed."""

    rows: Sequence[Sequence[Any]]
    changed: int


Steps = Generator["Statement", Answer, T]
"""Yields statements, gets their answers, and returns a result."""


@contextmanager
def needs_sqlalchemy() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MissingExtra("SQLAlchemy", "database") from None


def run(db: Any, steps: Steps[T]) -> Any:
    """Carries the steps out in the transaction of ``db``. Returns their result; with asyncio, an awaitable of it.

    Raises:
        InvalidInput: ``db`` is something else.
    """
    if is_async(db):
        return _awaited(db, steps)
    if not is_django(db):
        check_handle(db)
    execute = _on_django if is_django(db) else _on_sqlalchemy
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(db, statement))
    except StopIteration as done:
        return done.value


async def _awaited(db: AsyncHandle, steps: Steps[T]) -> T:
    try:
        statement = next(steps)
        while True:
            statement = steps.send(_answer(await db.execute(statement)))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _on_sqlalchemy(db: Any, statement: Statement) -> Answer:
    return _answer(db.execute(statement))


def _answer(result: Any) -> Answer:
    return Answer(result.all(), 0) if result.returns_rows else Answer((), result.rowcount)


def _on_django(db: Any, statement: Statement) -> Answer:
    text, values = _for_cursor(statement, db.vendor)
    with db.cursor() as cursor:
        cursor.execute(text, values)
        return Answer(cursor.fetchall(), 0) if cursor.description else Answer((), cursor.rowcount)


def is_django(db: Any) -> bool:
    return hasattr(db, "vendor") and hasattr(db, "cursor")


def is_async(db: Any) -> bool:
    if is_django(db):
        return False
    return _is_one_of(db, "sqlalchemy.ext.asyncio", ("AsyncConnection", "AsyncSession", "async_scoped_session"))


def _is_one_of(db: Any, module: str, names: Sequence[str]) -> bool:
    """Asked without importing the module: there is no instance of what is not loaded, and while SQLAlchemy's ORM is
    being loaded, statements of other threads may fail.
    """
    classes = (getattr(sys.modules.get(module), name, None) for name in names)
    return any(isinstance(db, found) for found in classes if found is not None)


def check_handle(db: Any) -> None:
    if not (
        _is_one_of(db, "sqlalchemy", ("Connection",)) or _is_one_of(db, "sqlalchemy.orm", ("Session", "scoped_session"))
    ):
        given = f"{type(db).__module__}.{type(db).__name__}"
        raise InvalidInput(
            "outbox: pass what your transaction runs on, a session or connection of SQLAlchemy or Django's connection; "
            f"{given} is none of these"
        )


def _for_cursor(statement: Statement, vendor: str) -> tuple[str, list[Any]]:
    """The statement and its parameters, for a cursor that marks parameters by %s."""
    from .tables import dialect_of

    compiled: Any = statement.compile(dialect=dialect_of(vendor).dialect(paramstyle="format"))
    return compiled.string, [compiled.params[name] for name in compiled.positiontup]
