"""Looking at and changing jobs that still wait in the outbox, in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ..errors import InvalidInput, OutboxMissing, OutboxRelaying
from ..job.job import Job, check_id, check_key, check_topic
from ..store.jobs.records import Encoded, encode_when, rest_of, url_line
from ..times.durations import Duration, Moment
from .handles import Steps, needs_sqlalchemy, run
from .producer import bodies_in, space_of

if TYPE_CHECKING:
    from sqlalchemy import Select

    from .handles import AsyncHandle


class _Identity(NamedTuple):
    """Where a job's rows are. There may be several: ids are compared when rows are relayed."""

    namespace: str
    topic: str
    id: str
    key: str | None


@overload
def get(
    db: AsyncHandle, topic: str, id: str, *, key: str | None = ..., namespace: str | None = ...
) -> Coroutine[Any, Any, Job | None]: ...


@overload
def get(db: Any, topic: str, id: str, *, key: str | None = ..., namespace: str | None = ...) -> Job | None: ...


def get(db: Any, topic: str, id: str, *, key: str | None = None, namespace: str | None = None) -> Any:
    """The job of a row that waits in the outbox, its times by the database's clock. None: no such row waits. Its job
    was relayed, and ``Queue.get`` knows it, or there is none. The arguments are those of ``cancel``.

    Raises:
        InvalidInput: as for ``cancel``.
    """
    return run(db, _get(_identity(topic, id, key, namespace)))


@overload
def cancel(
    db: AsyncHandle, topic: str, id: str, *, key: str | None = ..., namespace: str | None = ...
) -> Coroutine[Any, Any, bool]: ...


@overload
def cancel(db: Any, topic: str, id: str, *, key: str | None = ..., namespace: str | None = ...) -> bool: ...


def cancel(db: Any, topic: str, id: str, *, key: str | None = None, namespace: str | None = None) -> Any:
    """Cancels a job that still waits in the outbox, in the transaction of ``db``. True: once that is committed, the job
    never starts. False: nothing was changed, because no such row waits; if there is such a job, it is in Redis:
    ``Queue.cancel`` it. ``db`` and ``namespace``: as for ``enqueue``. ``key``: only a job with this key.

    Raises:
        OutboxRelaying: a relay is putting the job into Redis. Roll the transaction back, and try again in a moment.
        InvalidInput: an argument is invalid, or the outbox has no horizon.
    """
    return run(db, _cancel(_identity(topic, id, key, namespace)))


@overload
def reschedule(
    db: AsyncHandle,
    topic: str,
    id: str,
    *,
    delay: Duration | None = ...,
    at: Moment | None = ...,
    key: str | None = ...,
    namespace: str | None = ...,
) -> Coroutine[Any, Any, bool]: ...


@overload
def reschedule(
    db: Any,
    topic: str,
    id: str,
    *,
    delay: Duration | None = ...,
    at: Moment | None = ...,
    key: str | None = ...,
    namespace: str | None = ...,
) -> bool: ...


def reschedule(
    db: Any,
    topic: str,
    id: str,
    *,
    delay: Duration | None = None,
    at: Moment | None = None,
    key: str | None = None,
    namespace: str | None = None,
) -> Any:
    """Gives a job that still waits in the outbox a new due time, in the transaction of ``db``. True: once that is
    committed, the job has it. False: nothing was changed; as for ``cancel``. ``delay`` counts from this call, by the
    database's clock.

    Raises:
        OutboxRelaying, InvalidInput: as for ``cancel``.
    """
    if delay is None and at is None:
        raise InvalidInput("reschedule: pass delay or at")
    return run(db, _reschedule(_identity(topic, id, key, namespace), encode_when(delay, at)))


def _identity(topic: str, id: str, key: str | None, namespace: str | None) -> _Identity:
    return _Identity(space_of(namespace), check_topic(topic), check_id(id), None if key is None else check_key(key))


def _get(identity: _Identity) -> Steps[Job | None]:
    for row in (yield from _found(identity)):
        when = f"+{row['delay_ms']}" if row["due_ms"] is None else str(row["due_ms"])
        fields = {name: row[name] for name in ("ttr_ms", "expire_ms", "nonce", "retry", "body")}
        rest = rest_of(**fields, url=url_line(row["url"], row["job_key"]))
        return Encoded(identity.id, when, rest, row["nonce"]).job(
            identity.topic, row["made_ms"], bodies_in(identity.namespace)
        )
    return None


def _cancel(identity: _Identity) -> Steps[bool]:
    from sqlalchemy import delete

    return (yield from _change(identity, lambda rows: delete(rows)))


def _reschedule(identity: _Identity, when: str) -> Steps[bool]:
    from sqlalchemy import update

    from .tables import now_ms

    if when[0] == "+":
        values: dict[str, Any] = {"delay_ms": int(when), "due_ms": None, "made_ms": now_ms()}
    else:
        values = {"delay_ms": None, "due_ms": int(when)}
    return (yield from _change(identity, lambda rows: update(rows).values(**values)))


def _change(identity: _Identity, change: Any) -> Steps[bool]:
    """Changes the job's rows that wait; each by its number, so that MySQL locks it alone."""
    from .tables import ROWS

    found = yield from _found(identity)
    for row in found:
        if row["state"] == "relaying":
            raise _relaying(identity)
        answer = yield change(ROWS).where(ROWS.c.number == row["number"], ROWS.c.state == "waiting")
        if not answer.changed:  # a relay has marked it since
            raise _relaying(identity)
    return bool(found)


def _found(identity: _Identity) -> Steps[list[dict[str, Any]]]:
    """The job's rows that wait, or that a relay is putting into Redis; these first, so that nothing is changed then.

    Raises:
        InvalidInput
    """
    with needs_sqlalchemy():
        from .tables import PLAIN, ROWS
    answer = yield _selection(identity)
    if not answer.rows:
        raise OutboxMissing("this database has no outbox: `streamdq outbox create` makes one")
    if answer.rows[0][0] == PLAIN:
        raise InvalidInput(
            "this outbox has no horizon, so that a relay puts each job into Redis at once: look for it there, or set a "
            "horizon with `streamdq outbox create --horizon 1d`"
        )
    rows = [dict(zip(ROWS.c.keys(), values, strict=True)) for _, *values in answer.rows]
    # Compared once more, as MySQL does not tell "a" from "a ". Without a row, all its columns are null.
    same = [row for row in rows if row["id"] == identity.id and identity.key in (None, row["job_key"])]
    return sorted(
        (row for row in same if row["state"] in ("waiting", "relaying")),
        key=lambda row: (row["state"] == "waiting", row["number"]),
    )


def _selection(identity: _Identity) -> Select[Any]:
    """The version, and the job's rows beside it."""
    from sqlalchemy import and_, select

    from .tables import ROWS, VERSIONS

    c = ROWS.c
    ours = and_(c.namespace == identity.namespace, c.topic == identity.topic, c.id == identity.id)
    return select(VERSIONS.c.version, *c).select_from(VERSIONS.outerjoin(ROWS, ours)).where(VERSIONS.c.name == "schema")


def _relaying(identity: _Identity) -> OutboxRelaying:
    return OutboxRelaying(
        f"job {identity.id!r} of topic {identity.topic!r}: a relay is putting it into Redis; roll back, and try again "
        "in a moment: then it is in Redis, where the queue can cancel or reschedule it"
    )
