"""Putting jobs into the outbox, in the caller's own transaction: with SQLAlchemy or Django, in sync or async code."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, overload

from ..codec.bodies import Bodies
from ..codec.configured import bodies_of
from ..config import Settings
from ..errors import InvalidInput, MissingExtra
from ..job.job import NewJob, check_topic
from ..job.retry import RetryInput
from ..job.uniqueness import DerivedId, OnConflict
from ..link.opening import check_namespace
from ..operations.jobs.enqueue import NO_BODY
from ..store.jobs.records import Encoded, encode, fields_in, url_and_key
from ..times.durations import Duration, Moment
from .checks import check_relayed

if TYPE_CHECKING:
    from sqlalchemy import Insert
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from typing_extensions import Unpack

    from ..topic import RowOptions

    AsyncHandle = AsyncSession | AsyncConnection | async_scoped_session[Any]

_settings = cache(Settings)  # reading the environment takes longer than the rest


@cache
def _bodies(namespace: str) -> Bodies:
    return bodies_of(namespace, _settings(), files=False)  # the row has to hold it: a file would outlive a rollback


def forget_settings() -> None:
    """For tests: the environment is read again."""
    _settings.cache_clear()
    _bodies.cache_clear()


@overload
def enqueue(
    db: AsyncHandle,
    topic: str,
    body: Any = ...,
    *,
    version: int = ...,
    namespace: str | None = ...,
    **options: Unpack[RowOptions],
) -> Coroutine[Any, Any, str]: ...


@overload
def enqueue(
    db: Any,
    topic: str,
    body: Any = ...,
    *,
    version: int = ...,
    namespace: str | None = ...,
    **options: Unpack[RowOptions],
) -> str: ...


def enqueue(
    db: Any,
    topic: str,
    body: Any = NO_BODY,
    *,
    delay: Duration | None = None,
    at: Moment | str | None = None,
    id: str | DerivedId | None = None,
    ttr: Duration | None = None,
    retry: RetryInput | None = None,
    url: str | None = None,
    expire: Duration | None = None,
    tz: str | None = None,
    quiet: str | None = None,
    version: int = 1,
    key: str | None = None,
    on_conflict: OnConflict = "reject",
    namespace: str | None = None,
) -> Any:
    """Puts a job into the outbox, in the transaction of ``db``. After the commit, a relay enqueues the job in Redis.
    After a rollback, there is no job. Returns the job's id.

    ``db``: SQLAlchemy's Session or Connection, or Django's connection; with AsyncSession or AsyncConnection, await the
    call. ``delay`` counts from this call, by the database's clock. ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else
    ``streamdq``. The body is encoded as ``$STREAMDQ_CODEC`` says. The other arguments are those of ``Queue.enqueue``.
    Only the relay finds out whether another job has the id: with "reject", the row then stays in the table as
    ``refused``. ``quiet`` needs ``at``.

    Raises:
        InvalidInput: an argument is invalid; nothing was written.
    """
    check_relayed(on_conflict)
    topic = check_topic(topic)
    space = check_namespace(_settings().namespace if namespace is None else namespace)
    bodies = _bodies(space)
    new = NewJob(body, delay, id, at, ttr, retry, url, expire, tz, quiet, key=key, version=version)
    job = encode(new, bodies.most_json_bytes, bodies.seal(topic))
    insert = _insertion(space, topic, job, on_conflict)
    if _is_async(db):
        return _awaited(db, insert, job.id)
    _execute(db, insert)
    return job.id


def create(db: Any) -> None:
    """Creates the outbox's tables, as far as they are missing: for migrations, in their transaction. ``db``: as in
    ``enqueue``, but in sync code; with asyncio, ``await connection.run_sync(outbox.create)``. ``streamdq outbox
    create`` does the same.

    Raises:
        InvalidInput: ``db`` is something else.
    """
    with _needs_sqlalchemy():
        from sqlalchemy import text

        from .tables import creation
    if _is_django(db):
        with db.cursor() as cursor:
            for statement in creation(db.vendor):
                cursor.execute(statement)
        return
    if _is_async(db):  # its coroutines would never be awaited, and nothing created
        raise InvalidInput("outbox.create: with asyncio, write await connection.run_sync(outbox.create)")
    _check_handle(db)
    bind = db.get_bind() if hasattr(db, "get_bind") else db
    for statement in creation(bind.dialect.name):
        db.execute(text(statement))


@contextmanager
def _needs_sqlalchemy() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MissingExtra("SQLAlchemy", "database") from None


def _insertion(namespace: str, topic: str, job: Encoded, on_conflict: OnConflict) -> Insert:
    with _needs_sqlalchemy():
        from .tables import ROWS, now_ms
    when: dict[str, Any] = {"delay_ms": None, "due_ms": None}
    if job.when[0] == "+":
        when["delay_ms"] = int(job.when)
    else:
        when["due_ms"] = int(job.when)
    row = {"namespace": namespace, "topic": topic, "id": job.id, "state": "waiting", "on_conflict": on_conflict}
    fields = fields_in(job.rest)
    fields["url"], fields["job_key"] = url_and_key(fields["url"] or "")
    # Inline: nobody asks for the row's number.
    return ROWS.insert().inline().values(**row, **when, **fields, made_ms=now_ms())


def _is_django(db: Any) -> bool:
    return hasattr(db, "vendor") and hasattr(db, "cursor")


def _is_async(db: Any) -> bool:
    if _is_django(db):
        return False
    return _is_one_of(db, "sqlalchemy.ext.asyncio", ("AsyncConnection", "AsyncSession", "async_scoped_session"))


def _is_one_of(db: Any, module: str, names: Sequence[str]) -> bool:
    """Asked without importing the module: there is no instance of what is not loaded, and while SQLAlchemy's ORM is
    being loaded, statements of other threads may fail.
    """
    classes = (getattr(sys.modules.get(module), name, None) for name in names)
    return any(isinstance(db, found) for found in classes if found is not None)


async def _awaited(db: AsyncHandle, insert: Insert, id: str) -> str:
    await db.execute(insert)
    return id


def _execute(db: Any, insert: Insert) -> None:
    if _is_django(db):
        statement, values = _for_cursor(insert, db.vendor)
        with db.cursor() as cursor:
            cursor.execute(statement, values)
        return
    _check_handle(db)
    db.execute(insert)


def _check_handle(db: Any) -> None:
    if not (
        _is_one_of(db, "sqlalchemy", ("Connection",)) or _is_one_of(db, "sqlalchemy.orm", ("Session", "scoped_session"))
    ):
        given = f"{type(db).__module__}.{type(db).__name__}"
        raise InvalidInput(
            "outbox: pass what your transaction runs on, a session or connection of SQLAlchemy or Django's connection; "
            f"{given} is none of these"
        )


def _for_cursor(insert: Insert, vendor: str) -> tuple[str, list[Any]]:
    """The statement and its parameters, for a cursor that marks parameters by %s."""
    from .tables import dialect_of

    compiled: Any = insert.compile(dialect=dialect_of(vendor).dialect(paramstyle="format"))
    return compiled.string, [compiled.params[name] for name in compiled.positiontup]
