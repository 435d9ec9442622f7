"""Enqueues jobs. A plain one is a single call (``_put_one``); all others go through ``put``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...config import MAX_BATCH
from ...errors import IdTaken, InvalidInput, JobExists, NotDurable, StreamdqError
from ...job.after import NEVER_MS, After, OnFailure
from ...job.durability import check_level
from ...job.job import FLOWS, Decoder, Job, JobState, NewJob, Priority, check_own_topic
from ...job.retry import RetryInput
from ...job.uniqueness import DerivedId, OnConflict, UniqueAfter, check_conflict
from ...keys import ShardKeys, shard_of
from ...link.session import Op
from ...metrics import recorded
from ...store.batches import MAX_BYTES, parts
from ...store.jobs.records import Encoded, encode, ended_until_ms, job_in, nonce_of
from ...store.redis_store import RedisStore
from ...store.replies import FoundJob
from ...times.durations import Duration, Moment
from .batcher import clone_exception
from .get import get, job_of
from .large_bodies import put_away, take_back
from .send import Sent, send_to_shards

NO_BODY: Any = {}


class EnqueueReply(NamedTuple):
    """The result of enqueuing jobs together. The jobs are identified by their index."""

    now_ms: int
    taken: dict[int, bytes]  # a job whose id was taken -> the record with that id: its own if the call was a repetition
    existing: list[int]  # those of them that were not enqueued, as another job has their id
    decoder: Decoder | None = None
    kept: Mapping[int, Job] = {}  # those of ``existing`` that were looked up, as they are now
    unseen: Exception | None = None  # why those of ``existing`` could not be looked up
    skips_bucket: Mapping[int, int] = {}  # those that are ready if due at the time of the call, by Redis's clock
    due_ms: Mapping[int, int] = {}  # of those that had to wait for others which had all ended; 0: it was cancelled

    def of(self, index: int) -> EnqueueReply:
        """What became of one of them."""
        taken = {0: self.taken[index]} if index in self.taken else {}
        kept = {0: self.kept[index]} if index in self.kept else {}
        skips_bucket = {0: self.skips_bucket[index]} if index in self.skips_bucket else {}
        existing = [0] if index in self.existing else []
        due_ms = {0: self.due_ms[index]} if index in self.due_ms else {}
        return EnqueueReply(self.now_ms, taken, existing, self.decoder, kept, self.unseen, skips_bucket, due_ms)

    def with_kept(self, kept: Mapping[int, Job], unseen: Exception | None = None) -> EnqueueReply:
        """The same, after those that have the ids were looked up."""
        return self._replace(kept=kept, unseen=unseen)

    def job(self, topic: str, given: Encoded, index: int = 0) -> Job:
        """The job that has the id now, or had it last: then its body is None and its state ``ended``."""
        if index in self.kept:
            return self.kept[index]
        record = self.taken.get(index)
        if record is None:
            new = given.job(topic, self.now_ms, self.decoder)
            if given.waits is not None:
                new = _waiting(new, self.due_ms.get(index))
            if new.due_ms <= self.skips_bucket.get(index, -1):
                new.state = JobState.READY
            return new
        job = job_in(topic, given.id, record, self.decoder)
        if ended_until_ms(record) is not None:
            job.state = JobState.ENDED
        return job


def _waiting(job: Job, due_ms: int | None) -> Job:
    """A new job that waits for others. ``due_ms``: as these have all ended."""
    job.due_ms = due_ms or NEVER_MS
    job.state = JobState.WAITING if due_ms is None else JobState.DELAYED if due_ms else JobState.ENDED
    return job


def enqueue(
    store: RedisStore,
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
    window: Duration | None = None,
    version: int = 1,
    unique_for: Duration | None = None,
    rate_of_id: str | None = None,
    at_most: Duration | None = None,
    key: str | None = None,
    unique_after: UniqueAfter = "enqueue",
    after: After | None = None,
    on_failure: OnFailure = "block",
    priority: Priority | None = None,
    on_conflict: OnConflict = "reject",
    durable: str | None = None,
) -> Op[Job]:
    """Enqueues one job, due after ``delay`` by Redis's clock, or ``at`` a point in time; with neither, at once. When
    this returns, Redis has the job.

    ``ttr``: how long an attempt may take. ``retry``: the delays between attempts, such as "15s 3m 10m", or "none". Both
    are those of the group's handler, or of the topic, if not given. ``expire``: an attempt that would start later than
    this after its due time is given up instead. ``url``: where a callback worker POSTs the body.

    ``tz``: the time zone, such as "Europe/Paris", in which an ``at`` without one is a local time, "2027-03-28T09:00".
    If clocks skip that time, the first moment after the gap is meant; if it comes twice, the first. ``quiet``: hours of
    that zone, such as "21:00-08:00"; if the job would be due then, it is due when they end. ``window``: the job may be
    due up to this much later: in the minute in which the fewest other jobs of the topic are due.

    ``on_conflict``: what to do if a job that has not ended has this id. With "reject" it raises. With "keep" it returns
    the existing job. With "replace" it cancels that job first. With "postpone" it gives it this job's body and due
    time, at most ``at_most`` after its first due time. A call that is repeated after a lost connection finds its own
    job. The state of the returned job is ``ready`` if it is due at once and no due job waits before it, otherwise
    ``delayed``. ``version``: of the body's shape (``Worker.upcast``).

    ``id``: a text, or ``unique("user", "kind")`` for one made of these fields of the body (``streamdq.job.unique``).
    ``unique_for``: the id stays taken for this long from now on, even after the job has ended; with ``unique_after``
    "finish", from the job's end. ``rate_of_id``: at most this many jobs may get the id, such as "3/h" in any hour. If
    the job that took the id has ended, "keep" returns its times and the state ``ended``, without a body.
    docs/reference/uniqueness.md has a table of all cases.

    ``key``: what the job belongs to, such as a customer. Jobs with the same key are in the same shard, and an id is
    taken or free in that shard alone. So give a job with an id of your own the same key each time.

    ``after``: a job, ``(topic, id)``, or any number of these: the new job is due ``delay`` after all of them are done.
    ``on_failure``: what to do if one of them is dead, cancelled, expired or lost instead. With "block", the new job
    keeps waiting; a kick of the dead one lets it go on. With "run", it starts once all have ended. With "cancel", it is
    cancelled. docs/flows.md has more.

    ``priority``: "high" or "low"; None: "normal". Of the topic's jobs that are ready, those with a high one start
    first, and those with a low one last. At least every tenth start is left to the next lower priority.
    docs/priorities.md has more.

    ``durable``: where the job must be before this returns: in the server's "memory", on its "disk" (the append-only
    file), or also in the memory of "replicas:N". None: as the topic or this process is configured.

    Raises:
        InvalidInput: an argument is invalid; nothing was written.
        JobExists: the id is taken; with "replace" or "postpone", by a job that is running or dead; with
            "postpone", also by one that waits, or has waited, for other jobs.
        ParentUnknown: Redis has neither a job in ``after`` nor its result; nothing was written.
        IdTaken (a JobExists): by a job that has ended; until when, as ``unique_for`` or ``rate_of_id`` says.
        NotDurable: that was not confirmed in time; the job is in Redis. Repeat the call with the error's id and "keep".
        DurabilityUnsupported: this Redis can't confirm it; nothing was written.
        ServerUnavailable: no reply in time; the job may have been enqueued. Repeat the call with the same id.
    """
    new = NewJob(
        body, delay, id, at, ttr, retry, url, expire, tz, quiet, window, version, unique_for, rate_of_id, at_most, key,
        unique_after, after, on_failure, priority,
    )  # fmt: skip
    call = yield from _prepared(store, topic, new, on_conflict, durable)
    (reply,) = yield from call.put([call])
    return call.job(reply)


def prepare(
    store: RedisStore,
    topic: str,
    body: Any = NO_BODY,
    *,
    on_conflict: OnConflict = "reject",
    durable: str | None = None,
    **options: Any,
) -> Op[EnqueueCall]:
    """What ``enqueue`` does before it sends the job. Takes the same arguments."""
    return _prepared(store, topic, NewJob(body, **options), on_conflict, durable)


def _prepared(
    store: RedisStore, topic: str, new: NewJob, on_conflict: OnConflict, durable: str | None
) -> Op[EnqueueCall]:
    check_conflict(on_conflict)
    if topic not in store.topics.known or topic == FLOWS:
        topic = check_own_topic(topic)
    if new.quiet is not None or new.window is not None:
        new = yield from resolve_due(store, topic, new)
    bodies = store.session.bodies
    job = encode(new, bodies.most_json_bytes, bodies.seal(topic))
    if job.rule:
        check_at_most([job], on_conflict)
    check_level(durable)
    settings = store.topics.cached(topic)
    if settings is None:
        settings = yield from store.topics.shared(topic, store.topics.ensure)
    return EnqueueCall(store, topic, shard_of(job.id, settings.shards, job.key), job, on_conflict, durable)


class EnqueueCall(NamedTuple):
    """A call of ``enqueue`` that is ready to be sent, alone or together with others (batcher.py, pipeline.py)."""

    store: RedisStore
    topic: str
    shard: int  # its number
    encoded: Encoded
    on_conflict: OnConflict
    durable: str | None

    @property
    def kind(self) -> tuple[str, int, OnConflict, str | None, bool, str]:
        """Those with the same can go together."""
        job = self.encoded
        # One that waits for others goes alone: it is refused if nothing is known of these.
        alone = job.nonce if job.waits is not None else ""
        # Those with a rule of their own go by themselves: else they might overtake others with the same id.
        return self.topic, self.shard, self.on_conflict, self.durable, job.rule != "", alone

    def put(self, calls: Sequence[EnqueueCall]) -> Op[list[EnqueueReply]]:
        """Sends these calls, of which it is one."""
        store, topic, jobs = self.store, self.topic, [call.encoded for call in calls]
        try:
            if len(jobs) == 1:
                done = yield from _put_one(store, topic, jobs[0], self.on_conflict, self.durable)
            else:
                done = yield from put(store, topic, jobs, self.on_conflict, self.durable)
        except NotDurable as error:
            raise self.own(error) from None
        if self.on_conflict == "keep" and done.existing:
            try:
                done = yield from _with_kept(store, topic, store.session.keys.shard(topic, self.shard), jobs, done)
            except StreamdqError as error:  # of no concern to those that have been enqueued
                done = done.with_kept({}, unseen=error)
        return [done] if len(jobs) == 1 else [done.of(i) for i in range(len(jobs))]

    def own(self, error: Exception) -> Exception:
        """What this call raises after an error that concerns all that were sent together."""
        if isinstance(error, NotDurable):
            return NotDurable(error.level, error.why, self.encoded.id)
        return clone_exception(error)

    def job(self, reply: EnqueueReply) -> Job:
        """What this call returns. ``reply``: to it, of ``put``.

        Raises:
            JobExists, IdTaken
            ServerUnavailable, BodyStorageUnavailable: the existing job, which is to be returned, can't be read.
        """
        if reply.existing:
            if self.on_conflict != "keep":
                raise refusal(self.topic, self.encoded, reply.taken[0], self.on_conflict)
            if reply.unseen is not None:
                raise clone_exception(reply.unseen)
        return reply.job(self.topic, self.encoded)


def resolve_due(store: RedisStore, topic: str, new: NewJob) -> Op[NewJob]:
    """The job with a due time of its own, if quiet hours or the load of a window decide on it."""
    from .due import with_due  # reads time zones, which most programs don't need

    return with_due(store, topic, new)


def refusal(topic: str, job: Encoded, record: bytes, on_conflict: OnConflict) -> JobExists:
    """Why a job was not enqueued. ``record``: of the job that has its id."""
    if (until_ms := ended_until_ms(record)) is not None:
        return IdTaken(topic, job.id, until_ms)
    if on_conflict not in ("replace", "postpone"):
        return JobExists(topic, job.id)
    if on_conflict == "postpone":
        return JobExists(topic, job.id, ", and it is running or dead, or waits for other jobs or has waited")
    rate = ", or its id was used as often as rate_of_id allows" if job.has_rate else ""
    return JobExists(topic, job.id, f", and it is running or dead{rate}")


def put(
    store: RedisStore,
    topic: str,
    jobs: Sequence[Encoded],
    on_conflict: OnConflict = "reject",
    durable: str | None = None,
) -> Op[EnqueueReply]:
    """Enqueues encoded jobs, at most MAX_BATCH: one call per shard, or more if the jobs are large, or some of them have
    rules of uniqueness.

    Raises:
        InvalidInput: a job has ``at_most`` and would not be postponed; nothing was written.
        ServerUnavailable: no reply in time; any of them may have been enqueued. Repeat with the same nonces or ids.
        NotDurable: the same, as far as durability is concerned.
        DurabilityUnsupported: nothing was written to the shard that can't confirm it.
        BodyStorageUnavailable: nothing was enqueued.
    """
    check_at_most(jobs, on_conflict)
    if store.session.bodies.offload is None:
        return (yield from _put(store, topic, jobs, on_conflict, durable))
    away = yield from put_away(store.session, topic, jobs)
    done = yield from _put(store, topic, away, on_conflict, durable)
    yield from take_back(store.session, topic, [away[i] for i in done.existing])
    return done


def _put(
    store: RedisStore,
    topic: str,
    jobs: Sequence[Encoded],
    on_conflict: OnConflict,
    durable: str | None,
    again: bool = False,
) -> Op[EnqueueReply]:
    """``again``: they were sent before."""
    if any(job.waits is not None for job in jobs):
        return (yield from _put_with_waits(store, topic, jobs, on_conflict, durable))
    sent = yield from send_to_shards(store, topic, jobs, on_conflict, durable, again)
    existing = _of_others(sent.taken, jobs)
    recorded.not_put_in(store.session.keys.namespace, topic, len(existing))
    return EnqueueReply(sent.now_ms, sent.taken, existing, store.session.bodies, skips_bucket=sent.skips_bucket)


def _put_with_waits(
    store: RedisStore, topic: str, jobs: Sequence[Encoded], on_conflict: OnConflict, durable: str | None
) -> Op[EnqueueReply]:
    """Some of them wait for others. These are put in one by one, after the rest, which they may wait for."""
    from .after import put_after  # which most programs don't need

    waiting = [i for i, job in enumerate(jobs) if job.waits is not None]
    sent = yield from _put_plain(store, topic, jobs, on_conflict, durable)
    now_ms, taken, due_ms, skips_bucket = sent.now_ms, dict(sent.taken), dict[int, int](), dict(sent.skips_bucket)
    for i in waiting:
        done = yield from put_after(store, topic, jobs[i], on_conflict, durable)
        now_ms = done.now_ms or now_ms
        if done.taken is not None:
            taken[i] = done.taken
        elif done.due_ms is not None or done.cancelled:
            due_ms[i] = done.due_ms or 0
            if done.skips_bucket:
                skips_bucket[i] = done.now_ms
    existing = _of_others(taken, jobs)
    recorded.not_put_in(store.session.keys.namespace, topic, len(existing))
    return EnqueueReply(now_ms, taken, existing, store.session.bodies, skips_bucket=skips_bucket, due_ms=due_ms)


def _put_plain(
    store: RedisStore, topic: str, jobs: Sequence[Encoded], on_conflict: OnConflict, durable: str | None
) -> Op[Sent]:
    """Enqueues those of them that wait for no others."""
    plain = [i for i, job in enumerate(jobs) if job.waits is None]
    if not plain:
        return Sent(0, {}, {})
    sent = yield from send_to_shards(store, topic, [jobs[i] for i in plain], on_conflict, durable)
    taken = {plain[i]: record for i, record in sent.taken.items()}
    return Sent(sent.now_ms, taken, {plain[i]: at for i, at in sent.skips_bucket.items()})


def _put_one(
    store: RedisStore, topic: str, job: Encoded, on_conflict: OnConflict, durable: str | None
) -> Op[EnqueueReply]:
    """What put does, for one job. Nearly always it is one call of one script, and what else could have to be done takes
    longer to find out than the call itself.
    """
    settings, bodies = store.topics.cached(topic), store.session.bodies
    plain = job.is_plain and on_conflict in ("reject", "keep") and bodies.offload is None
    if settings is None or settings.former or not plain:
        return (yield from put(store, topic, [job], on_conflict, durable))
    shard = store.session.keys.shard(topic, shard_of(job.id, settings.shards))
    spread = settings.named(by_key=False)
    reply = yield from store.at(durable, settings).enqueue(shard, spread, job[:3], has_keys=False)
    if not reply.current:
        return (yield from _put(store, topic, [job], on_conflict, durable, again=True))
    existing = _of_others(reply.taken, [job]) if reply.taken else []
    recorded.not_put_in(store.session.keys.namespace, topic, len(existing))
    return EnqueueReply(
        reply.now_ms, reply.taken, existing, bodies, skips_bucket={0: reply.now_ms} if reply.skips_bucket > 0 else {}
    )


def _with_kept(
    store: RedisStore, topic: str, shard: ShardKeys, jobs: Sequence[Encoded], done: EnqueueReply
) -> Op[EnqueueReply]:
    """The result with the jobs that have the ids as they are now: their records don't tell the state."""
    there = [i for i in done.existing if ended_until_ms(done.taken[i]) is None]
    if not there:
        return done
    kept: dict[int, Job] = {}
    found: list[FoundJob] = []
    for part in parts(there, lambda i: len(done.taken[i]), MAX_BATCH, MAX_BYTES):
        found += yield from store.scripts.get_each(shard, [jobs[i].id for i in part])
    for i, one in zip(there, found, strict=True):
        job = job_of(topic, jobs[i].id, one, store.session.bodies)
        if job is None:  # in another shard, as the number was changed; or it has ended by now
            job = yield from get(store, topic, jobs[i].id, key=jobs[i].key)
        if job is None:
            job = done.job(topic, jobs[i], i)
            job.state = JobState.ENDED
        kept[i] = job
    return done.with_kept(kept)


def check_at_most(jobs: Sequence[Encoded], on_conflict: OnConflict) -> None:
    if on_conflict == "postpone":
        return
    for job in jobs:
        if job.rule and job.has_at_most:
            raise InvalidInput("at_most: pass on_conflict='postpone' as well; it is how far a job may be postponed")


def _of_others(taken: Mapping[int, bytes], jobs: Sequence[Encoded]) -> list[int]:
    """The taken ids that belong to other jobs, and not to the same job from a call whose reply was lost."""
    return [i for i, record in taken.items() if nonce_of(record) != jobs[i].nonce]
