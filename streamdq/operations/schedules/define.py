"""Defines a schedule, or changes the definition of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypedDict

from typing_extensions import Unpack

from ...errors import InvalidInput
from ...job.job import NewJob, Priority, check_own_topic, check_priority
from ...job.retry import RetryInput
from ...link.session import Op
from ...options import unknown
from ...schedules.definition import Definition, Overlap, define
from ...schedules.recurrence import Dst
from ...store.jobs.records import encode, fields_in, rest_of
from ...store.redis_store import RedisStore
from ...store.schedules.schedules import Changed, ScheduleState, StoredSchedule
from ...store.topics.changes import expect_priorities, expect_schedules
from ...times.durations import Duration, Moment
from .changes import plan_after_ms
from .read import DUE, Schedule, as_schedule, body_in, check_schedule_id, schedules_of

_LONGEST_TIME = b"2027-03-29T09:00:00.000+02:00:00"


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
    priority: Priority | None
    """Of its jobs, as for ``enqueue``."""


_OF_JOBS = ("ttr", "retry", "url", "expire", "version", "priority")


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
    """Enqueues a job again and again: by a cron expression of five fields (or six, seconds first) in a time zone, or at
    an interval. The first interval begins now. Each occurrence is a job of its own; its id is the schedule's, ``@``,
    and its time in UTC. ``{due}`` in the body's texts stands for that time, in the schedule's zone.

    A schedule with this id is changed, from its next occurrence on; if nothing differs, nothing happens.

    ``options``: ``cron`` or ``every``, and ``tz``, ``dst``, ``jitter``, ``start``, ``until``, ``overlap``,
    ``catch_up``, ``ttr``, ``retry``, ``url``, ``expire``, ``version`` and ``priority``, which
    ``ScheduleOptions`` describes.

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

    yield from expect_schedules(store.topics, topic)
    if check_priority(new.priority) is not None:
        yield from expect_priorities(store.topics, topic)
    after, now_ms = yield from schedules_of(store).change(topic, id, noted)
    return _put(topic, id, before, after, now_ms)


def preview_schedule(store: RedisStore, topic: str, id: str, definition: Definition, new: NewJob) -> Op[PutSchedule]:
    """What ``put_schedule`` would do now. Nothing is written."""
    changed = _changed(store, topic, id, definition, new)
    before, now_ms = yield from schedules_of(store).read(topic, id)
    after = changed(before, now_ms)
    if after.state == "active" and not as_schedule(topic, id, after, now_ms).next_ms:
        after = replace(after, state="ended")
    return _put(topic, id, before, after, now_ms)


def _put(topic: str, id: str, before: StoredSchedule | None, after: StoredSchedule, now_ms: int) -> PutSchedule:
    return PutSchedule(
        None if before is None else as_schedule(topic, id, before, now_ms), as_schedule(topic, id, after, now_ms)
    )


def _changed(store: RedisStore, topic: str, id: str, definition: Definition, new: NewJob) -> Changed:
    topic, id = check_own_topic(topic), check_schedule_id(id)
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
            known.last_ms if known.plan and _same_times(known.definition, anchored) else plan_after_ms(known, now_ms)
        )
        return replace(known, state=state, definition=anchored, job=job, last_ms=last_ms, plan=(), more=True)

    return changed


def _check_grown(job: bytes, max_body_bytes: int) -> None:
    """``{due}`` is shorter than what it stands for."""
    size = len(body_in(job.replace(DUE, _LONGEST_TIME)).data)
    if size > max_body_bytes:
        raise InvalidInput(
            f"body: with its times in place of {{due}} it has up to {size} bytes, more than the "
            f"{max_body_bytes} allowed; use {{due}} less often, or raise STREAMDQ_MAX_BODY_BYTES"
        )


def _same_times(one: Definition, other: Definition) -> bool:
    """Whether they come at the same times by the clock. Then one that has come, and is not due yet for its jitter, is
    the other's as well.
    """
    return (one.cron, one.every_ms, one.tz, one.dst) == (other.cron, other.every_ms, other.tz, other.dst)
