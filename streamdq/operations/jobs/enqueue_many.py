"""Enqueues any number of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...config import MAX_BATCH
from ...errors import InvalidInput
from ...job.durability import check_level
from ...job.job import NewJob, check_own_topic
from ...job.uniqueness import OnConflict, check_conflict
from ...link.session import Op
from ...options import meant
from ...store.jobs.records import Encoded, encode
from ...store.redis_store import RedisStore
from .enqueue import put, resolve_due


@dataclass(slots=True)
class EnqueueResult:
    """How many jobs enqueue_many created, and the ids that were already taken."""

    created: int
    existing: list[str]


def enqueue_many(
    store: RedisStore,
    topic: str,
    jobs: Iterable[NewJob | Mapping[str, Any]],
    *,
    batch_size: int = MAX_BATCH,
    on_conflict: OnConflict = "reject",
    durable: str | None = None,
) -> Op[EnqueueResult]:
    """Enqueues any number of jobs, ``batch_size`` at a time (per shard), and holds no more than that in memory.

    Taken ids don't stop it. With "reject" and "keep", the existing job stays, and its id is listed in ``existing``.
    With "replace" and "postpone", it is changed and counts as created. ``durable``: as for ``enqueue``, of each batch.

    Raises:
        InvalidInput: a job is invalid; the batches before it were enqueued, no job of its own batch was.
        ParentUnknown: Redis has neither a job in an ``after`` nor its result. The jobs before it were enqueued, and
            those of its batch that wait for none.
        NotDurable: a batch was not confirmed in time; those before it were. If all jobs have ids, repeat the call.
    """
    topic = check_own_topic(topic)
    check_conflict(on_conflict)
    check_level(durable)
    if not 1 <= batch_size <= MAX_BATCH:
        raise InvalidInput(f"batch_size: {batch_size!r} is not between 1 and {MAX_BATCH}")
    if store.topics.cached(topic) is None:  # create the topic even if there are no jobs
        yield from store.topics.shared(topic, store.topics.ensure)
    result, source = EnqueueResult(0, []), iter(jobs)
    while some := list(islice(source, batch_size)):
        batch = yield from _encoded(store, topic, some)
        reply = yield from put(store, topic, batch, on_conflict, durable)
        result.existing += [batch[i].id for i in reply.existing]
        result.created += len(batch) - len(reply.existing)
    return result


def _encoded(store: RedisStore, topic: str, jobs: Sequence[NewJob | Mapping[str, Any]]) -> Op[list[Encoded]]:
    limit, seal, out = store.session.bodies.most_json_bytes, store.session.bodies.seal(topic), []
    for job in jobs:
        new = as_new_job(job)
        if new.quiet is not None or new.window is not None:
            new = yield from resolve_due(store, topic, new)
        out.append(encode(new, limit, seal))
    return out


def as_new_job(fields: object) -> NewJob:
    """One of the jobs that were passed.

    Raises:
        InvalidInput: it is neither a NewJob nor a dict of its fields.
    """
    if isinstance(fields, NewJob):
        return fields
    if not isinstance(fields, Mapping):
        what = repr(fields[:80]) if isinstance(fields, str) else type(fields).__name__
        raise InvalidInput(f"job: {what} is neither a NewJob nor a dict such as {{'body': 7}}")
    known = NewJob.__dataclass_fields__
    if unknown := [name for name in fields if name not in known]:
        hint = meant(str(unknown[0]), known) or f"; fields are {', '.join(known)}"
        raise InvalidInput(f"job: there is no field {unknown[0]!r}{hint}")
    try:
        return NewJob(**fields)
    except TypeError:  # the one field without a default
        raise InvalidInput("job: the field 'body' is missing") from None
