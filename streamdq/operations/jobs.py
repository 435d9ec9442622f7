"""Operations on jobs and dead letters. Queue runs them with blocking calls, AsyncQueue awaits them (queue.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from ..config import DEFAULT_GROUP, MAX_BATCH, TopicSettings
from ..durability import check_level
from ..durations import Duration, Moment
from ..errors import InvalidInput, JobExists, NotDurable
from ..job import Decoder, Job, NewJob, check_id, check_topic
from ..keys import ShardKeys, shard_of
from ..link.session import Op
from ..metrics import recorded
from ..retry import RetryInput
from ..store import reads
from ..store.batches import MAX_BYTES, REPLACED_BYTES, most_jobs, parts
from ..store.records import Encoded, encode, encode_when, job_in, nonce_of
from ..store.redis_store import RedisStore
from ..store.topics import changing
from .due import settled
from .inspect import REPAIRS, ask, known_group
from .pace import SLICE, Pace

OnConflict = Literal["reject", "keep", "replace"]
_PURGE_BATCH = 100
_DeadScript = Callable[[ShardKeys, str, int, Sequence[str]], Op[int]]  # kick or purge: group, limit, ids


@dataclass(slots=True)
class EnqueueResult:
    """How many jobs enqueue_many created, and the ids that were already taken."""

    created: int
    existing: list[str]


class Put(NamedTuple):
    """The result of enqueuing jobs together. The jobs are identified by their index."""

    now_ms: int
    taken: dict[int, bytes]  # a job whose id was taken -> the record with that id: its own if the call was a repetition
    existing: list[int]  # those of them that were not enqueued, as another job has their id
    decoder: Decoder | None = None

    def job(self, topic: str, given: Encoded, index: int = 0) -> Job:
        """The job that has the id now."""
        record = self.taken.get(index)
        return (
            given.job(topic, self.now_ms, self.decoder)
            if record is None
            else job_in(topic, given.id, record, self.decoder)
        )


def enqueue(
    store: RedisStore,
    topic: str,
    body: Any,
    *,
    delay: Duration | None = None,
    at: Moment | str | None = None,
    id: str | None = None,
    ttr: Duration | None = None,
    retry: RetryInput | None = None,
    url: str | None = None,
    expire: Duration | None = None,
    tz: str | None = None,
    quiet: str | None = None,
    window: Duration | None = None,
    version: int = 1,
    on_conflict: OnConflict = "reject",
    durable: str | None = None,
) -> Op[Job]:
    """Enqueues one job, due after ``delay`` by Redis's clock, or ``at`` a point in time. When this returns, Redis
    has the job.

    ``tz``: the time zone, such as "Europe/Paris", in which an ``at`` without one is a local time, "2027-03-28T09:00".
    If clocks skip that time, the first moment after the gap is meant; if it comes twice, the first. ``quiet``: hours of
    that zone, such as "21:00-08:00"; if the job would be due then, it is due when they end. ``window``: the job may be
    due up to this much later; it is due in the minute in which the fewest other jobs of the topic are.

    ``on_conflict``: what to do if a job that has not ended has this id: "reject" raises, "keep" returns that job,
    "replace" cancels it first. A call that is repeated after a lost connection finds its own job. ``version``: of the
    body's shape (``Worker.upcast``).

    ``durable``: where the job, or the existing one, is for certain when this returns: "memory" of the server, its
    "disk" (in the append-only file), or also the memory of "replicas:N". None: as the topic or this process is
    configured.

    Raises:
        InvalidInput: an argument is invalid; nothing was written.
        JobExists: the id is taken; with "replace", by a job that is running or dead.
        NotDurable: that was not confirmed in time; the job is in Redis. Repeat the call with the error's id and "keep".
        DurabilityUnsupported: this Redis can't confirm it; nothing was written.
        ServerUnavailable: no reply in time; the job may have been enqueued. Repeat the call with the same id.
    """
    check_conflict(on_conflict)
    if topic not in store.topics.known:
        check_topic(topic)
    new = NewJob(body, delay, id, at, ttr, retry, url, expire, tz, quiet, window, version)
    if quiet is not None or window is not None:
        new = yield from settled(store, topic, new)
    bodies = store.session.bodies
    job = encode(new, bodies.most_bytes, bodies.seal(topic))
    try:
        reply = yield from put(store, topic, [job], on_conflict == "replace", check_level(durable))
    except NotDurable as error:
        raise NotDurable(error.level, error.why, job.id) from None
    if reply.existing and on_conflict != "keep":
        why = ", and it is running or dead" if on_conflict == "replace" else ""
        raise JobExists(topic, job.id, why)
    return reply.job(topic, job)


def check_conflict(on_conflict: OnConflict) -> None:
    if on_conflict not in ("reject", "keep", "replace"):
        raise InvalidInput(f"on_conflict: {on_conflict!r} is not one of 'reject', 'keep', 'replace'")


def put(store: RedisStore, topic: str, jobs: Sequence[Encoded], replace: bool, durable: str | None = None) -> Op[Put]:
    """Enqueues encoded jobs, at most MAX_BATCH: one call per shard, or more if the jobs are large. ``replace``: they
    replace waiting jobs with the same ids. Every enqueue goes through here.

    Raises:
        ServerUnavailable: no reply in time; any of them may have been enqueued. Repeat with the same nonces or ids.
        NotDurable: the same, as far as durability is concerned.
        DurabilityUnsupported: nothing was written to the shard that it was asked of.
    """
    settings = store.topics.settled(topic)
    if settings is None:
        settings = yield from store.topics.shared(topic, store.topics.ensure)
    left, now_ms = list(range(len(jobs))), 0
    taken: dict[int, bytes] = {}
    for _ in range(REPAIRS):
        outdated: list[int] = []
        scripts = store.at(durable, settings)
        script = scripts.replace if replace else scripts.enqueue
        for shard, part in _by_shard(store, topic, settings, jobs, left, replace):
            while part:  # usually once; more often if large jobs have the ids: a call reads a bounded number of bytes
                reply = yield from script(shard, settings.shards, [value for i in part for value in jobs[i][:3]])
                now_ms = reply.now_ms
                taken |= _by_job(reply.taken, part)
                part = part[reply.looked :]
                if not reply.current:
                    outdated += part
                    break
        if not outdated:
            existing = _of_others(taken, jobs)
            recorded.not_put_in(store.session.keys.namespace, topic, len(existing))
            return Put(now_ms, taken, existing, store.session.bodies)
        left, settings = outdated, (yield from store.topics.shared(topic, store.topics.repair))
    raise changing(topic)


def _by_shard(
    store: RedisStore, topic: str, settings: TopicSettings, jobs: Sequence[Encoded], indexes: list[int], replace: bool
) -> Iterable[tuple[ShardKeys, list[int]]]:
    """The jobs of each shard, in parts that fit into one call."""
    if len(indexes) == 1:
        return [(store.session.keys.shard(topic, shard_of(jobs[indexes[0]].id, settings.shards)), indexes)]
    spread: dict[int, list[int]] = {}
    for i in indexes:
        spread.setdefault(shard_of(jobs[i].id, settings.shards), []).append(i)
    most, max_bytes = MAX_BATCH, MAX_BYTES
    if replace:
        most, max_bytes = most_jobs(MAX_BATCH, len(settings.groups)), REPLACED_BYTES
    return [
        (store.session.keys.shard(topic, number), part)
        for number, numbers in spread.items()
        for part in parts(numbers, lambda i: len(jobs[i].rest), most, max_bytes)
    ]


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

    Taken ids don't stop it: "reject" and "keep" both leave the existing job and list its id in ``existing``;
    "replace" replaces it. ``durable``: as for ``enqueue``, of each batch.

    Raises:
        InvalidInput: a job is invalid; the batches before it were enqueued, no job of its own batch was.
        NotDurable: a batch was not confirmed in time; those before it were. If all jobs have ids, repeat the call.
    """
    check_topic(topic)
    check_conflict(on_conflict)
    check_level(durable)
    if not 1 <= batch_size <= MAX_BATCH:
        raise InvalidInput(f"batch_size: {batch_size!r} is not between 1 and {MAX_BATCH}")
    if store.topics.settled(topic) is None:  # create the topic even if there are no jobs
        yield from store.topics.shared(topic, store.topics.ensure)
    result, source = EnqueueResult(0, []), iter(jobs)
    while some := list(islice(source, batch_size)):
        batch = yield from _encoded(store, topic, some)
        reply = yield from put(store, topic, batch, on_conflict == "replace", durable)
        result.existing += [batch[i].id for i in reply.existing]
        result.created += len(batch) - len(reply.existing)
    return result


def _encoded(store: RedisStore, topic: str, jobs: Sequence[NewJob | Mapping[str, Any]]) -> Op[list[Encoded]]:
    limit, seal, out = store.session.bodies.most_bytes, store.session.bodies.seal(topic), []
    for job in jobs:
        new = job if isinstance(job, NewJob) else _new_job(job)
        if new.quiet is not None or new.window is not None:
            new = yield from settled(store, topic, new)
        out.append(encode(new, limit, seal))
    return out


# -- one job


def cancel(store: RedisStore, topic: str, id: str, *, durable: str | None = None) -> Op[bool]:
    """True: the job is deleted, with its dead letters in other groups, and no new attempt of it starts in any
    group. False: nothing was changed, because there is no such job, or no group waits for it: it is running or
    dead. ``durable``: as for ``enqueue``; a cancellation that a failover undoes lets the job run.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call (False may then mean that the first call did it).
        NotDurable: the same; the answer of the repeated call covers the first one as well.
        DurabilityUnsupported: this Redis can't confirm it; nothing was changed.
    """
    check_level(durable)
    asked = ask(store, topic, id, lambda k, settings, _: store.at(durable, settings).cancel(k, settings, id))
    return (yield from asked) == 1


def reschedule(
    store: RedisStore,
    topic: str,
    id: str,
    *,
    delay: Duration | None = None,
    at: Moment | None = None,
    durable: str | None = None,
) -> Op[bool]:
    """Gives a waiting job (delayed, ready, or before its next attempt) a new due time. False: nothing was changed,
    because there is no such job, or it is running or dead. ``durable``: as for ``enqueue``.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call (False may then mean that the first call did it).
        NotDurable, DurabilityUnsupported: as for ``cancel``.
    """
    check_level(durable)
    if delay is None and at is None:
        raise InvalidInput("reschedule: pass delay or at")
    when = encode_when(delay, at)
    asked = ask(store, topic, id, lambda k, settings, _: store.at(durable, settings).reschedule(k, settings, id, when))
    return (yield from asked) == 1


# -- dead letters


def kick(store: RedisStore, topic: str, id: str | None = None, group: str = DEFAULT_GROUP) -> Op[int]:
    """Sends a dead job back, or all dead jobs of the group; returns how many. They are ready at once. Many jobs go in
    slices, as fast as they are claimed, so that they don't delay due jobs. If the call is interrupted, the rest stays
    dead.
    """
    pace = Pace(store.session)
    return (yield from _each_dead(store, store.scripts.kick, topic, id, group, SLICE, pace))


def purge(store: RedisStore, topic: str, group: str = DEFAULT_GROUP, id: str | None = None) -> Op[int]:
    """Deletes a dead job for good, or all dead jobs of the group; returns how many."""
    return (yield from _each_dead(store, store.scripts.purge, topic, id, group, _PURGE_BATCH, None))


def _each_dead(
    store: RedisStore, script: _DeadScript, topic: str, id: str | None, group: str, most: int, pace: Pace | None
) -> Op[int]:
    settings = yield from known_group(store, topic, group, anew=True)
    if id is not None:
        shard = store.session.keys.shard(topic, shard_of(check_id(id), settings.shards))
        return (yield from script(shard, group, 0, [id]))
    total, most = 0, most_jobs(most, len(settings.groups))
    for shard in store.topics.shards(topic):
        # Kick no more jobs than are dead now, or a job that dies again at once would be kicked forever.
        left = yield from reads.dead_now(store.session, shard, group)
        while left > 0:
            if pace and total:
                yield from pace.wait(shard, group)
            done = yield from script(shard, group, min(left, most), [])
            total += done
            left = left - done if done else 0
    return total


def _by_job(taken: Mapping[int, bytes], part: Sequence[int]) -> dict[int, bytes]:
    """A call's ``taken``, with indexes in the whole batch instead of its ``part``."""
    return {part[i]: record for i, record in taken.items()}


def _of_others(taken: Mapping[int, bytes], jobs: Sequence[Encoded]) -> list[int]:
    """The taken ids that belong to other jobs, and not to the same job from a call whose reply was lost."""
    return [i for i, record in taken.items() if nonce_of(record) != jobs[i].nonce]


def _new_job(fields: Mapping[str, Any]) -> NewJob:
    try:
        return NewJob(**fields)
    except TypeError as error:
        raise InvalidInput(f"job: {error}; fields are {', '.join(NewJob.__dataclass_fields__)}") from None
