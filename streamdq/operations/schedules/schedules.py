"""Operations on schedules. Queue runs them with blocking calls, AsyncQueue awaits them (queue.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, Literal, NamedTuple, TypedDict

from pydantic_core import from_json
from typing_extensions import Unpack

from ...codec.envelope import Envelope, envelope_in, from_text
from ...config import MAX_BATCH
from ...errors import InvalidInput, ScheduleMissing
from ...job.job import Job, NewJob, check_id, check_topic
from ...job.retry import RetryInput
from ...link.session import Op
from ...options import unknown
from ...schedules.definition import Definition, Overlap, define, named_moment, shown
from ...schedules.plan import MAX_ID_BYTES, occurrence_id
from ...schedules.recurrence import Dst
from ...store.jobs import lookup
from ...store.jobs.records import Encoded, encode, encode_when, fields_in, rest_of
from ...store.redis_store import RedisStore
from ...store.schedules.schedules import AHEAD_MS, Changed, Schedules, ScheduleState, StoredSchedule
from ...times.durations import Duration, Moment
from ..jobs.enqueue import put

_SHOWN = 5
_MOST_BACKFILLED = 100_000
_DUE = b"{due}"
_LONGEST_TIME = b"2027-03-29T09:00:00.000+02:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as Redis holds it. Times are Redis's; ``*_ms`` are Unix milliseconds, durations milliseconds."""

    topic: str
    id: str
    state: ScheduleState
    definition: Definition
    next_ms: list[int]  # when the next occurrences come, by the clock, without jitter; five at most
    previous: str | None  # id of the last occurrence's job
    waiting: bool  # one occurrence waits for its predecessor to end (overlap="queue")
    fired: int
    skipped: int
    missed: int
    raw_body: bytes  # JSON as it was given, with {due}
    version: int  # of the body's shape
    ttr_ms: int | None  # these four: of its jobs
    retry: str | None
    url: str | None
    expire_ms: int | None

    @property
    def body(self) -> Any:
        """The body of its jobs, decoded from JSON, with ``{due}``."""
        return from_json(self.raw_body)

    @property
    def text(self) -> str:
        """When it runs: its expression, or ``every 10m``."""
        return self.definition.phrase


class PutSchedule(NamedTuple):
    """What a schedule was (None: there was none), and what it is. Both are equal if nothing has changed."""

    before: Schedule | None
    after: Schedule


class ScheduleOptions(TypedDict, total=False):
    """When a schedule runs, and the options of its jobs: those of ``Queue.schedule`` and ``Worker.schedule``. Either
    ``cron`` or ``every`` is needed. Durations are seconds or texts such as "10m".
    """

    cron: str | None
    """An expression of five fields, or six, seconds first."""
    every: Duration | None
    """An interval of at least a second: the first job comes after one."""
    tz: str
    """The time zone of ``cron``, such as "Europe/Paris"; "UTC" by default."""
    dst: Dst
    """A local time that does not exist, because clocks are set forward, runs at the first moment after the gap; one
    that comes twice runs "once", the default, or "both" times.
    """
    jitter: Duration | None
    """Each occurrence is due up to so much later, always the same for all hosts."""
    start: Moment | None
    """No occurrence comes before this moment."""
    until: Moment | None
    """Nor one after this moment."""
    overlap: Overlap
    """If the job of the last occurrence has not ended in all groups, "allow", the default, enqueues another, "skip"
    does not, and "queue" enqueues one when it has ended.
    """
    catch_up: Duration | Literal["none", "last"]
    """Of occurrences that are more than 30 s late, because no mover was running, "none" runs, the "last" one, which is
    the default, or all that are at most so late.
    """
    ttr: Duration | None
    """How long an attempt of its jobs may take, as for ``enqueue``."""
    retry: RetryInput | None
    """The delays between the attempts of its jobs, as for ``enqueue``."""
    url: str | None
    """Where a callback worker POSTs the body of its jobs."""
    expire: Duration | None
    """An attempt that would start later than this after its due time is given up instead."""
    version: int
    """Of the body's shape, as for ``enqueue``; 1 by default."""


_OF_JOBS = ("ttr", "retry", "url", "expire", "version")


def planned(body: Any, options: ScheduleOptions, *, declared: bool = False) -> tuple[Definition, NewJob]:
    """What the options say: when the schedule runs, and the job of its occurrences.

    Raises:
        InvalidInput: one is invalid.
        TypeError: one is unknown.
    """
    known = ScheduleOptions.__annotations__
    if wrong := options.keys() - known.keys():
        raise unknown("schedule", min(wrong), known)
    of_jobs: dict[str, Any] = {name: value for name, value in options.items() if name in _OF_JOBS}
    when: dict[str, Any] = {name: value for name, value in options.items() if name not in _OF_JOBS}
    return define(**when, declared=declared), NewJob({} if body is None else body, **of_jobs)


def schedule(
    store: RedisStore, topic: str, body: Any = None, *, id: str = "default", **options: Unpack[ScheduleOptions]
) -> Op[Schedule]:
    """Enqueues a job whenever the time comes: by a cron expression of five fields (or six, seconds first) in a time
    zone, or every so often, for the first time after one interval. Each occurrence is a job of its own; its id is the
    schedule's, ``@``, and its time in UTC. ``{due}`` in the body's texts stands for that time, in the schedule's zone.

    A schedule with this id is changed, from its next occurrence on; if nothing differs, nothing happens.

    ``options``: ``cron`` or ``every``, and ``tz``, ``dst``, ``jitter``, ``start``, ``until``, ``overlap``,
    ``catch_up``, ``ttr``, ``retry``, ``url``, ``expire`` and ``version``, which ``ScheduleOptions`` describes.

    Raises:
        InvalidInput: an argument is invalid; nothing was changed.
        ServerUnavailable: no reply in time; repeat the call.
    """
    definition, new = planned(body, options)
    return (yield from put_schedule(store, topic, id, definition, new)).after


def put_schedule(store: RedisStore, topic: str, id: str, definition: Definition, new: NewJob) -> Op[PutSchedule]:
    """``new``: the job of its occurrences."""
    changed = _changed(store, topic, id, definition, new)
    before: StoredSchedule | None = None

    def noted(known: StoredSchedule | None, now_ms: int) -> StoredSchedule:
        nonlocal before
        before = known
        return changed(known, now_ms)

    yield from store.topics.expect_schedules(topic)
    after, now_ms = yield from _schedules(store).change(topic, id, noted)
    return _put(topic, id, before, after, now_ms)


def preview_schedule(store: RedisStore, topic: str, id: str, definition: Definition, new: NewJob) -> Op[PutSchedule]:
    """What ``put_schedule`` would do now. Nothing is written."""
    changed = _changed(store, topic, id, definition, new)
    before, now_ms = yield from _schedules(store).read(topic, id)
    after = changed(before, now_ms)
    if after.state == "active" and not _shown(topic, id, after, now_ms).next_ms:
        after = replace(after, state="ended")
    return _put(topic, id, before, after, now_ms)


def _put(topic: str, id: str, before: StoredSchedule | None, after: StoredSchedule, now_ms: int) -> PutSchedule:
    return PutSchedule(None if before is None else _shown(topic, id, before, now_ms), _shown(topic, id, after, now_ms))


def _changed(store: RedisStore, topic: str, id: str, definition: Definition, new: NewJob) -> Changed:
    topic, id = check_topic(topic), check_schedule_id(id)
    if store.session.bodies.encrypts and new.body != {}:
        raise InvalidInput(
            "schedule: a schedule's body is a template in Redis, so it can't be encrypted as this queue's bodies are: "
            "schedule it without a body, or from a Queue with codec=[], which stores it in the clear"
        )
    job = rest_of(**{**fields_in(encode(new, store.session.settings.max_body_bytes).rest), "nonce": ""})
    _check_grown(job, store.session.settings.max_body_bytes)

    def changed(known: StoredSchedule | None, now_ms: int) -> StoredSchedule:
        if known is None:
            return StoredSchedule(definition=replace(definition, anchor_ms=now_ms), last_ms=now_ms, job=job)
        if known.definition.is_same(definition) and known.job == job:
            return known
        same_pace = known.definition.every_ms == definition.every_ms
        anchored = replace(definition, anchor_ms=known.definition.anchor_ms if same_pace else now_ms)
        state: ScheduleState = "paused" if known.state == "paused" else "active"
        last_ms = (
            known.last_ms if known.plan and _same_times(known.definition, anchored) else _settled_ms(known, now_ms)
        )
        return replace(known, state=state, definition=anchored, job=job, last_ms=last_ms, plan=(), more=True)

    return changed


def _check_grown(job: bytes, max_body_bytes: int) -> None:
    """``{due}`` is shorter than what it stands for."""
    size = len(_body_in(job.replace(_DUE, _LONGEST_TIME)).data)
    if size > max_body_bytes:
        raise InvalidInput(
            f"body: with its times in place of {{due}} it has up to {size} bytes, more than the "
            f"{max_body_bytes} allowed; use {{due}} less often, or raise STREAMDQ_MAX_BODY_BYTES"
        )


def _body_in(job: bytes) -> Envelope:
    """It is not encoded, but says its version if that is not 1."""
    return envelope_in(from_text(fields_in(job)["body"]))


def _settled_ms(known: StoredSchedule, now_ms: int) -> int:
    """New plans begin after this: after now, or after the occurrence whose job was enqueued ahead of its time, if
    somebody has cancelled or rescheduled that job. If it was taken back, it is in the plan again.
    """
    taken_back = bool(known.plan) and known.plan[0].time_ms == known.last_ms + 1
    is_ahead = now_ms < known.last_ms <= now_ms + AHEAD_MS  # later: the clock was set back
    return known.last_ms if is_ahead and not taken_back else now_ms


def _same_times(one: Definition, other: Definition) -> bool:
    """Whether they come at the same times by the clock. Then one that has come, and is not due yet for its jitter, is
    the other's as well.
    """
    return (one.cron, one.every_ms, one.tz, one.dst) == (other.cron, other.every_ms, other.tz, other.dst)


def unschedule(store: RedisStore, topic: str, id: str = "default") -> Op[bool]:
    """Removes a schedule; the jobs of its past occurrences stay. False: there is none.

    Raises:
        UnknownTopic: there is no such topic.
    """
    yield from store.topics.get(topic)
    return (yield from _schedules(store).remove(topic, check_schedule_id(id)))


def schedules(store: RedisStore, topic: str | None = None) -> Op[list[Schedule]]:
    """The schedules of a topic, or of all, by topic and id.

    Raises:
        UnknownTopic: there is no such topic.
    """
    if topic is None:
        topics = [name for name, settings in (yield from store.topics.registry()).items() if settings.scheduled]
    else:
        yield from store.topics.get(topic)
        topics = [topic]
    found = []
    for name in sorted(topics):
        known, now_ms = (yield from _schedules(store).all_of(name)), (yield from _schedules(store).now_ms(name))
        found += [_shown(name, id, known[id], now_ms) for id in sorted(known)]
    return found


def get_schedule(store: RedisStore, topic: str, id: str = "default") -> Op[Schedule]:
    """One schedule.

    Raises:
        UnknownTopic: there is no such topic.
        ScheduleMissing: it has no such schedule.
    """
    return _shown(topic, id, *(yield from _read(store, topic, id)))


def pause_schedule(store: RedisStore, topic: str, id: str = "default") -> Op[Schedule]:
    """No occurrence runs until it is resumed; those of this time are not made up for. One that waits for the last job
    to end (overlap="queue") waits on.
    """

    def changed(known: StoredSchedule | None, now_ms: int) -> StoredSchedule:
        there = _there(known, topic, id)
        return replace(there, state="paused", plan=(), last_ms=_settled_ms(there, now_ms))

    yield from store.topics.get(topic)
    return _shown(topic, id, *(yield from _schedules(store).change(topic, check_schedule_id(id), changed)))


def resume_schedule(store: RedisStore, topic: str, id: str = "default") -> Op[Schedule]:
    """Its occurrences run again, from the next one on."""

    def changed(known: StoredSchedule | None, now_ms: int) -> StoredSchedule:
        there = _there(known, topic, id)
        return there if there.state != "paused" else replace(there, state="active", last_ms=_settled_ms(there, now_ms))

    yield from store.topics.get(topic)
    return _shown(topic, id, *(yield from _schedules(store).change(topic, check_schedule_id(id), changed)))


def trigger(store: RedisStore, topic: str, id: str = "default") -> Op[Job]:
    """Enqueues a job of the schedule now, whatever its state and overlap. The schedule does not change.

    Raises:
        UnknownTopic, ScheduleMissing
        ServerUnavailable: no reply in time; the job may have been enqueued.
    """
    known, now_ms = yield from _read(store, topic, id)
    own = {one.time_ms for one in (*known.plan, known.ahead, known.held) if one}
    for time_ms in count(now_ms):  # not one that an occurrence, or somebody else at the same time, has the id of
        if time_ms not in own:
            job = _job_at(store, topic, id, known, time_ms, now_ms)
            reply = yield from put(store, topic, [job])
            if not reply.existing:
                return reply.job(topic, job)
    raise AssertionError


def backfill(store: RedisStore, topic: str, id: str, start: Moment, end: Moment) -> Op[int]:
    """Enqueues the jobs of the occurrences from ``start`` until before ``end``, due at once in their order; returns how
    many. Those that are in the queue now are left alone; those that ran and ended run again; those to come are not due
    yet, and left to the schedule. At most 100,000.

    Raises:
        UnknownTopic, ScheduleMissing
        InvalidInput: too many, or the end is before the start.
    """
    known, now_ms = yield from _read(store, topic, id)
    begin_ms, end_ms = named_moment("start", start), named_moment("end", end)
    if end_ms < begin_ms:
        raise InvalidInput("backfill: end is before start")
    times = _until(known.definition.times(begin_ms - 1), min(end_ms, now_ms + 1))
    found = list(islice(times, _MOST_BACKFILLED + 1))
    if len(found) > _MOST_BACKFILLED:
        raise InvalidInput(f"backfill: more than {_MOST_BACKFILLED:,} occurrences; choose a shorter time")
    created = 0
    for i in range(0, len(found), MAX_BATCH):
        new = yield from _without_old(store, topic, id, found[i : i + MAX_BATCH])
        jobs = [_job_at(store, topic, id, known, time, min(time, now_ms)) for time in new]
        reply = yield from put(store, topic, jobs)
        created += len(jobs) - len(reply.existing)
    return created


def jobs_to_come(store: RedisStore, topic: str) -> Op[dict[str, Job]]:
    """By the schedule's id, the job that each makes next, also if it is paused. Nothing is enqueued."""
    known, now_ms = (yield from _schedules(store).all_of(topic)), (yield from _schedules(store).now_ms(topic))
    jobs = {}
    for id in sorted(known):
        for time_ms in known[id].definition.next(now_ms, 1):
            made = _job_at(store, topic, id, known[id], time_ms, time_ms)
            jobs[id] = made.job(topic, now_ms, store.session.bodies)
    return jobs


def _without_old(store: RedisStore, topic: str, id: str, times: Sequence[int]) -> Op[Sequence[int]]:
    """Without occurrences whose jobs are there, with ids for an earlier number of the topic's shards."""
    first = store.session.keys.shard(topic, 0)
    for count_then in store.topics.settings_of(topic).former:
        names = [occurrence_id(id, time, count_then) for time in times]
        there = yield from lookup.records_there(store.session, first, names)
        times = [time for time, is_there in zip(times, there, strict=True) if not is_there]
    return times


def _until(times: Iterator[int], end_ms: int) -> Iterator[int]:
    for time in times:
        if time >= end_ms:
            return
        yield time


def _job_at(store: RedisStore, topic: str, id: str, known: StoredSchedule, time_ms: int, due_ms: int) -> Encoded:
    name = occurrence_id(id, time_ms, store.topics.settings_of(topic).shards)
    new = encode(NewJob(0, id=name), 1)  # for its nonce
    job = _filled_in(known.job, shown(time_ms, known.definition.tz).encode())
    rest = rest_of(**{**fields_in(job), "nonce": new.nonce})
    return Encoded(name, encode_when(None, due_ms), rest, new.nonce)


def _filled_in(job: bytes, time: bytes) -> bytes:
    """With the time in place of ``{due}``. As ``fill_in`` of lua/lib/schedule.lua."""
    *head, body = job.split(b"\n", 5)
    in_url = time.replace(b"+", b"%2B")  # where + means a space
    return b"\n".join([*(line.replace(_DUE, in_url) for line in head), body.replace(_DUE, time)])


def check_schedule_id(id: str) -> str:
    id = check_id(id)
    if len(id.encode()) > MAX_ID_BYTES:
        raise InvalidInput(f"id: a schedule's has at most {MAX_ID_BYTES} bytes")
    return id


def _read(store: RedisStore, topic: str, id: str) -> Op[tuple[StoredSchedule, int]]:
    yield from store.topics.get(topic)
    known, now_ms = yield from _schedules(store).read(topic, check_schedule_id(id))
    return _there(known, topic, id), now_ms


def _schedules(store: RedisStore) -> Schedules:
    return Schedules(store.session, store.scripts, store.topics)


def _there(known: StoredSchedule | None, topic: str, id: str) -> StoredSchedule:
    if known is None:
        raise ScheduleMissing(f"topic {topic!r} has no schedule {id!r}; `schedules` lists those it has")
    return known


def _shown(topic: str, id: str, known: StoredSchedule, now_ms: int) -> Schedule:
    """A job that is enqueued ahead of its time is an occurrence to come."""
    known = known.seen_at(now_ms)
    last = known.plan[-1].time_ms if known.plan else known.last_ms
    times = [one.time_ms for one in known.plan[:_SHOWN]]
    if known.state == "active" and known.more:
        times += known.definition.next(last, _SHOWN - len(times))
    job, body = fields_in(known.job), _body_in(known.job)
    return Schedule(
        topic=topic, id=id, state=known.state, definition=known.definition, next_ms=times,
        previous=known.previous or None, waiting=known.held is not None, fired=known.totals.fired,
        skipped=known.totals.skipped, missed=known.totals.missed, raw_body=body.data, version=body.version,
        ttr_ms=job["ttr_ms"], retry=job["retry"], url=job["url"], expire_ms=job["expire_ms"],
    )  # fmt: skip
