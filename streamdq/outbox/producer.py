"""Putting jobs into the outbox, in the caller's own transaction: with SQLAlchemy or Django, in sync or async code."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, overload

from ..codec.bodies import Bodies
from ..codec.configured import bodies_of
from ..config import Settings
from ..errors import InvalidInput
from ..job.job import NewJob, Priority, check_own_topic
from ..job.retry import RetryInput
from ..job.uniqueness import DerivedId, OnConflict
from ..link.opening import check_namespace
from ..operations.jobs.enqueue import NO_BODY
from ..store.jobs.records import Encoded, encode, fields_in, url_and_key
from ..times.durations import Duration, Moment
from .checks import check_relayed
from .handles import Steps, check_handle, is_async, is_django, needs_sqlalchemy, run

if TYPE_CHECKING:
    from sqlalchemy import Insert
    from typing_extensions import Unpack

    from ..topic import RowOptions
    from .handles import AsyncHandle

_settings = cache(Settings)  # reading the environment takes longer than the rest


@cache
def bodies_in(namespace: str) -> Bodies:
    return bodies_of(namespace, _settings(), files=False)  # the row has to hold it: a file would outlive a rollback


def space_of(namespace: str | None) -> str:
    """The namespace; None: the one in the environment."""
    return check_namespace(_settings().namespace if namespace is None else namespace)


def forget_settings() -> None:
    """For tests: the environment is read again."""
    _settings.cache_clear()
    bodies_in.cache_clear()


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
    priority: Priority | None = None,
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
    topic, space = check_own_topic(topic), space_of(namespace)
    bodies = bodies_in(space)
    new = NewJob(body, delay, id, at, ttr, retry, url, expire, tz, quiet, key=key, version=version, priority=priority)
    job = encode(new, bodies.most_json_bytes, bodies.seal(topic))
    return run(db, _inserted(insertion(space, topic, job, on_conflict), job.id))


def create(db: Any, horizon: Duration | None = None) -> None:
    """Creates the outbox's tables, as far as they are missing: for migrations, in their transaction. ``db``: as in
    ``enqueue``, but in sync code; with asyncio, ``await connection.run_sync(outbox.create)``. ``streamdq outbox
    create`` does the same. ``horizon``: from now on relays leave rows in the database until this long before they are
    due. The outbox may be in use, and have a horizon.

    Raises:
        InvalidInput: ``db`` is something else, or the horizon is less than a minute.
    """
    with needs_sqlalchemy():
        from sqlalchemy import text

        from .tables import creation
    if is_django(db):
        with db.cursor() as cursor:
            for statement in creation(db.vendor, horizon):
                cursor.execute(statement)
        return
    if is_async(db):  # its coroutines would never be awaited, and nothing created
        raise InvalidInput("outbox.create: with asyncio, write await connection.run_sync(outbox.create)")
    check_handle(db)
    bind = db.get_bind() if hasattr(db, "get_bind") else db
    for statement in creation(bind.dialect.name, horizon):
        db.execute(text(statement))


def _inserted(insert: Insert, id: str) -> Steps[str]:
    yield insert
    return id


def insertion(namespace: str, topic: str, job: Encoded, on_conflict: OnConflict) -> Insert:
    """The statement that adds the job's row."""
    with needs_sqlalchemy():
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
