"""Operations on jobs and dead letters. Queue runs them with blocking calls, AsyncQueue awaits them (queue.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from ..config import DEFAULT_GROUP, MAX_BATCH, TopicSettings
from ..errors import IdTaken, InvalidInput, JobExists, NotDurable, StreamdqError
from ..job.durability import check_level
from ..job.job import Decoder, Job, JobState, NewJob, check_topic
from ..job.retry import RetryInput
from ..job.uniqueness import NO_RULE, DerivedId, UniqueAfter
from ..keys import ShardKeys, shard_of
from ..link.session import Op
from ..metrics import recorded
from ..store import reads
from ..store.batches import MAX_BYTES, REPLACED_BYTES, most_jobs, parts
from ..store.records import Encoded, encode, encode_when, ended_until_ms, job_in, nonce_of
from ..store.redis_store import RedisStore
from ..store.replies import Enqueued, FoundJob
from ..store.scripts import Scripts
from ..store.topics import changing
from ..times.durations import Duration, Moment
from .batcher import twin
from .former_homes import Kept, put_there
from .inspect import REPAIRS, ask, get, job_of, known_group, shard_with
from .large_bodies import put_away, take_back
from .pace import SLICE, Pace

OnConflict = Literal["reject", "keep", "replace", "postpone"]
CONFLICTS: tuple[OnConflict, ...] = get_args(OnConflict)
_PURGE_BATCH = 100
NO_BODY: Any = {}
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
    kept: Mapping[int, Job] = {}  # those of ``existing`` that were looked up, as they are now
    unseen: Exception | None = None  # why those of ``existing`` could not be looked up
    straight: Mapping[int, int] = {}  # those that are ready if they were due by then, by Redis's clock

    def of(self, index: int) -> Put:
        """What became of one of them."""
        taken = {0: self.taken[index]} if index in self.taken else {}
        kept = {0: self.kept[index]} if index in self.kept else {}
        straight = {0: self.straight[index]} if index in self.straight else {}
        existing = [0] if index in self.existing else []
        return Put(self.now_ms, taken, existing, self.decoder, kept, self.unseen, straight)

    def with_kept(self, kept: Mapping[int, Job], unseen: Exception | None = None) -> Put:
        """The same, after those that have the ids were looked up."""
        return Put(self.now_ms, self.taken, self.existing, self.decoder, kept, unseen, self.straight)

    def job(self, topic: str, given: Encoded, index: int = 0) -> Job:
        """The job that has the id now, or had it last: that one's body is None, its state ``ended``."""
        if index in self.kept:
            return self.kept[index]
        record = self.taken.get(index)
        if record is None:
            new = given.job(topic, self.now_ms, self.decoder)
            if new.due_ms <= self.straight.get(index, -1):
                new.state = JobState.READY
            return new
        job = job_in(topic, given.id, record, self.decoder)
        if ended_until_ms(record) is not None:
            job.state = JobState.ENDED
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
    due up to this much later; it is due in the minute in which the fewest other jobs of the topic are.

    ``on_conflict``: what to do if a job that has not ended has this id: "reject" raises, "keep" returns that job
    as it is now, "replace" cancels it first, "postpone" gives it this job's body and due time, but no later than
    ``at_most`` after its first due time. A call that is repeated after a lost connection finds its own job. The state
    of a new job is ``ready`` if it is due at once and nothing that is due waits before it, otherwise ``delayed``; so it
    is if the call was repeated, whatever became of the job since. ``version``: of the body's shape (``Worker.upcast``).

    ``id``: a text, or ``unique("user", "kind")`` for one made of these fields of the body (``streamdq.job.unique``).
    ``unique_for``: it stays taken for this long from now on, whatever becomes of the job; with ``unique_after``
    "finish", from when the job has ended. ``rate_of_id``: at most so many jobs may get it, "3/h" in any hour. If only a
    job that has ended is in the way, "keep" returns what is known of that: its times, the state ``ended``, and no body.
    docs/reference/uniqueness.md has a table of all cases.

    ``key``: what the job belongs to, such as a customer. Jobs with the same key are in the same shard, and an id is
    taken or free in that shard alone. So give a job with an id of your own the same key each time.

    ``durable``: where the job, or the existing one, is for certain when this returns: "memory" of the server, its
    "disk" (in the append-only file), or also the memory of "replicas:N". None: as the topic or this process is
    configured.

    Raises:
        InvalidInput: an argument is invalid; nothing was written.
        JobExists: the id is taken; with "replace" or "postpone", by a job that is running or dead.
        IdTaken (a JobExists): by a job that has ended; until when, as ``unique_for`` or ``rate_of_id`` says.
        NotDurable: that was not confirmed in time; the job is in Redis. Repeat the call with the error's id and "keep".
        DurabilityUnsupported: this Redis can't confirm it; nothing was written.
        ServerUnavailable: no reply in time; the job may have been enqueued. Repeat the call with the same id.
    """
    new = NewJob(
        body, delay, id, at, ttr, retry, url, expire, tz, quiet, window, version, unique_for, rate_of_id, at_most, key,
        unique_after,
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
    if topic not in store.topics.known:
        topic = check_topic(topic)
    if new.quiet is not None or new.window is not None:
        new = yield from _settled(store, topic, new)
    bodies = store.session.bodies
    job = encode(new, bodies.most_bytes, bodies.seal(topic))
    if job.rule:
        check_at_most([job], on_conflict)
    check_level(durable)
    settings = store.topics.settled(topic)
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
    def kind(self) -> tuple[str, int, OnConflict, str | None, bool]:
        """Those with the same can go together."""
        # Those with a rule of their own go by themselves: else they might overtake others with the same id.
        return self.topic, self.shard, self.on_conflict, self.durable, self.encoded.rule != ""

    def put(self, calls: Sequence[EnqueueCall]) -> Op[list[Put]]:
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
        return twin(error)

    def job(self, reply: Put) -> Job:
        """What this call returns. ``reply``: to it, of ``put``.

        Raises:
            JobExists, IdTaken
            ServerUnavailable, BodyStorageUnavailable: the existing job, which is to be returned, can't be read.
        """
        if reply.existing:
            if self.on_conflict != "keep":
                raise refusal(self.topic, self.encoded, reply.taken[0], self.on_conflict)
            if reply.unseen is not None:
                raise twin(reply.unseen)
        return reply.job(self.topic, self.encoded)


def _settled(store: RedisStore, topic: str, new: NewJob) -> Op[NewJob]:
    from .due import settled  # reads time zones, which most programs don't need

    return settled(store, topic, new)


def check_conflict(on_conflict: OnConflict) -> None:
    if on_conflict not in CONFLICTS:
        raise InvalidInput(f"on_conflict: {on_conflict!r} is not one of {', '.join(map(repr, CONFLICTS))}")


def refusal(topic: str, job: Encoded, record: bytes, on_conflict: OnConflict) -> JobExists:
    """Why a job was not enqueued. ``record``: of the job that has its id."""
    if (until_ms := ended_until_ms(record)) is not None:
        return IdTaken(topic, job.id, until_ms)
    if on_conflict not in ("replace", "postpone"):
        return JobExists(topic, job.id)
    rate = ", or its id was used as often as rate_of_id allows" if job.has_rate and on_conflict == "replace" else ""
    return JobExists(topic, job.id, f", and it is running or dead{rate}")


def put(
    store: RedisStore,
    topic: str,
    jobs: Sequence[Encoded],
    on_conflict: OnConflict = "reject",
    durable: str | None = None,
) -> Op[Put]:
    """Enqueues encoded jobs, at most MAX_BATCH: one call per shard, or more if the jobs are large, or some of them have
    rules of uniqueness. Every enqueue goes through here.

    Raises:
        InvalidInput: a job has ``at_most`` and would not be postponed; nothing was written.
        ServerUnavailable: no reply in time; any of them may have been enqueued. Repeat with the same nonces or ids.
        NotDurable: the same, as far as durability is concerned.
        DurabilityUnsupported: nothing was written to the shard that it was asked of.
        BodyStorageUnavailable: nothing was enqueued.
    """
    check_at_most(jobs, on_conflict)
    if store.session.bodies.offload is None:
        return (yield from _put(store, topic, jobs, on_conflict, durable))
    away = yield from put_away(store.session, topic, jobs)
    done = yield from _put(store, topic, away, on_conflict, durable)
    yield from take_back(store.session, topic, [away[i] for i in done.existing])
    return done


def _put_one(store: RedisStore, topic: str, job: Encoded, on_conflict: OnConflict, durable: str | None) -> Op[Put]:
    """What put does, for one job. Nearly always it is one call of one script, and what else could have to be done takes
    longer to find out than the call itself.
    """
    settings, bodies = store.topics.settled(topic), store.session.bodies
    plain = job.rule == "" and job.key is None and on_conflict in ("reject", "keep") and bodies.offload is None
    if settings is None or settings.former or not plain:
        return (yield from put(store, topic, [job], on_conflict, durable))
    shard = store.session.keys.shard(topic, shard_of(job.id, settings.shards))
    spread = settings.named(by_key=False)
    reply = yield from store.at(durable, settings).enqueue(shard, spread, job[:3], keyed=False)
    if not reply.current:
        return (yield from _put(store, topic, [job], on_conflict, durable, again=True))
    existing = _of_others(reply.taken, [job]) if reply.taken else []
    recorded.not_put_in(store.session.keys.namespace, topic, len(existing))
    return Put(reply.now_ms, reply.taken, existing, bodies, straight={0: reply.now_ms} if reply.straight > 0 else {})


def _put(
    store: RedisStore,
    topic: str,
    jobs: Sequence[Encoded],
    on_conflict: OnConflict,
    durable: str | None,
    again: bool = False,
) -> Op[Put]:
    """``again``: they were sent before."""
    settings = store.topics.settled(topic)
    if settings is None:
        settings = yield from store.topics.shared(topic, store.topics.ensure)
    left, now_ms = list(range(len(jobs))), 0
    taken: dict[int, bytes] = {}
    straight: dict[int, int] = {}
    for _ in range(REPAIRS):
        outdated: list[int] = []
        if settings.shards + len(settings.former) > 1:
            settings = yield from _with_keys(store, topic, settings, jobs)
        scripts = store.at(durable, settings)
        if settings.former:
            kept = yield from _at_former_homes(scripts, store, topic, settings, jobs, left, on_conflict, again)
            left, outdated, now_ms, taken = kept.left, kept.outdated, kept.now_ms, taken | kept.taken
        calls = _by_shard(store, topic, settings, jobs, left, on_conflict)
        replies = yield from _sent_together(scripts, settings, jobs, calls, on_conflict)
        for (shard, part), first in zip(calls, replies, strict=True):
            for some, reply in (yield from _whole(scripts, shard, settings, jobs, part, on_conflict, first)):
                now_ms = reply.now_ms
                taken |= _by_job(reply.taken, some)
                straight |= dict.fromkeys(_straight(reply, jobs, some), now_ms)
                if not reply.current:
                    outdated += some[reply.looked :]
        if not outdated:
            existing = _of_others(taken, jobs)
            recorded.not_put_in(store.session.keys.namespace, topic, len(existing))
            return Put(now_ms, taken, existing, store.session.bodies, straight=straight)
        left, settings, again = outdated, (yield from store.topics.shared(topic, store.topics.repair)), True
    raise changing(topic)


def _straight(reply: Enqueued, jobs: Sequence[Encoded], part: Sequence[int]) -> Sequence[int]:
    """Those of a call's jobs that are ready if they are due."""
    if reply.straight <= 0:
        return ()
    done = part[: reply.looked]
    return done if reply.straight == 1 else [i for i in done if jobs[i].key is None]


def _at_former_homes(
    scripts: Scripts,
    store: RedisStore,
    topic: str,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    indexes: Sequence[int],
    on_conflict: OnConflict,
    again: bool,
) -> Op[Kept]:
    """``again``: these jobs were sent before, and the reply may have been lost. If not, nobody can have used their new
    ids.
    """
    asked = [i for i in indexes if again or not jobs[i].has_new_id]
    kept = yield from put_there(
        scripts, partial(store.session.keys.shard, topic), settings, jobs, asked, _how(on_conflict)
    )
    left = {*kept.left, *set(indexes).difference(asked)}
    kept.left = [i for i in indexes if i in left]  # in their order
    return kept


def _with_kept(store: RedisStore, topic: str, shard: ShardKeys, jobs: Sequence[Encoded], done: Put) -> Op[Put]:
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


def _call(
    scripts: Scripts, shard: ShardKeys, settings: TopicSettings, jobs: Sequence[Encoded], on_conflict: OnConflict
) -> Op[Enqueued]:
    """All of the jobs are unique, or none is."""
    spread, plain, keyed = _arguments(settings, jobs)
    if _is_unique(jobs[0], on_conflict):
        args = [value for job in jobs for value in (*job[:3], job.rule or NO_RULE)]
        return scripts.enqueue_unique(shard, spread, _how(on_conflict), args)
    if on_conflict == "replace":
        return scripts.replace(shard, spread, plain)
    return scripts.enqueue(shard, spread, plain, keyed)


def _sent_together(
    scripts: Scripts,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    calls: Sequence[tuple[ShardKeys, list[int]]],
    on_conflict: OnConflict,
) -> Op[list[Enqueued | None]]:
    """The replies to those of the calls that can travel together; None: the call is still to be made. A batch for many
    shards takes one round trip to each node then, and the servers less time to read, write and wake up.
    """
    if not _can_travel_together(scripts, jobs, calls, on_conflict):
        return [None] * len(calls)
    replies: list[Enqueued | None] = [None] * len(calls)
    # Only the first of each shard: it may leave jobs for another call, and those come before the shard's others.
    firsts: dict[int, int] = {}
    for index, (shard, _) in enumerate(calls):
        firsts.setdefault(shard.shard, index)
    for some in parts([*firsts.values()], lambda i: _bytes_of(jobs, calls[i][1]), MAX_BATCH, MAX_BYTES):
        arguments = [(calls[i][0], *_arguments(settings, [jobs[j] for j in calls[i][1]])) for i in some]
        if len(some) == 1:
            replies[some[0]] = yield from scripts.enqueue(*arguments[0])
        else:
            for i, reply in zip(some, (yield from scripts.enqueue_each(arguments)), strict=True):
                replies[i] = reply
    return replies


def _can_travel_together(
    scripts: Scripts, jobs: Sequence[Encoded], calls: Sequence[tuple[ShardKeys, list[int]]], on_conflict: OnConflict
) -> bool:
    if len(calls) == 1 or scripts.is_durable or on_conflict not in ("reject", "keep"):
        return False
    # Of jobs with the same id the first is to get it, so those with rules can't be left for later.
    return not any(_is_unique(jobs[part[0]], on_conflict) for _, part in calls)


def _bytes_of(jobs: Sequence[Encoded], indexes: Sequence[int]) -> int:
    return sum([len(jobs[i].rest) for i in indexes])


def _whole(
    scripts: Scripts,
    shard: ShardKeys,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    part: list[int],
    on_conflict: OnConflict,
    first: Enqueued | None,
) -> Op[list[tuple[list[int], Enqueued]]]:
    """Enqueues a part of the jobs: the jobs and the reply of each call. There is one as a rule, and more if large jobs
    have the ids, as a call reads a bounded number of bytes. ``first``: the reply of the first one, if it was made
    before. A reply that is not current is the last.
    """
    found: list[tuple[list[int], Enqueued]] = []
    reply = first
    while part:
        if reply is None:
            reply = yield from _call(scripts, shard, settings, [jobs[i] for i in part], on_conflict)
        found.append((part, reply))
        if not reply.current:
            break
        part, reply = part[reply.looked :], None
    return found


def _arguments(settings: TopicSettings, jobs: Sequence[Encoded]) -> tuple[str, list[Any], bool]:
    """How jobs are spread, what the script needs of each, and whether one has a key."""
    keyed = any([job.key is not None for job in jobs])  # noqa: C419 - a generator takes twice as long
    return settings.named(by_key=keyed), [value for job in jobs for value in job[:3]], keyed


def _how(on_conflict: OnConflict) -> str:
    return "keep" if on_conflict == "reject" else on_conflict


def _is_unique(job: Encoded, on_conflict: OnConflict) -> bool:
    return on_conflict == "postpone" or job.rule != ""


def _with_keys(store: RedisStore, topic: str, settings: TopicSettings, jobs: Sequence[Encoded]) -> Op[TopicSettings]:
    """The settings, marked before the first job of the topic is in a shard that its id alone does not lead to."""
    if settings.leads_to_keys or all(job.key is None for job in jobs):
        return settings
    return (yield from store.topics.expect_keys(topic))


def _by_shard(
    store: RedisStore,
    topic: str,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    indexes: list[int],
    on_conflict: OnConflict,
) -> list[tuple[ShardKeys, list[int]]]:
    """The jobs of each shard, in parts that fit into one call."""
    if len(indexes) == 1:
        only = jobs[indexes[0]]
        return [(store.session.keys.shard(topic, shard_of(only.id, settings.shards, only.key)), indexes)]
    spread: dict[tuple[int, bool], list[int]] = {}
    for i in indexes:
        place = shard_of(jobs[i].id, settings.shards, jobs[i].key), _is_unique(jobs[i], on_conflict)
        spread.setdefault(place, []).append(i)
    small = most_jobs(MAX_BATCH, len(settings.groups)), REPLACED_BYTES  # other jobs' records are read as well
    return [
        (store.session.keys.shard(topic, number), part)
        for (number, is_unique), numbers in spread.items()
        for part in parts(
            numbers,
            lambda i: len(jobs[i].rest),
            *(small if is_unique or on_conflict == "replace" else (MAX_BATCH, MAX_BYTES)),
        )
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
    "replace" replaces it, "postpone" postpones it; either counts as created. ``durable``: as for ``enqueue``, of
    each batch.

    Raises:
        InvalidInput: a job is invalid; the batches before it were enqueued, no job of its own batch was.
        NotDurable: a batch was not confirmed in time; those before it were. If all jobs have ids, repeat the call.
    """
    topic = check_topic(topic)
    check_conflict(on_conflict)
    check_level(durable)
    if not 1 <= batch_size <= MAX_BATCH:
        raise InvalidInput(f"batch_size: {batch_size!r} is not between 1 and {MAX_BATCH}")
    if store.topics.settled(topic) is None:  # create the topic even if there are no jobs
        yield from store.topics.shared(topic, store.topics.ensure)
    result, source = EnqueueResult(0, []), iter(jobs)
    while some := list(islice(source, batch_size)):
        batch = yield from _encoded(store, topic, some)
        reply = yield from put(store, topic, batch, on_conflict, durable)
        result.existing += [batch[i].id for i in reply.existing]
        result.created += len(batch) - len(reply.existing)
    return result


def _encoded(store: RedisStore, topic: str, jobs: Sequence[NewJob | Mapping[str, Any]]) -> Op[list[Encoded]]:
    limit, seal, out = store.session.bodies.most_bytes, store.session.bodies.seal(topic), []
    for job in jobs:
        new = job if isinstance(job, NewJob) else _new_job(job)
        if new.quiet is not None or new.window is not None:
            new = yield from _settled(store, topic, new)
        out.append(encode(new, limit, seal))
    return out


# -- one job


def cancel(store: RedisStore, topic: str, id: str, *, key: str | None = None, durable: str | None = None) -> Op[bool]:
    """Cancel a waiting job. True: the job is deleted, with its dead letters in other groups, and no new attempt of it
    starts in any group. False: nothing was changed, because there is no such job, or no group waits for it: it is
    running or dead. ``key``: of the job, if it has one: then only the shard of that key is asked. ``durable``: as for
    ``enqueue``; a cancellation that a failover undoes lets the job run.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call (False may then mean that the first call did it).
        NotDurable: the same; the answer of the repeated call covers the first one as well.
        DurabilityUnsupported: this Redis can't confirm it; nothing was changed.
    """
    check_level(durable)
    asked = ask(store, topic, id, lambda k, settings, _: store.at(durable, settings).cancel(k, settings, id), key)
    return (yield from asked) == 1


def reschedule(
    store: RedisStore,
    topic: str,
    id: str,
    *,
    delay: Duration | None = None,
    at: Moment | None = None,
    key: str | None = None,
    durable: str | None = None,
) -> Op[bool]:
    """Gives a waiting job (delayed, ready, or before its next attempt) a new due time. False: nothing was changed,
    because there is no such job, or it is running or dead. ``key``: as for ``cancel``; ``durable``: as for ``enqueue``.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call (False may then mean that the first call did it).
        NotDurable, DurabilityUnsupported: as for ``cancel``.
    """
    check_level(durable)
    if delay is None and at is None:
        raise InvalidInput("reschedule: pass delay or at")
    when = encode_when(delay, at)

    def script(k: ShardKeys, settings: TopicSettings, id: str) -> Op[int]:
        return store.at(durable, settings).reschedule(k, settings, id, when)

    return (yield from ask(store, topic, id, script, key)) == 1


# -- dead letters


def kick(
    store: RedisStore, topic: str, id: str | None = None, group: str = DEFAULT_GROUP, *, all: bool = False
) -> Op[int]:
    """Sends a dead job back, or all dead jobs of the group; returns how many. They are ready at once. Many jobs go in
    slices, as fast as they are claimed, so that they don't delay due jobs. If the call is interrupted, the rest stays
    dead. Without ``id``, ``all`` goes without saying.
    """
    if all and id is not None:
        raise InvalidInput("kick: pass an id or all=True, not both")
    pace = Pace(store.session)
    return (yield from _each_dead(store, store.scripts.kick, topic, id, group, SLICE, pace))


def purge(
    store: RedisStore, topic: str, id: str | None = None, *, group: str = DEFAULT_GROUP, all: bool = False
) -> Op[int]:
    """Deletes a dead job for good, or with ``all`` all dead jobs of the group; returns how many.

    Raises:
        InvalidInput: neither an id nor ``all`` is given, or both; nothing was deleted.
    """
    if (id is None) != all:
        raise InvalidInput("purge: pass either the id of a dead job, or all=True for all dead jobs of the group")
    return (yield from _each_dead(store, store.scripts.purge, topic, id, group, _PURGE_BATCH, None))


def _each_dead(
    store: RedisStore, script: _DeadScript, topic: str, id: str | None, group: str, most: int, pace: Pace | None
) -> Op[int]:
    settings = yield from known_group(store, topic, group, anew=True)
    if id is not None:
        shard = yield from shard_with(store, topic, settings, id)
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


def _new_job(fields: object) -> NewJob:
    if not isinstance(fields, Mapping):
        what = repr(fields[:80]) if isinstance(fields, str) else type(fields).__name__
        raise InvalidInput(f"job: {what} is neither a NewJob nor a dict such as {{'body': 7}}")
    known = NewJob.__dataclass_fields__
    if unknown := [name for name in fields if name not in known]:
        raise InvalidInput(f"job: there is no field {unknown[0]!r}; fields are {', '.join(known)}")
    try:
        return NewJob(**fields)
    except TypeError:  # the one field without a default
        raise InvalidInput("job: the field 'body' is missing") from None
